//! Load that goes on while a test changes the proxy under it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use postrider_testkit::{RawClient, wait_until};

/// Clients that send requests one after the other until told to stop.
pub struct Load {
    stop: Arc<AtomicBool>,
    served: Arc<AtomicU64>,
    clients: Vec<JoinHandle<Vec<String>>>,
}

impl Load {
    /// `request` is sent over and over, each time on a connection that lasts as long as it can.
    pub fn start(address: SocketAddr, clients: usize, method: &'static str, request: impl Into<String>) -> Self {
        Self::start_paced(address, clients, Duration::ZERO, method, request)
    }

    /// The same with a pause of each client between its requests.
    pub fn start_paced(
        address: SocketAddr,
        clients: usize,
        pause: Duration,
        method: &'static str,
        request: impl Into<String>,
    ) -> Self {
        let request = request.into();
        let stop = Arc::new(AtomicBool::new(false));
        let served = Arc::new(AtomicU64::new(0));
        let clients = (0..clients)
            .map(|_| {
                let (stop, served, request) = (Arc::clone(&stop), Arc::clone(&served), request.clone());
                std::thread::spawn(move || drive(address, pause, method, &request, &stop, &served))
            })
            .collect();
        let load = Self { stop, served, clients };
        load.wait_progress(100);
        load
    }

    /// Waits until `more` further requests were answered.
    pub fn wait_progress(&self, more: u64) {
        let goal = self.served.load(Ordering::SeqCst) + more;
        wait_until("the load goes on", || self.served.load(Ordering::SeqCst) >= goal);
    }

    /// Stops and returns what went wrong.
    pub fn finish(self) -> Vec<String> {
        self.stop.store(true, Ordering::SeqCst);
        self.clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    }
}

fn drive(
    address: SocketAddr,
    pause: Duration,
    method: &str,
    request: &str,
    stop: &AtomicBool,
    served: &AtomicU64,
) -> Vec<String> {
    let mut failures = Vec::new();
    let mut client = RawClient::connect(address);
    while !stop.load(Ordering::SeqCst) {
        client.send(request);
        let reconnect = match client.response(method) {
            Ok(response) => {
                if response.status != 200 {
                    failures.push(format!("status {}: {}", response.status, response.text()));
                }
                response.header("connection") == "close"
            }
            Err(error) => {
                failures.push(format!("{error:?}"));
                true
            }
        };
        served.fetch_add(1, Ordering::SeqCst);
        if reconnect {
            client = RawClient::connect(address);
        }
        wait(pause);
    }
    failures
}

#[expect(clippy::disallowed_methods, reason = "the time between two requests is what is asked for")]
fn wait(time: Duration) {
    std::thread::sleep(time);
}
