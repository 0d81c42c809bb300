//! Go code that filters connections and opens connections of its own, built with the oldest and the newest SDK that is
//! taken.
//!
//! Real Envoy's pip build runs no Go code, so what is right here is what the SDK's own code expects.

use postrider_tests::golang::network_filter;
use postrider_tests::kit::config::{file_access_log, tcp_filter};
use postrider_tests::kit::{Config, Origin, Proxy, RawClient, TempDir, net, wait_until};
use postrider_tests::{envoy, refusal};
use serde_json::{Value, json};

const LIBRARIES: [&str; 2] = ["network31", "network38"];

fn script(library: &str, fields: &Value, terminal: bool) -> Value {
    network_filter(library, "script", fields, terminal)
}

fn listener(filters: &[Value]) -> Config {
    Config::new().listener("tcp", json!({"filter_chains": [{"filters": filters}]}))
}

/// A script that answers by itself.
fn served(library: &str, fields: &Value) -> Proxy {
    Proxy::start(&listener(&[script(library, fields, true)]))
}

/// One in front of a TCP proxy.
fn carried(library: &str, fields: &Value, origin: &Origin) -> Proxy {
    let tcp = tcp_filter(json!({"stat_prefix": "t", "cluster": "origin"}));
    Proxy::start(&listener(&[script(library, fields, false), tcp]).cluster("origin", &[origin.address]))
}

fn client(proxy: &Proxy) -> RawClient {
    RawClient::connect(proxy.address("tcp"))
}

/// What the client hears up to the end of the line.
fn line(client: &mut RawClient) -> String {
    let mut line = String::new();
    loop {
        match client.read_exact(1).unwrap()[0] {
            b'\n' => return line,
            byte => line.push(char::from(byte)),
        }
    }
}

fn ask(client: &mut RawClient, command: &str) -> String {
    client.send(format!("{command}\n"));
    line(client)
}

fn rest(client: &mut RawClient) -> String {
    String::from_utf8(client.read_to_end().unwrap()).unwrap()
}

#[test]
fn what_a_client_sends_is_answered() {
    if envoy() {
        return;
    }
    for library in LIBRARIES {
        let proxy = served(library, &json!({"says": "welcome\n"}));
        let mut client = client(&proxy);
        assert_eq!(line(&mut client), "welcome");
        assert_eq!(ask(&mut client, "echo hello"), "hello");
        assert_eq!(ask(&mut client, "later from a goroutine"), "from a goroutine");
        assert_eq!(ask(&mut client, "local"), proxy.address("tcp").to_string());
        assert_eq!(ask(&mut client, "remote"), client.local_addr().to_string());
        client.send("large\n");
        assert!(client.read_exact(1_000_000).unwrap().iter().all(|byte| *byte == b'x'), "{library}");
        assert_eq!(ask(&mut client, "echo still there"), "still there");
    }
}

#[test]
fn the_admin_says_that_a_panic_of_a_filter_of_connections_ends_the_process() {
    if envoy() {
        return;
    }
    let proxy = served(LIBRARIES[0], &json!({}));
    let text = proxy.admin_get("/plugins").text().to_owned();
    assert!(text.contains("on error end the process; no budget; no circuit"), "{text}");
}

#[test]
fn connections_are_ended_in_every_way_and_their_ends_are_told() {
    if envoy() {
        return;
    }
    for library in LIBRARIES {
        let proxy = served(library, &json!({}));
        let told = |event: &str, count: usize| {
            let wanted = format!("script: Connected {event}");
            wait_until(&wanted, || proxy.stderr().matches(&wanted).count() == count);
        };
        let mut closes = client(&proxy);
        closes.send("close\n");
        assert_eq!(rest(&mut closes), "bye\n");
        told("LocalClose", 1);
        for (count, command) in [(2, "abort\n"), (3, "reset\n")] {
            let mut ends = client(&proxy);
            ends.send(command);
            assert!(ends.closed(), "{command}");
            told("LocalClose", count);
        }
        let mut half = client(&proxy);
        half.send("end that was it\n");
        assert_eq!(rest(&mut half), "that was it\n", "the client hears that nothing follows");
        drop(half);
        told("RemoteClose", 1);
        drop(client(&proxy));
        told("RemoteClose", 2);
        assert_eq!(ask(&mut client(&proxy), "echo others"), "others");
    }
}

