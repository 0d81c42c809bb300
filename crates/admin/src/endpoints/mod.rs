//! Which paths there are, and who answers them.

mod certificates;
mod clusters;
mod config_dump;
mod endpoint_dump;
mod filter_costs;
mod history;
mod index;
mod listeners;
mod logging;
mod lookups;
mod plugin_changes;
mod plugins;
mod process;
mod profilers;
mod routes;
mod runtime;
mod stats;
mod stats_page;
mod tap;

pub use certificates::certificates_json;
pub use stats::{statistics, tagger};
pub use tap::{MAX_BATCH_BYTES, Tap, TapBatch, Trace};

use crate::control::Control;
use crate::request::Request;
use crate::response::Reply;
use hyper::StatusCode;
use std::sync::Arc;

/// Answers a request to one path.
pub type Handler = Box<dyn Fn(&Arc<dyn Control>, &Request) -> Reply + Send>;

/// One path of the admin.
pub struct Endpoint {
    /// Starts with a slash; matched exactly.
    pub path: &'static str,
    /// One line for `/help`.
    pub help: &'static str,
    /// Name and meaning of each query parameter.
    pub parameters: &'static [(&'static str, &'static str)],
    /// Changes something: takes POST only, and nothing from another site's page.
    pub mutating: bool,
    pub handler: Handler,
}

/// The table of all paths, ascending.
pub(crate) struct Endpoints {
    control: Arc<dyn Control>,
    table: Vec<Endpoint>,
}

impl Endpoints {
    pub(crate) fn new(control: Arc<dyn Control>, more: Vec<Endpoint>) -> Self {
        let mut table = more;
        table.extend(own());
        // Stable: of two with one path, the caller's comes first and is found.
        table.sort_by_key(|endpoint| endpoint.path);
        table.dedup_by_key(|endpoint| endpoint.path);
        Self { control, table }
    }

    pub(crate) fn control(&self) -> &dyn Control {
        &*self.control
    }

    /// `from_a_page`: the request says that a page in a browser sent it (an `Origin` header, RFC 6454).
    pub(crate) fn answer(&self, request: &Request, from_a_page: bool) -> Reply {
        match request.path.as_str() {
            "/" => return index::page(&self.table),
            "/help" => return Reply::text(index::help(&self.table)),
            _ => {}
        }
        if let Some(plugin) = request.path.strip_prefix("/plugins/") {
            return plugin_changes::answer(&*self.control, request, plugin, from_a_page);
        }
        let Some(endpoint) = self.table.iter().find(|endpoint| endpoint.path == request.path) else {
            return Reply::refusal(StatusCode::NOT_FOUND, format!("invalid path. {}", index::help(&self.table)));
        };
        if endpoint.mutating && request.method != "POST" {
            return Reply::post_required(&request.method);
        }
        if endpoint.mutating && from_a_page {
            return not_from_a_page();
        }
        (endpoint.handler)(&self.control, request)
    }
}

/// Pages of other sites change nothing.
fn not_from_a_page() -> Reply {
    let message = "A request that changes something is not taken from a web page (it has an Origin header).\n";
    Reply::refusal(StatusCode::FORBIDDEN, message)
}

/// Envoy's endpoints that we have, `/history` and `/plugins`.
fn own() -> Vec<Endpoint> {
    let read = |path, help, parameters, handler: fn(&dyn Control, &Request) -> Reply| Endpoint {
        path,
        help,
        parameters,
        mutating: false,
        handler: Box::new(move |control, request| handler(&**control, request)),
    };
    let order = |path, help, parameters, handler: fn(&dyn Control, &Request) -> Reply| Endpoint {
        path,
        help,
        parameters,
        mutating: true,
        handler: Box::new(move |control, request| handler(&**control, request)),
    };
    let quit = Endpoint {
        path: "/quitquitquit",
        help: "exit the server",
        parameters: &[],
        mutating: true,
        handler: Box::new(|control, _| {
            let control = control.clone();
            Reply::done().then(move || control.quit())
        }),
    };
    let mut all = vec![
        order(
            "/allocprofiler",
            "enable/disable the allocation profiler (if supported)",
            profilers::SWITCH,
            profilers::allocations,
        ),
        read("/certs", "print certs on machine", certificates::PARAMETERS, certificates::certificates),
        read("/clusters", "upstream cluster status", clusters::PARAMETERS, clusters::clusters),
        read("/config_dump", "dump current configs", config_dump::PARAMETERS, config_dump::config_dump),
        read("/contention", "dump current mutex contention stats (if enabled)", &[], profilers::contention),
        order("/cpuprofiler", "enable/disable the CPU profiler (if supported)", profilers::SWITCH, profilers::cpu),
        order("/drain_listeners", "drain listeners", process::DRAIN_PARAMETERS, process::drain_listeners),
        read("/heap_dump", "dump current heap (if supported)", &[], profilers::heap_dump),
        order("/heapprofiler", "enable/disable the heap profiler (if supported)", profilers::SWITCH, profilers::heap),
        order("/healthcheck/fail", "cause the server to fail health checks", &[], process::fail_health_checks),
        order("/healthcheck/ok", "cause the server to pass health checks", &[], process::pass_health_checks),
        read(
            "/history",
            "print which configurations were accepted or refused, and why",
            history::PARAMETERS,
            history::history,
        ),
        read("/hot_restart_version", "print the hot restart compatibility version", &[], process::hot_restart_version),
        read("/init_dump", "print what the start still waits for", process::INIT_DUMP_PARAMETERS, process::init_dump),
        read("/listeners", "print listener info", listeners::PARAMETERS, listeners::listeners),
        order("/logging", "query/change logging levels", logging::PARAMETERS, logging::logging),
        read("/memory", "print current memory usage", &[], process::memory),
        read("/memory/tcmalloc", "print TCMalloc stats (if supported)", &[], profilers::tcmalloc),
        read("/peak_heap_dump", "dump peak heap (if supported)", &[], profilers::heap_dump),
        read(
            "/plugins",
            "plugins: what runs where, what it may do, what it costs; /plugins/NAME shows, takes (PUT) and removes (DELETE) one",
            plugins::PARAMETERS,
            plugins::plugins,
        ),
        quit,
        read("/ready", "print server state, return 200 if LIVE, otherwise return 503", &[], process::ready),
        order("/reopen_logs", "reopen access logs", &[], process::reopen_logs),
        order("/reset_counters", "reset all counters to zero", &[], stats::reset_counters),
        order("/routes/watch", "count the requests of each route for a while", routes::PARAMETERS, routes::watch),
        read("/runtime", "print runtime values", &[], runtime::runtime),
        order("/runtime_modify", "changes runtime values; an empty one takes a change back", &[], runtime::modify),
        read("/server_info", "print server version/status information", &[], process::server_info),
        read("/stats", "print server stats", stats::PARAMETERS, stats::stats),
        read(
            "/stats/prometheus",
            "print server stats in prometheus format",
            stats::PROMETHEUS_PARAMETERS,
            stats::prometheus,
        ),
        order(
            "/tap",
            "This is used for configuring the tap extension and streaming tap results",
            tap::PARAMETERS,
            tap::tap,
        ),
    ];
    all.extend(lookups::endpoints());
    all
}
