//! Extensions of the bootstrap: the proxy's own certificates, and what runs on workers without any listener.

use postrider_model::{Acme, FilterSlot};

use super::context::Lowering;
use super::{acme, filters};
use crate::reader::Reader;

const ACME: &str = "postrider.acme.v1.Acme";

/// Those of the registry that run without a listener.
const SERVICES: [&str; 1] = ["envoy.extensions.wasm.v3.WasmService"];

#[derive(Default)]
pub(super) struct Extensions {
    pub(super) acme: Option<Acme>,
    pub(super) services: Vec<FilterSlot>,
}

/// `bootstrap_extensions`.
pub(super) fn extensions(cx: &mut Lowering<'_>, root: &Reader<'_>) -> Extensions {
    let mut all = Extensions::default();
    for extension in root.list("bootstrap_extensions") {
        extension.str("name");
        let Some(any) = extension.any("typed_config") else {
            cx.missing(&extension, "the extension has no `typed_config`", "a `typed_config` with its `@type`");
            continue;
        };
        let Some(config) = &any.reader else { continue };
        match any.type_name {
            ACME => {
                if all.acme.is_some() {
                    cx.error(&extension, "typed_config", "conflict", "certificates come from one authority");
                }
                all.acme = Some(acme::acme(cx, config));
            }
            kind if SERVICES.contains(&kind) && cx.kinds.known(kind) => {
                all.services.push(filters::whole_slot(cx, &extension, &any));
            }
            _ => cx.refuse_extension(&extension, "typed_config", &any),
        }
    }
    all
}
