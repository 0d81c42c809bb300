//! How a cluster chooses its hosts: `lb_policy`, `load_balancing_policy` and what belongs to them.

use postrider_config_core::Severity;
use postrider_model::{
    Balancing, HashFunction, HashKeys, HostSource, HostStatuses, LeastRequest, LoadBalancing, Maglev, NamedHosts,
    PeakEwma, RingHash, SlowStart, Subsets, ZoneRules,
};

use super::context::Lowering;
use super::{hash_policy, headers, matchers, subsets};
use crate::reader::Reader;

/// Defaults of Envoy's `RingHashLbConfig` and `MaglevLbConfig`.
const MIN_RING_SIZE: u64 = 1024;
const MAX_RING_SIZE: u64 = 8 << 20;
const TABLE_SIZE: u64 = 65_537;

/// `SlowStartConfig.min_weight_percent` where it is absent.
const LEAST_PERCENT: f64 = 10.0;

const LEAST_REQUEST: &str = "envoy.extensions.load_balancing_policies.least_request.v3.LeastRequest";
const ROUND_ROBIN: &str = "envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin";
const RANDOM: &str = "envoy.extensions.load_balancing_policies.random.v3.Random";
const RING_HASH: &str = "envoy.extensions.load_balancing_policies.ring_hash.v3.RingHash";
const MAGLEV: &str = "envoy.extensions.load_balancing_policies.maglev.v3.Maglev";
const PEAK_EWMA: &str = "postrider.load_balancing_policies.peak_ewma.v1.PeakEwma";
const SUBSET: &str = "envoy.extensions.load_balancing_policies.subset.v3.Subset";
const OVERRIDE_HOST: &str = "envoy.extensions.load_balancing_policies.override_host.v3.OverrideHost";
const WRR_LOCALITY: &str = "envoy.extensions.load_balancing_policies.wrr_locality.v3.WrrLocality";

