use super::*;

/// A file with one filter, whose configuration is `config`.
fn with_filter(config: &str) -> String {
    format!(
        r#"static_resources:
  listeners:
  - name: web
    address: {{socket_address: {{address: 127.0.0.1, port_value: 0}}}}
    filter_chains:
    - filters:
      - name: http
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: web
          route_config:
            virtual_hosts:
            - {{name: all, domains: ["*"], routes: [{{match: {{prefix: /}}, direct_response: {{status: 204}}}}]}}
          http_filters:
          - name: auth
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.basic_auth.v3.BasicAuth
              users: {config}
          - name: router
            typed_config: {{"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}
"#
    )
}

fn inline(text: &str, service: Service) -> Checked {
    let input = Input::flags(None, Some(text.to_owned()), false, service).unwrap();
    check(&input, None, 1).unwrap()
}

#[test]
fn a_filter_that_refuses_its_configuration_is_an_error_with_its_place() {
    let checked = inline(&with_filter(r#"{inline_string: "no-colon"}"#), Service::default());
    assert!(checked.plan.is_none() && checked.outcome.snapshot.is_none());
    let lines = checked.error_lines();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].starts_with("<config-yaml>:18:"), "{lines:?}");
}

#[test]
fn the_line_of_an_error_has_what_was_probably_meant() {
    let filter = with_filter(r#"{inline_string: "u:{SHA}6NSi9zGis3/LFpY50UzLk1CVLVk="}"#);
    for (slip, expected) in [
        ("userz: {inline_string: x}", "; did you mean `users`?"),
        ("forward_username_header: 7", ": expected a string, found the number `7`"),
    ] {
        let lines = inline(&filter.replace("users:", &format!("{slip}\n              users:")), Service::default())
            .error_lines();
        assert!(
            lines.iter().any(|line| line.starts_with("<config-yaml>:18:") && line.ends_with(expected)),
            "{lines:?}"
        );
    }
}

#[test]
fn a_good_configuration_compiles_and_what_did_not_change_is_carried_over() {
    let text = with_filter(r#"{inline_string: "u:{SHA}6NSi9zGis3/LFpY50UzLk1CVLVk="}"#);
    let input = Input::flags(None, Some(text), false, Service::default()).unwrap();
    let first = check(&input, None, 1).unwrap();
    assert_eq!(first.findings(false), "");
    let first = first.plan.unwrap();
    let second = check(&input, Some(&first), 1).unwrap().plan.unwrap();
    assert!(Arc::ptr_eq(&first.listeners[0], &second.listeners[0]));
}

#[test]
fn the_service_flags_win_over_the_file() {
    let service = Service { node: Some("flag".into()), ..Service::default() };
    let plan = inline("{node: {id: file, cluster: file}}", service).plan.unwrap();
    assert_eq!((plan.snapshot.node.id.as_str(), plan.snapshot.node.cluster.as_str()), ("flag", "file"));
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = check(&Input::argument(Path::new("no/such.yaml")), None, 1).err().unwrap();
    assert!(error.to_string().starts_with("cannot read no/such.yaml: "), "{error}");
}

#[test]
fn a_dash_is_standard_input_and_nothing_to_watch() {
    let input = Input::argument(Path::new("-"));
    assert_eq!((input.path(), input.name().as_str()), (None, "<stdin>"));
}

/// The findings of a file in the short form, as its lines: place, code, path.
fn short(text: &str) -> String {
    inline(text, Service::default()).findings(false)
}

#[test]
fn one_run_shows_what_a_schema_finds_everywhere() {
    let text = r#"
listen: "127.0.0.1:0"
plugins:
- name: p
  runtime: rider
  code: { inline: "return {}" }
  config: { weight: heavy }
  schema: { type: object, properties: { weight: { type: number } } }
hosts:
  a.test: { plugins: { p: { weight: host } } }
routes:
- { match: /own, to: "http://127.0.0.1:9000", plugins: { p: { weight: route } } }
- { match: /shares, to: [{ url: "http://127.0.0.1:9000", plugins: { p: { weight: share } } }] }
- { to: "http://127.0.0.1:9000" }
"#;
    let said = short(text);
    for place in [":7:21: error", ":10:37: error", ":12:71: error", ":13:82: error"] {
        assert!(said.contains(place), "{place} is not in\n{said}");
    }
    assert!(said.contains("4 errors"), "{said}");
    // Neither does an error of something else hide them.
    let said = short(&text.replace("weight: heavy", "weight: 1").replace("listen:", "listne: 1\nlisten:"));
    assert!(said.contains("4 errors") && said.contains(":13:71: error"), "{said}");
}

#[test]
fn an_error_in_the_short_form_has_the_path_that_was_written() {
    let text = r#"
listen: "127.0.0.1:0"
plugins:
- name: p
  runtime: rider
  code: { inline: "return {}" }
  config: { weight: [heavy] }
  schema: { type: object, properties: { weight: { items: { type: number } } } }
  options: { sandbox: none }
routes:
- { to: "http://127.0.0.1:9000", plugins: { p: { weight: [1, x] } } }
"#;
    let said = short(text);
    for path in ["plugins[0].config.weight[0]", "plugins[0].options.sandbox", "routes[0].plugins.p.weight[1]"] {
        assert!(said.contains(&format!("= path: {path}\n")), "{path} is not in\n{said}");
    }
    assert!(!said.contains("static_resources"), "{said}");
}

#[test]
fn a_manifest_beside_the_file_has_its_own_paths() {
    let manifest = "runtime: rider\ncode: { inline: 'return {}' }\noptions: { sandbox: none }\n";
    let input = Input::flags(None, Some(with_filter("{}")), false, Service::default()).unwrap();
    let manifests = Manifests::from([("p".to_owned(), manifest.to_owned())]);
    let said = check(&input.with_manifests(&manifests), None, 1).unwrap().findings(false);
    assert!(said.contains("/plugins/p:3:21: error") && said.contains("= path: options.sandbox\n"), "{said}");
}

#[test]
fn a_budget_that_is_none_is_told_once_and_at_its_place() {
    let plugin = |budget: &str| {
        format!(
            "listen: \"127.0.0.1:0\"\nplugins:\n- name: p\n  runtime: rider\n  code: {{ inline: 'return {{}}' }}\n  budget: {budget}\n\
             routes: [{{ to: \"http://127.0.0.1:9000\" }}]\n"
        )
    };
    let said = short(&plugin("{ cpu: 0ms }"));
    assert!(said.contains(":6:18: error[rule-range]") && said.contains("1 error"), "{said}");
    assert!(!said.contains("invalid-filter-config"), "{said}");
    let said = short(&plugin("{ memory: 1KiB }"));
    assert!(said.contains(":6:21: error") && said.contains("= path: plugins[0].budget.memory"), "{said}");
    assert!(said.contains("does not load within 1024 bytes of memory") && said.contains("330 KiB"), "{said}");
}
