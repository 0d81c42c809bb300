//! What scripts count when several workers run them, and what becomes of scripts that fail or change.

use postrider_tests::kit::config::router;
use postrider_tests::kit::proxy::Launch;
use postrider_tests::kit::{Config, Origin, Proxy, RawClient, wait_until};
use postrider_tests::{envoy, get, postrider_only};
use serde_json::{Value, json};

use crate::site::{NAME, lua};

fn with_filter(filter: Value, origin: &Origin) -> Config {
    Config::new()
        .http(json!({
            "http_filters": [filter, router()],
            "route_config": {"name": "table", "virtual_hosts": [{
                "name": "all", "domains": ["*"],
                "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "origin"}}],
            }]},
        }))
        .cluster("origin", &[origin.address])
}

fn script(code: &str) -> Value {
    lua(json!({"default_source_code": {"inline_string": code}}))
}

#[test]
fn gauges_are_one_for_all_workers_and_values_are_read_over_all() {
    let origin = Origin::echo("a");
    let code = "function envoy_on_request(handle)
        local stats = handle:stats()
        local counter, gauge = stats:counter('seen'), stats:gauge('level')
        counter:inc()
        gauge:set(7)
        handle:headers():replace('x-count', tostring(counter:value()))
        handle:headers():replace('x-level', tostring(gauge:value()))
      end";
    let launch = Launch { concurrency: 4, ..Launch::default() };
    let proxy = Proxy::start_with(&with_filter(script(code), &origin), launch);
    // A connection each: they spread over the workers.
    let mut clients: Vec<RawClient> = (0..40).map(|_| proxy.client()).collect();
    for client in &mut clients {
        assert_eq!(client.exchange(get("/")).status, 200);
    }
    let seen: Vec<[String; 2]> = (origin.requests().iter())
        .map(|request| ["x-count", "x-level"].map(|name| request.headers.values(name).join(",")))
        .collect();
    // The origin tells them by connection.
    let mut counts: Vec<u64> = seen.iter().map(|[count, _]| count.parse().unwrap()).collect();
    counts.sort_unstable();
    assert_eq!(counts, (1..=40).collect::<Vec<_>>());
    assert!(seen.iter().all(|[_, level]| level == "7"), "{seen:?}");
    let stats = proxy.stats();
    assert_eq!((stats.value("http.ingress_http.lua.level"), stats.value("http.ingress_http.lua.seen")), (7, 40));
}

#[test]
fn errors_of_a_script_switch_it_off_for_nobody_else() {
    let origin = Origin::echo("a");
    let code = "function envoy_on_request(handle)
        if handle:headers():get('x-fail') then error('on purpose') end
        if handle:headers():get('x-user') ~= 'ann' then handle:respond({ [':status'] = '401' }, 'who?') end
      end";
    let proxy = Proxy::start(&with_filter(script(code), &origin));
    let ask = |fields: &str| proxy.exchange(format!("GET / HTTP/1.1\r\nhost: test\r\n{fields}\r\n")).status;
    for _ in 0..30 {
        assert_eq!(ask("x-fail: 1\r\n"), 200);
    }
    assert_eq!((ask(""), ask("x-user: ann\r\n")), (401, 200));
}

#[test]
fn rules_in_the_metadata_of_the_node_are_envoys_to_ignore_and_ours_to_keep() {
    let origin = Origin::echo("a");
    let rules = json!({NAME: {"on_error": 503, "sandbox": "strict", "clusters": []}});
    let code = "function envoy_on_request(handle)
        if handle:headers():get('x-fail') then error('on purpose') end
        handle:headers():replace('x-io', type(io))
      end";
    let config = with_filter(script(code), &origin)
        .overlay(json!({"node": {"id": "n", "cluster": "c", "metadata": {"postrider.plugins": rules}}}));
    let proxy = Proxy::start(&config);
    assert_eq!(proxy.exchange(get("/")).status, 200);
    let io = origin.requests().remove(0).headers.values("x-io").join(",");
    let status = proxy.exchange("GET / HTTP/1.1\r\nhost: test\r\nx-fail: 1\r\n\r\n").status;
    assert_eq!((io.as_str(), status), if envoy() { ("table", 200) } else { ("nil", 503) });
}

