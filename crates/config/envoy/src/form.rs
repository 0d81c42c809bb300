//! Other forms of the same configuration: documents that expand to the tree of a bootstrap.
//!
//! What it is for: a dialect with fewer words (the short form) becomes an Envoy v3 tree before any schema is applied, so
//! that it is checked, lowered and printed by the same code; parts that do not stand in the file, in the words of such a
//! form, are put into it here. What it must never do: change a document of Envoy's own form that nobody adds anything to.
//! Who calls it: the loader, with the forms that the binary hands over in `LoadOptions`.

use postrider_config_core::{Diagnostics, SourceFile};

use crate::tree::Node;

/// A form that expands to Envoy's.
pub trait Form: std::fmt::Debug + Sync {
    /// Whether a document is written in this form.
    fn recognises(&self, root: &Node) -> bool;

    /// The bootstrap that the document and the plugins beside it mean; its nodes keep the places of the documents. What is
    /// wrong with them goes to `diagnostics`. `None` when nothing of it can be read.
    fn expand(&self, root: &Node, plugins: &[PluginNode], diagnostics: &mut Diagnostics) -> Option<Node>;

    /// A document of Envoy's own form with these plugins, whose manifests are written in this form.
    fn add_plugins(&self, root: Node, plugins: &[PluginNode], diagnostics: &mut Diagnostics) -> Node;
}

/// A plugin that does not stand in the file.
#[derive(Clone, Debug)]
pub struct PluginFile {
    pub name: String,
    /// Its manifest.
    pub manifest: SourceFile,
}

/// The same as it was parsed.
#[derive(Debug)]
pub struct PluginNode {
    pub name: String,
    pub manifest: Node,
}

/// What the document means in the first form that recognises it, or the document itself; with the plugins in it.
pub(crate) fn expand(
    forms: &[&'static dyn Form],
    root: Node,
    plugins: &[PluginNode],
    diagnostics: &mut Diagnostics,
) -> Option<Node> {
    match (forms.iter().find(|form| form.recognises(&root)), forms.first()) {
        (Some(form), _) => form.expand(&root, plugins, diagnostics),
        (None, Some(form)) if !plugins.is_empty() => Some(form.add_plugins(root, plugins, diagnostics)),
        (None, _) => Some(root),
    }
}
