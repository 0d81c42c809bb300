//! Objects of the filter state: what makes them of texts, under Envoy's names, and those that connections to upstreams
//! depend upon.
//!
//! An object acts where it is what its name says: one that another factory made, or none, is a value like any other.

use std::net::{IpAddr, SocketAddr};

use postrider_model::{NumberedOption, Value};

use crate::StreamInfo;

/// What makes an object of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectKind {
    Text,
    /// A text that parts connections to upstreams when it is shared with them.
    HashableText,
    Bool,
    /// A text for those who ask for the object by its name.
    Name,
    /// `true` or `false`, and nothing else.
    Switch,
    /// A number below 2^32.
    Number,
    Milliseconds,
    ServerName,
    Protocols,
    AltNames,
    Ip,
    /// With a port.
    Address,
    /// An address that decides where a request goes.
    Destination,
}

/// All that there are. Those of [`ObjectKind::Text`], [`ObjectKind::HashableText`], [`ObjectKind::Bool`] and [`ObjectKind::Ip`] are for
/// objects of any name.
pub const FACTORIES: [(&str, ObjectKind); 15] = [
    ("envoy.string", ObjectKind::Text),
    ("envoy.hashable_string", ObjectKind::HashableText),
    ("envoy.bool", ObjectKind::Bool),
    ("envoy.network.ip", ObjectKind::Ip),
    ("envoy.network.network_namespace", ObjectKind::Name),
    ("envoy.network.upstream_server_name", ObjectKind::ServerName),
    ("envoy.network.application_protocols", ObjectKind::Protocols),
    ("envoy.network.upstream_subject_alt_names", ObjectKind::AltNames),
    ("envoy.network.transport_socket.original_dst_address", ObjectKind::Destination),
    ("envoy.filters.listener.original_dst.local_ip", ObjectKind::Address),
    ("envoy.filters.listener.original_dst.remote_ip", ObjectKind::Address),
    (crate::TCP_CLUSTER, ObjectKind::Name),
    (TCP_NO_TUNNEL, ObjectKind::Switch),
    (TCP_IDLE_TIMEOUT, ObjectKind::Milliseconds),
    (HITS, ObjectKind::Number),
];

/// The object that says of a connection that is carried that it takes no tunnel, where its configuration has one.
pub const TCP_NO_TUNNEL: &str = "envoy.tcp_proxy.disable_tunneling";

/// The one that says how many milliseconds it may be idle, in the place of what its configuration says.
pub const TCP_IDLE_TIMEOUT: &str = "envoy.tcp_proxy.per_connection_idle_timeout_ms";

/// The object that says how many hits a request counts for with a rate limit service.
pub const HITS: &str = "envoy.ratelimit.hits_addend";

/// What connections to upstreams depend upon.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UpstreamObjects {
    pub wishes: ConnectionWishes,
    /// In the place of where the client meant to go, for clusters that have no hosts of their own.
    pub destination: Option<SocketAddr>,
    /// The names of those that connections to upstreams know of.
    pub shared: Vec<String>,
}

/// Connections that were made with some wishes serve no others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConnectionWishes {
    /// What TLS asks for, in the place of what the cluster says.
    pub server_name: Option<String>,
    /// What is offered by ALPN, in the place of what the cluster says; empty leaves it as it is.
    pub protocols: Vec<String>,
    /// The certificate must have one of these names besides what the cluster wants; empty wants none.
    pub alt_names: Vec<String>,
    /// Texts that are shared with connections and can be hashed, by their names.
    pub shared: Vec<(String, String)>,
    /// Where it comes from, in the place of what the cluster says.
    pub source: Option<WantedSource>,
    /// Of its socket, beside those that the cluster has.
    pub options: Vec<NumberedOption>,
}

/// The address of a client, as which the proxy connects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WantedSource {
    /// Port 0 leaves it to the system.
    pub address: SocketAddr,
    /// `SO_MARK` of the socket.
    pub mark: Option<u32>,
}

impl ConnectionWishes {
    pub fn is_empty(&self) -> bool {
        let ConnectionWishes { server_name, protocols, alt_names, shared, source, options } = self;
        let is_plain = server_name.is_none() && protocols.is_empty() && alt_names.is_empty() && options.is_empty();
        is_plain && shared.is_empty() && source.is_none()
    }
}

impl ObjectKind {
    /// What a factory of that name makes.
    pub fn of(factory: &str) -> Option<ObjectKind> {
        FACTORIES.iter().find(|(name, _)| *name == factory).map(|(_, kind)| *kind)
    }

