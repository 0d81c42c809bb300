use super::*;
use crate::grpc_counts::Method;
use crate::testing::{list, object, text};
use config::Methods;

fn error(value: &Value) -> (String, String) {
    let error = config::read(value).unwrap_err().remove(0);
    (error.path, error.message)
}

#[test]
fn methods_are_counted_as_configured() {
    let name = |value: &Value, path: &str| config::read(value).unwrap().methods.name(path.as_bytes());
    let method = |service: &str, name: &str| Method { service: service.into(), name: name.into() };
    let none = object([]);
    assert_eq!(name(&none, "/a.S/M"), Some(None));
    assert_eq!(name(&none, "/a"), None);
    let all = object([("stats_for_all_methods", Value::Bool(true))]);
    assert_eq!(name(&all, "/a.S/M"), Some(Some(method("a.S", "M"))));
    let replaced = object([
        ("stats_for_all_methods", Value::Bool(true)),
        ("replace_dots_in_grpc_service_name", Value::Bool(true)),
    ]);
    assert_eq!(name(&replaced, "/a.S/M.x"), Some(Some(method("a_S", "M.x"))));
    let service = object([("name", text("a.S")), ("method_names", list([text("M"), text("N")]))]);
    let listed = object([("individual_method_stats_allowlist", object([("services", list([service]))]))]);
    assert_eq!(name(&listed, "/a.S/N"), Some(Some(method("a.S", "N"))));
    assert_eq!(name(&listed, "/a.S/O"), Some(None));
    assert_eq!(config::read(&object([("stats_for_all_methods", Value::Bool(false))])).unwrap().methods, Methods::None);
}

#[test]
fn a_configuration_that_means_nothing_is_refused() {
    let dots = object([("replace_dots_in_grpc_service_name", Value::Bool(true))]);
    assert_eq!(error(&dots).0, "replace_dots_in_grpc_service_name");
    assert_eq!(error(&object([("odd", Value::Bool(true))])).0, "odd");
    let factory = build("x", &object([])).ok().unwrap();
    assert!(factory.route_config(KIND, &object([])).is_err());
}
