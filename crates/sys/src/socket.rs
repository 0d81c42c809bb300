//! Listening sockets and the options of accepted and connected ones.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, RawFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, TcpKeepalive, Type};

/// What to set on a listening socket before it is bound.
#[derive(Debug, Clone, Default)]
pub struct ListenOptions {
    /// Length of the queue of connections that nobody accepted yet.
    pub backlog: u32,
    /// Several sockets share the address and the kernel spreads connections over them.
    pub reuse_port: bool,
    /// MPTCP (RFC 8684); clients without it are served by TCP.
    pub multipath: bool,
    pub freebind: bool,
    pub transparent: bool,
    /// Length of the fast-open queue.
    pub fast_open: Option<u32>,
    /// An IPv6 socket that takes IPv4 as well.
    pub ipv4: bool,
    /// Of accepted connections, which inherit it.
    pub keepalive: Option<TcpKeepalive>,
    pub numbered: Vec<NumberedOption>,
}

/// An option by the system's numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NumberedOption {
    pub level: i32,
    pub name: i32,
    /// As it stands in memory.
    pub value: Vec<u8>,
    pub when: OptionMoment,
    /// Left out on IP sockets of the other version.
    pub ip_version: Option<IpVersion>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IpVersion {
    V4,
    V6,
}

impl IpVersion {
    /// None of a socket that has none, such as a Unix one.
    fn of(socket: &impl AsFd) -> io::Result<Option<Self>> {
        let domain = SockRef::from(socket).domain()?;
        Ok(match domain {
            Domain::IPV4 => Some(Self::V4),
            Domain::IPV6 => Some(Self::V6),
            _ => None,
        })
    }
}

/// When an option is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OptionMoment {
    BeforeBind,
    AfterBind,
    WhenListening,
}

/// A socket that listens, not yet registered with any runtime. Non-blocking.
#[derive(Debug)]
pub enum Bound {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Bound {
    /// Another handle on the same socket and its queue.
    ///
    /// # Errors
    /// The process is out of file descriptors.
    pub fn try_clone(&self) -> io::Result<Bound> {
        match self {
            Bound::Tcp(listener) => listener.try_clone().map(Bound::Tcp),
            Bound::Unix(listener) => listener.try_clone().map(Bound::Unix),
        }
    }
}

/// Where to listen.
#[derive(Debug, Clone)]
pub enum Place<'a> {
    Tcp(SocketAddr),
    /// A path, or with a leading `@` a name in the abstract namespace; the file gets `mode`.
    Unix(&'a Path, Option<u32>),
}

/// Binds and listens. A stale file of a Unix socket is replaced.
///
/// # Errors
/// As the system says: address in use, no permission, no such directory.
pub fn listen(place: &Place<'_>, options: &ListenOptions) -> io::Result<Bound> {
    match place {
        Place::Tcp(address) => listen_tcp(*address, options).map(Bound::Tcp),
        Place::Unix(path, mode) => listen_unix(path, *mode, options).map(Bound::Unix),
    }
}

fn listen_tcp(address: SocketAddr, options: &ListenOptions) -> io::Result<TcpListener> {
    let protocol = if options.multipath { Protocol::from(libc::IPPROTO_MPTCP) } else { Protocol::TCP };
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(protocol))?;
    socket.set_reuse_address(true)?;
    if options.reuse_port {
        socket.set_reuse_port(true)?;
    }
    if address.is_ipv6() {
        socket.set_only_v6(!options.ipv4)?;
    }
    if options.freebind {
        match address {
            SocketAddr::V4(_) => socket.set_freebind_v4(true)?,
            SocketAddr::V6(_) => socket.set_freebind_v6(true)?,
        }
    }
    if options.transparent {
        socket.set_ip_transparent_v4(true)?;
    }
    socket.set_nonblocking(true)?;
    // Accepted sockets inherit it, which saves a call for each.
    socket.set_tcp_nodelay(true)?;
    if let Some(keepalive) = &options.keepalive {
        socket.set_tcp_keepalive(keepalive)?;
    }
    set_options(&socket, &options.numbered, OptionMoment::BeforeBind)?;
    socket.bind(&address.into())?;
    set_options(&socket, &options.numbered, OptionMoment::AfterBind)?;
    if let Some(queue) = options.fast_open {
        set_fast_open(&socket, queue)?;
    }
    socket.listen(i32::try_from(options.backlog).unwrap_or(i32::MAX))?;
    set_options(&socket, &options.numbered, OptionMoment::WhenListening)?;
    Ok(socket.into())
}

