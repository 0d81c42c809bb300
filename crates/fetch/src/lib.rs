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

pub use cache::Cache;
pub use client::{MAX_CODE_BYTES, MAX_REDIRECTS};
pub use way::{Endpoint, Way};

/// Fetches code, and keeps it.
#[derive(Debug, Default)]
pub struct Fetcher {
    cache: Cache,
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
        Fetcher { cache }
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
            let once = tokio::time::timeout(remote.timeout, self.once(remote, way)).await;
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