    /// Somebody asks for an object of that name, and its factory has the same.
    pub fn of_known(name: &str) -> Option<ObjectKind> {
        ObjectKind::of(name).filter(|kind| !kind.is_for_any_name())
    }

    fn is_for_any_name(self) -> bool {
        matches!(self, ObjectKind::Text | ObjectKind::HashableText | ObjectKind::Bool | ObjectKind::Ip)
    }

    /// The object as it is shown; `None` when the text stands for none.
    pub fn make(self, text: &[u8]) -> Option<Value> {
        let lossy = || String::from_utf8_lossy(text).into_owned();
        let is = |words: [&str; 5]| words.iter().any(|word| text.eq_ignore_ascii_case(word.as_bytes()));
        match self {
            ObjectKind::Text
            | ObjectKind::HashableText
            | ObjectKind::Name
            | ObjectKind::ServerName
            | ObjectKind::AltNames => Some(Value::String(lossy())),
            ObjectKind::Bool if is(["true", "t", "yes", "y", "1"]) => Some(Value::Bool(true)),
            ObjectKind::Bool if is(["false", "f", "no", "n", "0"]) => Some(Value::Bool(false)),
            ObjectKind::Bool => None,
            ObjectKind::Switch => match text {
                b"true" => Some(Value::Bool(true)),
                b"false" => Some(Value::Bool(false)),
                _ => None,
            },
            ObjectKind::Number => Some(Value::Number(f64::from(parsed::<u32>(text)?))),
            ObjectKind::Milliseconds => Some(Value::Number(parsed::<u64>(text)? as f64)),
            // It is there, and is shown to nobody.
            ObjectKind::Protocols => Some(Value::Null),
            ObjectKind::Ip => Some(Value::String(SocketAddr::new(parsed::<IpAddr>(text)?, 0).to_string())),
            ObjectKind::Address | ObjectKind::Destination => {
                Some(Value::String(parsed::<SocketAddr>(text)?.to_string()))
            }
        }
    }
}

/// A field of an object, where objects of that name have fields: addresses have `ip` and `port`.
pub fn field_of(name: &str, value: &Value, field: &str) -> Option<Value> {
    let (Some(ObjectKind::Address | ObjectKind::Destination), Value::String(text)) =
        (ObjectKind::of_known(name), value)
    else {
        return None;
    };
    let address: SocketAddr = parsed(text.as_bytes())?;
    match field {
        "ip" => Some(Value::String(address.ip().to_string())),
        "port" => Some(Value::Number(f64::from(address.port()))),
        _ => None,
    }
}

fn parsed<T: std::str::FromStr>(text: &[u8]) -> Option<T> {
    std::str::from_utf8(text).ok()?.trim().parse().ok()
}

