//! A real Prometheus reads `/stats/prometheus` and answers every question of the Grafana board. The same expectations hold for
//! Envoy, but for the metrics that it does not have.

use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use postrider_tests::envoy;
use postrider_tests::kit::config::{Config, extension};
use postrider_tests::kit::net::free_port;
use postrider_tests::kit::process::Running;
use postrider_tests::kit::{Origin, Proxy, RawClient, TempDir, wait_until};
use serde_json::{Value, json};

const BOARD: &str = include_str!("../../packaging/grafana.json");

/// The Prometheus of the system; `make test` installs it.
const PROMETHEUS: &str = "prometheus";

/// What it asks for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asks {
    Text,
    /// Protocol buffers, which it prefers when it knows native histograms.
    Messages,
}

/// A Prometheus that reads `targets`, each by a job of its own.
struct Prometheus {
    address: SocketAddr,
    _process: Running,
    _folder: TempDir,
}

impl Prometheus {
    fn start(jobs: &[(&str, SocketAddr)], asks: Asks) -> Prometheus {
        let folder = TempDir::new();
        let jobs = jobs.iter().map(|(name, target)| {
            json!({
                "job_name": name,
                "scrape_interval": "200ms",
                "scrape_timeout": "200ms",
                "metrics_path": "/stats/prometheus",
                "static_configs": [{"targets": [target.to_string()]}],
            })
        });
        // JSON is YAML.
        let config = json!({"scrape_configs": jobs.collect::<Vec<_>>()});
        let config = folder.write("prometheus.yml", config.to_string());
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let program = std::env::var_os("PROMETHEUS").unwrap_or(PROMETHEUS.into());
        let mut command = Command::new(program);
        command.arg(format!("--config.file={}", config.display()));
        command.arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()));
        command.arg(format!("--web.listen-address={address}"));
        if asks == Asks::Messages {
            command.arg("--enable-feature=native-histograms");
        }
        command.current_dir(folder.path()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = Running::spawn(&mut command);
        wait_until("Prometheus listens", || std::net::TcpStream::connect(address).is_ok());
        Prometheus { address, _process: process, _folder: folder }
    }

    fn get(&self, path: &str) -> Value {
        let host = self.address;
        let answer = RawClient::once(host, format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n"));
        serde_json::from_slice(&answer.expect("an answer").body).unwrap_or(Value::Null)
    }

    /// The samples that a query gives now; the reason if it gives none.
    fn query(&self, query: &str) -> Result<usize, String> {
        let encoded: String = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let answer = self.get(&format!("/api/v1/query?query={encoded}"));
        match answer["data"]["result"].as_array() {
            Some(found) if !found.is_empty() => Ok(found.len()),
            Some(_) => Err("no data".to_owned()),
            None => Err(answer.to_string()),
        }
    }

    /// Job, health and last error of each target that was read already.
    fn targets(&self) -> Vec<(String, String, String)> {
        let answer = self.get("/api/v1/targets");
        let text = |target: &Value, field: &str| target[field].as_str().unwrap_or_default().to_owned();
        let targets = answer["data"]["activeTargets"].as_array().cloned().unwrap_or_default();
        let read = targets.iter().filter(|target| target["health"] != "unknown");
        read.map(|target| (text(target, "scrapePool"), text(target, "health"), text(target, "lastError"))).collect()
    }
}

/// Every query of the board's panels, as Grafana sends it.
fn questions(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(entries) => entries.iter().for_each(|(key, value)| match value {
            Value::String(text) if key == "expr" => {
                let text = text.replace("$__rate_interval", "2s").replace("$instance", ".*").replace("$cluster", ".*");
                assert!(!text.contains('$'), "{text}");
                found.push(text);
            }
            value => questions(value, found),
        }),
        Value::Array(items) => items.iter().for_each(|item| questions(item, found)),
        _ => {}
    }
}

/// A site whose names need escapes in labels, with histograms, statuses and further tags.
fn site(origin: &Origin) -> Config {
    let names = json!({"stats_tags": [{"tag_name": "fleet", "fixed_value": "b\"l\\ue"}]});
    let log = extension("log", "access_loggers.stream.v3.StdoutAccessLog", json!({}));
    Config::proxy_to(origin.address)
        .cluster("odd \"name\\ é", &[origin.address])
        .overlay_filter("http", json!({"access_log": [log]}))
        .overlay(json!({"stats_config": names}))
}

/// Ends the traffic, also when the test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

#[test]
fn prometheus_reads_the_metrics_and_answers_the_board() {
    // Good answers and bad ones, since there is no rate of what never was.
    let origin = Origin::start(|connection| {
        while let Some(request) = connection.request() {
            let status = if request.target == "/bad" { "500 Bad" } else { "200 OK" };
            connection.write(format!("HTTP/1.1 {status}\r\ncontent-length: 2\r\n\r\nok").as_bytes());
        }
    });
    let plain = Proxy::start(&Config::proxy_to(origin.address));
    let tagged = Proxy::start(&site(&origin));
    let jobs = [("plain", plain.admin_address()), ("tagged", tagged.admin_address())];
    let both = [Asks::Text, Asks::Messages].map(|asks| Prometheus::start(&jobs, asks));
    let mut queries = Vec::new();
    questions(&serde_json::from_str(BOARD).expect("a board is JSON"), &mut queries);
    assert!(queries.len() > 20, "{queries:?}");
    if envoy() {
        // Ours alone.
        queries.retain(|query| !query.contains("envoy_access_log_lines_dropped"));
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(SeqCst) {
                for proxy in [&plain, &tagged] {
                    assert_eq!((proxy.get("/").status, proxy.get("/bad").status), (200, 500));
                }
            }
        });
        let _stop = Stop(&done);
        for prometheus in &both {
            let mut unanswered = Vec::new();
            wait_until("an answer to every question", || {
                let reason = |query: &String| Some((query.clone(), prometheus.query(query).err()?));
                unanswered.clear();
                unanswered.extend(queries.iter().filter_map(reason));
                if !unanswered.is_empty() {
                    eprintln!("{unanswered:?}");
                }
                unanswered.is_empty()
            });
            let targets = prometheus.targets();
            assert_eq!(targets.len(), 2, "{targets:?}");
            assert!(targets.iter().all(|(_, health, error)| health == "up" && error.is_empty()), "{targets:?}");
        }
    });
    for prometheus in both {
        assert_eq!(prometheus.query("envoy_server_live{job=\"plain\"} == 1"), Ok(1));
        assert_eq!(
            prometheus.query(
                "envoy_http_downstream_rq_time_count{job=\"plain\",envoy_http_conn_manager_prefix=\"ingress_http\"} > 0"
            ),
            Ok(1)
        );
        let odd = "envoy_cluster_name=\"odd \\\"name\\\\ é\",fleet=\"b\\\"l\\\\ue\"";
        assert_eq!(prometheus.query(&format!("envoy_cluster_upstream_cx_total{{job=\"tagged\",{odd}}}")), Ok(1));
    }
}
