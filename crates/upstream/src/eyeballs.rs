//! In which order the addresses of one endpoint are tried (RFC 8305 section 4).

use postrider_model::{Address, AddressOrder, Endpoint};

/// The addresses of `endpoint`: the family that is to be first, by as many as `order` says, then one of the other, and so on.
pub fn order(endpoint: &Endpoint, order: AddressOrder) -> Vec<Address> {
    let first_is_v6 = order.v6_first.unwrap_or(is_v6(&endpoint.address));
    let all = || std::iter::once(&endpoint.address).chain(&endpoint.additional);
    let mut preferred = all().filter(|address| is_v6(address) == first_is_v6);
    let mut others = all().filter(|address| is_v6(address) != first_is_v6);
    let mut sorted = Vec::with_capacity(1 + endpoint.additional.len());
    loop {
        let before = sorted.len();
        sorted.extend(preferred.by_ref().take(order.run.max(1) as usize).cloned());
        sorted.extend(others.next().cloned());
        if sorted.len() == before {
            return sorted;
        }
    }
}

/// A path counts as what it is not.
fn is_v6(address: &Address) -> bool {
    matches!(address, Address::Tcp(address) if address.is_ipv6())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::endpoint;

    fn sorted(addresses: &[&str], v6_first: Option<bool>, run: u32) -> Vec<String> {
        let mut addresses = addresses.iter().map(|address| Address::Tcp(address.parse().unwrap()));
        let endpoint = Endpoint { address: addresses.next().unwrap(), additional: addresses.collect(), ..endpoint(1) };
        order(&endpoint, AddressOrder { v6_first, run }).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn families_take_turns_and_keep_their_order() {
        let all = ["1.0.0.1:1", "1.0.0.2:1", "1.0.0.3:1", "[::1]:1", "[::2]:1"];
        assert_eq!(sorted(&all, None, 1), ["1.0.0.1:1", "[::1]:1", "1.0.0.2:1", "[::2]:1", "1.0.0.3:1"]);
        assert_eq!(sorted(&all, Some(true), 1), ["[::1]:1", "1.0.0.1:1", "[::2]:1", "1.0.0.2:1", "1.0.0.3:1"]);
        assert_eq!(sorted(&all, Some(false), 2), ["1.0.0.1:1", "1.0.0.2:1", "[::1]:1", "1.0.0.3:1", "[::2]:1"]);
    }

    #[test]
    fn a_family_that_is_missing_holds_nothing_up() {
        assert_eq!(sorted(&["1.0.0.1:1", "1.0.0.2:1"], Some(true), 3), ["1.0.0.1:1", "1.0.0.2:1"]);
        assert_eq!(sorted(&["[::1]:1"], None, 1), ["[::1]:1"]);
    }
}
