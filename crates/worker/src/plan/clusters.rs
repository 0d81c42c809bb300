//! A cluster, ready to run: what all workers share of it.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use postrider_filter_api::{BridgeFactory, Factory, Registry, Sources, WatchedFile};
use postrider_model::{CheckKind, Cluster, Endpoint, Metadata, ProxyHeader, UpstreamTls};
use postrider_router::HeaderTest;
use postrider_tls::ClientTls;
use postrider_upstream::outlier::Monitors;
use postrider_upstream::{Breakers, Endpoints, OpenConnections, dns};

use super::errors::{FILTER, PlanError, TlsOrigins, report};
use super::files::{are_current, read, remember};
use super::filters;
use super::routes::AttemptsPlan;

pub struct ClusterPlan {
    /// As it was when the cluster began. What [continues](Cluster::continues) it is taken over by what runs.
    pub model: Arc<Cluster>,
    pub name: Arc<str>,
    pub breakers: Arc<Breakers>,
    /// Known before any name was resolved.
    pub initial: Endpoints,
    /// How connections begin.
    pub transport: Transport,
    /// In place of that, by the model's transports.
    pub transports: Vec<Transport>,
    /// Condition of the answers to each health check.
    pub check_services: Vec<Option<HeaderTest>>,
    /// Where bad answers of hosts are counted.
    pub monitors: Option<Arc<Monitors>>,
    /// Where connections to hosts with limits of their own are counted.
    pub open: Option<Arc<OpenConnections>>,
    /// Some worker connected to a host for a request: checks are less frequent before.
    pub traffic: AtomicBool,
    /// Those of the model.
    pub filters: Option<Vec<Arc<dyn Factory>>>,
    /// Speaks to hosts in place of HTTP.
    pub bridge: Option<Arc<dyn BridgeFactory>>,
    /// How requests are tried again, in place of what their routes say.
    pub retry: Option<Arc<AttemptsPlan>>,
    /// What certificates and filters were read from.
    pub files: Vec<WatchedFile>,
}

/// How connections to an endpoint begin.
pub struct Transport {
    /// `None` for plain connections.
    pub tls: Option<Arc<ClientTls>>,
    /// What is said before TLS.
    pub proxy_header: Option<Box<ProxyHeader>>,
}

impl Transport {
    /// `None` after an error.
    fn compile(
        tls: Option<&Arc<UpstreamTls>>,
        proxy_header: Option<&ProxyHeader>,
        files: &mut Vec<WatchedFile>,
        errors: &mut Vec<PlanError>,
    ) -> Option<Transport> {
        let proxy_header = proxy_header.cloned().map(Box::new);
        let Some(tls) = tls else { return Some(Transport { tls: None, proxy_header }) };
        let built = ClientTls::build(tls, &mut |path| read(path, files));
        let (certificates, validation) = (tls.certificate.as_slice(), tls.common.validation.as_ref());
        let origins = TlsOrigins { context: &tls.origin, certificates, validation };
        let tls = built.map(Arc::new).map_err(|refused| origins.report(errors, refused)).ok()?;
        Some(Transport { tls: Some(tls), proxy_header })
    }
}

impl ClusterPlan {
    /// How connections to this endpoint begin.
    pub fn transport_for(&self, endpoint: &Endpoint) -> &Transport {
        self.transport_by(endpoint, endpoint.metadata.as_deref())
    }

    /// The same if `about` is what is said of the endpoint.
    pub fn transport_by(&self, endpoint: &Endpoint, about: Option<&Metadata>) -> &Transport {
        if self.transports.is_empty() {
            return &self.transport;
        }
        self.transport_at(self.model.transport_for(about, endpoint.place.as_deref()))
    }

    /// That with this index; `None` is the cluster's own.
    pub fn transport_at(&self, index: Option<usize>) -> &Transport {
        index.and_then(|index| self.transports.get(index)).unwrap_or(&self.transport)
    }

    /// The cluster's own, and all others.
    pub fn each_transport(&self) -> impl Iterator<Item = &Transport> {
        std::iter::once(&self.transport).chain(&self.transports)
    }

    /// Nothing that it was made from changed since.
    pub(super) fn is_current(&self) -> bool {
        are_current(&self.files) && self.filters.iter().flatten().all(|factory| factory.is_current())
    }

    /// # Errors
    /// What is wrong with its certificates and filters.
    pub(super) fn compile(
        model: &Arc<Cluster>,
        registry: &Registry,
        workers: usize,
    ) -> Result<ClusterPlan, Vec<PlanError>> {
        let beside = Sources::collect();
        let mut errors = Vec::new();
        let mut files = Vec::new();
        let mut transport = |tls, header| Transport::compile(tls, header, &mut files, &mut errors);
        let own = transport(model.tls.as_ref(), model.proxy_header.as_deref());
        let labelled = model.transports.iter().map(|it| transport(it.tls.as_ref(), it.proxy_header.as_deref()));
        let transports: Vec<Transport> = labelled.collect::<Vec<_>>().into_iter().flatten().collect();
        let filters = model.upstream.filters.as_ref().map(|slots| {
            let built = filters::build(slots, registry, &mut files, &mut errors);
            built.into_iter().flatten().collect()
        });
        let bridge = model.upstream.bridge.as_ref().and_then(|slot| {
            let Some(build) = registry.find_bridge(&slot.kind) else {
                let message = format!("nothing takes a configuration of type {}", slot.kind);
                errors.push(PlanError { path: slot.origin.0.clone(), code: FILTER, message });
                return None;
            };
            let built = build(&slot.config).map_err(|refused| report(&mut errors, &slot.origin.0, refused)).ok()?;
            remember(&mut files, built.files());
            Some(built)
        });
        let Some(transport) = own.filter(|_| errors.is_empty()) else { return Err(errors) };
        let service = |check: &postrider_model::HealthCheck| match &check.kind {
            CheckKind::Http(http) => http.service.clone(),
            CheckKind::Grpc(_) | CheckKind::Tcp(_) | CheckKind::Redis(_) | CheckKind::Thrift(_) | CheckKind::Udp(_) => {
                None
            }
        };
        // A judge whose configuration is wrong was refused with the document.
        let judges = |kind: &str, config: &_| registry.find_judge(kind)?(config).ok();
        let check_services: Vec<Option<HeaderTest>> = (model.health.checks.iter().map(service))
            .map(|service| service.map(|service| HeaderTest::compile(&service, &judges)))
            .collect();
        let retry = model.upstream.retry.as_deref().map(|policy| AttemptsPlan::of_cluster(policy, registry));
        remember(&mut files, &beside.finish().files);
        Ok(ClusterPlan {
            model: model.clone(),
            name: model.name.as_str().into(),
            breakers: Arc::new(Breakers::new(&model.thresholds, &model.high_thresholds, workers)),
            initial: dns::initial(&model.discovery),
            transport,
            transports,
            check_services,
            monitors: model.outliers.is_some().then(Arc::default),
            open: [&model.thresholds, &model.high_thresholds]
                .iter()
                .any(|thresholds| thresholds.max_connections_per_host.is_some())
                .then(Arc::default),
            traffic: AtomicBool::new(false),
            filters,
            bridge,
            retry,
            files,
        })
    }
}
