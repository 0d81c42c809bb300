//! Which certificates a plan serves, trusts and shows to upstreams, and where.

use postrider_model::{Certificate, Origin, Validation};
use postrider_tls::CertificateFacts;

use super::Plan;

/// The certificates of one TLS context.
#[derive(Debug)]
pub struct TlsContext<'p> {
    pub place: TlsPlace<'p>,
    /// Those that are shown to the other side, leaves only.
    pub own: Vec<KnownCertificate<'p>>,
    /// Those that the other side's are traced back to.
    pub roots: Vec<KnownCertificate<'p>>,
}

/// What a TLS context belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsPlace<'p> {
    /// A filter chain, which may have no name.
    Chain {
        listener: &'p str,
        chain: &'p str,
    },
    Cluster(&'p str),
}

/// One certificate, and how the configuration calls it.
#[derive(Debug)]
pub struct KnownCertificate<'p> {
    pub facts: &'p CertificateFacts,
    /// Of the secret that it came from.
    pub name: Option<&'p str>,
    pub origin: &'p Origin,
}

impl Plan {
    /// Every TLS context of listeners and clusters, in the order of the document.
    pub fn tls_contexts(&self) -> impl Iterator<Item = TlsContext<'_>> {
        let chains = self.listeners.iter().flat_map(|listener| {
            listener.each_chain().filter_map(|chain| {
                let (tls, model) = (chain.tls.as_ref()?, chain.model.tls.as_ref()?);
                Some(TlsContext {
                    place: TlsPlace::Chain { listener: &listener.model.name, chain: &chain.model.name },
                    own: own(tls.certificates(), &model.certificates),
                    roots: roots(tls.roots(), model.common.validation.as_ref()),
                })
            })
        });
        let of_clusters = self.clusters.iter().flat_map(|cluster| {
            let labelled = cluster.model.transports.iter().map(|transport| transport.tls.as_ref());
            let models = std::iter::once(cluster.model.tls.as_ref()).chain(labelled);
            cluster.each_transport().zip(models).map(move |(transport, model)| (cluster, transport.tls.as_ref(), model))
        });
        let clusters = of_clusters.filter_map(|(cluster, tls, model)| {
            let (tls, model) = (tls?, model?);
            Some(TlsContext {
                place: TlsPlace::Cluster(&cluster.model.name),
                own: own(tls.certificate().map(std::slice::from_ref).unwrap_or_default(), model.certificate.as_slice()),
                roots: roots(tls.roots(), model.common.validation.as_ref()),
            })
        });
        chains.chain(clusters)
    }
}

fn own<'p>(facts: &'p [CertificateFacts], models: &'p [Certificate]) -> Vec<KnownCertificate<'p>> {
    let both = facts.iter().zip(models);
    both.map(|(facts, model)| KnownCertificate { facts, name: model.name.as_deref(), origin: &model.origin }).collect()
}

fn roots<'p>(facts: &'p [CertificateFacts], validation: Option<&'p Validation>) -> Vec<KnownCertificate<'p>> {
    let Some(validation) = validation else { return Vec::new() };
    let known = |facts| KnownCertificate { facts, name: validation.name.as_deref(), origin: &validation.origin };
    facts.iter().map(known).collect()
}
