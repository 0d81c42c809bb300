//! What one route sees of a plugin.

use std::rc::Rc;

use postrider_model::Value;

use crate::plugin::Plugin;

/// A plugin with the configuration that some routes share, on one worker.
#[derive(Default)]
pub(crate) struct View {
    /// `None` when there is no script to run here: it is switched off, or its name leads nowhere.
    pub(crate) plugin: Option<Rc<Plugin>>,
    /// The most specific override's configuration for this plugin.
    pub(crate) route_config: Option<Value>,
    /// Tells route configurations apart; 0 without one.
    pub(crate) route_config_id: f64,
    /// Some override names this plugin.
    pub(crate) is_named: bool,
    /// Functions that are not called here although the script has them, by [`crate::machine::Hook`].
    pub(crate) skipped: [bool; 4],
    /// What `filterContext()` shows.
    pub(crate) filter_context: Value,
}
