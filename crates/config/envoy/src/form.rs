//! Other forms of the same configuration: documents that expand to the tree of a bootstrap.
//!
//! What it is for: a dialect with fewer words (the short form) becomes an Envoy v3 tree before any schema is applied, so
//! that it is checked, lowered and printed by the same code. What it must never do: change a document of Envoy's own
//! form. Who calls it: the loader, with the forms that the binary hands over in `LoadOptions`.

use postrider_config_core::Diagnostics;

use crate::tree::Node;

/// A form that expands to Envoy's.
pub trait Form: std::fmt::Debug + Sync {
    /// Whether a document is written in this form.
    fn recognises(&self, root: &Node) -> bool;

    /// The bootstrap that the document means; its nodes keep the places of the document. What is wrong with the document
    /// goes to `diagnostics`. `None` when nothing of it can be read.
    fn expand(&self, root: &Node, diagnostics: &mut Diagnostics) -> Option<Node>;
}

/// The document itself, or what it expands to in the first form that recognises it.
pub(crate) fn expand(forms: &[&'static dyn Form], root: Node, diagnostics: &mut Diagnostics) -> Option<Node> {
    match forms.iter().find(|form| form.recognises(&root)) {
        Some(form) => form.expand(&root, diagnostics),
        None => Some(root),
    }
}
