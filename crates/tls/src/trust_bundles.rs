//! SPIFFE trust bundles (SPIFFE Trust Domain and Bundle, 4): the roots of trust domains as sets of JSON Web Keys.
//!
//! ```json
//! {"trust_domains": {"example.com": {"keys": [{"kty": "EC", "use": "x509-svid", "x5c": ["MIIB…"]}]}}}
//! ```

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::CertificateDer;
use serde_json::Value;

use crate::material::{Bundle, Material, Source};

/// The certificates of each trust domain; `None` when something was refused.
pub(crate) fn read(source: &Source, path: &str, material: &mut Material<'_>) -> Option<Vec<(String, Bundle)>> {
    let map: Value = match serde_json::from_slice(&source.bytes) {
        Ok(map) => map,
        Err(why) => {
            material.refuse(path, format!("{} is no JSON: {why}", source.origin));
            return None;
        }
    };
    let Some(domains) = map.get("trust_domains").and_then(Value::as_object).filter(|domains| !domains.is_empty())
    else {
        material.refuse(path, format!("{} has no `trust_domains`: a map of trust bundles is wanted", source.origin));
        return None;
    };
    let mut all = Vec::new();
    let mut complete = true;
    for (domain, bundle) in domains {
        match certificates(bundle) {
            Ok(certificates) => all.push((domain.clone(), Bundle { certificates, revocation_lists: Vec::new() })),
            Err(why) => {
                material.refuse(path, format!("{}: the trust domain `{domain}` {why}", source.origin));
                complete = false;
            }
        }
    }
    complete.then_some(all)
}

/// Keys for other purposes, such as `jwt-svid`, are not about certificates.
fn certificates(bundle: &Value) -> Result<Vec<CertificateDer<'static>>, String> {
    let keys = bundle.get("keys").and_then(Value::as_array).ok_or("has no list of `keys`")?;
    let mut all = Vec::new();
    for (index, key) in keys.iter().enumerate().filter(|(_, key)| key.get("use") == Some(&"x509-svid".into())) {
        // The standard wants exactly one certificate in each (4.1.1).
        let chain = key.get("x5c").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let [Value::String(text)] = chain else {
            return Err(format!("has {} certificates in `keys[{index}].x5c`, where one is wanted", chain.len()));
        };
        let der = STANDARD.decode(text).map_err(|why| format!("has no base64 in `keys[{index}].x5c`: {why}"))?;
        all.push(der.into());
    }
    if all.is_empty() {
        return Err("has no key for `x509-svid`".to_owned());
    }
    Ok(all)
}