#[test]
fn in_front_of_a_tcp_proxy_it_sees_both_directions() {
    if envoy() {
        return;
    }
    for library in LIBRARIES {
        let origin = Origin::start(|connection| {
            connection.write(b"from the origin\n");
            connection.read_to_end();
            connection.write(b"the end\n");
        });
        let proxy = carried(library, &json!({}), &origin);
        let mut client = client(&proxy);
        assert_eq!(line(&mut client), "from the origin");
        assert_eq!(ask(&mut client, "seen"), "\"from the origin\\n\"");
        assert_eq!(ask(&mut client, "echo own"), "own");
        let seen = ask(&mut client, "seen");
        assert!(seen.ends_with("own\\n\""), "what it sends passes through it: {seen}");
        client.send("echo last\n");
        client.half_close();
        let rest = rest(&mut client);
        let own = rest.replace("the end\n", "");
        assert_eq!((own.as_str(), rest.len()), ("last\nend\n", own.len() + 8), "{rest}");
        assert!(origin.all_bytes().is_empty(), "what Go code was shown goes nowhere by itself, as in Envoy");
    }
}

#[test]
fn what_it_stops_on_its_way_to_the_client_is_not_sent() {
    if envoy() {
        return;
    }
    let proxy = served("network38", &json!({"drops": "secret"}));
    let mut client = client(&proxy);
    client.send("echo secret\n");
    assert_eq!(ask(&mut client, "echo open"), "open");
}

#[test]
fn filter_state_reaches_the_access_log() {
    if envoy() {
        return;
    }
    for library in LIBRARIES {
        let folder = TempDir::new();
        let log = folder.path().join("log");
        let format =
            json!({"log_format": {"text_format_source": {"inline_string": "%FILTER_STATE(go.note:PLAIN)%\n"}}});
        let origin = Origin::silent();
        let tcp = tcp_filter(json!({
            "stat_prefix": "t", "cluster": "origin", "access_log": [file_access_log(&log, format)],
        }));
        let filters = [script(library, &json!({"note": "first"}), false), tcp];
        let proxy = Proxy::start(&listener(&filters).cluster("origin", &[origin.address]));
        let logged = || std::fs::read_to_string(&log).unwrap_or_default();
        drop(client(&proxy));
        wait_until("the first", || logged() == "first\n");
        let mut changed = client(&proxy);
        assert_eq!(ask(&mut changed, "note second"), "noted");
        drop(changed);
        wait_until("the second", || logged() == "first\nsecond\n");
        let mut changed = client(&proxy);
        assert_eq!(ask(&mut changed, "note-later third"), "noted");
        drop(changed);
        wait_until("the third, of a goroutine", || logged() == "first\nsecond\nthird\n");
    }
}

/// A proxy whose relay carries to that address by a cluster that has no endpoints of its own.
fn relay(library: &str, to: &str, fields: Value) -> Proxy {
    let cluster = json!({"type": "ORIGINAL_DST", "lb_policy": "CLUSTER_PROVIDED", "load_assignment": null});
    Proxy::start(&relaying(library, to, fields).cluster_with("plainText", &[], cluster))
}

fn relaying(library: &str, to: &str, mut fields: Value) -> Config {
    fields["to"] = json!(to);
    listener(&[network_filter(library, "relay", &fields, true)])
}

#[test]
fn bytes_are_relayed_to_an_address_and_back() {
    if envoy() {
        return;
    }
    for library in LIBRARIES {
        let origin = Origin::tcp_echo("");
        let to = origin.address.to_string();
        let proxy = relay(library, &to, json!({"tell": true}));
        let mut client = client(&proxy);
        client.send("early ");
        assert_eq!(line(&mut client), format!("{to} {to}"), "the local address is told as in Envoy");
        client.send("late");
        let mut heard = String::new();
        while heard.replace("][", "") != "[EARLY LATE]" {
            heard.push_str(std::str::from_utf8(&client.read_exact(1).unwrap()).unwrap());
        }
        assert_eq!(origin.open_connections(), 1);
        drop(client);
        origin.wait_open_at_most(0);
    }
}

#[test]
fn a_cluster_with_endpoints_goes_to_one_of_them() {
    if envoy() {
        return;
    }
    let origin = Origin::tcp_echo("hello");
    let config = relaying("network38", "127.0.0.1:1", json!({"tell": true})).cluster("plainText", &[origin.address]);
    let proxy = Proxy::start(&config);
    let mut client = client(&proxy);
    assert_eq!(line(&mut client), format!("127.0.0.1:1 {}", origin.address));
    assert_eq!(client.read_exact(7).unwrap(), b"[hello]");
    assert_eq!(proxy.stats().value("cluster.plainText.upstream_cx_total"), 1);
    proxy.wait_stat("cluster.plainText.upstream_cx_active", 1);
    drop(client);
    proxy.wait_stat("cluster.plainText.upstream_cx_active", 0);
}

