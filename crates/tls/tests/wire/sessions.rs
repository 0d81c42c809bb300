//! Resumption: what goes on, and what must not.

use postrider_model::{DownstreamTls, Roots, SessionTickets, TlsVersion, UpstreamTls};
use postrider_tls::ClientTls;
use postrider_tls::rustls::client::{Resumption, Tls12Resumption};
use postrider_tls::rustls::pki_types::ServerName;
use postrider_tls::rustls::{ClientConfig, ClientConnection};
use std::sync::Arc;
use std::time::Duration;

use crate::support::*;

fn remembering() -> UpstreamTls {
    UpstreamTls { max_sessions: 8, ..upstream() }
}

fn version(model: &mut DownstreamTls, version: TlsVersion) {
    (model.common.min_version, model.common.max_version) = (version, version);
}

const VERSIONS: [TlsVersion; 2] = [TlsVersion::Tls12, TlsVersion::Tls13];

/// Whether a client that was at `first` resumes at `second`.
fn resumes(first: &DownstreamTls, second: &DownstreamTls, client: &ClientTls) -> bool {
    assert!(!link(&server(first), client).unwrap().facts().resumed);
    link(&server(second), client).unwrap_or_else(|it| panic!("{}", it.text())).facts().resumed
}

#[test]
fn a_ticket_outlives_a_reload() {
    let leaf = Authority::root("root").leaf(&["a.example"]).model();
    for at in VERSIONS {
        let mut model = downstream(vec![leaf.clone()]);
        version(&mut model, at);
        assert!(resumes(&model, &model, &client(&remembering())), "{at:?}");
    }
}

#[test]
fn a_ticket_outlives_a_renewed_certificate_for_the_same_names() {
    let root = Authority::root("root");
    let model = |hosts: &[&str]| downstream(vec![root.leaf(hosts).model()]);
    assert!(resumes(&model(&["a.example"]), &model(&["a.example"]), &client(&remembering())));
    assert!(!resumes(&model(&["a.example"]), &model(&["b.example"]), &client(&remembering())));
}

#[test]
fn configured_keys_open_each_others_tickets() {
    let leaf = Authority::root("root").leaf(&["a.example"]).model();
    let keys = |seeds: &[u8]| {
        let mut model = downstream(vec![leaf.clone()]);
        model.tickets = SessionTickets::Keys(seeds.iter().map(|&it| inline([it; 80])).collect());
        model
    };
    let client = || client(&remembering());
    assert!(resumes(&keys(&[1]), &keys(&[1]), &client()));
    assert!(resumes(&keys(&[1]), &keys(&[2, 1]), &client()));
    assert!(!resumes(&keys(&[1]), &keys(&[2]), &client()));
    assert!(!resumes(&keys(&[2, 1]), &keys(&[1]), &client()));
    assert!(!resumes(&keys(&[1]), &downstream(vec![leaf.clone()]), &client()));
}

#[test]
fn sessions_are_kept_for_clients_without_tickets() {
    let leaf = Authority::root("root").leaf(&["a.example"]).model();
    let mut model = downstream(vec![leaf]);
    version(&mut model, TlsVersion::Tls12);
    let ids = || {
        let mut config = ClientConfig::clone(client(&upstream()).config());
        config.resumption = Resumption::in_memory_sessions(8).tls12_resumption(Tls12Resumption::SessionIdOnly);
        Arc::new(config)
    };
    let connect = |config: &Arc<ClientConfig>, model: &DownstreamTls| {
        let name = ServerName::try_from("a.example").unwrap();
        let connection = ClientConnection::new(config.clone(), name).unwrap();
        link_connection(&server(model), connection).unwrap().facts().resumed
    };
    let config = ids();
    assert!(!connect(&config, &model));
    assert!(connect(&config, &model), "across two builds");
    let config = ids();
    model.stateful_resumption = false;
    assert!(!connect(&config, &model) && !connect(&config, &model));
}

#[test]
fn nothing_is_resumed_when_both_ways_are_off() {
    let mut model = downstream(vec![Authority::root("root").leaf(&["a.example"]).model()]);
    model.tickets = SessionTickets::Off;
    model.stateful_resumption = false;
    for at in VERSIONS {
        version(&mut model, at);
        assert!(!resumes(&model, &model, &client(&remembering())), "{at:?}");
    }
}

