//! Statsd over UDP or in datagrams to a Unix domain socket, with the tags of DogStatsD or Graphite where they are wanted.

use super::Sink;
use crate::samples::{Sample, Value};
use std::fmt::Write;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixDatagram};
use std::path::PathBuf;

/// Where a line has its tags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatsdTags {
    /// In the name.
    InName,
    /// Behind the value, for DogStatsD; the name is without them.
    BehindValue,
    /// Behind the name, for Graphite, which is without them.
    BehindName,
}

/// Where datagrams go.
#[derive(Debug, Clone, PartialEq)]
pub enum StatsdAddress {
    Udp(SocketAddr),
    /// A leading `@` names a socket in the abstract namespace.
    Unix(PathBuf),
}

/// Whom to tell, and in which form.
#[derive(Debug, Clone, PartialEq)]
pub struct StatsdOptions {
    pub address: StatsdAddress,
    /// Stands before each name, with a dot between them.
    pub prefix: String,
    pub tags: StatsdTags,
    /// Lines share a datagram up to this size; 0 sends each in one of its own. A longer line goes alone all the same.
    pub datagram_bytes: usize,
}

/// The socket, and where its datagrams go.
enum Way {
    Udp(UdpSocket, SocketAddr),
    Unix(UnixDatagram, UnixAddr),
}

impl Way {
    /// What the system has no room for, or nobody takes, is not waited for.
    fn open(address: &StatsdAddress) -> io::Result<Way> {
        match address {
            StatsdAddress::Udp(address) => {
                let any: SocketAddr = match address {
                    SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
                    SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
                };
                let socket = UdpSocket::bind(any)?;
                socket.set_nonblocking(true)?;
                Ok(Way::Udp(socket, *address))
            }
            StatsdAddress::Unix(path) => {
                let address = match path.as_os_str().as_bytes().strip_prefix(b"@") {
                    Some(name) => UnixAddr::from_abstract_name(name)?,
                    None => UnixAddr::from_pathname(path)?,
                };
                let socket = UnixDatagram::unbound()?;
                socket.set_nonblocking(true)?;
                Ok(Way::Unix(socket, address))
            }
        }
    }

    fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Way::Udp(socket, address) => socket.send_to(bytes, address),
            Way::Unix(socket, address) => socket.send_to_addr(bytes, address),
        }
    }
}

/// The sink.
pub struct Statsd {
    way: Way,
    options: StatsdOptions,
    line: String,
    datagram: String,
    dropped: u64,
}

impl Statsd {
    /// # Errors
    /// The system gives no socket.
    pub fn new(options: StatsdOptions) -> io::Result<Statsd> {
        let way = Way::open(&options.address)?;
        Ok(Statsd { way, options, line: String::new(), datagram: String::new(), dropped: 0 })
    }

    fn add(&mut self, line: &str) {
        if line.len() >= self.options.datagram_bytes {
            return self.send(line);
        }
        if self.datagram.len() + line.len() + 1 > self.options.datagram_bytes {
            self.send_gathered();
        } else if !self.datagram.is_empty() {
            self.datagram.push('\n');
        }
        self.datagram.push_str(line);
    }

    fn send_gathered(&mut self) {
        let mut datagram = std::mem::take(&mut self.datagram);
        if !datagram.is_empty() {
            self.send(&datagram);
        }
        datagram.clear();
        self.datagram = datagram;
    }

    fn send(&mut self, bytes: &str) {
        if self.way.send(bytes.as_bytes()).is_err() {
            self.dropped += 1;
        }
    }
}

impl Sink for Statsd {
    fn take(&mut self, sample: &Sample<'_>) {
        let mut line = std::mem::take(&mut self.line);
        let prefix = std::mem::take(&mut self.options.prefix);
        statsd_lines(sample, &prefix, self.options.tags, &mut line, |line| self.add(line));
        self.options.prefix = prefix;
        self.line = line;
    }

    fn finish(&mut self) -> u64 {
        self.send_gathered();
        std::mem::take(&mut self.dropped)
    }
}

