//! Statistics: counted by workers without locks or shared cache lines, added up by whoever reads.

mod block;
mod histogram;
mod registry;
pub(crate) mod set;
pub mod sets;
mod used;

pub use block::Block;
pub use histogram::{DEFAULT_BOUNDS, Distribution, QUANTILES};
pub use registry::{KnownScope, Registry, ScopeTags, ScopeValues, WorkerStats};
#[doc(hidden)]
pub use set::construct;
pub use set::{
    Codes, Counter, Gauge, Given, Histogram, HistogramStat, Kind, OWN_ROOT, Part, Stat, StatSet, Sums, Unchanging, Unit,
};