#[test]
fn without_tickets_tls_1_3_is_not_resumed_and_tls_1_2_is() {
    let mut model = downstream(vec![Authority::root("root").leaf(&["a.example"]).model()]);
    model.tickets = SessionTickets::Off;
    version(&mut model, TlsVersion::Tls13);
    assert!(!resumes(&model, &model, &client(&remembering())));
    version(&mut model, TlsVersion::Tls12);
    assert!(resumes(&model, &model, &client(&remembering())));
}

#[test]
fn a_client_that_remembers_nothing_resumes_nothing() {
    let model = downstream(vec![Authority::root("root").leaf(&["a.example"]).model()]);
    assert!(!resumes(&model, &model, &client(&upstream())));
}

#[test]
fn a_session_of_one_name_does_not_go_on_under_another() {
    let tls = server(&downstream(vec![Authority::root("root").leaf(&["*.example"]).model()]));
    let client = client(&UpstreamTls { sni: None, endpoint_sni: true, ..remembering() });
    let at = |host| postrider_tls::Target { endpoint_host: Some(host), ..postrider_tls::Target::default() };
    link_to(&tls, &client, &at("a.example")).unwrap();
    assert!(!link_to(&tls, &client, &at("b.example")).unwrap().facts().resumed);
    assert!(link_to(&tls, &client, &at("a.example")).unwrap().facts().resumed);
}

#[test]
fn the_lifetime_is_told_to_clients_and_kept() {
    let mut model = downstream(vec![Authority::root("root").leaf(&["a.example"]).model()]);
    model.session_timeout = Some(Duration::from_secs(60));
    assert_eq!(server(&model).config().ticketer.lifetime(), 60);
    model.session_timeout = Some(Duration::ZERO);
    assert_eq!(server(&model).config().ticketer.lifetime(), 7200);
}

/// The attack: a ticket from a context that asks for no certificate, or for another authority's, presented where one is
/// asked for. Resuming skips the certificate, so the ticket must not open.
#[test]
fn a_ticket_does_not_skip_the_client_certificate_of_another_context() {
    let (root, first, second) = (Authority::root("root"), Authority::root("one"), Authority::root("two"));
    let leaf = root.leaf(&["a.example"]).model();
    let asking = |authority: Option<&Authority>, required: bool, tickets: &SessionTickets, at: TlsVersion| {
        let mut model = downstream(vec![leaf.clone()]);
        model.common.validation = authority.map(|it| validation(Roots::Pem(it.pem())));
        model.require_client_certificate = required;
        model.tickets = tickets.clone();
        version(&mut model, at);
        server(&model)
    };
    let known = UpstreamTls { certificate: Some(first.leaf(&["client.example"]).model()), ..remembering() };
    let keys = SessionTickets::Keys(vec![inline([7; 80])]);
    for at in VERSIONS {
        for tickets in [&SessionTickets::Rotating, &keys, &SessionTickets::Off] {
            let open = asking(None, false, tickets, at);
            let optional = asking(Some(&first), false, tickets, at);
            let strict = asking(Some(&first), true, tickets, at);
            let other = asking(Some(&second), true, tickets, at);
            let stranger = client(&remembering());
            link(&open, &stranger).unwrap();
            assert!(link(&strict, &stranger).is_err(), "{at:?} {tickets:?}: nobody was asked");
            let stranger = client(&remembering());
            link(&optional, &stranger).unwrap();
            assert!(link(&strict, &stranger).is_err(), "{at:?} {tickets:?}: it was optional");
            let client = client(&known);
            link(&strict, &client).unwrap();
            assert!(link(&other, &client).is_err(), "{at:?} {tickets:?}: another authority");
        }
    }
}

#[test]
fn a_resumed_session_still_knows_its_client() {
    let (root, clients) = (Authority::root("root"), Authority::root("clients"));
    let mut model = downstream(vec![root.leaf(&["a.example"]).model()]);
    model.common.validation = Some(validation(Roots::Pem(clients.pem())));
    model.require_client_certificate = true;
    for at in VERSIONS {
        version(&mut model, at);
        let tls = server(&model);
        let known = clients.leaf(&["client.example"]);
        let client = client(&UpstreamTls { certificate: Some(known.model()), ..remembering() });
        link(&tls, &client).unwrap();
        let linked = link(&tls, &client).unwrap();
        assert!(linked.facts().resumed, "{at:?}");
        let chain = linked.server.peer_certificates().unwrap();
        assert_eq!(chain[0], known.chain[0]);
        assert!(tls.peer_verified(chain));
    }
}
