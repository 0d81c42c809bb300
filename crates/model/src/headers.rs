//! Header edits that routes, virtual hosts and tables ask for.

use crate::{Format, StringMatch};

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

/// One of several edits that are made one after the other (`HeaderMutation`).
#[derive(Debug, Clone, PartialEq)]
pub enum HeaderMutation {
    Edits(HeaderEdits),
    /// Every field whose name is like this goes, but for those that frame or route the message.
    RemoveMatching(StringMatch),
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