#[test]
fn lines_that_differ_in_a_number_only_are_all_in_the_log() {
    let origin = Origin::echo("a");
    let code = "function envoy_on_request(h) for i = 1, 20 do h:logWarn('step ' .. i) end end";
    let proxy = Proxy::start(&with_filter(script(code), &origin));
    assert_eq!(proxy.exchange(get("/")).status, 200);
    wait_until("all lines", || proxy.stderr().matches("script log: step ").count() == 20);
}

#[test]
fn a_script_that_floods_the_log_is_cut_off_and_what_is_missing_is_told_without_a_further_line() {
    if !postrider_only() {
        return;
    }
    let origin = Origin::echo("a");
    let code = "function envoy_on_request(h) for i = 1, 100 do h:logInfo('flood') end end";
    let proxy = Proxy::start(&with_filter(script(code), &origin));
    let mut client = proxy.client();
    for _ in 0..30 {
        assert_eq!(client.exchange(get("/")).status, 200);
    }
    wait_until("all lines, or how many are missing", || {
        let log = proxy.stderr();
        let left_out = log.lines().filter_map(|line| {
            let (before, _) = line.split_once(" more lines were left out")?;
            before.rsplit_once(' ')?.1.parse::<usize>().ok()
        });
        log.matches("script log: flood").count() + left_out.sum::<usize>() == 3000
    });
}

#[test]
fn an_empty_script_and_a_watched_directory_are_taken() {
    let origin = Origin::echo("a");
    let folder = std::env::temp_dir();
    let file = folder.join(format!("postrider-lua-watched-{}.lua", std::process::id()));
    std::fs::write(&file, "").unwrap();
    for source in [json!({"inline_string": ""}), json!({"filename": file, "watched_directory": {"path": folder}})] {
        let proxy = Proxy::start(&with_filter(lua(json!({"default_source_code": source})), &origin));
        assert_eq!(proxy.exchange(get("/")).status, 200);
    }
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn a_change_of_a_specifiers_file_is_a_new_version() {
    if envoy() {
        return;
    }
    let (one, two) = (Origin::echo("one"), Origin::echo("two"));
    let file = std::env::temp_dir().join(format!("postrider-lua-specifier-{}.lua", std::process::id()));
    let write = |to: &str| std::fs::write(&file, format!("function envoy_on_route(handle) return '{to}' end")).unwrap();
    write("one");
    let specifier = json!({"extension": {
        "name": "envoy.router.cluster_specifier_plugin.lua",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.router.cluster_specifiers.lua.v3.LuaConfig",
            "source_code": {"filename": file},
        },
    }});
    let config =
        Config::routes(json!([{"match": {"prefix": "/"}, "route": {"inline_cluster_specifier_plugin": specifier}}]))
            .cluster("one", &[one.address])
            .cluster("two", &[two.address]);
    let proxy = Proxy::start(&config);
    let origin = || proxy.exchange(get("/")).header("x-origin").to_owned();
    assert_eq!(origin(), "one");
    let plugins = proxy.admin_json("/plugins?format=json").to_string();
    assert!(plugins.contains("envoy.router.cluster_specifier_plugin.lua"), "{plugins}");
    let prefix = format!("plugin.envoy.router.cluster_specifier_plugin.lua.{}", file.display());
    let stats = proxy.stats();
    assert_eq!((stats.value(&format!("{prefix}.calls")), stats.value(&format!("{prefix}.errors"))), (1, 0));
    let shown = proxy.admin_get("/plugins").text().to_owned();
    assert!(shown.contains(&format!("route {}: calls 1 errors 0", file.display())), "{shown}");
    write("two");
    wait_until("the new script is in force", || origin() == "two");
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn the_admin_shows_the_last_error_with_its_way() {
    if envoy() {
        return;
    }
    let origin = Origin::echo("a");
    let code = "local function inner() error('deep down') end\nfunction envoy_on_request(handle) inner() end";
    let proxy = Proxy::start(&with_filter(script(code), &origin));
    assert_eq!(proxy.exchange(get("/")).status, 200);
    let shown = proxy.admin_get("/plugins").text().to_owned();
    assert!(shown.contains("last error at") && shown.contains("deep down"), "{shown}");
    assert!(proxy.stderr().contains("stack traceback: "), "{}", proxy.stderr());
}
