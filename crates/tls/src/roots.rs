//! Whom certificates of the other side are traced back to: the configuration's roots and revocation lists, read once.

use postrider_model::{Roots, Validation};
use rustls::DistinguishedName;
use rustls::pki_types::{CertificateDer, TrustAnchor};
use webpki::{CertRevocationList, OwnedCertRevocationList};

use crate::facts::CertificateFacts;
use crate::material::{Bundle, Material};
use crate::trust_bundles;

/// One set of roots.
#[derive(Debug, Default)]
pub(crate) struct Trust {
    pub anchors: Vec<TrustAnchor<'static>>,
    /// The same as they were read: one that is shown by the other side itself is good as it is.
    pub certificates: Vec<CertificateDer<'static>>,
    /// None at all: revocation is not looked up.
    pub revocation_lists: Vec<CertRevocationList<'static>>,
}

#[derive(Debug)]
pub(crate) enum Anchors {
    /// Certificates are not traced.
    None,
    All(Trust),
    /// By the trust domain of the leaf.
    Domains(Vec<(String, Trust)>),
}

/// What was read, and what is shown of it.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub anchors: Anchors,
    pub facts: Vec<CertificateFacts>,
    /// Bytes of every root and revocation list, for the identity of the context.
    pub material: Vec<Vec<u8>>,
}

/// `None` when something was refused. `path` is that of the validation: `common.validation`.
pub(crate) fn load(validation: &Validation, path: &str, material: &mut Material<'_>) -> Option<Loaded> {
    let roots_path = format!("{path}.roots");
    let mut facts = Vec::new();
    let mut bytes = Vec::new();
    let lists = revocation_lists(validation, path, material);
    let anchors = match &validation.roots {
        Roots::None => Some(Anchors::None),
        Roots::Pem(data) => material.load(data, &roots_path).and_then(|source| {
            let bundle = material.certificates(&source, &roots_path)?;
            facts.extend(shown(&bundle, &source.origin));
            Trust::from_bundle(bundle, &roots_path, material).map(Anchors::All)
        }),
        Roots::System => system(&roots_path, material).map(Anchors::All),
        Roots::TrustDomains(domains) => {
            let mut complete = true;
            let mut loaded = Vec::new();
            for (index, (domain, data)) in domains.iter().enumerate() {
                let path = format!("{roots_path}[{index}]");
                let trust = material.load(data, &path).and_then(|source| {
                    let bundle = material.certificates(&source, &path)?;
                    facts.extend(shown(&bundle, &format!("{domain}: {}", source.origin)));
                    Trust::from_bundle(bundle, &path, material)
                });
                complete &= trust.is_some();
                loaded.extend(trust.map(|trust| (domain.clone(), trust)));
            }
            complete.then_some(Anchors::Domains(loaded))
        }
        Roots::TrustBundles(data) => material.load(data, &roots_path).and_then(|source| {
            let mut loaded = Vec::new();
            for (domain, bundle) in trust_bundles::read(&source, &roots_path, material)? {
                facts.extend(shown(&bundle, &format!("{domain}: {}", source.origin)));
                loaded.push((domain, Trust::from_bundle(bundle, &roots_path, material)?));
            }
            Some(Anchors::Domains(loaded))
        }),
    };
    let (mut anchors, lists) = (anchors?, lists?);
    for (_, trust) in anchors.sets_mut() {
        for der in &lists {
            trust.revocation_lists.extend(revocation_list(der));
        }
    }
    for (domain, trust) in anchors.sets() {
        bytes.push(domain.as_bytes().to_vec());
        bytes.extend(trust.certificates.iter().map(|it| it.to_vec()));
    }
    bytes.extend(lists);
    Some(Loaded { anchors, facts, material: bytes })
}

