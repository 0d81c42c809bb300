//! Fetches code from elsewhere: files behind URLs, and images of registries.
//!
//! What it is for: a configuration whose plugins name such code waits until it is here. [`Fetcher::fetch`] looks into a
//! folder of its own first, asks as often as the configuration says, checks what came by its SHA-256, and keeps it.
//!
//! What it must never do: run on a worker, or hand out bytes that were not checked by the sum that was asked for, where one
//! was. Everything is bounded: size, redirects, time.
//!
//! Who calls it: the control thread, as tasks of its runtime.

#![forbid(unsafe_code)]

mod archive;
mod cache;
mod client;
mod credentials;
mod image;
mod reference;
mod way;

use std::time::Duration;

use postrider_filter_plugin::{Place, Remote};
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;

pub use cache::Cache;
pub use client::{MAX_CODE_BYTES, MAX_REDIRECTS};
pub use way::{Endpoint, Way};

/// Most tries at a time: each holds a connection and the code that came so far, and registries turn away whoever asks for
/// hundreds of things at once. The others wait for their turn, which their time does not begin before.
pub const MAX_AT_A_TIME: usize = 8;

/// Fetches code, and keeps it.
#[derive(Debug)]
pub struct Fetcher {
    cache: Cache,
    turns: Semaphore,
}

/// Code that came.
#[derive(Debug, PartialEq, Eq)]
pub struct Fetched {
    pub bytes: Vec<u8>,
    /// It was here before.
    pub cached: bool,
}

impl Fetcher {
    pub fn new(cache: Cache) -> Fetcher {
        Fetcher { cache, turns: Semaphore::new(MAX_AT_A_TIME) }
    }

    /// The code, from the folder or from where it is. `way` is that of the cluster which the code names, or why
    /// there is none; it is not asked for other code. Calls `tried` after each try that failed, with the reason.
    ///
    /// # Errors
    /// Why the last try failed, for people.
    pub async fn fetch(
        &self,
        remote: &Remote,
        way: Result<&Way, &str>,
        tried: impl Fn(&str) + Send + Sync,
    ) -> Result<Fetched, String> {
        if let Some(bytes) = self.kept(remote) {
            return Ok(Fetched { bytes, cached: true });
        }
        let mut pause = remote.retries.first;
        let mut left = remote.retries.count;
        loop {
            // It is never closed, so this always is one.
            let turn = self.turns.acquire().await;
            let once = tokio::time::timeout(remote.timeout, self.once(remote, way)).await;
            drop(turn);
            let late = |_| Err(format!("no answer within {} s", remote.timeout.as_secs_f64()));
            match once.unwrap_or_else(late) {
                Ok(fetched) => return Ok(fetched),
                Err(reason) => {
                    tried(&reason);
                    if left == 0 {
                        return Err(reason);
                    }
                }
            }
            left -= 1;
            tokio::time::sleep(pause).await;
            pause = pause.saturating_mul(2).min(remote.retries.longest).max(Duration::from_millis(1));
        }
    }

    fn kept(&self, remote: &Remote) -> Option<Vec<u8>> {
        match (&remote.place, &remote.sha256) {
            (Place::Url(_) | Place::Cluster { .. }, Some(sum)) => self.cache.read(sum),
            (Place::Image(image), _) if image.always => None,
            (Place::Image(image), sum) => self.cache.read_named(&image.reference, sum.as_deref()),
            (_, None) => None,
        }
    }

    async fn once(&self, remote: &Remote, way: Result<&Way, &str>) -> Result<Fetched, String> {
        let bytes = match &remote.place {
            Place::Url(url) => client::file(url, &Way::of_url(url)?).await?,
            Place::Cluster { uri, .. } => client::file(uri, way?).await?,
            Place::Image(image) => {
                let pulled = image::pull(image, remote.sha256.as_deref(), &self.cache).await?;
                let sum = sum(&pulled.code);
                self.cache.write(&sum, &pulled.code);
                self.cache.name(&image.reference, &pulled.manifest, &sum);
                return Ok(Fetched { bytes: pulled.code, cached: pulled.cached });
            }
        };
        let found = sum(&bytes);
        if let Some(wanted) = remote.sha256.as_deref().filter(|wanted| *wanted != found) {
            return Err(format!("its SHA-256 is {found}, not {wanted}"));
        }
        self.cache.write(&found, &bytes);
        Ok(Fetched { bytes, cached: false })
    }
}

/// In lower-case hexadecimal digits.
fn sum(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use postrider_filter_plugin::Retries;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::sync::Barrier;

    use super::*;

    /// What a server saw: how many are asking, and how many asked at a time.
    #[derive(Default)]
    struct Askers(AtomicUsize, AtomicUsize);

    #[test]
    fn so_much_is_fetched_at_a_time_and_no_more() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
            let address = listener.local_addr().unwrap();
            let (askers, full) = (Arc::new(Askers::default()), Arc::new(Barrier::new(MAX_AT_A_TIME)));
            let seen = askers.clone();
            tokio::spawn(async move {
                while let Ok((mut stream, _)) = listener.accept().await {
                    let (seen, full) = (seen.clone(), full.clone());
                    tokio::spawn(async move {
                        let mut request = [0; 1024];
                        let _ = stream.read(&mut request).await;
                        seen.1.fetch_max(seen.0.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                        // Nobody is answered before so many ask.
                        full.wait().await;
                        for _ in 0..100 {
                            tokio::task::yield_now().await;
                        }
                        seen.0.fetch_sub(1, Ordering::Relaxed);
                        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ncode").await;
                    });
                }
            });
            let fetcher = Arc::new(Fetcher::new(Cache::default()));
            let all = (0..3 * MAX_AT_A_TIME).map(|number| {
                let (fetcher, url) = (fetcher.clone(), format!("http://{address}/{number}"));
                tokio::spawn(async move {
                    let retries = Retries { count: 0, first: Duration::from_secs(1), longest: Duration::from_secs(1) };
                    let timeout = Duration::from_secs(60);
                    let remote = Remote { place: Place::Url(url), sha256: Some(sum(b"code")), timeout, retries };
                    fetcher.fetch(&remote, Err(""), |_| ()).await
                })
            });
            for fetched in all.collect::<Vec<_>>() {
                assert_eq!(fetched.await.unwrap().unwrap().bytes, b"code");
            }
            assert_eq!(askers.1.load(Ordering::Relaxed), MAX_AT_A_TIME);
        });
    }
}
