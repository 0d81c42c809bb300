//! Reading the filter's configuration, at whatever scope it stands.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use postrider_filter_api::{ConfigError, WatchedFile};
use postrider_model::{Fields, Value, ValueError};

use super::bindings::{self, Parameters};
use super::parse::Reading;
use super::print::Print;
use super::schema::Schema;

/// Largest descriptor set read: the schemas of a large company, but not whatever a path happens to lead to.
const MAX_DESCRIPTOR_BYTES: u64 = 64 << 20;

/// What one scope says.
#[derive(Debug)]
pub(super) struct Config {
    /// `None` when no service is named: the filter is off.
    pub(super) schema: Option<Schema>,
    pub(super) parameters: Parameters,
    pub(super) print: Print,
    pub(super) reading: Reading,
    /// The route that the request came by stays, although its path changes.
    pub(super) keep_route: bool,
    pub(super) convert_status: bool,
    pub(super) reject_unknown_method: bool,
    pub(super) reject_unknown_parameters: bool,
    pub(super) reject_collisions: bool,
    pub(super) max_request: Option<usize>,
    pub(super) max_response: Option<usize>,
    pub(super) files: Vec<WatchedFile>,
}

/// # Errors
/// Everything that is wrong with it, the descriptor set included.
pub(super) fn read(value: &Value) -> Result<Config, ConfigError> {
    let mut fields = value.fields().map_err(|error| vec![error])?;
    let mut errors = Vec::new();
    let mut files = Vec::new();
    let set = descriptors(&mut fields, &mut files, &mut errors);
    let services = services(&mut fields, &mut errors);
    let auto_mapping = flag(&mut fields, "auto_mapping", &mut errors);
    let any_verb = flag(&mut fields, "match_unregistered_custom_verb", &mut errors);
    let parameters = bindings::read_settings(&mut fields, &mut errors);
    let print = print(&mut fields, &mut errors);
    let validation = section(&mut fields, "request_validation_options", &mut errors, |fields, errors| {
        ["reject_unknown_method", "reject_unknown_query_parameters", "reject_binding_body_field_collisions"]
            .map(|key| flag(fields, key, errors))
    });
    let [reject_unknown_method, reject_unknown_parameters, reject_collisions] = validation.unwrap_or_default();
    let keep_route = flag(&mut fields, "match_incoming_request_route", &mut errors);
    let convert_status = flag(&mut fields, "convert_grpc_status", &mut errors);
    let case_insensitive_enums = flag(&mut fields, "case_insensitive_enum_parsing", &mut errors);
    let max_request = size(&mut fields, "max_request_body_size", &mut errors);
    let max_response = size(&mut fields, "max_response_body_size", &mut errors);
    let mut schema = None;
    if let Some((key, set)) = set
        && !services.is_empty()
    {
        match Schema::read(&set, &services, auto_mapping, any_verb) {
            Ok(read) => schema = Some(read),
            Err(found) => errors.extend(found.into_iter().map(|(service, message)| match service {
                Some(index) => ValueError { path: format!("{}[{index}]", fields.path_of("services")), message },
                None => fields.error(key, message),
            })),
        }
    }
    errors.extend(fields.finish().err().into_iter().flatten());
    if !errors.is_empty() {
        return Err(errors);
    }
    Ok(Config {
        schema,
        parameters,
        print,
        reading: Reading { case_insensitive_enums },
        keep_route,
        convert_status,
        reject_unknown_method,
        reject_unknown_parameters,
        reject_collisions,
        max_request,
        max_response,
        files,
    })
}

/// The serialised set, and the key by which it came.
fn descriptors(
    fields: &mut Fields<'_>,
    files: &mut Vec<WatchedFile>,
    errors: &mut ConfigError,
) -> Option<(&'static str, Vec<u8>)> {
    const FILE: &str = "proto_descriptor";
    const INLINE: &str = "proto_descriptor_bin";
    let path = keep(fields.string(FILE), errors)?;
    let inline = keep(fields.string(INLINE), errors)?;
    match (path.filter(|path| !path.is_empty()), inline) {
        (Some(path), None) => match read_file(Path::new(path), files) {
            Ok(set) => Some((FILE, set)),
            Err(message) => {
                errors.push(fields.error(FILE, message));
                None
            }
        },
        (None, Some(text)) => match STANDARD.decode(text) {
            Ok(set) => Some((INLINE, set)),
            Err(_) => {
                errors.push(fields.error(INLINE, "expected bytes in base64"));
                None
            }
        },
        (Some(_), Some(_)) => {
            errors.push(fields.error(INLINE, format!("`{FILE}` and `{INLINE}` exclude each other")));
            None
        }
        (None, None) => {
            errors.push(fields.error(FILE, format!("a descriptor set is required: `{FILE}` or `{INLINE}`")));
            None
        }
    }
}

fn read_file(path: &Path, files: &mut Vec<WatchedFile>) -> Result<Vec<u8>, String> {
    let size = std::fs::metadata(path).map(|data| data.len());
    let read = match size {
        Ok(size) if size > MAX_DESCRIPTOR_BYTES => {
            return Err(format!("`{}` is larger than {MAX_DESCRIPTOR_BYTES} bytes", path.display()));
        }
        _ => std::fs::read(path),
    };
    files.push(WatchedFile::new(path, read.as_deref().ok()));
    read.map_err(|error| format!("cannot read `{}`: {error}", path.display()))
}

fn services(fields: &mut Fields<'_>, errors: &mut ConfigError) -> Vec<String> {
    let items = keep(fields.list("services"), errors).unwrap_or_default();
    let names = items.into_iter().filter_map(|(path, item)| match item {
        Value::String(name) => Some(name.clone()),
        _ => {
            errors.push(ValueError { path, message: "expected the name of a service".to_owned() });
            None
        }
    });
    names.collect()
}

fn print(fields: &mut Fields<'_>, errors: &mut ConfigError) -> Print {
    let options = section(fields, "print_options", errors, |fields, errors| Print {
        whitespace: flag(fields, "add_whitespace", errors),
        primitives: flag(fields, "always_print_primitive_fields", errors),
        enums_as_numbers: flag(fields, "always_print_enums_as_ints", errors),
        proto_names: flag(fields, "preserve_proto_field_names", errors),
        newline_delimited: flag(fields, "stream_newline_delimited", errors),
        server_sent_events: flag(fields, "stream_sse_style_delimited", errors),
    });
    options.unwrap_or_default()
}

fn section<T>(
    fields: &mut Fields<'_>,
    key: &str,
    errors: &mut ConfigError,
    read: impl FnOnce(&mut Fields<'_>, &mut ConfigError) -> T,
) -> Option<T> {
    let mut section = keep(fields.map(key), errors)??;
    let read = read(&mut section, errors);
    errors.extend(section.finish().err().into_iter().flatten());
    Some(read)
}

fn flag(fields: &mut Fields<'_>, key: &str, errors: &mut ConfigError) -> bool {
    keep(fields.bool(key), errors).flatten().unwrap_or_default()
}

fn size(fields: &mut Fields<'_>, key: &str, errors: &mut ConfigError) -> Option<usize> {
    let size = keep(fields.integer(key), errors)??;
    match usize::try_from(size) {
        Ok(size) if size > 0 => Some(size),
        _ => {
            errors.push(fields.error(key, "expected a number above 0"));
            None
        }
    }
}

/// Remembers the error and goes on.
fn keep<T>(result: Result<T, ValueError>, errors: &mut ConfigError) -> Option<T> {
    result.map_err(|error| errors.push(error)).ok()
}
