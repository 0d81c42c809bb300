//! Session tickets (RFC 5077, RFC 8446 4.6.1): sessions that the client keeps, sealed by keys of ours.
//!
//! A ticket says under which rules its session began, and is good only under the same: resuming skips the client's
//! certificate, so a ticket of a context that asks for none must not open one that does. It says when, too, because
//! keys that the configuration gives have no end.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::{hkdf, rand};
use rustls::server::ProducesTickets;

/// Two hours, as in BoringSSL.
pub(crate) const DEFAULT_LIFETIME: Duration = Duration::from_secs(7200);

/// RFC 8446, 4.6.1: seven days are the most.
const MAX_LIFETIME: Duration = Duration::from_secs(604_800);

/// Which rules a session began under.
pub(crate) type ContextId = [u8; 32];

/// Bytes of a configured key.
pub(crate) const KEY_LENGTH: usize = 80;

/// Keys of this process, changed every six hours and kept for six more. All contexts share them, so that sessions
/// outlive a reload.
///
/// `None` when the system gives no random bytes.
pub(crate) fn rotating() -> Option<Arc<dyn ProducesTickets>> {
    static KEYS: OnceLock<Option<Arc<dyn ProducesTickets>>> = OnceLock::new();
    KEYS.get_or_init(|| rustls::crypto::aws_lc_rs::Ticketer::new().ok()).clone()
}

/// Tickets of one context over shared keys.
#[derive(Debug)]
pub(crate) struct Bound {
    keys: Arc<dyn ProducesTickets>,
    context: ContextId,
    lifetime: Duration,
    clock: fn() -> u64,
}

impl Bound {
    pub fn new(keys: Arc<dyn ProducesTickets>, context: ContextId, lifetime: Duration) -> Bound {
        Bound { keys, context, lifetime: lifetime.min(MAX_LIFETIME), clock: now }
    }
}

impl ProducesTickets for Bound {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        u32::try_from(self.lifetime.as_secs()).unwrap_or(u32::MAX).min(self.keys.lifetime())
    }

    /// Context (32 bytes), seconds since 1970 (8 bytes, big-endian), then the session.
    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let issued = (self.clock)().to_be_bytes();
        self.keys.encrypt(&[&self.context[..], &issued, plain].concat())
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        let opened = self.keys.decrypt(cipher)?;
        let (context, rest) = opened.split_at_checked(32)?;
        let (issued, plain) = rest.split_at_checked(8)?;
        let issued = u64::from_be_bytes(issued.try_into().ok()?);
        let fresh = (self.clock)().saturating_sub(issued) < self.lifetime.as_secs();
        (context == self.context && fresh).then(|| plain.to_vec())
    }
}

/// Keys from the configuration, so that several proxies open each other's tickets.
///
/// A key is 80 bytes: a name of 16, and two secrets of 32, which BoringSSL uses for HMAC-SHA256 and AES-256-CBC. Here
/// the name finds the key, and both secrets together give, through HKDF-SHA256 and a salt of each ticket's own, the key
/// of AES-256-GCM that seals it. As no two tickets share a key, the nonce may be zero and there may be any number of
/// them.
///
/// ```text
/// name (16) | salt (32) | sealed session | tag (16)      name and salt are authenticated, too
/// ```
pub(crate) struct Configured {
    keys: Vec<Key>,
}

struct Key {
    name: [u8; 16],
    secret: hkdf::Prk,
}

/// Keys are never shown.
impl std::fmt::Debug for Configured {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Configured({} keys)", self.keys.len())
    }
}

impl Configured {
    /// `None` when one is not of 80 bytes, or when there is none.
    pub fn new(keys: &[Vec<u8>]) -> Option<Configured> {
        let keys: Vec<Key> = keys.iter().map(|bytes| Key::new(bytes)).collect::<Option<_>>()?;
        (!keys.is_empty()).then_some(Configured { keys })
    }
}

impl ProducesTickets for Configured {
    fn enabled(&self) -> bool {
        true
    }

    /// These keys end when the configuration changes; a ticket's own time is kept by [`Bound`].
    fn lifetime(&self) -> u32 {
        u32::MAX
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let key = self.keys.first()?;
        let mut salt = [0; 32];
        rand::fill(&mut salt).ok()?;
        let head = [&key.name[..], &salt].concat();
        let mut sealed = plain.to_vec();
        key.of_ticket(&salt)?
            .seal_in_place_append_tag(Nonce::assume_unique_for_key([0; 12]), Aad::from(&head), &mut sealed)
            .ok()?;
        Some([head, sealed].concat())
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let (head, sealed) = ticket.split_at_checked(48)?;
        let (name, salt) = head.split_at_checked(16)?;
        let key = self.keys.iter().find(|key| key.name == name)?;
        let mut opened = sealed.to_vec();
        let length = key
            .of_ticket(salt)?
            .open_in_place(Nonce::assume_unique_for_key([0; 12]), Aad::from(head), &mut opened)
            .ok()?
            .len();
        opened.truncate(length);
        Some(opened)
    }
}

