//! Places for filters in a chain, and what routes change about them.

use crate::{Origin, Value};

/// One filter of a chain, with its gateway-level configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct FilterSlot {
    /// Free text that identifies the slot within its chain; overrides refer to it.
    pub name: String,
    /// Full name of the configuration's type; the registry finds the filter by it.
    pub kind: String,
    pub config: Value,
    /// Off unless a route turns it on.
    pub disabled: bool,
    pub origin: Origin,
}

/// What a route table, virtual host, route or weighted cluster says about the slot of that name.
#[derive(Debug, Clone, PartialEq)]
pub struct FilterOverride {
    pub name: String,
    /// `None` leaves the slot's configuration and only switches it.
    pub config: Option<FilterConfig>,
    pub disabled: bool,
    /// A filter that does not exist in the chain is no error.
    pub optional: bool,
    pub origin: Origin,
}

#[derive(Debug, Clone, PartialEq)]
pub struct FilterConfig {
    /// Full name of the configuration's type.
    pub kind: String,
    pub value: Value,
}
