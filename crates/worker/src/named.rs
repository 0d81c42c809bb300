//! Hosts that requests and connections name by their addresses (`OverrideHost`), one for each try.

use std::net::SocketAddr;
use std::rc::Rc;

use postrider_filter_api::StreamInfo;
use postrider_http::RequestHead;
use postrider_model::{Address, HostSource, Value};
use postrider_upstream::{Choice, Random};

use crate::cluster::{Cluster, Host};

/// What is left of them for the tries to come.
#[derive(Default)]
pub(crate) struct Named(std::vec::IntoIter<SocketAddr>);

impl Named {
    /// As a cluster wants them told, of a connection without a request as far as it has metadata.
    #[cold]
    pub(crate) fn of(cluster: &Cluster, request: Option<&RequestHead>, info: &StreamInfo) -> Named {
        let sources = cluster.hosts.named().into_iter().flat_map(|named| &named.sources);
        let text = |source: &HostSource| match source {
            HostSource::Header(name) => std::str::from_utf8(request?.fields.get_name(name.as_bytes())?).ok(),
            HostSource::Metadata(place) => match info.metadata.find(place)? {
                Value::String(text) => Some(text.as_str()),
                _ => None,
            },
        };
        let told = sources.filter_map(text).flat_map(|text| text.split(','));
        let all: Vec<_> = told.filter_map(|address| address.trim().parse().ok()).collect();
        Named(all.into_iter())
    }

    /// The next of them that is a host of the cluster, in whatever state, or else one that the policy chooses.
    pub(crate) fn pick(&mut self, cluster: &Cluster, choice: Choice<'_>, random: &Random) -> Option<Rc<Host>> {
        let hosts = &cluster.hosts;
        let mut addresses = self.0.by_ref().map(Address::Tcp);
        if hosts.named().is_some_and(|named| named.within_subset) {
            return hosts.pick_named(&mut addresses, choice, random);
        }
        addresses.find_map(|address| hosts.find(&address)).or_else(|| hosts.pick_for(choice, random))
    }
}

/// Notes which host was chosen, where the cluster wants that.
pub(crate) fn note(host: &Host, cluster: &Cluster, info: &mut StreamInfo) {
    if let Some(place) = cluster.hosts.named().and_then(|named| named.noted_at.as_ref()) {
        info.metadata.set_at(place, Value::String(host.endpoint.address.to_string()));
    }
}
