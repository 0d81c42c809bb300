//! Keeps certificates good: gets those that are missing, renews the others in time, and tries again after failures.

use std::io;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use postrider_model::Acme;
use postrider_telemetry::{error, info, warning};
use tokio::sync::{mpsc, oneshot};

use crate::challenge::{Challenges, Socket};
use crate::client::Client;
use crate::order::{self, Proofs};
use crate::schedule::{Backoff, renewal};
use crate::store::Store;

/// The wall clock may be set, and a machine may sleep: nobody waits longer than this without a look at it.
const MAX_WAIT: Duration = Duration::from_secs(3600);

/// For a stored file to be in use.
const MAX_RELOAD: Duration = Duration::from_secs(30);

/// For all of one order; the parts have limits of their own.
const MAX_ORDER: Duration = Duration::from_secs(600);

/// A thread that keeps the certificates of some settings good, until it is dropped.
pub struct Issuer {
    settings: Acme,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Who has to be told of files that were stored.
#[derive(Debug)]
pub(crate) struct Changed(mpsc::Sender<oneshot::Sender<()>>);

impl Changed {
    /// Waits until what was stored is in use.
    pub(crate) async fn tell(&self) {
        let (done, is_done) = oneshot::channel();
        if self.0.send(done).await.is_ok() {
            // Whoever reads it takes its time at most; what is not in use then will be.
            let _ = tokio::time::timeout(MAX_RELOAD, is_done).await;
        }
    }
}

impl Issuer {
    /// `changed` hears of every file that was stored, and answers when it is in use.
    ///
    /// # Errors
    /// There is no thread to be had. What goes wrong later is logged, and tried again.
    pub fn start(settings: Acme, changed: mpsc::Sender<oneshot::Sender<()>>) -> io::Result<Issuer> {
        let changed = Changed(changed);
        let (stop, stopped) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let own = settings.clone();
        let thread = std::thread::Builder::new().name("acme".to_owned()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = keep(&own, &changed) => {}
                    _ = stopped => {}
                }
            });
            // A name that is being looked up must not hold up the end.
            runtime.shutdown_background();
        })?;
        Ok(Issuer { settings, stop: Some(stop), thread: Some(thread) })
    }

    pub fn settings(&self) -> &Acme {
        &self.settings
    }
}

impl Drop for Issuer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It ends at its next step; a panic of it was its own.
            let _ = thread.join();
        }
    }
}

async fn keep(settings: &Acme, changed: &Changed) {
    let mut backoff = Backoff::default();
    loop {
        match work(settings, changed).await {
            Err(error) => {
                let wait = backoff.next(settings.retry);
                error!(Config, "no certificates can be got: {error}; trying again in {} s", wait.as_secs());
                tokio::time::sleep(wait).await;
            }
            Ok(never) => match never {},
        }
    }
}

/// A certificate that is kept.
struct Kept<'s> {
    names: &'s [String],
    due: SystemTime,
    backoff: Backoff,
}

/// # Errors
/// What keeps all of it from working: the state directory, or the roots.
async fn work(settings: &Acme, changed: &Changed) -> Result<std::convert::Infallible, String> {
    let state = settings.state.display();
    let store = Store::open(settings).map_err(|error| format!("the state directory {state}: {error}"))?;
    let socket = Socket::bind(&settings.challenge_socket()).await.map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => format!("the state directory {state} is used by another process"),
        _ => format!("{}: {error}", settings.challenge_socket().display()),
    })?;
    let client = Client::new(settings.directory_ca.as_deref()).map_err(|error| error.to_string())?;
    let challenges = Challenges::default();
    tokio::select! {
        never = socket.serve(&challenges) => match never {},
        never = renew(settings, &store, &client, &challenges, changed) => match never {},
    }
}

async fn renew(
    settings: &Acme,
    store: &Store,
    client: &Client,
    challenges: &Challenges,
    changed: &Changed,
) -> std::convert::Infallible {
    let kept = settings.certificates.iter().map(|names| {
        let stored = store.certificate(names);
        if stored.is_none() {
            let names = names.join(", ");
            info!(
                Config,
                "certificate of {names}: none yet; a self-signed one stands in until {} issues it", settings.directory
            );
        }
        Kept { names, due: renewal(stored.as_ref(), names), backoff: Backoff::default() }
    });
    let mut kept: Vec<Kept<'_>> = kept.collect();
    let proofs = Proofs { kind: settings.challenge, challenges, store, changed };
    loop {
        let Some(next) = kept.iter_mut().min_by_key(|kept| kept.due) else {
            // There is always a certificate; without one there is nothing to do.
            return std::future::pending().await;
        };
        if let Ok(wait) = next.due.duration_since(SystemTime::now()) {
            tokio::time::sleep(wait.min(MAX_WAIT)).await;
            continue;
        }
        let names = next.names.join(", ");
        let order = tokio::time::timeout(MAX_ORDER, issue(settings, client, &proofs, next.names));
        match order.await.unwrap_or_else(|_| Err("the order took too long".to_owned())) {
            Ok(()) => {
                let stored = store.certificate(next.names);
                next.due = renewal(stored.as_ref(), next.names);
                next.backoff = Backoff::default();
                let issuer = stored.as_ref().map_or("", |facts| &facts.issuer);
                let left = |moment: SystemTime| span(moment.duration_since(SystemTime::now()).unwrap_or_default());
                let end = stored.as_ref().map_or(next.due, |facts| facts.not_after);
                info!(
                    Config,
                    "certificate of {names}: issued by {issuer}, good for {}; renewal in {}",
                    left(end),
                    left(next.due)
                );
                changed.tell().await;
            }
            Err(reason) => {
                let wait = next.backoff.next(settings.retry);
                next.due = SystemTime::now() + wait;
                let tries = next.backoff.failures();
                warning!(Config, "certificate of {names}: try {tries} failed: {reason}; next in {}", span(wait));
            }
        }
    }
}

async fn issue(settings: &Acme, client: &Client, proofs: &Proofs<'_>, names: &[String]) -> Result<(), String> {
    let account = order::account(settings, proofs.store, client).await?;
    let pem = order::obtain(&account, names, proofs).await?;
    let stored = proofs.store.put_certificate(names, &pem);
    stored.map_err(|error| format!("the certificate cannot be stored: {error}"))
}

/// For people: `59 d`, `3 h`, `40 min`, `12 s`.
fn span(time: Duration) -> String {
    let seconds = time.as_secs();
    for (unit, length) in [("d", 86_400), ("h", 3600), ("min", 60)] {
        if seconds >= 2 * length {
            return format!("{} {unit}", seconds / length);
        }
    }
    format!("{seconds} s")
}
