//! Which set fields somebody read: the ledger behind "nothing is silently ignored" and behind `doctor`.
//!
//! A [`Coverage`] belongs to one [`Message`] tree and records by field. After lowering, [`Coverage::finish`] reports
//! every set field that nobody read, and [`Coverage::support`] lists all of them with their status.

use std::cell::RefCell;
use std::collections::HashMap;

use postrider_config_core::{Diagnostic, Diagnostics, Severity, Span};

use crate::known::VERSION;
use crate::message::{Entry, Field, Item, Message, Value};

/// The ledger of one message tree. The tree must outlive it and must not move: fields are known by their address.
#[derive(Debug, Default)]
pub struct Coverage {
    marks: RefCell<HashMap<usize, Mark>>,
}

/// What was recorded about a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mark {
    /// Read and honoured.
    Read,
    /// Legitimately without effect here; says why.
    Ignored(String),
    /// Honoured in another way than Envoy's; says how.
    Approximated(String),
    /// Already refused with a message of its own.
    Refused(String),
}

/// What becomes of a set field that nobody read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnsupportedPolicy {
    /// Refuse the configuration: Envoy's rule for static configuration.
    Refuse,
    /// Accept it with a warning: Envoy's rule for dynamic configuration, and `--allow-unknown-static-fields`.
    Warn,
}

/// The status of one set field, as `doctor` prints it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Support {
    pub path: String,
    pub span: Option<Span>,
    pub status: Status,
}

/// Whether a field is honoured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    Supported,
    Approximated(String),
    Ignored(String),
    Unsupported(String),
}

impl Coverage {
    /// An empty ledger.
    pub fn new() -> Coverage {
        Coverage::default()
    }

    /// Records that a field was read. A stronger mark set before stays.
    pub fn read(&self, field: &Field) {
        self.marks.borrow_mut().entry(address(field)).or_insert(Mark::Read);
    }

    /// Records anything but a plain read.
    pub fn mark(&self, field: &Field, mark: Mark) {
        self.marks.borrow_mut().insert(address(field), mark);
    }

    /// Reports each set field below `message` that nobody read, once, at its outermost place, with the code
    /// `unsupported-field`. `path` is the path of `message`.
    pub fn finish(&self, message: &Message, path: &str, policy: UnsupportedPolicy, diagnostics: &mut Diagnostics) {
        let severity = match policy {
            UnsupportedPolicy::Refuse => Severity::Error,
            UnsupportedPolicy::Warn => Severity::Warning,
        };
        self.walk(message, path, &mut |field, path, mark| {
            if mark.is_none() {
                diagnostics.push(
                    Diagnostic::new(severity, "unsupported-field", unsupported(field))
                        .at(field.key_span.or(field.value_span))
                        .path(path),
                );
            }
        });
    }

    /// The status of every set field below `message`: leaves, and whole subtrees that are not honoured.
    pub fn support(&self, message: &Message, path: &str) -> Vec<Support> {
        let mut all = Vec::new();
        self.walk(message, path, &mut |field, path, mark| {
            let status = match mark {
                None => Status::Unsupported(unsupported(field)),
                Some(Mark::Refused(why)) => Status::Unsupported(why),
                Some(Mark::Ignored(why)) => Status::Ignored(why),
                Some(Mark::Approximated(how)) => Status::Approximated(how),
                // A container says nothing by itself: its leaves do.
                Some(Mark::Read) if has_children(&field.value) => return,
                Some(Mark::Read) => Status::Supported,
            };
            all.push(Support { path: path.to_owned(), span: field.key_span.or(field.value_span), status });
        });
        all
    }

    /// Visits set fields from the outside in; below a field that is not honoured it stops.
    fn walk(&self, message: &Message, path: &str, visit: &mut dyn FnMut(&Field, &str, Option<Mark>)) {
        for field in &message.fields {
            if field.is_default() {
                continue;
            }
            let mark = self.marks.borrow().get(&address(field)).cloned();
            if mark.is_none() && self.lost_to_another(message, field) {
                continue;
            }
            let path = join(path, field.descriptor.name());
            let descend = matches!(mark, Some(Mark::Read | Mark::Approximated(_)));
            visit(field, &path, mark);
            if descend {
                self.walk_value(&field.value, &path, visit);
            }
        }
    }

    /// One of a oneof that another one of it was read in place of, as was said when the file was read.
    fn lost_to_another(&self, message: &Message, field: &Field) -> bool {
        let Some(oneof) = field.descriptor.containing_oneof() else { return false };
        let marks = self.marks.borrow();
        let is_of_it = |other: &&Field| other.descriptor.containing_oneof().as_ref() == Some(&oneof);
        message.fields.iter().filter(is_of_it).any(|other| marks.contains_key(&address(other)))
    }

    fn walk_value(&self, value: &Value, path: &str, visit: &mut dyn FnMut(&Field, &str, Option<Mark>)) {
        match value {
            Value::Message(message) if !is_leaf(message) => self.walk(message, path, visit),
            Value::Any(any) => {
                if let Some(message) = any.message.as_ref().filter(|message| !is_leaf(message)) {
                    self.walk(message, path, visit);
                }
            }
            Value::List(items) => {
                for (index, Item { value, .. }) in items.iter().enumerate() {
                    self.walk_value(value, &format!("{path}[{index}]"), visit);
                }
            }
            Value::Map(entries) => {
                for Entry { key, value, .. } in entries {
                    self.walk_value(value, &format!("{path}[{key:?}]"), visit);
                }
            }
            _ => {}
        }
    }
}

/// `a` + `b` = `a.b`; the root's path is empty.
pub(crate) fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// Well-known types are read whole: a Duration's `seconds` is no field of the configuration.
fn is_leaf(message: &Message) -> bool {
    message.type_name().starts_with("google.protobuf.")
}

fn has_children(value: &Value) -> bool {
    match value {
        Value::Message(message) => !is_leaf(message) && !message.fields.is_empty(),
        Value::Any(any) => any.message.as_ref().is_some_and(|message| !is_leaf(message) && !message.fields.is_empty()),
        Value::List(items) => items.iter().any(|item| has_children(&item.value)),
        Value::Map(entries) => entries.iter().any(|entry| has_children(&entry.value)),
        _ => false,
    }
}

fn unsupported(field: &Field) -> String {
    let name = field.descriptor.name();
    let parent = field.descriptor.parent_message();
    format!("`{name}` of {} is known to Envoy, not supported by Postrider {VERSION}", parent.full_name())
}

fn address(field: &Field) -> usize {
    std::ptr::from_ref(field).addr()
}
