//! Probes of quiet TCP connections, as the system's table of connections tells of them.

use std::net::SocketAddr;

/// Ticks of the table's clock in a second (`USER_HZ`, proc(5)).
const TICKS: u64 = 100;

/// The state of a connection that is open; what an earlier one between the same ports left behind has another.
const ESTABLISHED: &str = "01";

/// The timer that a connection runs is that of its probes.
const PROBING: u64 = 2;

/// An address of IPv4 as the table writes it.
fn place(address: SocketAddr) -> String {
    let SocketAddr::V4(four) = address else { panic!("{address} is no address of IPv4") };
    format!("{:08X}:{:04X}", u32::from_ne_bytes(four.ip().octets()), four.port())
}

/// Each open connection between these addresses, from any where `local` is `None`: in how many seconds it is probed; `None` is never.
pub fn probed(local: Option<SocketAddr>, remote: SocketAddr) -> Vec<Option<u64>> {
    let table = std::fs::read_to_string("/proc/net/tcp").expect("the table of connections");
    let about = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, from, to, ESTABLISHED, _, timer, ..] = fields.as_slice() else { return None };
        let meant = *to == place(remote) && local.is_none_or(|local| *from == place(local));
        let (kind, left) = timer.split_once(':').filter(|_| meant)?;
        let [kind, left] = [kind, left].map(|number| u64::from_str_radix(number, 16).expect("a number"));
        Some((kind == PROBING).then_some(left / TICKS))
    };
    table.lines().filter_map(about).collect()
}
