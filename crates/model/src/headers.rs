//! Header edits that routes, virtual hosts and tables ask for.

use crate::Format;

/// Removals come first, then the additions in order.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct HeaderEdits {
    pub add: Vec<HeaderValue>,
    /// Lower case.
    pub remove: Vec<String>,
}

impl HeaderEdits {
    pub fn is_empty(&self) -> bool {
        self.add.is_empty() && self.remove.is_empty()
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct HeaderValue {
    /// Lower case, a valid field name, none of those that frame or route the message.
    pub name: String,
    pub value: Format,
    pub action: AppendAction,
    /// Add the field even when its value turns out empty.
    pub keep_empty: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AppendAction {
    #[default]
    AppendIfExistsOrAdd,
    AddIfAbsent,
    OverwriteIfExistsOrAdd,
    OverwriteIfExists,
}
