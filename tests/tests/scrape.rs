//! Whoever reads statistics takes nothing from those who are served, however many there are and however slowly he reads.

use std::io::{Read, Write};
use std::net::TcpStream;

use postrider_tests::get;
use postrider_tests::kit::{Config, Origin, Proxy};

const CLUSTERS: usize = 1_000;

/// What is read of an answer that is far larger: its head, and some.
const SOME: usize = 4 * 1024;

#[test]
fn requests_are_served_while_a_scrape_goes_on() {
    let origin = Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
    let many = (0..CLUSTERS).fold(Config::proxy_to(origin.address), |config, at| {
        config.cluster(&format!("service-{at}-of-many"), &[origin.address])
    });
    let proxy = Proxy::start(&many);
    let mut client = proxy.client();
    assert_eq!(client.exchange(get("/before")).status, 200);
    // A scrape that has begun and is far from its end, as its reader does not go on.
    let mut slow = TcpStream::connect(proxy.admin_address()).unwrap();
    slow.write_all(b"GET /stats/prometheus HTTP/1.1\r\nhost: admin\r\nconnection: close\r\n\r\n").unwrap();
    let mut seen = vec![0; SOME];
    slow.read_exact(&mut seen).unwrap();
    // The clients wait for nobody who reads statistics: the scrape ends after all of these.
    for at in 0..50 {
        assert_eq!(client.exchange(get(&format!("/{at}"))).status, 200);
        assert_eq!(proxy.get(&format!("/new/{at}")).status, 200);
    }
    slow.read_to_end(&mut seen).unwrap();
    let text = String::from_utf8_lossy(&seen);
    let series = text.lines().filter(|line| line.starts_with("envoy_")).count();
    assert!(series > 100 * CLUSTERS, "{series} series");
    let requests = text.lines().find(|line| {
        line.starts_with("envoy_cluster_upstream_rq_total{") && line.contains("envoy_cluster_name=\"origin\"")
    });
    assert!(requests.is_some_and(|line| line.ends_with(" 1")), "as it was when the scrape began: {requests:?}");
}
