//! Overload by what the system tells of memory and processors: the proxy runs where files of the test's own stand in the place of
//! the system's. That takes a namespace of mounts; where none can be made, there is nothing to test.

use std::path::{Path, PathBuf};
use std::process::Command;

use postrider_tests::kit::proxy::{Launch, binary};
use postrider_tests::kit::{Config, Origin, Proxy, TempDir, wait_until};
use serde_json::{Value, json};

const ACTION: &str = "overload.envoy.overload_actions.stop_accepting_requests.active";

/// What the proxy takes for the system's files.
struct System {
    folder: TempDir,
}

impl System {
    /// `None` where no namespace can be made.
    fn new() -> Option<System> {
        let made = Command::new("unshare").args(["--user", "--map-root-user", "--mount", "true"]).output();
        if !made.is_ok_and(|output| output.status.success()) {
            eprintln!("no namespace of mounts can be made here: nothing is tested");
            return None;
        }
        let system = System { folder: TempDir::new() };
        std::fs::create_dir_all(system.groups().join("memory")).expect("a folder");
        std::fs::write(system.processors(), "cpu  0 0 0 0\n").expect("a file");
        Some(system)
    }

    fn groups(&self) -> PathBuf {
        self.folder.path().join("groups")
    }

    fn processors(&self) -> PathBuf {
        self.folder.path().join("processors")
    }

    /// Takes the place of the file in one step, so that nobody reads a part of it.
    fn tell(&self, name: &str, text: &str) {
        let next = self.folder.path().join("next");
        std::fs::write(&next, text).expect("a file");
        std::fs::rename(next, self.groups().join(name)).expect("a file");
    }

    /// A proxy with one monitor, which refuses requests from this pressure on.
    fn proxy(&self, origin: &Origin, monitor: &str, config: Value, most: f64) -> Proxy {
        let name = format!("envoy.resource_monitors.{monitor}");
        let mut config = config;
        let kind = match monitor {
            "cgroup_memory" => "cgroup_memory.v3.CgroupMemoryConfig",
            _ => "cpu_utilization.v3.CpuUtilizationConfig",
        };
        config["@type"] = json!(format!("type.googleapis.com/envoy.extensions.resource_monitors.{kind}"));
        let manager = json!({
            "refresh_interval": "0.02s",
            "resource_monitors": [{"name": name, "typed_config": config}],
            "actions": [{
                "name": "envoy.overload_actions.stop_accepting_requests",
                "triggers": [{"name": name, "threshold": {"value": most}}],
            }],
        });
        let config = Config::proxy_to(origin.address).overlay(json!({"overload_manager": manager}));
        Proxy::start_with(&config, Launch { binary: Some(self.wrapped()), ..Launch::default() })
    }

    /// The binary under test, where these files are the system's.
    fn wrapped(&self) -> PathBuf {
        let program = binary().canonicalize().expect("a program");
        // By the name the kit tells which of the proxies it is.
        let name = program.file_name().and_then(|name| name.to_str()).expect("a name").to_owned();
        let inner = format!(
            "mount --bind {} /sys/fs/cgroup && mount --bind {} /proc/stat && exec {} \"$@\"",
            shown(&self.groups()),
            shown(&self.processors()),
            shown(&program),
        );
        let script = format!("#!/bin/sh\nexec unshare --user --map-root-user --mount sh -c '{inner}' inside \"$@\"\n");
        let path = self.folder.write(&name, script);
        let done = Command::new("chmod").arg("+x").arg(&path).status();
        assert!(done.expect("chmod").success());
        path
    }
}

fn shown(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

fn refuses(proxy: &Proxy, refuses: bool) {
    wait_until("the action", || proxy.stats().value(ACTION) == u64::from(refuses));
    assert_eq!(proxy.get("/").status, if refuses { 503 } else { 200 });
}

fn hello() -> Origin {
    Origin::fixed("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello")
}

#[test]
fn requests_are_refused_while_the_control_group_is_nearly_full() {
    let Some(system) = System::new() else { return };
    let origin = hello();
    system.tell("memory.max", "1000000\n");
    system.tell("memory.current", "500000\n");
    let proxy = system.proxy(&origin, "cgroup_memory", json!({}), 0.9);
    let pressure = || proxy.stats().value("overload.envoy.resource_monitors.cgroup_memory.pressure");
    wait_until("the pressure", || pressure() == 50);
    refuses(&proxy, false);
    system.tell("memory.current", "950000\n");
    refuses(&proxy, true);
    assert_eq!(pressure(), 95);
    system.tell("memory.current", "100000\n");
    refuses(&proxy, false);
    // A limit that goes down is as good as memory that is used.
    system.tell("memory.max", "100000\n");
    refuses(&proxy, true);
    // Without a limit there is none to come near.
    system.tell("memory.max", "max\n");
    refuses(&proxy, false);
}

#[test]
fn a_limit_of_ones_own_counts_where_it_is_less_in_version_1_too() {
    let Some(system) = System::new() else { return };
    let origin = hello();
    system.tell("memory/memory.limit_in_bytes", "1000000\n");
    system.tell("memory/memory.usage_in_bytes", "95000\n");
    let proxy = system.proxy(&origin, "cgroup_memory", json!({"max_memory_bytes": 100_000}), 0.9);
    refuses(&proxy, true);
    system.tell("memory/memory.usage_in_bytes", "50000\n");
    refuses(&proxy, false);
}

#[test]
fn requests_are_refused_while_processors_are_busy() {
    let Some(system) = System::new() else { return };
    let origin = hello();
    // The mean over time rises by a twentieth of what passed, so a low threshold is met soon.
    let proxy = system.proxy(&origin, "cpu_utilization", json!({}), 0.2);
    refuses(&proxy, false);
    let (mut busy, mut idle) = (0, 0);
    let mut pass = |work: u64, rest: u64| {
        (busy, idle) = (busy + work, idle + rest);
        // A bound file cannot be replaced: it is short enough to be read whole.
        std::fs::write(system.processors(), format!("cpu  {busy} 0 0 {idle}\n")).expect("a file");
    };
    let active = || proxy.stats().value(ACTION) == 1;
    wait_until("the action", || {
        pass(100, 0);
        active()
    });
    assert_eq!(proxy.get("/").status, 503);
    wait_until("the end of the action", || {
        pass(0, 100);
        !active()
    });
    assert_eq!(proxy.get("/").status, 200);
}

#[test]
fn requests_are_refused_while_the_control_groups_share_of_processors_is_used() {
    let Some(system) = System::new() else { return };
    let origin = hello();
    system.tell("cpu.max", "100000 100000\n");
    system.tell("cpu.stat", "usage_usec 0\n");
    system.tell("cpuset.cpus.effective", "0\n");
    let proxy = system.proxy(&origin, "cpu_utilization", json!({"mode": "CONTAINER"}), 0.2);
    refuses(&proxy, false);
    let mut used: u64 = 0;
    let active = || proxy.stats().value(ACTION) == 1;
    wait_until("the action", || {
        // More than one processor could do in any time that passes here.
        used += 60_000_000;
        system.tell("cpu.stat", &format!("usage_usec {used}\n"));
        active()
    });
    assert_eq!(proxy.get("/").status, 503);
    // Nothing is used any more.
    refuses(&proxy, false);
}