fn listen_unix(path: &Path, mode: Option<u32>, options: &ListenOptions) -> io::Result<UnixListener> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    let name = path.to_string_lossy();
    let abstract_name = name.strip_prefix('@').map(|rest| PathBuf::from(format!("\0{rest}")));
    if abstract_name.is_none() && is_stale_socket(path) {
        std::fs::remove_file(path)?;
    }
    set_options(&socket, &options.numbered, OptionMoment::BeforeBind)?;
    socket.bind(&SockAddr::unix(abstract_name.as_deref().unwrap_or(path))?)?;
    set_options(&socket, &options.numbered, OptionMoment::AfterBind)?;
    if let (Some(mode), None) = (mode, &abstract_name) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    }
    socket.listen(i32::try_from(options.backlog).unwrap_or(i32::MAX))?;
    set_options(&socket, &options.numbered, OptionMoment::WhenListening)?;
    Ok(socket.into())
}

/// A socket file that nobody answers on: left behind by a process that is gone.
fn is_stale_socket(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    std::fs::metadata(path).is_ok_and(|file| file.file_type().is_socket())
        && std::os::unix::net::UnixStream::connect(path).is_err()
}

fn set_fast_open(socket: &Socket, queue: u32) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let queue = libc::c_int::try_from(queue).unwrap_or(libc::c_int::MAX);
    // SAFETY: the descriptor is open for the whole call and the option's value is one int that outlives it.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_FASTOPEN,
            (&raw const queue).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sets those of `options` whose moment has come and that are for sockets of this kind.
///
/// # Errors
/// The system knows no such option, or takes no such value; the text names it.
pub fn set_options(socket: &impl AsFd, options: &[NumberedOption], moment: OptionMoment) -> io::Result<()> {
    for option in options.iter().filter(|option| option.when == moment) {
        if let Some(wanted) = option.ip_version
            && IpVersion::of(socket)?.is_some_and(|version| version != wanted)
        {
            continue;
        }
        set_option(socket, option).map_err(|error| {
            let text = format!("socket option {}/{}: {error}", option.level, option.name);
            io::Error::new(error.kind(), text)
        })?;
    }
    Ok(())
}

fn set_option(socket: &impl AsFd, option: &NumberedOption) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let length = libc::socklen_t::try_from(option.value.len()).map_err(io::Error::other)?;
    // SAFETY: the descriptor is open for the whole call, and the system reads `length` bytes of a value that has so many.
    let result = unsafe {
        libc::setsockopt(socket.as_fd().as_raw_fd(), option.level, option.name, option.value.as_ptr().cast(), length)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Options of a connected TCP socket: no delay for small writes, keep-alive when asked for.
///
/// # Errors
/// The socket is no TCP socket, or gone.
pub fn prepare_stream(socket: &impl AsFd, keepalive: Option<&TcpKeepalive>) -> io::Result<()> {
    let socket = SockRef::from(socket);
    socket.set_tcp_nodelay(true)?;
    match keepalive {
        Some(keepalive) => socket.set_tcp_keepalive(keepalive),
        None => Ok(()),
    }
}

/// Keep-alive settings for [`prepare_stream`] and [`ListenOptions`]; an absent value is the system's.
pub fn keepalive(probes: Option<u32>, time: Option<Duration>, interval: Option<Duration>) -> TcpKeepalive {
    let mut keepalive = TcpKeepalive::new();
    if let Some(probes) = probes {
        keepalive = keepalive.with_retries(probes);
    }
    if let Some(time) = time {
        keepalive = keepalive.with_time(time);
    }
    if let Some(interval) = interval {
        keepalive = keepalive.with_interval(interval);
    }
    keepalive
}

/// An address as its owner knows it: what an IPv6 socket tells of a peer with IPv4 is that peer's IPv4 address.
#[inline]
pub fn canonical(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V4(_) => address,
        SocketAddr::V6(six) => match six.ip().to_ipv4_mapped() {
            Some(four) => SocketAddr::new(four.into(), six.port()),
            None => address,
        },
    }
}

/// Where a connection was meant to go before the system's packet filter redirected it; `None` when it was not.
pub fn original_destination(socket: &impl AsFd) -> Option<SocketAddr> {
    let socket = SockRef::from(socket);
    let four = socket.original_dst_v4().ok().and_then(|address| address.as_socket());
    four.or_else(|| socket.original_dst_v6().ok()?.as_socket()).map(canonical)
}

/// Makes a close of this socket send a reset instead of waiting for the peer: for tests and for abandoned peers.
///
/// # Errors
/// The socket is gone.
pub fn reset_on_close(socket: &impl AsFd) -> io::Result<()> {
    SockRef::from(socket).set_linger(Some(Duration::ZERO))
}

