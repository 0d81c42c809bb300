//! Asks for the addresses of names: servers of DNS, or the system's own function. On the control side only.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{
    ConnectionConfig, LookupIpStrategy, NameServerConfig, ProtocolConfig, ResolveHosts, ResolverConfig, ResolverOpts,
};
use hickory_resolver::lookup_ip::LookupIp;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::system_conf::read_system_conf;
use postrider_model::{DnsClient, DnsFamily, DnsResolver};

/// How long what the system's function says holds: it does not tell, and Envoy takes this.
const SYSTEM_TTL: Duration = Duration::from_secs(60);

/// Answers that one client keeps, where it keeps any.
const KEPT_ANSWERS: u64 = 1024;

/// What the error of a name without addresses begins with, in the words of the C library.
const NO_ADDRESSES: [&str; 2] = ["Name or service not known", "No address associated with hostname"];

/// Resolves names as one configuration of a resolver says. Cheap to clone: all clones are one.
#[derive(Clone)]
pub struct Resolver(Arc<Way>);

enum Way {
    Client(Client),
    System { retries: u32 },
}

/// What a name resolved to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Empty when the name has none.
    pub addresses: Vec<IpAddr>,
    /// How long the answer holds; zero where nothing is said.
    pub ttl: Duration,
}

/// Which families of addresses can be reached from this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Families {
    pub v4: bool,
    pub v6: bool,
}

struct Client {
    servers: Vec<Server>,
    /// The server that is asked first.
    first: AtomicUsize,
    rotates: bool,
    tries: u32,
    /// A dot at the end of a name keeps search domains away.
    searches: bool,
    /// Asked before each lookup, where answers leave families out.
    families: Option<fn() -> Families>,
}

struct Server {
    v4: TokioResolver,
    v6: TokioResolver,
}

impl Resolver {
    /// `families` is asked before each lookup, if the resolver leaves out what cannot be reached.
    ///
    /// # Errors
    /// The system's configuration is needed and cannot be read.
    pub fn new(model: &DnsResolver, families: fn() -> Families) -> Result<Resolver, String> {
        let way = match model {
            DnsResolver::System { retries } => Way::System { retries: *retries },
            DnsResolver::Client(client) => Way::Client(Client::new(client, families)?),
        };
        Ok(Resolver(Arc::new(way)))
    }

    /// # Errors
    /// Nobody answers, or not with what was asked for, in the words of who was asked last.
    pub async fn resolve(&self, host: &str, family: DnsFamily) -> Result<Answer, String> {
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(Answer { addresses: vec![address], ttl: Duration::MAX });
        }
        match &*self.0 {
            Way::Client(client) => client.resolve(host, family).await,
            Way::System { retries } => by_system(host, family, *retries).await,
        }
    }
}

impl Client {
    fn new(model: &DnsClient, families: fn() -> Families) -> Result<Client, String> {
        let system = read_system_conf();
        let (config, mut options) = match system {
            Ok((config, options)) => (config, options),
            Err(error) if model.servers.is_empty() => return Err(error.to_string()),
            Err(_) => (ResolverConfig::default(), ResolverOpts::default()),
        };
        let (domain, search, of_system) = config.into_parts();
        let own = model.servers.iter().map(|server| name_server(*server)).collect::<Vec<_>>();
        let uses_system = own.is_empty() || (model.servers_are_fallback && !of_system.is_empty());
        let mut servers = if uses_system { of_system } else { own };
        if model.tcp_only {
            for server in &mut servers {
                server.connections.retain(|connection| !is_udp(connection));
            }
        }
        options.timeout = model.timeout;
        // One server is tried once: who comes next is decided here.
        options.attempts = 0;
        options.use_hosts_file = ResolveHosts::Always;
        options.cache_size = if model.keeps_answers.is_some() { KEPT_ANSWERS } else { 0 };
        options.positive_max_ttl = model.keeps_answers;
        options.negative_max_ttl = model.keeps_answers;
        if let Some(bytes) = model.datagram_bytes {
            (options.edns0, options.edns_payload_len) = (true, bytes);
        }
        let servers = servers.into_iter().map(|server| {
            let config = ResolverConfig::from_parts(domain.clone(), search.clone(), vec![server]);
            let with = |strategy| {
                let mut builder = TokioResolver::builder_with_config(config.clone(), TokioRuntimeProvider::default());
                *builder.options_mut() = options.clone();
                builder.options_mut().ip_strategy = strategy;
                builder.build().map_err(|error| error.to_string())
            };
            Ok(Server { v4: with(LookupIpStrategy::Ipv4Only)?, v6: with(LookupIpStrategy::Ipv6Only)? })
        });
        Ok(Client {
            servers: servers.collect::<Result<_, String>>()?,
            first: AtomicUsize::new(0),
            rotates: model.rotates,
            tries: model.tries,
            searches: model.searches,
            families: model.routable_only.then_some(families),
        })
    }

    async fn resolve(&self, host: &str, family: DnsFamily) -> Result<Answer, String> {
        let reached = self.families.map_or(Families { v4: true, v6: true }, |families| families());
        // In the order in which they are asked.
        let wanted: &[bool] = match family {
            DnsFamily::V4Only => &[false],
            DnsFamily::V6Only => &[true],
            DnsFamily::Auto => &[true, false],
            DnsFamily::V4Preferred | DnsFamily::All => &[false, true],
        };
        let name = match self.searches || host.ends_with('.') {
            true => host.to_owned(),
            false => format!("{host}."),
        };
        let mut answer = Answer { addresses: Vec::new(), ttl: Duration::ZERO };
        let mut failure = None;
        for v6 in wanted.iter().copied().filter(|v6| if *v6 { reached.v6 } else { reached.v4 }) {
            match self.lookup(&name, v6).await {
                Ok(found) if answer.addresses.is_empty() => answer = found,
                Ok(found) => {
                    if !found.addresses.is_empty() {
                        answer.ttl = answer.ttl.min(found.ttl);
                    }
                    answer.addresses.extend(found.addresses);
                }
                Err(error) => failure = Some(error),
            }
            if family != DnsFamily::All && !answer.addresses.is_empty() {
                break;
            }
        }
        match failure {
            Some(error) if answer.addresses.is_empty() => Err(error),
            _ => Ok(answer),
        }
    }

