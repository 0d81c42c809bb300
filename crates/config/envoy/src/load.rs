//! From a file to a checked [`Message`]: parse, resolve types, read by descriptor, check the rules.
//!
//! What it is for: [`load_bootstrap`] takes what `-c` names, in any of Envoy's four formats, and returns the bootstrap as a
//! message tree together with everything that is wrong with it: syntax, unknown fields, wrong types, v2 leftovers,
//! broken rules. It goes on after every error, so one run reports all of them.
//!
//! What it must never do: give a field a meaning (lowering does), or keep descriptors alive: the pool goes with the last
//! message.
//!
//! Who calls it: the command line, the reload watcher, `doctor` and `migrate`.

pub(crate) mod any;
mod decode;
mod dynamic;
mod format;
mod merge;
pub(crate) mod names;
mod scalar;
mod secrets;
mod text;
mod types;
pub(crate) mod v2;
mod well_known;

use std::collections::HashSet;

use postrider_config_core::{Diagnostic, Diagnostics, FileId, SourceFile, Sources, Span};
use prost_reflect::DescriptorPool;

use self::decode::Decoder;
pub use self::format::Format;
pub(crate) use self::secrets::{SECRET_CONFIG, asks_for_generic, below};
pub use self::secrets::{SecretFiles, load_secrets};
use crate::form::{Form, OwnForms, PluginFile, PluginNode};
use crate::message::Message;
use crate::runtime::RuntimeOptions;
use crate::{form, pgv, tree};

/// The type that `-c` holds.
pub const BOOTSTRAP: &str = "envoy.config.bootstrap.v3.Bootstrap";

/// How to read.
#[derive(Clone, Debug, Default)]
pub struct LoadOptions {
    /// Unknown fields are warnings, not errors: `--allow-unknown-static-fields`.
    pub allow_unknown_static_fields: bool,
    /// YAML merged over the file, by protobuf's rules: `--config-yaml`. Messages merge, lists are appended.
    pub overlay: Option<SourceFile>,
    /// Extensions that nothing may use, as `category/name`: `--disable-extensions`.
    pub disabled: Vec<String>,
    /// The format, where the name and the content must not decide.
    pub format: Option<Format>,
    /// What of the runtime stands in no file.
    pub runtime: RuntimeOptions,
    /// Other forms that a YAML or JSON document may have.
    pub forms: Vec<&'static dyn Form>,
    /// Plugins beside the file, in the words of the first of these forms. They take the place of those that have their
    /// names, or stand behind the others.
    pub plugins: Vec<PluginFile>,
}

/// What a file held.
#[derive(Debug)]
pub struct Loaded {
    /// The message as far as it could be read; `None` when there is nothing to read. With errors in `diagnostics` it is
    /// for further checks only: values with errors are absent, list elements with errors are empty.
    pub bootstrap: Option<Message>,
    pub diagnostics: Diagnostics,
    /// The files that the spans in both refer to: the main file, then the overlay and the plugins.
    pub sources: Sources,
    pub(crate) own_forms: OwnForms,
}

/// Loads a bootstrap configuration.
pub fn load_bootstrap(file: &SourceFile, options: &LoadOptions) -> Loaded {
    load_message(file, BOOTSTRAP, options)
}

/// Loads a file that holds a message of any type of the schema, such as a `DiscoveryResponse` or a listener.
pub fn load_message(file: &SourceFile, type_name: &str, options: &LoadOptions) -> Loaded {
    let mut sources = Sources::of(file.clone());
    let mut own_forms = OwnForms::default();
    let (bootstrap, diagnostics) = load_into(&mut sources, (FileId::MAIN, file), type_name, options, &mut own_forms);
    Loaded { bootstrap, diagnostics, sources, own_forms }
}

/// The message in a file that is `id` in `sources`; an overlay and plugins are added there.
fn load_into(
    sources: &mut Sources,
    (id, file): (FileId, &SourceFile),
    type_name: &str,
    options: &LoadOptions,
    own_forms: &mut OwnForms,
) -> (Option<Message>, Diagnostics) {
    let overlay = options.overlay.as_ref().map(|overlay| (sources.add(overlay.clone()), overlay));
    let mut loader =
        Loader { options, type_name, diagnostics: Diagnostics::new(), broken: HashSet::new(), incomplete: false };
    let format = options.format.unwrap_or_else(|| Format::detect(file));
    let plugins = options.plugins.iter().filter_map(|plugin| {
        let id = sources.add(plugin.manifest.clone());
        Some(PluginNode { name: plugin.name.clone(), manifest: loader.manifest(&plugin.manifest, id)? })
    });
    let plugins: Vec<PluginNode> = plugins.collect();
    let base = loader.parse((file, id), format, &plugins, own_forms);
    let over = overlay.map(|(id, overlay)| loader.parse((overlay, id), Format::Yaml, &[], own_forms));
    let pool = postrider_envoy_proto::pool(
        std::iter::once(type_name)
            .chain(base.types.iter().chain(over.iter().flat_map(|over| &over.types)).map(String::as_str)),
    );
    let mut bootstrap = loader.read(&pool, base.input, format);
    if let Some(over) = over.and_then(|over| loader.read(&pool, over.input, Format::Yaml)) {
        bootstrap = Some(match bootstrap {
            Some(base) => merge::merge(base, over),
            None => over,
        });
    }
    if let Some(message) = &bootstrap {
        pgv::check(message, &loader.broken, loader.incomplete, &mut loader.diagnostics);
    }
    loader.diagnostics.sort();
    (bootstrap, loader.diagnostics)
}

