//! Where a request comes from by what extensions find in it, where the configuration has such extensions.

use std::io::Write;
use std::net::{IpAddr, SocketAddr};

use postrider_http::{Fields, HeaderId};
use postrider_model::{Cidr, ClientDetection, TrustedProxies};

use super::edits;

/// What extensions found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Detected {
    pub(super) address: Option<IpAddr>,
    /// An internal address means that the request comes from inside.
    pub(super) may_be_inside: bool,
}

/// Asks one extension after the other, until one knows.
///
/// # Errors
/// The status to answer where one wants to know and does not.
#[cold]
pub(super) fn detect(
    extensions: &[ClientDetection],
    fields: &mut Fields,
    peer: Option<SocketAddr>,
    scratch: &mut Vec<u8>,
) -> Result<Detected, u16> {
    for extension in extensions {
        let detected = match extension {
            ClientDetection::Header { name, may_be_inside, otherwise } => {
                let address = fields.get_name(name.as_bytes()).and_then(address);
                if let (None, Some(status)) = (address, otherwise) {
                    return Err(*status);
                }
                Detected { address, may_be_inside: *may_be_inside }
            }
            ClientDetection::Forwarded { trusted, appends } => {
                let detected = match trusted {
                    TrustedProxies::Hops(hops) => Detected {
                        address: edits::forwarded_client(fields, *hops),
                        may_be_inside: *hops == 0 && is_alone(fields),
                    },
                    TrustedProxies::Networks(networks) => behind(networks, fields, peer),
                };
                if *appends {
                    append_peer(fields, peer, scratch);
                }
                detected
            }
        };
        if detected.address.is_some() {
            return Ok(detected);
        }
    }
    Ok(Detected::default())
}

/// The last address of the list that is in none of the networks; the first, where all of them are.
fn behind(networks: &[Cidr], fields: &Fields, peer: Option<SocketAddr>) -> Detected {
    let is_trusted = |address: IpAddr| networks.iter().any(|network| network.contains(address));
    let list = fields.get(HeaderId::XForwardedFor).filter(|_| peer.is_some_and(|peer| is_trusted(peer.ip())));
    let mut last = None;
    for entry in list.into_iter().flat_map(|list| list.rsplit(|byte| *byte == b',')) {
        // Behind what is no address nobody can be believed.
        let Some(found) = address(entry) else { return Detected::default() };
        last = Some(found);
        if !is_trusted(found) {
            break;
        }
    }
    Detected { address: last, may_be_inside: is_alone(fields) }
}

fn address(text: &[u8]) -> Option<IpAddr> {
    std::str::from_utf8(text).ok()?.trim().parse().ok()
}

/// The list names one address only.
fn is_alone(fields: &Fields) -> bool {
    fields.get(HeaderId::XForwardedFor).is_some_and(|list| !list.contains(&b','))
}

/// Adds the peer to those whom the request came by.
#[inline]
pub(super) fn append_peer(fields: &mut Fields, peer: Option<SocketAddr>, scratch: &mut Vec<u8>) {
    let Some(peer) = peer else { return };
    scratch.clear();
    if let Some(list) = fields.get(HeaderId::XForwardedFor).filter(|list| !list.is_empty()) {
        scratch.extend_from_slice(list);
        scratch.push(b',');
    }
    // Writing to a vector cannot fail.
    let _ = write!(scratch, "{}", peer.ip());
    let _ = fields.set(HeaderId::XForwardedFor, scratch);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detected(extension: ClientDetection, lines: &[(&str, &str)]) -> Result<(Option<String>, bool), u16> {
        let mut fields = Fields::new();
        for (name, value) in lines {
            fields.append_name(name.as_bytes(), value.as_bytes()).unwrap();
        }
        let peer = "127.0.0.1:9".parse().ok();
        let found = detect(&[extension], &mut fields, peer, &mut Vec::new())?;
        Ok((found.address.map(|address| address.to_string()), found.may_be_inside))
    }

    #[test]
    fn the_first_address_behind_trusted_networks_counts() {
        let networks = |text: &[&str]| {
            let network = |text: &&str| Cidr::new(text.parse().unwrap(), 8).unwrap();
            let trusted = TrustedProxies::Networks(text.iter().map(network).collect());
            ClientDetection::Forwarded { trusted, appends: false }
        };
        let both = || networks(&["127.0.0.0", "10.0.0.0"]);
        let address = |list: &str| detected(both(), &[("x-forwarded-for", list)]).unwrap().0;
        assert_eq!(detected(both(), &[]), Ok((None, false)));
        assert_eq!(address("9.9.9.9").as_deref(), Some("9.9.9.9"));
        assert_eq!(address("8.8.8.8, 9.9.9.9,10.0.0.1").as_deref(), Some("9.9.9.9"));
        assert_eq!(address("10.1.1.1,10.2.2.2").as_deref(), Some("10.1.1.1"));
        assert_eq!(address("8.8.8.8,bad,10.0.0.1"), None);
        assert_eq!(address("bad,8.8.8.8").as_deref(), Some("8.8.8.8"));
        assert_eq!(address("8.8.8.8,"), None);
        let stranger = networks(&["10.0.0.0"]);
        assert_eq!(detected(stranger, &[("x-forwarded-for", "9.9.9.9")]), Ok((None, false)));
    }

    #[test]
    fn a_header_names_the_client_or_else() {
        let header = |otherwise| ClientDetection::Header { name: "x-ip".into(), may_be_inside: true, otherwise };
        assert_eq!(detected(header(Some(401)), &[("x-ip", "::1")]), Ok((Some("::1".into()), true)));
        for bad in ["[::1]", "1.2.3.4:80", "", "a"] {
            assert_eq!(detected(header(Some(401)), &[("x-ip", bad)]), Err(401), "{bad}");
            assert_eq!(detected(header(None), &[("x-ip", bad)]), Ok((None, false)), "{bad}");
        }
    }

    #[test]
    fn hops_are_counted_from_the_end_before_the_peer_is_added() {
        let hops = |hops| ClientDetection::Forwarded { trusted: TrustedProxies::Hops(hops), appends: true };
        let list = [("x-forwarded-for", "8.8.8.8, 9.9.9.9,10.0.0.1")];
        assert_eq!(detected(hops(1), &list), Ok((Some("9.9.9.9".into()), false)));
        assert_eq!(detected(hops(0), &[("x-forwarded-for", "9.9.9.9")]), Ok((Some("9.9.9.9".into()), true)));
        let mut fields = Fields::new();
        detect(&[hops(0)], &mut fields, "127.0.0.1:9".parse().ok(), &mut Vec::new()).unwrap();
        assert_eq!(fields.get(HeaderId::XForwardedFor), Some(b"127.0.0.1".as_slice()));
    }
}
