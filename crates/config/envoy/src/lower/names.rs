//! `header_key_format`: how names are written over HTTP/1.

use postrider_model::NameForm;

use super::context::Lowering;
use crate::reader::Reader;

const PRESERVE: &str = "envoy.extensions.http.header_formatters.preserve_case.v3.PreserveCaseFormatterConfig";

/// Of `Http1ProtocolOptions`.
pub(super) fn form(cx: &mut Lowering<'_>, options: &Reader<'_>) -> NameForm {
    let Some(format) = options.message("header_key_format") else { return NameForm::LowerCase };
    match format.oneof("header_format") {
        Some("proper_case_words") => {
            format.message("proper_case_words");
            NameForm::ProperCase
        }
        Some("stateful_formatter") => {
            let Some(extension) = format.message("stateful_formatter") else { return NameForm::LowerCase };
            extension.str("name");
            let Some(any) = extension.any("typed_config") else { return NameForm::LowerCase };
            let (PRESERVE, Some(config)) = (any.type_name, &any.reader) else {
                cx.refuse_extension(&extension, "typed_config", &any);
                return NameForm::LowerCase;
            };
            NameForm::AsReceived {
                others_proper: config.enum_name("formatter_type_on_envoy_headers") == "PROPER_CASE",
                reason: config.bool("forward_reason_phrase"),
            }
        }
        _ => NameForm::LowerCase,
    }
}