/// Calls `each` with the lines that tell a sample, without their ends. `line` is where they are made.
pub fn statsd_lines(
    sample: &Sample<'_>,
    prefix: &str,
    tags: StatsdTags,
    line: &mut String,
    mut each: impl FnMut(&str),
) {
    // `kind` begins with the bar; `share` is how many values one line stands for.
    let mut tell = |value: u64, kind: &str, share: u64| {
        let name = if tags == StatsdTags::InName { sample.name } else { &sample.tagged.name };
        line.clear();
        // Writing to a String cannot fail, here and below.
        let _ = write!(line, "{prefix}.{name}");
        if tags == StatsdTags::BehindName {
            for (tag, value) in &sample.tagged.tags {
                let _ = write!(line, ";{tag}={value}");
            }
        }
        let _ = write!(line, ":{value}{kind}");
        if share > 1 {
            let _ = write!(line, "|@{}", 1.0 / share as f64);
        }
        if tags == StatsdTags::BehindValue {
            for (at, (tag, value)) in sample.tagged.tags.iter().enumerate() {
                let before = if at == 0 { "|#" } else { "," };
                let _ = write!(line, "{before}{tag}:{value}");
            }
        }
        each(line);
    };
    match &sample.value {
        Value::Counter { new, .. } => tell(*new, "|c", 1),
        Value::Gauge(value) => tell(*value, "|g", 1),
        // Statsd reckons a line with a rate as so many values.
        Value::Histogram { new, .. } => new.values().for_each(|(value, count)| tell(value, "|ms", count)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::Tagged;
    use crate::stats::Distribution;
    use std::net::Ipv4Addr;

    fn sent(tags: StatsdTags, datagram_bytes: usize) -> Vec<String> {
        let server = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = StatsdAddress::Udp(server.local_addr().unwrap());
        let mut sink = Statsd::new(StatsdOptions { address, prefix: "p".into(), tags, datagram_bytes }).unwrap();
        let pairs = [("envoy.response_code", "200"), ("envoy.cluster_name", "a")];
        let tagged =
            Tagged { name: "c.rq".into(), tags: pairs.map(|(name, value)| (name.into(), value.into())).to_vec() };
        let new: Distribution = [5, 10, 10, 10, 10].into_iter().collect();
        let values = [
            Value::Counter { new: 3, total: 9 },
            Value::Gauge(7),
            Value::Histogram { new: &new, total: &new, bounds: &[] },
        ];
        for value in values {
            sink.take(&Sample { name: "c.a.rq_200", tagged: &tagged, value });
        }
        assert_eq!(sink.finish(), 0);
        // Loopback delivers before it answers; the last line tells that all are there.
        let mut buffer = [0; 1024];
        let mut all = Vec::new();
        while !all.last().is_some_and(|last: &String| last.contains("|@")) {
            let length = server.recv(&mut buffer).unwrap();
            all.push(String::from_utf8_lossy(&buffer[..length]).into_owned());
        }
        all
    }

    #[test]
    fn each_line_has_a_datagram() {
        assert_eq!(
            sent(StatsdTags::InName, 0),
            ["p.c.a.rq_200:3|c", "p.c.a.rq_200:7|g", "p.c.a.rq_200:5|ms", "p.c.a.rq_200:10|ms|@0.25"]
        );
    }

    #[test]
    fn graphite_has_tags_behind_the_name() {
        let line = |value: &str| format!("p.c.rq;envoy.response_code=200;envoy.cluster_name=a:{value}");
        let lines = ["3|c", "7|g", "5|ms", "10|ms|@0.25"].map(line);
        assert_eq!(sent(StatsdTags::BehindName, 0), lines);
        assert_eq!(sent(StatsdTags::BehindName, 10_000), [lines.join("\n")]);
    }

    #[test]
    fn lines_with_tags_share_datagrams_up_to_their_size() {
        let tags = "|#envoy.response_code:200,envoy.cluster_name:a";
        let line = |value: &str| format!("p.c.rq:{value}{tags}");
        let (one, two, three, four) = (line("3|c"), line("7|g"), line("5|ms"), line("10|ms|@0.25"));
        assert_eq!(sent(StatsdTags::BehindValue, 0), [&*one, &two, &three, &four]);
        let size = one.len() + two.len() + 1;
        assert_eq!(sent(StatsdTags::BehindValue, size), [format!("{one}\n{two}"), three.clone(), four.clone()]);
        assert_eq!(sent(StatsdTags::BehindValue, 10_000), [format!("{one}\n{two}\n{three}\n{four}")]);
    }

    #[test]
    fn what_cannot_be_sent_is_counted() {
        // No datagram goes to port 0.
        let address = StatsdAddress::Udp((Ipv4Addr::LOCALHOST, 0).into());
        let options = StatsdOptions { address, prefix: "p".into(), tags: StatsdTags::InName, datagram_bytes: 0 };
        let mut sink = Statsd::new(options).unwrap();
        let tagged = Tagged::default();
        sink.take(&Sample { name: "a", tagged: &tagged, value: Value::Gauge(1) });
        assert_eq!(sink.finish(), 1);
        assert_eq!(sink.finish(), 0);
    }

    #[test]
    fn datagrams_go_to_a_unix_domain_socket_by_its_path_or_its_abstract_name() {
        let name = format!("postrider-statsd-{}", std::process::id());
        let path = std::env::temp_dir().join(&name);
        let by_name = UnixAddr::from_abstract_name(name.as_bytes()).unwrap();
        let servers = [UnixDatagram::bind(&path).unwrap(), UnixDatagram::bind_addr(&by_name).unwrap()];
        for (server, address) in servers.iter().zip([path.clone(), format!("@{name}").into()]) {
            let address = StatsdAddress::Unix(address);
            let options = StatsdOptions { address, prefix: "p".into(), tags: StatsdTags::InName, datagram_bytes: 0 };
            let mut sink = Statsd::new(options).unwrap();
            let tagged = Tagged::default();
            sink.take(&Sample { name: "a", tagged: &tagged, value: Value::Gauge(1) });
            assert_eq!(sink.finish(), 0);
            let mut buffer = [0; 64];
            let length = server.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..length], b"p.a:1|g");
        }
        std::fs::remove_file(path).unwrap();
    }
}
