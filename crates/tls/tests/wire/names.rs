//! Which name a client asks for, and whose keys are logged.

use std::net::IpAddr;

use postrider_model::{Cidr, KeyLog, UpstreamTls};
use postrider_tls::Target;

use crate::support::*;

#[test]
fn the_requests_host_comes_before_the_endpoints_and_the_configured_one() {
    let tls = server(&downstream(vec![Authority::root("root").leaf(&["a.example"]).model()]));
    let target = Target {
        request_host: Some("Request.example:8443"),
        endpoint_host: Some("endpoint.example"),
        ..Target::default()
    };
    let unnamed = Target { request_host: Some("not a host"), ..Target::default() };
    for (request, endpoint, sni, target, want) in [
        (true, true, Some("set.example"), &target, Some("request.example")),
        (false, true, Some("set.example"), &target, Some("endpoint.example")),
        (false, false, Some("set.example"), &target, Some("set.example")),
        (false, false, None, &target, None),
        (true, true, Some("set.example"), &unnamed, Some("set.example")),
        (true, true, None, &unnamed, None),
        (true, false, None, &Target { request_host: Some("[2001:db8::1]:443"), ..Target::default() }, None),
    ] {
        let model =
            UpstreamTls { sni: sni.map(str::to_owned), endpoint_sni: endpoint, request_sni: request, ..upstream() };
        let linked = link_to(&tls, &client(&model), target).unwrap();
        assert_eq!(linked.server.server_name(), want, "{request} {endpoint} {sni:?}");
    }
}

#[test]
fn keys_are_logged_between_the_named_addresses_only() {
    let folder = std::env::temp_dir().join(format!("postrider-tls-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("keys");
    let range = |text: &str| Cidr::new(text.parse().unwrap(), 24).unwrap();
    let mut model = upstream();
    model.common.key_log =
        Some(KeyLog { path: path.clone(), local: vec![], remote: vec![range("192.0.2.0"), range("198.51.100.0")] });
    let tls = server(&downstream(vec![Authority::root("root").leaf(&["a.example"]).model()]));
    let client = client(&model);
    let lines = || std::fs::read_to_string(&path).unwrap().lines().count();
    let connect = |remote: Option<&str>| {
        let remote = remote.map(|it| it.parse::<IpAddr>().unwrap());
        link_to(&tls, &client, &Target { remote, ..Target::default() }).unwrap();
        lines()
    };
    assert_eq!(connect(None), 0);
    assert_eq!(connect(Some("203.0.113.1")), 0);
    let once = connect(Some("192.0.2.9"));
    assert!(once >= 4);
    assert_eq!(connect(Some("198.51.100.9")), 2 * once);
    let text = std::fs::read_to_string(&path).unwrap();
    let line = text.lines().find(|it| it.starts_with("CLIENT_TRAFFIC_SECRET_0 ")).unwrap();
    assert_eq!(line.split(' ').map(str::len).collect::<Vec<_>>()[1], 64);
    std::fs::remove_dir_all(&folder).unwrap();
    model.common.key_log = Some(KeyLog { path: folder.join("none/keys"), local: vec![], remote: vec![] });
    let errors = postrider_tls::ClientTls::build(&model, &mut no_files).expect_err("built");
    assert_eq!(errors[0].path, "common.key_log.path");
}