impl Anchors {
    /// Every set of roots, with its trust domain, or with an empty name.
    pub fn sets(&self) -> impl Iterator<Item = (&str, &Trust)> {
        let (all, domains) = match self {
            Anchors::None => (None, None),
            Anchors::All(trust) => (Some(("", trust)), None),
            Anchors::Domains(list) => (None, Some(list.iter().map(|(domain, trust)| (domain.as_str(), trust)))),
        };
        all.into_iter().chain(domains.into_iter().flatten())
    }

    fn sets_mut(&mut self) -> Vec<(&str, &mut Trust)> {
        match self {
            Anchors::None => Vec::new(),
            Anchors::All(trust) => vec![("", trust)],
            Anchors::Domains(list) => list.iter_mut().map(|(domain, trust)| (domain.as_str(), trust)).collect(),
        }
    }

    /// The subjects of all roots, which a server tells a client that it asks for a certificate. Each once.
    pub fn subjects(&self) -> Vec<DistinguishedName> {
        let mut subjects: Vec<DistinguishedName> = Vec::new();
        for (_, trust) in self.sets() {
            for anchor in &trust.anchors {
                let subject = DistinguishedName::in_sequence(anchor.subject.as_ref());
                if !subjects.iter().any(|it| it.as_ref() == subject.as_ref()) {
                    subjects.push(subject);
                }
            }
        }
        subjects
    }
}

impl Trust {
    /// A PEM of roots may have revocation lists beside them, as OpenSSL's stores do.
    fn from_bundle(bundle: Bundle, path: &str, material: &mut Material<'_>) -> Option<Trust> {
        let mut trust = Trust::default();
        for (index, der) in bundle.certificates.into_iter().enumerate() {
            match webpki::anchor_from_trusted_cert(&der) {
                Ok(anchor) => trust.anchors.push(anchor.to_owned()),
                Err(why) => {
                    material.refuse(path, format!("root certificate {} cannot be read: {why}", index + 1));
                    return None;
                }
            }
            trust.certificates.push(der);
        }
        for der in &bundle.revocation_lists {
            match revocation_list(der) {
                Some(list) => trust.revocation_lists.push(list),
                None => {
                    material.refuse(path, "a certificate revocation list cannot be read");
                    return None;
                }
            }
        }
        Some(trust)
    }
}

/// Those of the operating system. One that cannot be read is not the configuration's fault, and is left out.
fn system(path: &str, material: &mut Material<'_>) -> Option<Trust> {
    let found = rustls_native_certs::load_native_certs();
    let mut trust = Trust::default();
    for der in found.certs {
        if let Ok(anchor) = webpki::anchor_from_trusted_cert(&der) {
            trust.anchors.push(anchor.to_owned());
            trust.certificates.push(der);
        }
    }
    if trust.anchors.is_empty() {
        let why = found.errors.first().map(|it| format!(": {it}")).unwrap_or_default();
        material.refuse(path, format!("the system has no root certificates{why}"));
        return None;
    }
    Some(trust)
}

/// The DER of each list; `None` when something was refused.
fn revocation_lists(validation: &Validation, path: &str, material: &mut Material<'_>) -> Option<Vec<Vec<u8>>> {
    let Some(data) = &validation.revocation_list else { return Some(Vec::new()) };
    let path = format!("{path}.revocation_list");
    let source = material.load(data, &path)?;
    let lists = material.revocation_lists(&source, &path)?;
    for der in &lists {
        if let Err(why) = OwnedCertRevocationList::from_der(der) {
            material.refuse(&path, format!("{} cannot be read: {why}", source.origin));
            return None;
        }
    }
    Some(lists.iter().map(|it| it.to_vec()).collect())
}

fn revocation_list(der: &[u8]) -> Option<CertRevocationList<'static>> {
    OwnedCertRevocationList::from_der(der).ok().map(CertRevocationList::Owned)
}

fn shown(bundle: &Bundle, origin: &str) -> Vec<CertificateFacts> {
    bundle.certificates.iter().filter_map(|der| CertificateFacts::of(der, origin)).collect()
}
