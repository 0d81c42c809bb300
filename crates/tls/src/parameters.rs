//! Protocol versions, cipher suites and key exchange groups of a configuration, in rustls' terms.

use std::sync::Arc;

use postrider_model::{TlsCommon, TlsVersion};
use rustls::crypto::{CryptoProvider, SupportedKxGroup, aws_lc_rs};
use rustls::{ProtocolVersion, SupportedCipherSuite, SupportedProtocolVersion};

use crate::connection::{cipher_name, group_name};
use crate::material::Material;

type Versions = &'static [&'static SupportedProtocolVersion];

/// `None` when something was refused.
pub(crate) fn read(common: &TlsCommon, material: &mut Material<'_>) -> Option<(Arc<CryptoProvider>, Versions)> {
    let suites = cipher_suites(common, material);
    let groups = groups(common, material);
    let versions = versions(common, material)?;
    // A suite of a version that is off would be offered all the same, and mislead the other side.
    let on = |suite: &SupportedCipherSuite| versions.iter().any(|it| it.version == suite.version().version);
    let provider = CryptoProvider {
        cipher_suites: suites?.into_iter().filter(on).collect(),
        kx_groups: groups?,
        ..aws_lc_rs::default_provider()
    };
    Some((Arc::new(provider), versions))
}

static NEW: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13];
static OLD: &[&SupportedProtocolVersion] = &[&rustls::version::TLS12];
static BOTH: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13, &rustls::version::TLS12];

/// `None` when the lowest is above the highest.
fn versions(common: &TlsCommon, material: &mut Material<'_>) -> Option<Versions> {
    let lowest = common.min_version;
    let highest = common.max_version;
    match (lowest, highest) {
        (TlsVersion::Tls13, TlsVersion::Tls12) => {
            material.refuse("common.min_version", "the lowest version is above the highest");
            None
        }
        (TlsVersion::Tls13, _) => Some(NEW),
        (_, TlsVersion::Tls12) => Some(OLD),
        _ => Some(BOTH),
    }
}

/// Those of TLS 1.3 are always on and come first; the names choose and order those of TLS 1.2.
fn cipher_suites(common: &TlsCommon, material: &mut Material<'_>) -> Option<Vec<SupportedCipherSuite>> {
    let is_new = |suite: &&SupportedCipherSuite| suite.version().version == ProtocolVersion::TLSv1_3;
    if common.cipher_suites.is_empty() {
        return Some(aws_lc_rs::DEFAULT_CIPHER_SUITES.to_vec());
    }
    let mut chosen: Vec<SupportedCipherSuite> = aws_lc_rs::ALL_CIPHER_SUITES.iter().filter(is_new).copied().collect();
    let mut complete = true;
    for (index, name) in common.cipher_suites.iter().enumerate() {
        let found = aws_lc_rs::ALL_CIPHER_SUITES
            .iter()
            .find(|suite| suite.suite().as_str() == Some(name.as_str()) || cipher_name(suite.suite()) == name.as_str());
        match found {
            Some(suite) if is_new(&suite) => {}
            Some(suite) => chosen.push(*suite),
            None => {
                let known: Vec<&str> = aws_lc_rs::ALL_CIPHER_SUITES
                    .iter()
                    .filter(|suite| !is_new(suite))
                    .filter_map(|suite| suite.suite().as_str())
                    .collect();
                let message = format!("the cipher suite `{name}` is not supported; these are: {}", known.join(", "));
                material.refuse(&format!("common.cipher_suites[{index}]"), message);
                complete = false;
            }
        }
    }
    complete.then_some(chosen)
}

fn groups(common: &TlsCommon, material: &mut Material<'_>) -> Option<Vec<&'static dyn SupportedKxGroup>> {
    if common.groups.is_empty() {
        return Some(aws_lc_rs::DEFAULT_KX_GROUPS.to_vec());
    }
    let mut chosen = Vec::new();
    let mut complete = true;
    for (index, name) in common.groups.iter().enumerate() {
        match aws_lc_rs::ALL_KX_GROUPS.iter().find(|group| group_name(group.name()) == name.as_str()) {
            Some(group) => chosen.push(*group),
            None => {
                let known: Vec<&str> = aws_lc_rs::ALL_KX_GROUPS.iter().map(|group| group_name(group.name())).collect();
                let message = format!("the group `{name}` is not supported; these are: {}", known.join(", "));
                material.refuse(&format!("common.groups[{index}]"), message);
                complete = false;
            }
        }
    }
    complete.then_some(chosen)
}
