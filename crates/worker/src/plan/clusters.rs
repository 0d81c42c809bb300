//! A cluster, ready to run: what all workers share of it.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use postrider_filter_api::{Factory, Registry, Sources, WatchedFile};
use postrider_model::{CheckKind, Cluster};
use postrider_router::HeaderTest;
use postrider_tls::ClientTls;
use postrider_upstream::outlier::Monitors;
use postrider_upstream::{Breakers, Endpoints, OpenConnections, dns};

use super::errors::{PlanError, TlsOrigins};
use super::files::{are_current, read, remember};
use super::filters;

pub struct ClusterPlan {
    pub model: Arc<Cluster>,
    pub name: Arc<str>,
    pub breakers: Arc<Breakers>,
    /// Known before any name was resolved.
    pub initial: Endpoints,
    pub tls: Option<Arc<ClientTls>>,
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
    /// What certificates and filters were read from.
    pub files: Vec<WatchedFile>,
}

impl ClusterPlan {
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
        let tls = model.tls.as_ref().and_then(|tls| {
            let built = ClientTls::build(tls, &mut |path| read(path, &mut files));
            let (certificates, validation) = (tls.certificate.as_slice(), tls.common.validation.as_ref());
            let origins = TlsOrigins { context: &tls.origin, certificates, validation };
            built.map(Arc::new).map_err(|refused| origins.report(&mut errors, refused)).ok()
        });
        let filters = model.upstream.filters.as_ref().map(|slots| {
            let built = filters::build(slots, registry, &mut files, &mut errors);
            built.into_iter().flatten().collect()
        });
        if !errors.is_empty() {
            return Err(errors);
        }
        let service = |check: &postrider_model::HealthCheck| match &check.kind {
            CheckKind::Http(http) => http.service.clone(),
            CheckKind::Grpc(_) | CheckKind::Tcp(_) | CheckKind::Redis(_) => None,
        };
        // A judge whose configuration is wrong was refused with the document.
        let judges = |kind: &str, config: &_| registry.find_judge(kind)?(config).ok();
        let check_services: Vec<Option<HeaderTest>> = (model.health.checks.iter().map(service))
            .map(|service| service.map(|service| HeaderTest::compile(&service, &judges)))
            .collect();
        remember(&mut files, &beside.finish().files);
        Ok(ClusterPlan {
            model: model.clone(),
            name: model.name.as_str().into(),
            breakers: Arc::new(Breakers::new(&model.thresholds, &model.high_thresholds, workers)),
            initial: dns::initial(&model.discovery),
            tls,
            check_services,
            monitors: model.outliers.as_deref().map(|rules| Arc::new(Monitors::new(rules.clone()))),
            open: [&model.thresholds, &model.high_thresholds]
                .iter()
                .any(|thresholds| thresholds.max_connections_per_host.is_some())
                .then(Arc::default),
            traffic: AtomicBool::new(false),
            filters,
            files,
        })
    }
}
