//! Certificates that the proxy gets itself: whoever gets them follows the configuration in force.

use postrider_acme::Issuer;
use postrider_model::Acme;
use postrider_telemetry::error;
use tokio::sync::mpsc;

pub struct Issuing {
    issuer: Option<Issuer>,
    renewed: mpsc::Sender<()>,
}

impl Issuing {
    /// `renewed` is told when a certificate was stored.
    pub fn new(renewed: mpsc::Sender<()>) -> Issuing {
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
        let renewed = self.renewed.clone();
        let started = Issuer::start(wanted, move || {
            // One that waits already says the same.
            let _ = renewed.try_send(());
        });
        self.issuer = started.map_err(|error| error!(Config, "no thread to get certificates: {error}")).ok();
    }
}
