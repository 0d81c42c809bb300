//! What host functions answer.

pub(crate) const OK: u32 = 0;
pub(crate) const NOT_FOUND: u32 = 1;
pub(crate) const BAD_ARGUMENT: u32 = 2;
pub(crate) const SERIALIZATION_FAILURE: u32 = 3;
pub(crate) const PARSE_FAILURE: u32 = 4;
pub(crate) const INVALID_MEMORY_ACCESS: u32 = 6;
pub(crate) const EMPTY: u32 = 7;
pub(crate) const CAS_MISMATCH: u32 = 8;
pub(crate) const INTERNAL_FAILURE: u32 = 10;
pub(crate) const UNIMPLEMENTED: u32 = 12;