fn split(text: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(text).split(',').filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

impl StreamInfo {
    /// Puts an object into the filter state, in the place of one of that name, which acts if it is what its name says. False
    /// when the text stands for none. `shared`: connections to upstreams are to know of it.
    pub fn make_state(&mut self, name: &str, kind: ObjectKind, text: &[u8], shared: bool) -> bool {
        let Some(value) = kind.make(text) else { return false };
        self.set_state(name, value);
        let mut objects = self.upstream_objects.take().unwrap_or_default();
        if ObjectKind::of_known(name) == Some(kind) {
            match kind {
                ObjectKind::ServerName => {
                    let asked = String::from_utf8_lossy(text).into_owned();
                    objects.wishes.server_name = Some(asked).filter(|asked| !asked.is_empty());
                }
                ObjectKind::Protocols => objects.wishes.protocols = split(text),
                ObjectKind::AltNames => objects.wishes.alt_names = split(text),
                ObjectKind::Destination => objects.destination = parsed(text),
                _ => {}
            }
        }
        if shared {
            objects.shared.push(name.to_owned());
        }
        if shared && kind == ObjectKind::HashableText {
            objects.wishes.shared.push((name.to_owned(), String::from_utf8_lossy(text).into_owned()));
        }
        self.upstream_objects = Some(objects).filter(|objects| **objects != UpstreamObjects::default());
        true
    }

    /// Connections to upstreams that are made for this have this option of their socket.
    #[cold]
    pub fn want_option(&mut self, option: NumberedOption) {
        self.upstream_objects.get_or_insert_default().wishes.options.push(option);
    }

    /// Something else has taken the name of an object.
    #[cold]
    pub(crate) fn forget_object(&mut self, name: &str) {
        let Some(objects) = &mut self.upstream_objects else { return };
        objects.wishes.shared.retain(|(known, _)| known != name);
        objects.shared.retain(|known| known != name);
        match ObjectKind::of_known(name) {
            Some(ObjectKind::ServerName) => objects.wishes.server_name = None,
            Some(ObjectKind::Protocols) => objects.wishes.protocols.clear(),
            Some(ObjectKind::AltNames) => objects.wishes.alt_names.clear(),
            Some(ObjectKind::Destination) => objects.destination = None,
            _ => {}
        }
        if **objects == UpstreamObjects::default() {
            self.upstream_objects = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::Moment;

    const SERVER_NAME: &str = "envoy.network.upstream_server_name";

    fn info() -> StreamInfo {
        StreamInfo::new(Moment::default(), SystemTime::UNIX_EPOCH)
    }

    fn make(info: &mut StreamInfo, name: &str, factory: &str, text: &str) -> bool {
        let shared = name == "a";
        info.make_state(name, ObjectKind::of(factory).unwrap(), text.as_bytes(), shared)
    }

    #[test]
    fn an_object_acts_under_its_own_name_and_until_something_else_takes_it() {
        let mut info = info();
        assert!(info.make_state("mine", ObjectKind::ServerName, b"a.test", false));
        assert_eq!(info.upstream_objects, None);
        assert!(make(&mut info, SERVER_NAME, SERVER_NAME, "a.test"));
        let wishes = |info: &StreamInfo| info.upstream_objects.clone().map(|objects| objects.wishes);
        assert_eq!(wishes(&info).unwrap().server_name.as_deref(), Some("a.test"));
        // What Envoy's proxies take for no name.
        assert!(make(&mut info, SERVER_NAME, SERVER_NAME, ""));
        assert_eq!(wishes(&info), None);
        assert!(make(&mut info, SERVER_NAME, SERVER_NAME, "b.test"));
        info.set_state(SERVER_NAME, Value::String("c.test".into()));
        assert_eq!(wishes(&info), None);
    }

    #[test]
    fn shared_texts_part_connections_when_they_can_be_hashed() {
        let mut info = info();
        assert!(make(&mut info, "a", "envoy.string", "1"));
        let objects = info.upstream_objects.clone().unwrap();
        assert!(objects.wishes.is_empty() && objects.shared == ["a"]);
        assert!(make(&mut info, "a", "envoy.hashable_string", "1"));
        assert!(make(&mut info, "a", "envoy.hashable_string", "2"));
        let objects = info.upstream_objects.clone().unwrap();
        assert_eq!(objects.wishes.shared, [("a".to_owned(), "2".to_owned())]);
        assert!(!objects.wishes.is_empty());
        assert!(info.make_state("a", ObjectKind::HashableText, b"2", false));
        assert_eq!(info.upstream_objects, None);
    }

    #[test]
    fn each_factory_takes_its_own_texts() {
        let made = |factory: &str, text: &str| ObjectKind::of(factory).unwrap().make(text.as_bytes());
        let text = |text: &str| Some(Value::String(text.into()));
        assert_eq!(made("envoy.bool", "Yes"), Some(Value::Bool(true)));
        assert_eq!(made("envoy.bool", "perhaps"), None);
        assert_eq!(made(TCP_NO_TUNNEL, "yes"), None);
        assert_eq!(made(TCP_NO_TUNNEL, "false"), Some(Value::Bool(false)));
        assert_eq!(made(HITS, " 7 "), Some(Value::Number(7.0)));
        assert_eq!((made(HITS, "-1"), made(HITS, "4294967296")), (None, None));
        assert_eq!(made(TCP_IDLE_TIMEOUT, "4294967296"), Some(Value::Number(4_294_967_296.0)));
        assert_eq!(made("envoy.network.ip", "::1"), text("[::1]:0"));
        assert_eq!(made("envoy.network.ip", "localhost"), None);
        assert_eq!(made("envoy.filters.listener.original_dst.local_ip", "1.2.3.4:5"), text("1.2.3.4:5"));
        assert_eq!(made("envoy.network.transport_socket.original_dst_address", "1.2.3.4"), None);
        assert_eq!(made("envoy.network.application_protocols", "h2"), Some(Value::Null));
        assert_eq!(ObjectKind::of("envoy.upstream.dynamic_host"), None);
        let address = "envoy.network.transport_socket.original_dst_address";
        let field = |name: &str, field: &str| field_of(name, &Value::String("[::1]:80".into()), field);
        assert_eq!((field(address, "ip"), field(address, "port")), (text("::1"), Some(Value::Number(80.0))));
        assert_eq!((field(address, "host"), field("mine", "ip")), (None, None));
    }
}
