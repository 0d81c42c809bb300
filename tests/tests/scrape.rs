//! Whoever reads statistics takes nothing from those who are served, however many there are and however slowly he reads.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use postrider_tests::get;
use postrider_tests::kit::{Config, Origin, Proxy};

/// So many that there are a million series.
const CLUSTERS: usize = 8_500;
const SERIES: usize = 1_000_000;

/// Bytes that the process may take for each series while it is read.
const BYTES_PER_SERIES: u64 = 96;

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
    let before = proxy.resident_kib();
    let mut most = before;
    // A scrape that has begun and is far from its end, as its reader does not go on.
    let mut slow = TcpStream::connect(proxy.admin_address()).unwrap();
    slow.write_all(b"GET /stats/prometheus HTTP/1.1\r\nhost: admin\r\nconnection: close\r\n\r\n").unwrap();
    let mut seen = vec![0; SOME];
    slow.read_exact(&mut seen).unwrap();
    // The clients wait for nobody who reads statistics: the scrape ends after all of these.
    for at in 0..50 {
        assert_eq!(client.exchange(get(&format!("/{at}"))).status, 200);
        assert_eq!(proxy.get(&format!("/new/{at}")).status, 200);
        most = most.max(proxy.resident_kib());
    }
    let (mut series, mut requests) = (0, None);
    for line in BufReader::new(seen.as_slice().chain(slow)).lines().map(Result::unwrap) {
        series += usize::from(line.starts_with("envoy_"));
        if line.starts_with("envoy_cluster_upstream_rq_total{") && line.contains("envoy_cluster_name=\"origin\"") {
            requests = Some(line);
        }
        if series % 10_000 == 0 {
            most = most.max(proxy.resident_kib());
        }
    }
    assert!(series > SERIES, "{series} series");
    assert!(requests.as_ref().is_some_and(|it| it.ends_with(" 1")), "as it was when the scrape began: {requests:?}");
    let bound = SERIES as u64 * BYTES_PER_SERIES / 1024;
    assert!(most - before < bound, "{} KiB more while {series} series were read, and not {bound}", most - before);
}