/// Breaks a connection under whoever waits for it: the peer sees its end, the owner of the socket a reset.
///
/// `number` is the descriptor of an open socket, which its owner closes later; another number does no harm to memory.
pub fn break_connection(number: RawFd) {
    let disconnected = libc::sockaddr { sa_family: libc::AF_UNSPEC as libc::sa_family_t, sa_data: [0; 14] };
    let size = size_of::<libc::sockaddr>() as libc::socklen_t;
    // SAFETY: neither call keeps what it is given, and `connect` reads `size` bytes of an address that lives on this stack.
    unsafe {
        libc::shutdown(number, libc::SHUT_RDWR);
        // A socket that only was shut would still seem to take what is sent, until the peer answers.
        libc::connect(number, &raw const disconnected, size);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_with_reuse_port_share_one_address() {
        let options = ListenOptions { backlog: 8, reuse_port: true, ..Default::default() };
        let any = Place::Tcp("127.0.0.1:0".parse().unwrap());
        let Ok(Bound::Tcp(first)) = listen(&any, &options) else { panic!("no first socket") };
        let same = Place::Tcp(first.local_addr().unwrap());
        assert!(listen(&same, &options).is_ok());
        assert!(listen(&same, &ListenOptions { reuse_port: false, ..options }).is_err());
    }

    #[test]
    fn keepalive_reaches_the_socket_and_what_is_absent_stays_the_systems() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let connect = || std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let told = |stream: &std::net::TcpStream| {
            let socket = SockRef::from(stream);
            let (retries, interval) = (socket.tcp_keepalive_retries(), socket.tcp_keepalive_interval());
            (socket.keepalive().unwrap(), retries.unwrap(), socket.tcp_keepalive_time().unwrap(), interval.unwrap())
        };
        let plain = connect();
        prepare_stream(&plain, None).unwrap();
        let (on, retries, time, interval) = told(&plain);
        assert!(!on && plain.nodelay().unwrap());
        let all = connect();
        let seconds = Duration::from_secs;
        prepare_stream(&all, Some(&keepalive(Some(7), Some(seconds(123)), Some(seconds(45))))).unwrap();
        assert_eq!(told(&all), (true, 7, seconds(123), seconds(45)));
        let some = connect();
        prepare_stream(&some, Some(&keepalive(None, Some(time + seconds(1)), None))).unwrap();
        assert_eq!(told(&some), (true, retries, time + seconds(1), interval));
    }

    #[test]
    fn a_connection_that_nobody_redirected_has_no_other_destination() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (served, _) = listener.accept().unwrap();
        assert_eq!(original_destination(&served).filter(|other| *other != served.local_addr().unwrap()), None);
        drop(client);
    }

    #[test]
    fn options_by_number_are_set_and_unknown_ones_are_named() {
        let option = |name, value: i32, when| NumberedOption {
            level: libc::SOL_SOCKET,
            name,
            value: value.to_ne_bytes().to_vec(),
            when,
            ip_version: None,
        };
        let numbered = vec![option(libc::SO_RCVBUF, 9000, OptionMoment::BeforeBind)];
        let options = ListenOptions { backlog: 8, numbered, ..Default::default() };
        let any = Place::Tcp("127.0.0.1:0".parse().unwrap());
        let Ok(Bound::Tcp(socket)) = listen(&any, &options) else { panic!("no socket") };
        // The system doubles what it is told, for its own needs.
        assert_eq!(SockRef::from(&socket).recv_buffer_size().unwrap(), 18_000);
        let unknown = vec![option(9999, 1, OptionMoment::WhenListening)];
        let error = listen(&any, &ListenOptions { numbered: unknown, ..options }).unwrap_err().to_string();
        assert!(error.starts_with("socket option 1/9999: "), "{error}");
    }

    #[test]
    fn options_of_one_ip_version_are_left_out_on_sockets_of_the_other() {
        let (four, unix) =
            (Socket::new(Domain::IPV4, Type::STREAM, None), Socket::new(Domain::UNIX, Type::STREAM, None));
        let unknown = |ip_version| NumberedOption {
            level: libc::SOL_SOCKET,
            name: 9999,
            value: vec![0; 4],
            when: OptionMoment::BeforeBind,
            ip_version: Some(ip_version),
        };
        let sets =
            |socket: &Socket, version| set_options(socket, &[unknown(version)], OptionMoment::BeforeBind).is_err();
        let (four, unix) = (four.unwrap(), unix.unwrap());
        assert_eq!((sets(&four, IpVersion::V4), sets(&four, IpVersion::V6)), (true, false));
        assert_eq!((sets(&unix, IpVersion::V4), sets(&unix, IpVersion::V6)), (true, true), "it has no version");
    }

    #[test]
    fn a_stale_unix_socket_is_replaced_and_a_live_one_is_not() {
        let path = std::env::temp_dir().join(format!("postrider-sys-{}.sock", std::process::id()));
        let options = ListenOptions { backlog: 8, ..Default::default() };
        let first = listen(&Place::Unix(&path, Some(0o600)), &options).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(listen(&Place::Unix(&path, None), &options).is_err());
        drop(first);
        assert!(listen(&Place::Unix(&path, None), &options).is_ok());
        std::fs::remove_file(&path).unwrap();
    }
}