pub(super) fn balancing(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Balancing {
    let mut balancing = Balancing::default();
    let common = at.message("common_lb_config");
    if let Some(common) = &common {
        self::common(cx, common, &mut balancing);
    }
    let policy = at.message("load_assignment").and_then(|assignment| assignment.message("policy"));
    if let Some(policy) = policy {
        overprovisioning(cx, &policy, &mut balancing);
    }
    let keys = common.as_ref().map(keys).unwrap_or_default();
    if let Some(list) = at.message("load_balancing_policy") {
        at.ignore("lb_policy", "`load_balancing_policy` takes its place");
        if at.has("lb_subset_config") {
            let text = "`load_balancing_policy` and `lb_subset_config` exclude each other; a policy of type `Subset` says the same";
            at.whole("lb_subset_config");
            cx.error(at, "lb_subset_config", "conflict", text);
        }
        for field in ["zone_aware_lb_config", "locality_weighted_lb_config", "consistent_hashing_lb_config"] {
            if let Some(common) = common.as_ref().filter(|common| common.has(field)) {
                let text = format!("beside `load_balancing_policy`, `{field}` stands in the policy itself");
                cx.error(common, field, "conflict", text);
            }
        }
        listed(cx, &list, &mut balancing);
    } else {
        balancing.policy = named(cx, at, keys);
        balancing.subsets = subsets::of_cluster(cx, at);
    }
    names_are_known(cx, at, &balancing);
    balancing
}

/// `common_lb_config`, but for what concerns health.
fn common(cx: &mut Lowering<'_>, at: &Reader<'_>, balancing: &mut Balancing) {
    balancing.closes_on_change = at.bool("close_connections_on_host_set_change");
    if at.message("locality_weighted_lb_config").is_some() {
        balancing.by_locality = true;
    }
    if let Some(zone_aware) = at.message("zone_aware_lb_config") {
        self::zone_aware(cx, &zone_aware, balancing);
    }
    if let Some(statuses) = at.message("override_host_status") {
        let names: Vec<i32> = statuses.enum_numbers("statuses").iter().map(|status| status.value).collect();
        // Of `core.v3.HealthStatus`: unknown is healthy.
        let has = |numbers: &[i32]| numbers.iter().any(|number| names.contains(number));
        balancing.by_address = HostStatuses {
            healthy: has(&[0, 1]),
            unhealthy: has(&[2]),
            draining: has(&[3]),
            timed_out: has(&[4]),
            degraded: has(&[5]),
        };
    }
}

fn zone_aware(cx: &mut Lowering<'_>, at: &Reader<'_>, balancing: &mut Balancing) {
    balancing.fails_on_panic = at.bool("fail_traffic_on_panic");
    let usual = ZoneRules::default();
    balancing.zones = ZoneRules {
        percent: at.message("routing_enabled").map_or(usual.percent, |percent| percent.f64("value").round() as u32),
        least_hosts: at.u64_wrapper("min_cluster_size").unwrap_or(usual.least_hosts),
        ..usual
    };
    zones_are_known(cx, at, &["routing_enabled", "min_cluster_size"]);
}

/// What only policies of their own say.
fn more_of_zones(cx: &mut Lowering<'_>, at: &Reader<'_>, zones: &mut ZoneRules) {
    let forced = at.message("force_local_zone").map(|force| force.u32_wrapper("min_size").unwrap_or(1));
    zones.stays_with = forced.or(at.bool("force_locality_direct_routing").then_some(1));
    zones.by_weight = at.enum_name("locality_basis") == "HEALTHY_HOSTS_WEIGHT";
    zones_are_known(cx, at, &["force_local_zone", "force_locality_direct_routing", "locality_basis"]);
}

fn zones_are_known(cx: &mut Lowering<'_>, at: &Reader<'_>, fields: &[&str]) {
    const WHY: &str =
        "as in Envoy where no `cluster_manager: {local_cluster_name: …}` says which zone is the proxy's own";
    if cx.has_local_cluster {
        return;
    }
    for field in fields {
        at.whole(field);
        cx.no_effect(at, field, WHY);
    }
}

fn overprovisioning(cx: &mut Lowering<'_>, at: &Reader<'_>, balancing: &mut Balancing) {
    if let Some(factor) = at.u32_wrapper("overprovisioning_factor") {
        balancing.overprovisioning = factor;
    }
    at.ignore("endpoint_stale_after", "it is about endpoints from a control plane");
    balancing.dropped = dropped(cx, at);
    balancing.ability_by_weight = at.bool("weighted_priority_health");
}

/// Percent of the requests of any cluster, whatever its `drop_overloads` says.
const DROP_LIMIT: &str = "load_balancing_policy.drop_overload_limit";

/// `drop_overloads`, and the key of the runtime that sets a limit to it.
fn dropped(cx: &mut Lowering<'_>, at: &Reader<'_>) -> u32 {
    const FIELD: &str = "drop_overloads";
    let categories = at.list(FIELD);
    if categories.len() > 1 {
        let text = format!("Envoy takes one category, and here are {}", categories.len());
        cx.error(at, FIELD, "conflict", text);
    }
    categories.iter().for_each(|category| category.read_whole());
    let Some(share) = categories.first().and_then(|category| category.message("drop_percentage")) else { return 0 };
    let parts = matchers::parts_per_million(&share).unwrap_or_default();
    if u64::from(share.u32("numerator")) > matchers::whole(&share) {
        cx.error(&share, "numerator", "invalid-value", "more than all requests cannot be dropped");
    }
    let percent = cx.runtime.integer(DROP_LIMIT).and_then(|percent| u32::try_from(percent).ok()).unwrap_or(100);
    parts.min(percent.saturating_mul(matchers::MILLION / 100))
}

/// `lb_policy` with its own configuration.
fn named(cx: &mut Lowering<'_>, at: &Reader<'_>, keys: HashKeys) -> LoadBalancing {
    let name = at.enum_name("lb_policy");
    for (policy, config) in [
        ("ROUND_ROBIN", "round_robin_lb_config"),
        ("LEAST_REQUEST", "least_request_lb_config"),
        ("RING_HASH", "ring_hash_lb_config"),
        ("MAGLEV", "maglev_lb_config"),
    ] {
        if policy != name {
            at.ignore(config, "it belongs to another `lb_policy`");
        }
    }
    match name.as_str() {
        "ROUND_ROBIN" => {
            let config = at.message("round_robin_lb_config");
            LoadBalancing::RoundRobin { slow_start: config.and_then(|config| slow_start(cx, &config)) }
        }
        "LEAST_REQUEST" => {
            let config = at.message("least_request_lb_config");
            LoadBalancing::LeastRequest(config.map(|config| least_request(cx, &config)).unwrap_or_default())
        }
        "RANDOM" => LoadBalancing::Random,
        "RING_HASH" => {
            let config = at.message("ring_hash_lb_config");
            let murmur = config.as_ref().is_some_and(|config| config.enum_name("hash_function") == "MURMUR_HASH_2");
            ring(cx, config.as_ref(), "minimum_ring_size", "maximum_ring_size", murmur, keys)
        }
        "MAGLEV" => {
            let config = at.message("maglev_lb_config");
            LoadBalancing::Maglev(Maglev { table_size: table_size(cx, config.as_ref()), keys })
        }
        other => {
            cx.refuse_value(at, "lb_policy", &format!("the load balancing policy {other}"));
            LoadBalancing::default()
        }
    }
}

/// The first policy of the list that exists here; Envoy takes the first that it knows, too.
fn listed(cx: &mut Lowering<'_>, list: &Reader<'_>, balancing: &mut Balancing) {
    let policies = list.list("policies");
    let mut refused = None;
    for policy in &policies {
        let Some(extension) = policy.message("typed_extension_config") else { continue };
        extension.str("name");
        let Some(any) = extension.any("typed_config") else { continue };
        let Some(config) = &any.reader else { continue };
        let found = match any.type_name {
            ROUND_ROBIN => {
                locality(cx, config, balancing);
                LoadBalancing::RoundRobin { slow_start: slow_start(cx, config) }
            }
            RANDOM => {
                locality(cx, config, balancing);
                LoadBalancing::Random
            }
            LEAST_REQUEST => {
                locality(cx, config, balancing);
                // Both are read in any case: what nobody reads is refused.
                let older = config.bool_wrapper("enable_full_scan") == Some(true);
                let full_scan = config.enum_name("selection_method") == "FULL_SCAN" || older;
                LoadBalancing::LeastRequest(LeastRequest { full_scan, ..least_request(cx, config) })
            }
            PEAK_EWMA => {
                locality(cx, config, balancing);
                let default = PeakEwma::default();
                LoadBalancing::PeakEwma(PeakEwma {
                    decay: config.duration("decay_time").unwrap_or(default.decay),
                    default_latency: config.duration("default_latency").unwrap_or(default.default_latency),
                    choices: config.u32_wrapper("choice_count").unwrap_or(default.choices),
                })
            }
            RING_HASH => {
                by_weight(config, balancing);
                let murmur = config.enum_name("hash_function") == "MURMUR_HASH_2";
                let mut keys = own_keys(cx, config, balancing);
                keys.hostnames |= config.bool("use_hostname_for_hashing");
                keys.balance_factor = keys.balance_factor.or(config.u32_wrapper("hash_balance_factor"));
                ring(cx, Some(config), "minimum_ring_size", "maximum_ring_size", murmur, keys)
            }
            MAGLEV => {
                by_weight(config, balancing);
                let keys = own_keys(cx, config, balancing);
                LoadBalancing::Maglev(Maglev { table_size: table_size(cx, Some(config)), keys })
            }
            OVERRIDE_HOST if balancing.named.is_none() => {
                let within_subset = balancing.subsets.is_some();
                balancing.named = Some(Box::new(NamedHosts { within_subset, ..named_hosts(cx, config) }));
                if let Some(inner) = config.message("fallback_policy") {
                    listed(cx, &inner, balancing);
                }
                balancing.policy.clone()
            }
            WRR_LOCALITY => {
                balancing.by_locality = true;
                if let Some(inner) = config.message("endpoint_picking_policy") {
                    listed(cx, &inner, balancing);
                }
                balancing.by_locality = true;
                balancing.policy.clone()
            }
            SUBSET if balancing.subsets.is_none() => {
                let ignores_others = config.bool("allow_redundant_keys");
                balancing.subsets = Some(Box::new(Subsets { ignores_others, ..*subsets::subsets(cx, config) }));
                match config.message("subset_lb_policy") {
                    Some(inner) => listed(cx, &inner, balancing),
                    None => {
                        cx.missing(config, "no policy chooses within a subset", "`subset_lb_policy: {policies: …}`")
                    }
                }
                balancing.policy.clone()
            }
            _ => {
                refused.get_or_insert((extension, any));
                continue;
            }
        };
        for other in policies.iter().filter(|other| other.path() != policy.path()) {
            other.whole("typed_extension_config");
            other.ignore("typed_extension_config", "another policy of the list is used");
        }
        balancing.policy = found;
        return;
    }
    match refused {
        Some((extension, any)) => cx.refuse_extension(&extension, "typed_config", &any),
        None => cx.missing(list, "the list of policies is empty", "a policy with its `typed_extension_config`"),
    }
}

/// `locality_lb_config` of a policy takes the place of what `common_lb_config` says.
fn locality(cx: &mut Lowering<'_>, at: &Reader<'_>, balancing: &mut Balancing) {
    *balancing = Balancing {
        by_locality: false,
        zones: ZoneRules::default(),
        fails_on_panic: false,
        ..std::mem::take(balancing)
    };
    let Some(config) = at.message("locality_lb_config") else { return };
    by_weight(&config, balancing);
    if let Some(zone_aware) = config.message("zone_aware_lb_config") {
        self::zone_aware(cx, &zone_aware, balancing);
        more_of_zones(cx, &zone_aware, &mut balancing.zones);
    }
}

fn by_weight(at: &Reader<'_>, balancing: &mut Balancing) {
    balancing.by_locality = at.message("locality_weighted_lb_config").is_some();
}

fn least_request(cx: &mut Lowering<'_>, at: &Reader<'_>) -> LeastRequest {
    let default = LeastRequest::default();
    let bias = at.message("active_request_bias").map(|bias| runtime_double(&bias));
    if bias.is_some_and(|bias| bias < 0.0) {
        cx.error(at, "active_request_bias", "invalid-value", "a bias below 0 would prefer hosts that are busy");
    }
    LeastRequest {
        choices: at.u32_wrapper("choice_count").unwrap_or(default.choices),
        full_scan: false,
        bias: bias.unwrap_or(default.bias),
        slow_start: slow_start(cx, at),
    }
}

fn slow_start(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Option<SlowStart> {
    let at = at.message("slow_start_config")?;
    let window = at.duration("slow_start_window").unwrap_or_default();
    let least = at.message("min_weight_percent").map_or(LEAST_PERCENT, |percent| percent.f64("value"));
    let aggression = at.message("aggression").map_or(1.0, |aggression| runtime_double(&aggression));
    if aggression <= 0.0 {
        cx.error(&at, "aggression", "invalid-value", "the aggression of a slow start is more than 0");
        return None;
    }
    (!window.is_zero()).then_some(SlowStart { window, aggression, least: least / 100.0 })
}

fn runtime_double(at: &Reader<'_>) -> f64 {
    at.str("runtime_key");
    at.f64("default_value")
}

fn ring(
    cx: &mut Lowering<'_>,
    at: Option<&Reader<'_>>,
    min: &str,
    max: &str,
    murmur: bool,
    keys: HashKeys,
) -> LoadBalancing {
    let min_size = at.and_then(|at| at.u64_wrapper(min)).unwrap_or(MIN_RING_SIZE);
    let max_size = at.and_then(|at| at.u64_wrapper(max)).unwrap_or(MAX_RING_SIZE);
    if let Some(at) = at.filter(|_| min_size > max_size) {
        let text = format!("the ring has at least {min_size} places and at most {max_size}");
        cx.error(at, min, "conflict", text);
    }
    let function = if murmur { HashFunction::Murmur2 } else { HashFunction::XxHash };
    LoadBalancing::RingHash(RingHash { min_size, max_size, function, keys })
}

fn table_size(cx: &mut Lowering<'_>, at: Option<&Reader<'_>>) -> u64 {
    let size = at.and_then(|at| at.u64_wrapper("table_size")).unwrap_or(TABLE_SIZE);
    if let Some(at) = at.filter(|_| !is_prime(size)) {
        let diagnostic = at
            .diagnostic_at("table_size", Severity::Error, "invalid-value", format!("{size} is no prime number"))
            .expected(format!("a prime, as {TABLE_SIZE} is"));
        cx.push(diagnostic);
    }
    size
}

fn is_prime(number: u64) -> bool {
    number > 1 && (2..).take_while(|factor| factor * factor <= number).all(|factor| !number.is_multiple_of(factor))
}

/// The same of a policy's own configuration, which may say more.
fn own_keys(cx: &mut Lowering<'_>, at: &Reader<'_>, balancing: &mut Balancing) -> HashKeys {
    if let Some(config) = at.message("consistent_hashing_lb_config") {
        balancing.hash_policies = hash_policy::of_requests(cx, &config);
    }
    keys(at)
}

/// `OverrideHost`, but for its policy.
fn named_hosts(cx: &mut Lowering<'_>, at: &Reader<'_>) -> NamedHosts {
    const HEADER: &str = "header";
    let mut sources = Vec::new();
    for source in at.list("override_host_sources") {
        match (source.has(HEADER), source.message("metadata")) {
            (true, None) => sources.extend(headers::name(cx, &source, HEADER).map(HostSource::Header)),
            (false, Some(key)) => sources.push(HostSource::Metadata(matchers::metadata_key(&key))),
            (true, Some(_)) => {
                source.whole("metadata");
                cx.error(&source, HEADER, "conflict", "`header` and `metadata` exclude each other");
            }
            (false, None) => cx.missing(&source, "the source names nothing", "`header` or `metadata`"),
        }
    }
    let noted_at = at.message("selected_host_key").map(|key| matchers::metadata_key(&key));
    NamedHosts { sources, noted_at, within_subset: false }
}

/// `consistent_hashing_lb_config`.
fn keys(at: &Reader<'_>) -> HashKeys {
    let Some(at) = at.message("consistent_hashing_lb_config") else { return HashKeys::default() };
    HashKeys { hostnames: at.bool("use_hostname_for_hashing"), balance_factor: at.u32_wrapper("hash_balance_factor") }
}

/// Endpoints of a STATIC cluster have addresses only, as far as Envoy is concerned.
fn names_are_known(cx: &mut Lowering<'_>, at: &Reader<'_>, balancing: &Balancing) {
    let hostnames = match &balancing.policy {
        LoadBalancing::RingHash(ring) => ring.keys.hostnames,
        LoadBalancing::Maglev(maglev) => maglev.keys.hostnames,
        _ => false,
    };
    if hostnames && !at.has("cluster_type") && at.enum_name("type") == "STATIC" {
        let text = "`use_hostname_for_hashing` needs a cluster of names, and this one is STATIC";
        let diagnostic = at
            .diagnostic(Severity::Error, "conflict", text)
            .help("give the endpoints a `hash_key` in their metadata `envoy.lb`, or the cluster `type: STRICT_DNS`");
        cx.push(diagnostic);
    }
}
