//! Certificates that the proxy gets itself: whoever gets them follows the configuration in force.

use postrider_acme::Issuer;
use postrider_model::Acme;
use postrider_telemetry::error;
use tokio::sync::{mpsc, oneshot};

pub struct Issuing {
    issuer: Option<Issuer>,
    renewed: mpsc::Sender<oneshot::Sender<()>>,
}

impl Issuing {
    /// `renewed` is told when a file was stored, and answers when it is in use.
    pub fn new(renewed: mpsc::Sender<oneshot::Sender<()>>) -> Issuing {
        Issuing { issuer: None, renewed }
    }

    /// Settings that did not change leave the issuer at its work.
    pub fn follow(&mut self, wanted: Option<Acme>) {
        if self.issuer.as_ref().map(Issuer::settings) == wanted.as_ref() {
            return;
        }
        // The old one leaves the state directory before the new one takes it.
        self.issuer = None;
        let Some(wanted) = wanted else { return };
        let started = Issuer::start(wanted, self.renewed.clone());
        self.issuer = started.map_err(|error| error!(Config, "no thread to get certificates: {error}")).ok();
    }
}
