//! In which order the addresses of one endpoint are tried (RFC 8305 section 4).

use postrider_model::{Address, AddressFamily, AddressOrder, Endpoint};

/// The addresses of `endpoint`: the family that is to be first, by as many as `order` says, then one of each other in the order in
/// which they come, and so on.
pub fn order(endpoint: &Endpoint, order: AddressOrder) -> Vec<Address> {
    let all = || std::iter::once(&endpoint.address).chain(&endpoint.additional);
    let mut families = vec![order.first.unwrap_or(family(&endpoint.address))];
    for found in all().map(family) {
        if !families.contains(&found) {
            families.push(found);
        }
    }
    let runs = std::iter::once(order.run.max(1) as usize).chain(std::iter::repeat(1));
    let mut queues: Vec<_> = families
        .into_iter()
        .zip(runs)
        .map(|(wanted, run)| (all().filter(move |address| family(address) == wanted), run))
        .collect();
    let mut sorted = Vec::with_capacity(1 + endpoint.additional.len());
    loop {
        let before = sorted.len();
        for (queue, run) in &mut queues {
            sorted.extend(queue.by_ref().take(*run).cloned());
        }
        if sorted.len() == before {
            return sorted;
        }
    }
}

fn family(address: &Address) -> AddressFamily {
    match address {
        Address::Tcp(address) if address.is_ipv4() => AddressFamily::V4,
        Address::Tcp(_) => AddressFamily::V6,
        Address::Unix { .. } => AddressFamily::Path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::endpoint;

    fn sorted(addresses: &[&str], first: Option<AddressFamily>, run: u32) -> Vec<String> {
        let address = |text: &&str| match text.parse() {
            Ok(address) => Address::Tcp(address),
            Err(_) => Address::Unix { path: text.into(), mode: None },
        };
        let mut addresses = addresses.iter().map(address);
        let endpoint = Endpoint { address: addresses.next().unwrap(), additional: addresses.collect(), ..endpoint(1) };
        order(&endpoint, AddressOrder { first, run }).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn families_take_turns_and_keep_their_order() {
        let all = ["1.0.0.1:1", "1.0.0.2:1", "1.0.0.3:1", "[::1]:1", "[::2]:1"];
        assert_eq!(sorted(&all, None, 1), ["1.0.0.1:1", "[::1]:1", "1.0.0.2:1", "[::2]:1", "1.0.0.3:1"]);
        assert_eq!(
            sorted(&all, Some(AddressFamily::V6), 1),
            ["[::1]:1", "1.0.0.1:1", "[::2]:1", "1.0.0.2:1", "1.0.0.3:1"]
        );
        assert_eq!(
            sorted(&all, Some(AddressFamily::V4), 2),
            ["1.0.0.1:1", "1.0.0.2:1", "[::1]:1", "1.0.0.3:1", "[::2]:1"]
        );
    }

    #[test]
    fn a_family_that_is_missing_holds_nothing_up() {
        assert_eq!(sorted(&["1.0.0.1:1", "1.0.0.2:1"], Some(AddressFamily::V6), 3), ["1.0.0.1:1", "1.0.0.2:1"]);
        assert_eq!(sorted(&["[::1]:1"], None, 1), ["[::1]:1"]);
    }

    #[test]
    fn paths_are_a_family_of_their_own() {
        let all = ["1.0.0.1:1", "1.0.0.2:1", "/a", "[::1]:1", "/b"];
        assert_eq!(sorted(&all, None, 1), ["1.0.0.1:1", "/a", "[::1]:1", "1.0.0.2:1", "/b"]);
        assert_eq!(sorted(&all, Some(AddressFamily::Path), 2), ["/a", "/b", "1.0.0.1:1", "[::1]:1", "1.0.0.2:1"]);
    }
}
