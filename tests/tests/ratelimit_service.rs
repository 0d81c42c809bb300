//! The rate limit filter with the service that most people run behind it: github.com/envoyproxy/ratelimit on Redis.
//! `make ratelimit` builds that and runs this.

use postrider_tests::grpc::http2;
use postrider_tests::kit::config::{extension, router};
use postrider_tests::kit::net::free_port;
use postrider_tests::kit::process::Running;
use postrider_tests::kit::{Config, Origin, Proxy, TempDir, wait_until};
use postrider_tests::{ask, needed};
use serde_json::json;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const LIMITS: &str = "\
domain: shop
descriptors:
- key: user
  value: vip
  rate_limit: { unit: hour, requests_per_unit: 4 }
- key: user
  rate_limit: { unit: hour, requests_per_unit: 2 }
";

fn service() -> PathBuf {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/tools/ratelimit");
    let path = std::env::var_os("RATELIMIT_SERVICE").map_or(built, PathBuf::from);
    assert!(path.exists(), "{} is not there: `make ratelimit` builds it", path.display());
    path
}

fn await_port(address: SocketAddr) {
    wait_until(&format!("{address} accepts"), || TcpStream::connect(address).is_ok());
}

fn quiet(command: &mut Command) -> Running {
    Running::spawn(command.stdout(Stdio::null()).stderr(Stdio::null()))
}

#[test]
#[ignore = "needs a service that is built from the network: make ratelimit"]
fn limits_are_kept_by_the_real_service() {
    let folder = TempDir::new();
    let [redis, grpc, http, debug] = [(); 4].map(|()| SocketAddr::from(([127, 0, 0, 1], free_port())));
    let mut command = Command::new(needed("redis-server"));
    command.args(["--bind", "127.0.0.1", "--port", &redis.port().to_string(), "--save", "", "--appendonly", "no"]);
    let _redis = quiet(command.current_dir(folder.path()));
    await_port(redis);
    std::fs::create_dir_all(folder.path().join("limits/config")).unwrap();
    std::fs::write(folder.path().join("limits/config/shop.yaml"), LIMITS).unwrap();
    let mut command = Command::new(service());
    command.env("REDIS_SOCKET_TYPE", "tcp").env("REDIS_URL", redis.to_string());
    command.env("RUNTIME_ROOT", folder.path()).env("RUNTIME_SUBDIRECTORY", "limits");
    command.env("RUNTIME_WATCH_ROOT", "false").env("USE_STATSD", "false").env("LOG_LEVEL", "error");
    for (name, address) in [("", http), ("GRPC_", grpc), ("DEBUG_", debug)] {
        command.env(format!("{name}HOST"), "127.0.0.1").env(format!("{name}PORT"), address.port().to_string());
    }
    let _service = quiet(&mut command);
    await_port(grpc);

    let origin = Origin::echo("a");
    let filter = extension(
        "envoy.filters.http.ratelimit",
        "filters.http.ratelimit.v3.RateLimit",
        json!({
            "domain": "shop", "timeout": "5s", "failure_mode_deny": true,
            "enable_x_ratelimit_headers": "DRAFT_VERSION_03",
            "rate_limit_service": {
                "grpc_service": {"envoy_grpc": {"cluster_name": "limits"}}, "transport_api_version": "V3",
            },
        }),
    );
    let user = json!({"request_headers": {"header_name": "x-user", "descriptor_key": "user"}});
    let routes = json!([{"match": {"prefix": "/"}, "route": {
        "cluster": "origin", "rate_limits": [{"actions": [user]}],
    }}]);
    let config = Config::new()
        .http(json!({
            "http_filters": [filter, router()],
            "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": routes}]},
        }))
        .cluster_with("limits", &[grpc], http2())
        .cluster("origin", &[origin.address]);
    let proxy = Proxy::start(&config);
    let get = |user: &str| ask(&proxy, "GET", "test", "/", &format!("x-user: {user}\r\n"));
    let statuses = |user: &str, count: usize| (0..count).map(|_| get(user).status).collect::<Vec<_>>();
    let first = get("eve");
    assert_eq!((first.status, first.header("x-ratelimit-remaining")), (200, "1"));
    assert_eq!(first.header("x-ratelimit-limit"), "2, 2;w=3600");
    assert_eq!(statuses("eve", 3), [200, 429, 429]);
    assert_eq!(statuses("vip", 5), [200, 200, 200, 200, 429]);
    assert_eq!(statuses("bob", 1), [200], "each counts by himself");
    assert_eq!(ask(&proxy, "GET", "test", "/", "").status, 200, "without a user nothing is counted");
    assert_eq!(proxy.stats().value("cluster.origin.ratelimit.over_limit"), 3);
    assert_eq!(proxy.stats().value("cluster.origin.ratelimit.error"), 0);
    assert_eq!(proxy.stats().value("cluster.limits.upstream_cx_http2_total"), 1);
}