#[test]
fn a_connection_that_cannot_be_had_is_told() {
    if envoy() {
        return;
    }
    let nobody = net::refusing_address();
    for library in LIBRARIES {
        let refused = relay(library, &nobody.to_string(), json!({}));
        assert_eq!(rest(&mut client(&refused)), "failed 2\n", "the host does not want it");
        let nowhere = relay(library, "not an address", json!({}));
        assert_eq!(rest(&mut client(&nowhere)), "failed 1\n");
        let clusterless = Proxy::start(&relaying(library, &nobody.to_string(), json!({})));
        assert_eq!(rest(&mut client(&clusterless)), "failed 1\n");
        assert!(clusterless.stderr().contains("there is no cluster `plainText`"), "{}", clusterless.stderr());
    }
    let limit = json!({"circuit_breakers": {"thresholds": [{"max_connections": 0}]}});
    let origin = Origin::silent();
    let config = relaying("network38", "127.0.0.1:1", json!({})).cluster_with("plainText", &[origin.address], limit);
    assert_eq!(rest(&mut client(&Proxy::start(&config))), "failed 0\n", "there are as many as there may be");
}

#[test]
fn a_peer_that_ends_its_side_is_still_heard_where_that_is_wanted() {
    if envoy() {
        return;
    }
    let origin = || {
        Origin::start(|connection| {
            connection.write(b"x");
            connection.half_close();
            connection.read_to_end();
        })
    };
    for library in LIBRARIES {
        let (far, near) = (origin(), origin());
        let half = relay(library, &far.address.to_string(), json!({"half": true}));
        let mut half = client(&half);
        assert_eq!(half.read_exact(8).unwrap(), b"[x][end]", "{library}");
        half.send("more");
        wait_until("what goes on", || far.all_bytes() == b"MORE");
        let whole = relay(library, &near.address.to_string(), json!({}));
        assert_eq!(rest(&mut client(&whole)), "[x](RemoteClose)", "{library}");
    }
}

#[test]
fn many_connections_carry_much() {
    if envoy() {
        return;
    }
    const EACH: usize = 500_000;
    let origin = Origin::tcp_echo("");
    let proxy = relay("network38", &origin.address.to_string(), json!({}));
    let address = proxy.address("tcp");
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(move || {
                let stream = std::net::TcpStream::connect(address).unwrap();
                let mut sends = RawClient::from_stream(stream.try_clone().unwrap());
                let sending = std::thread::spawn(move || {
                    sends.send(vec![b'a'; EACH]);
                });
                let mut hears = RawClient::from_stream(stream);
                let mut heard = 0;
                while heard < EACH {
                    heard += usize::from(hears.read_exact(1).unwrap() == b"A");
                }
                sending.join().unwrap();
            });
        }
    });
    origin.wait_open_at_most(0);
}

#[test]
fn a_reload_brings_another_configuration_to_new_connections() {
    if envoy() {
        return;
    }
    let of = |says: &str| listener(&[script("network38", &json!({"says": says}), true)]);
    let mut proxy = Proxy::start(&of("one\n"));
    let mut old = client(&proxy);
    assert_eq!(line(&mut old), "one");
    let verdict = proxy.reload(of("two\n").to_yaml());
    assert_eq!(verdict["outcome"], "accepted", "{verdict}");
    assert_eq!(line(&mut client(&proxy)), "two");
    assert_eq!(ask(&mut old, "echo old"), "old");
    drop(old);
    proxy.signal("TERM");
    assert!(proxy.wait_exit().success());
}

#[test]
fn what_cannot_run_is_refused_with_the_reason() {
    if envoy() {
        return;
    }
    let refused = |filters: &[Value]| refusal(&listener(filters));
    let said = refused(&[network_filter("network38", "scripts of nobody", &json!({}), true)]);
    assert!(said.contains("is called `scripts of nobody`"), "{said}");
    let said = refused(&[network_filter("sdk38", "script", &json!({}), true)]);
    let wanted =
        "has no filters of connections: it lacks functions of Envoy's Go SDK: envoyGoFilterOnNetworkFilterConfig";
    assert!(said.contains(wanted), "{said}");
    let said = refused(&[script("network38", &json!({}), false)]);
    assert!(said.contains("this filter serves no connection"), "{said}");
    let tcp = tcp_filter(json!({"stat_prefix": "t", "cluster": "origin"}));
    let said = refused(&[script("network38", &json!({}), true), tcp]);
    assert!(said.contains("this filter ends the chain"), "{said}");
    let mut lost = script("network38", &json!({}), true);
    lost["typed_config"]["library_path"] = json!("/no/such.so");
    assert!(refused(&[lost]).contains("cannot read /no/such.so"));
}