impl Key {
    fn new(bytes: &[u8]) -> Option<Key> {
        if bytes.len() != KEY_LENGTH {
            return None;
        }
        let (name, secrets) = bytes.split_at_checked(16)?;
        let secret = hkdf::Salt::new(hkdf::HKDF_SHA256, name).extract(secrets);
        Some(Key { name: name.try_into().ok()?, secret })
    }

    fn of_ticket(&self, salt: &[u8]) -> Option<LessSafeKey> {
        let info: [&[u8]; 2] = [b"postrider session ticket", salt];
        let key = self.secret.expand(&info, &AES_256_GCM).ok()?;
        Some(LessSafeKey::new(UnboundKey::from(key)))
    }
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |it| it.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configured(seeds: &[u8]) -> Arc<Configured> {
        let keys: Vec<Vec<u8>> = seeds.iter().map(|&seed| (0..80).map(|at| at ^ seed).collect()).collect();
        Arc::new(Configured::new(&keys).unwrap())
    }

    #[test]
    fn the_first_key_seals_and_every_key_opens() {
        let (old, both, new) = (configured(&[1]), configured(&[2, 1]), configured(&[2]));
        let ticket = old.encrypt(b"session").unwrap();
        assert_eq!(both.decrypt(&ticket).as_deref(), Some(&b"session"[..]));
        assert_eq!(new.decrypt(&ticket), None);
        let ticket = both.encrypt(b"session").unwrap();
        assert_eq!(new.decrypt(&ticket).as_deref(), Some(&b"session"[..]));
        assert_eq!(old.decrypt(&ticket), None);
    }

    #[test]
    fn no_two_tickets_are_alike() {
        let keys = configured(&[1]);
        let (first, second) = (keys.encrypt(b"session").unwrap(), keys.encrypt(b"session").unwrap());
        assert_ne!(first[16..], second[16..]);
    }

    #[test]
    fn a_ticket_that_was_changed_anywhere_does_not_open() {
        let keys = configured(&[1]);
        let ticket = keys.encrypt(b"session").unwrap();
        for at in 0..ticket.len() {
            let mut changed = ticket.clone();
            changed[at] ^= 1;
            assert_eq!(keys.decrypt(&changed), None, "{at}");
            assert_eq!(keys.decrypt(&ticket[..at]), None, "{at}");
        }
    }

    #[test]
    fn only_keys_of_eighty_bytes() {
        for (lengths, good) in [(&[80][..], true), (&[80, 80], true), (&[], false), (&[79], false), (&[80, 48], false)]
        {
            let keys: Vec<Vec<u8>> = lengths.iter().map(|&it| vec![7; it]).collect();
            assert_eq!(Configured::new(&keys).is_some(), good, "{lengths:?}");
        }
    }

    #[test]
    fn a_ticket_is_good_in_its_own_context_only() {
        let keys = configured(&[1]);
        let one = Bound::new(keys.clone(), [1; 32], DEFAULT_LIFETIME);
        let other = Bound::new(keys, [2; 32], DEFAULT_LIFETIME);
        let ticket = one.encrypt(b"session").unwrap();
        assert_eq!(one.decrypt(&ticket).as_deref(), Some(&b"session"[..]));
        assert_eq!(other.decrypt(&ticket), None);
    }

    #[test]
    fn a_ticket_ends() {
        let keys = configured(&[1]);
        let at = |clock| Bound { keys: keys.clone(), context: [1; 32], lifetime: Duration::from_secs(60), clock };
        let ticket = at(|| 1000).encrypt(b"session").unwrap();
        assert!(at(|| 1059).decrypt(&ticket).is_some());
        assert!(at(|| 1060).decrypt(&ticket).is_none());
    }

    #[test]
    fn the_lifetime_that_clients_are_told() {
        let keys = configured(&[1]);
        let told = |seconds| Bound::new(keys.clone(), [1; 32], Duration::from_secs(seconds)).lifetime();
        assert_eq!((told(60), told(7200), told(9_999_999)), (60, 7200, 604_800));
        assert_eq!(Bound::new(rotating().unwrap(), [1; 32], MAX_LIFETIME).lifetime(), 12 * 3600);
    }
}
