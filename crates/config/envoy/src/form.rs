//! Other forms of the same configuration: documents that expand to the tree of a bootstrap.
//!
//! What it is for: a dialect with fewer words (the short form) becomes an Envoy v3 tree before any schema is applied, so
//! that it is checked, lowered and printed by the same code; parts that do not stand in the file, in the words of such a
//! form, are put into it here. What it must never do: change a document of Envoy's own form that nobody adds anything to.
//! Who calls it: the loader, with the forms that the binary hands over in `LoadOptions`.

use postrider_config_core::{Diagnostic, Diagnostics, SourceFile, Span};

use crate::tree::{Node, NodeKind};

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

/// What was written in another form than Envoy's: whoever reads a finding knows no other paths than its own.
#[derive(Debug, Default)]
pub(crate) struct OwnForms(Vec<Node>);

/// How paths of a bootstrap begin that forms expand to.
const EXPANDED: [&str; 3] = ["static_resources", "bootstrap_extensions", "admin"];

impl OwnForms {
    /// Puts the path of what was written in place of that of the bootstrap which it expanded to.
    pub(crate) fn relabel(&self, diagnostic: &mut Diagnostic) {
        let first = diagnostic.path.split(['.', '[']).next().unwrap_or_default();
        let Some(span) = diagnostic.span.filter(|_| EXPANDED.contains(&first)) else { return };
        if let Some(root) = self.0.iter().find(|root| root.span.file == span.file) {
            diagnostic.path = path_at(root, span);
        }
    }
}

/// The path of the innermost value around a place, or of the key there.
fn path_at(root: &Node, span: Span) -> String {
    let around = |outer: Span| outer.start <= span.start && span.end <= outer.end;
    let (mut node, mut path) = (root, String::new());
    loop {
        match &node.kind {
            NodeKind::Map(pairs) => {
                let Some(pair) = pairs.iter().find(|pair| around(pair.key_span) || around(pair.value.span)) else {
                    break;
                };
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(&pair.key);
                node = &pair.value;
                if around(pair.key_span) {
                    break;
                }
            }
            NodeKind::List(items) => {
                let Some((index, item)) = items.iter().enumerate().find(|(_, item)| around(item.span)) else { break };
                path.push_str(&format!("[{index}]"));
                node = item;
            }
            NodeKind::Null | NodeKind::Scalar(_) => break,
        }
    }
    path
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
    own: &mut OwnForms,
    diagnostics: &mut Diagnostics,
) -> Option<Node> {
    own.0.extend(plugins.iter().map(|plugin| plugin.manifest.clone()));
    match (forms.iter().find(|form| form.recognises(&root)), forms.first()) {
        (Some(form), _) => {
            let expanded = form.expand(&root, plugins, diagnostics);
            own.0.push(root);
            expanded
        }
        (None, Some(form)) if !plugins.is_empty() => Some(form.add_plugins(root, plugins, diagnostics)),
        (None, _) => Some(root),
    }
}