    /// Asks one server after the other, so often as may be. That a name has no addresses is an answer.
    async fn lookup(&self, name: &str, v6: bool) -> Result<Answer, String> {
        let count = self.servers.len();
        let first = match self.rotates {
            true => self.first.fetch_add(1, Relaxed),
            false => self.first.load(Relaxed),
        };
        let mut failure = "there is no server to ask".to_owned();
        for turn in 0..count.saturating_mul(self.tries as usize) {
            let index = first.wrapping_add(turn) % count;
            let Some(server) = self.servers.get(index) else { break };
            let client = if v6 { &server.v6 } else { &server.v4 };
            match client.lookup_ip(name).await {
                Ok(found) => {
                    self.remember(index, turn);
                    return Ok(told(&found));
                }
                Err(NetError::Dns(error)) if is_negative(&error) => {
                    self.remember(index, turn);
                    return Ok(Answer { addresses: Vec::new(), ttl: Duration::ZERO });
                }
                Err(error) => failure = error.to_string(),
            }
        }
        Err(failure)
    }

    /// Who answers when others did not is asked first from then on.
    fn remember(&self, index: usize, turn: usize) {
        if turn > 0 && !self.rotates {
            self.first.store(index, Relaxed);
        }
    }
}

fn told(found: &LookupIp) -> Answer {
    Answer { addresses: found.iter().collect(), ttl: found.valid_until().saturating_duration_since(Instant::now()) }
}

fn is_negative(error: &DnsError) -> bool {
    matches!(error, DnsError::NoRecordsFound(_))
}

fn name_server(at: SocketAddr) -> NameServerConfig {
    let mut server = NameServerConfig::udp_and_tcp(at.ip());
    server.connections.iter_mut().for_each(|connection| connection.port = at.port());
    server
}

fn is_udp(connection: &ConnectionConfig) -> bool {
    matches!(connection.protocol, ProtocolConfig::Udp)
}

async fn by_system(host: &str, family: DnsFamily, retries: u32) -> Result<Answer, String> {
    let mut left = retries;
    let found: Vec<IpAddr> = loop {
        match tokio::net::lookup_host((host, 0)).await {
            Ok(found) => break found.map(|socket| socket.ip()).collect(),
            Err(error) if has_no_addresses(&error) => break Vec::new(),
            Err(error) if left == 0 => return Err(error.to_string()),
            Err(_) => left -= 1,
        }
    };
    let of = |v6: bool| found.iter().copied().filter(move |address| address.is_ipv6() == v6).collect::<Vec<_>>();
    let first = |one: Vec<IpAddr>, other: Vec<IpAddr>| if one.is_empty() { other } else { one };
    let addresses = match family {
        DnsFamily::V4Only => of(false),
        DnsFamily::V6Only => of(true),
        DnsFamily::Auto => first(of(true), of(false)),
        DnsFamily::V4Preferred => first(of(false), of(true)),
        DnsFamily::All => found,
    };
    Ok(Answer { addresses, ttl: SYSTEM_TTL })
}

fn has_no_addresses(error: &io::Error) -> bool {
    let text = error.to_string();
    NO_ADDRESSES.iter().any(|known| text.ends_with(known))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Families {
        Families { v4: true, v6: true }
    }

    fn resolve(model: &DnsResolver, host: &str, family: DnsFamily, families: fn() -> Families) -> Vec<IpAddr> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let resolver = Resolver::new(model, families).unwrap();
            resolver.resolve(host, family).await.unwrap().addresses
        })
    }

    #[test]
    fn the_hosts_file_is_read_before_any_server_is_asked() {
        // Nobody answers there.
        let servers = vec![([127, 0, 0, 1], 9).into()];
        let model = DnsResolver::Client(DnsClient { servers, ..DnsClient::default() });
        assert_eq!(resolve(&model, "localhost", DnsFamily::V4Only, all), [IpAddr::from([127, 0, 0, 1])]);
        let system = DnsResolver::System { retries: 0 };
        assert_eq!(resolve(&system, "localhost", DnsFamily::V4Only, all), [IpAddr::from([127, 0, 0, 1])]);
    }

    #[test]
    fn a_family_that_cannot_be_reached_is_not_asked_for() {
        let servers = vec![([127, 0, 0, 1], 9).into()];
        let model = DnsResolver::Client(DnsClient { servers, routable_only: true, ..DnsClient::default() });
        let nothing = || Families { v4: false, v6: false };
        assert!(resolve(&model, "a.test", DnsFamily::All, nothing).is_empty());
        let v4 = || Families { v4: true, v6: false };
        assert_eq!(resolve(&model, "localhost", DnsFamily::Auto, v4), [IpAddr::from([127, 0, 0, 1])]);
    }

    #[test]
    fn a_literal_address_is_its_own_answer() {
        let model = DnsResolver::System { retries: 0 };
        assert_eq!(resolve(&model, "::1", DnsFamily::V4Only, all), ["::1".parse::<IpAddr>().unwrap()]);
    }
}