struct Loader<'l> {
    options: &'l LoadOptions,
    type_name: &'l str,
    diagnostics: Diagnostics,
    /// Paths of fields whose values have errors already: the rules are not checked there.
    broken: HashSet<String>,
    /// Parts of a file could not be read: what seems missing may be there.
    incomplete: bool,
}

/// A file before its types are resolved.
struct Parsed<'f> {
    input: Option<Input<'f>>,
    /// Full names of the types that it mentions.
    types: Vec<String>,
}

enum Input<'f> {
    Tree(tree::Node),
    Binary(&'f [u8]),
}

impl Loader<'_> {
    /// A plugin's manifest as a tree; `None` when it holds nothing.
    fn manifest(&mut self, file: &SourceFile, id: FileId) -> Option<tree::Node> {
        let root = tree::parse(file, id, &mut self.diagnostics).root;
        let root = root.filter(|root| root.kind != tree::NodeKind::Null);
        if root.is_none() && !self.diagnostics.has_errors() {
            let message = "the manifest is empty";
            self.diagnostics.push(
                Diagnostic::error("empty-file", message).at(Span::new(id, 0, 0)).expected("a mapping with a `runtime`"),
            );
        }
        root
    }

    fn parse<'f>(
        &mut self,
        (file, id): (&'f SourceFile, FileId),
        format: Format,
        plugins: &[PluginNode],
        own_forms: &mut OwnForms,
    ) -> Parsed<'f> {
        if file.bytes().len() > tree::MAX_BYTES {
            let message = format!("the file is longer than {} MiB", tree::MAX_BYTES >> 20);
            self.diagnostics.push(Diagnostic::error("limit-exceeded", message));
            return Parsed { input: None, types: Vec::new() };
        }
        match format {
            Format::Binary if !plugins.is_empty() => {
                let message = "plugins cannot be put into a file in binary form";
                self.diagnostics.push(Diagnostic::error("unsupported-format", message).expected("YAML, JSON or text"));
                Parsed { input: None, types: Vec::new() }
            }
            Format::Binary => Parsed { types: types::of_bytes(file.bytes()), input: Some(Input::Binary(file.bytes())) },
            Format::Text | Format::Yaml | Format::Json => {
                let document = match format {
                    Format::Text => text::parse(file, id, &mut self.diagnostics),
                    _ => tree::parse(file, id, &mut self.diagnostics),
                };
                self.incomplete |= document.incomplete;
                let root = document.root.filter(|root| root.kind != tree::NodeKind::Null);
                if root.is_none() && !self.diagnostics.has_errors() {
                    let message = "the file is empty: there is no configuration in it";
                    self.diagnostics.push(
                        Diagnostic::error("empty-file", message)
                            .at(Span::new(id, 0, 0))
                            .expected(format!("a mapping with the fields of {}", self.type_name)),
                    );
                }
                let forms = &self.options.forms;
                let root = root.and_then(|root| form::expand(forms, root, plugins, own_forms, &mut self.diagnostics));
                let types = root.as_ref().map(types::of_tree).unwrap_or_default();
                Parsed { input: root.map(Input::Tree), types }
            }
        }
    }

    fn read(&mut self, pool: &DescriptorPool, input: Option<Input<'_>>, format: Format) -> Option<Message> {
        let Some(descriptor) = pool.get_message_by_name(self.type_name) else {
            self.diagnostics.push(Diagnostic::error("unknown-type", format!("no message type `{}`", self.type_name)));
            return None;
        };
        match input? {
            Input::Tree(root) => {
                let mut decoder = Decoder::new(pool, format, self.options, &mut self.diagnostics, &mut self.broken);
                decoder.root(&root, &descriptor)
            }
            Input::Binary(bytes) => dynamic::from_binary(bytes, &descriptor, self.options, &mut self.diagnostics),
        }
    }
}

/// The default of a scalar kind.
pub(crate) fn default_of(kind: &prost_reflect::Kind) -> crate::message::Value {
    scalar::default(kind)
}
