//! When certificates end: on the admin, in statistics, in warnings and in a table.

use postrider_tests::kit::{Config, Origin, Proxy, TempDir, proxy, wait_until};
use postrider_tests::tls::{Authority, Identity, downstream, upstream};
use postrider_tests::{get, postrider_only};
use rcgen::SanType;
use serde_json::{Value, json};
use std::time::{Duration, SystemTime};

const DAY: u64 = 86_400;

/// A certificate that ends so many days from now.
fn ending(authority: &Authority, days: i64) -> Identity {
    authority.issue_as(|params| {
        params.subject_alt_names = vec![
            SanType::URI("spiffe://site/a".try_into().unwrap()),
            SanType::DnsName("site.test".try_into().unwrap()),
            SanType::IpAddress("127.0.0.1".parse().unwrap()),
        ];
        params.serial_number = Some(vec![0x0d, 0x0e].into());
        let now = SystemTime::now();
        let distance = Duration::from_secs(days.unsigned_abs() * DAY + 600);
        params.not_after = if days < 0 { now - distance } else { now + distance }.into();
        params.not_before = rcgen::date_time_ymd(2020, 2, 3);
    })
}

fn named(path: &std::path::Path) -> Value {
    json!({"filename": path.to_str().unwrap()})
}

/// A listener that shows a file and trusts a named root, and a cluster.
fn site(folder: &TempDir, identity: &Identity, root: &Authority) -> Config {
    let chain = folder.write("site.pem", identity.chain_pem());
    let key = folder.write("site.key", identity.key_pem());
    let origin = Origin::echo("a");
    let tls = downstream(
        &[json!({"certificate_chain": named(&chain), "private_key": named(&key)})],
        json!({"common_tls_context": {"validation_context_sds_secret_config": {"name": "clients"}}}),
    );
    let back = upstream(json!({"common_tls_context": {
        "validation_context": {"trusted_ca": {"inline_string": root.pem()}},
    }}));
    Config::routes(json!([{"match": {"prefix": "/"}, "route": {"cluster": "back"}}]))
        .cluster_with("back", &[origin.address], json!({"transport_socket": back}))
        .overlay_chain("http", json!({"name": "only", "transport_socket": tls}))
        .overlay(json!({"static_resources": {"secrets": [
            {"name": "clients", "validation_context": {"trusted_ca": {"inline_string": root.pem()}}},
        ]}}))
}

fn stat(proxy: &Proxy, name: &str) -> Option<u64> {
    let stats = proxy.admin_get("/stats");
    let line =
        stats.text().lines().find_map(|line| Some(line.split_once(": ")?).filter(|(key, _)| key.ends_with(name)));
    line.map(|(_, value)| value.parse().unwrap())
}

fn seconds_from_now(days: u64) -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() + days * DAY
}

#[test]
fn the_admin_and_statistics_tell_when_certificates_end() {
    let (folder, root) = (TempDir::new(), Authority::new("root"));
    let proxy = Proxy::start(&site(&folder, &ending(&root, 40), &root));
    let certs: Value = serde_json::from_str(proxy.admin_get("/certs").text()).unwrap();
    let contexts = certs["certificates"].as_array().unwrap();
    assert_eq!(contexts.len(), 2);
    let own = contexts.iter().flat_map(|context| context["cert_chain"].as_array().unwrap()).collect::<Vec<_>>();
    assert_eq!(own.len(), 1);
    assert_eq!(own[0]["path"], folder.path().join("site.pem").to_str().unwrap());
    assert_eq!((&own[0]["serial_number"], &own[0]["days_until_expiration"]), (&json!("0d0e"), &json!("40")));
    let names = json!([{"dns": "site.test"}, {"uri": "spiffe://site/a"}, {"ip_address": "127.0.0.1"}]);
    assert_eq!((&own[0]["subject_alt_names"], &own[0]["valid_from"]), (&names, &json!("2020-02-03T00:00:00Z")));
    for context in contexts {
        let roots = context["ca_cert"].as_array().unwrap();
        assert_eq!((roots.len(), &roots[0]["path"]), (1, &json!("<inline>")));
        assert_eq!(roots[0]["expiration_time"], "4096-01-01T00:00:00Z");
    }
    assert_eq!(stat(&proxy, "server.days_until_first_cert_expiring"), Some(40));
    let end = stat(&proxy, ".ssl.certificate.unnamed_cert_e3b0c442.expiration_unix_time_seconds").unwrap();
    assert!(end.abs_diff(seconds_from_now(40)) < 3600, "{end}");
    let of_root = Some(67_090_118_400);
    assert_eq!(stat(&proxy, ".ssl.certificate.clients.expiration_unix_time_seconds"), of_root);
    let of_cluster = "cluster.back.ssl.certificate.unnamed_ca_cert_e3b0c442.expiration_unix_time_seconds";
    assert_eq!(stat(&proxy, of_cluster), of_root);
    let prometheus = proxy.admin_get("/stats/prometheus");
    // A port that the system chose has another number in Envoy.
    let start = "envoy_listener_ssl_certificate_expiration_unix_time_seconds{envoy_tls_certificate=\"clients\",\
                 envoy_listener_address=\"127.0.0.1_";
    let is_meant = |line: &&str| line.starts_with(start) && line.ends_with("\"} 67090118400");
    assert_eq!(prometheus.text().lines().filter(is_meant).count(), 1, "{}", prometheus.text());
}

