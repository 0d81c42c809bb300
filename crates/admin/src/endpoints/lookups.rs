//! `/stats/recentlookups`: names of statistics that were looked up while requests were served. Here they never are: a count
//! is found when the configuration is compiled, so that the list stays empty.

use super::Endpoint;
use crate::response::Reply;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

pub(super) fn endpoints() -> Vec<Endpoint> {
    let enabled = Arc::new(AtomicBool::new(false));
    let (shown, turned_off, turned_on) = (enabled.clone(), enabled.clone(), enabled);
    vec![
        Endpoint {
            path: "/stats/recentlookups",
            help: "Show recent stat-name lookups",
            parameters: &[],
            mutating: false,
            handler: Box::new(move |_, _| Reply::text(list(shown.load(Relaxed)))),
        },
        order("/stats/recentlookups/clear", "clear list of stat-name lookups and counter", || {}),
        order("/stats/recentlookups/disable", "disable recording of reset stat-name lookup names", move || {
            turned_off.store(false, Relaxed);
        }),
        order("/stats/recentlookups/enable", "enable recording of reset stat-name lookup names", move || {
            turned_on.store(true, Relaxed);
        }),
    ]
}

fn order(path: &'static str, help: &'static str, act: impl Fn() + Send + 'static) -> Endpoint {
    let handler = Box::new(move |_: &_, _: &_| {
        act();
        Reply::done()
    });
    Endpoint { path, help, parameters: &[], mutating: true, handler }
}

fn list(enabled: bool) -> String {
    let head = match enabled {
        true => "   Count Lookup\n",
        false => "Lookup tracking is not enabled. Use /stats/recentlookups/enable to enable.\n",
    };
    format!("{head}\ntotal: 0\n")
}