#[test]
fn without_certificates_the_first_ends_never() {
    let origin = Origin::echo("a");
    let proxy = Proxy::start(&Config::proxy_to(origin.address));
    assert_eq!(stat(&proxy, "server.days_until_first_cert_expiring"), Some(u64::from(u32::MAX)));
    assert_eq!(stat(&proxy, "server.seconds_until_first_ocsp_response_expiring"), Some(0));
    let certs: Value = serde_json::from_str(proxy.admin_get("/certs").text()).unwrap();
    assert!(certs["certificates"].as_array().is_none_or(Vec::is_empty));
    assert_eq!(proxy.exchange(get("/")).status, 200);
}

#[test]
fn a_renewed_certificate_changes_what_is_told() {
    if !postrider_only() {
        return;
    }
    let (folder, root) = (TempDir::new(), Authority::new("root"));
    let proxy = Proxy::start(&site(&folder, &ending(&root, 3), &root));
    assert_eq!(stat(&proxy, "server.days_until_first_cert_expiring"), Some(3));
    let renewed = ending(&root, 300);
    folder.write("site.key", renewed.key_pem());
    folder.write("site.pem", renewed.chain_pem());
    wait_until("the new one is told of", || stat(&proxy, "server.days_until_first_cert_expiring") == Some(300));
    let end = stat(&proxy, ".ssl.certificate.unnamed_cert_e3b0c442.expiration_unix_time_seconds").unwrap();
    assert!(end.abs_diff(seconds_from_now(300)) < 3600, "{end}");
    let certs: Value = serde_json::from_str(proxy.admin_get("/certs").text()).unwrap();
    assert_eq!(certs["certificates"][0]["cert_chain"][0]["days_until_expiration"], "300");
}

#[test]
fn what_ends_soon_or_has_ended_is_warned_about() {
    if !postrider_only() {
        return;
    }
    let root = Authority::new("root");
    for (days, said) in [
        (13, "the certificate `site.test` ("),
        (13, ") ends in 13 days, on 2"),
        (1, ") ends tomorrow, on 2"),
        (0, ") ends within a day"),
        (-2, ") has ended, on 2"),
    ] {
        let folder = TempDir::new();
        let file = folder.write("proxy.yaml", site(&folder, &ending(&root, days), &root).to_yaml());
        let checked = proxy::run(&["validate", file.to_str().unwrap()]);
        assert_eq!(checked.code, Some(0), "{checked:?}");
        assert!(checked.stderr.contains(said) && checked.stderr.contains("warning"), "{days}: {}", checked.stderr);
    }
    let folder = TempDir::new();
    let file = folder.write("proxy.yaml", site(&folder, &ending(&root, 15), &root).to_yaml());
    let checked = proxy::run(&["validate", file.to_str().unwrap()]);
    assert!(!checked.stderr.contains("ends"), "{}", checked.stderr);
    let started = Proxy::start(&site(&folder, &ending(&root, 5), &root));
    wait_until("the log tells", || {
        let log = started.stderr();
        log.lines().any(|line| line.contains("[warning][config]") && line.contains("ends in 5 days"))
    });
}

#[test]
fn a_command_shows_certificates_of_a_file_and_of_a_running_proxy() {
    if !postrider_only() {
        return;
    }
    let (folder, root) = (TempDir::new(), Authority::new("root"));
    let config = site(&folder, &ending(&root, 40), &root);
    let file = folder.write("proxy.yaml", config.to_yaml());
    let file = file.to_str().unwrap();
    let path = folder.path().join("site.pem");
    let proxy = Proxy::start(&config);
    let admin = proxy.admin_address().to_string();
    for arguments in [&["certs", file][..], &["certs", "--admin", &admin]] {
        let shown = proxy::run(arguments);
        assert_eq!(shown.code, Some(0), "{shown:?}");
        let lines: Vec<&str> = shown.stdout.lines().collect();
        assert_eq!(lines.len(), 4, "{}", shown.stdout);
        let words: Vec<&str> = lines[1].split_whitespace().collect();
        assert_eq!(&words[1..4], ["40", "own", "site.test"], "{}", shown.stdout);
        assert!(lines[1].ends_with(path.to_str().unwrap()) && lines[1].contains("listener http, chain only"));
        assert!(lines[2].contains("cluster back") && lines[2].contains("4096-01-01"), "{}", shown.stdout);
    }
    let told = proxy::run(&["certs", "--json", file]);
    let told: Value = serde_json::from_str(&told.stdout).unwrap();
    assert_eq!(told["certificates"][0]["listener"], "http");
    assert_eq!(told["certificates"][0]["cert_chain"][0]["subject_alt_names"][0]["dns"], "site.test");
    assert_eq!(told["certificates"][1]["cluster"], "back");

    let broken = folder.write("broken.yaml", config.to_yaml().replace("site.key", "none.key"));
    let refused = proxy::run(&["certs", broken.to_str().unwrap()]);
    assert!(refused.code == Some(3) && refused.stderr.contains("none.key"), "{refused:?}");
    assert_eq!(proxy::run(&["certs", "--admin", "127.0.0.1:1"]).code, Some(1));
    assert_eq!(proxy::run(&["certs", file, "--admin", "127.0.0.1:1"]).code, Some(2));
    drop(proxy);
}
