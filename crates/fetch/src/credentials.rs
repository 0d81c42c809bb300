//! Who we are to a registry, by a docker configuration (`docker login` writes a file with one; a pull secret is one).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use postrider_filter_plugin::{PullSecret, without_user};
use serde_json::Value;

/// Largest file that is read.
const MAX_BYTES: u64 = 1 << 20;

/// What Docker Hub's credentials are kept under.
const HUB_NAMES: [&str; 4] = ["https://index.docker.io/v1/", "index.docker.io", "docker.io", "registry-1.docker.io"];

/// The value of an `authorization` field for that registry; `None` when the secret names none for it.
///
/// # Errors
/// The file cannot be read, or it makes no sense, or keeps the credentials elsewhere.
pub(crate) fn of(secret: &PullSecret, registry: &str) -> Result<Option<String>, String> {
    match secret {
        PullSecret::File(path) => {
            let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
            let about = std::fs::metadata(path).map_err(|error| failed(&error))?;
            if about.len() > MAX_BYTES {
                return Err(failed(&format!("it has {} bytes; at most {MAX_BYTES} are read", about.len())));
            }
            let text = std::fs::read(path).map_err(|error| failed(&error))?;
            parse(&text, registry).map_err(|error| failed(&error))
        }
        PullSecret::Text(text) => parse(text.as_bytes(), registry).map_err(|error| format!("the pull secret: {error}")),
    }
}

/// What a URL is without the user that it names, and the value of an `authorization` field for that user.
pub(crate) fn of_url(url: &str) -> (String, Option<String>) {
    let (url, user) = without_user(url);
    let value = user.map(|user| {
        let mut pair = unescaped(user);
        if !user.contains(':') {
            // No password (RFC 7617 section 2).
            pair.push(b':');
        }
        format!("Basic {}", STANDARD.encode(pair))
    });
    (url, value)
}

/// Without the percent signs of RFC 3986 section 2.1; those that begin nothing stay.
fn unescaped(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, more @ ..] = rest {
        let digit = |at: usize| more.get(at).and_then(|digit| char::from(*digit).to_digit(16));
        match (first, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => {
                bytes.push((high * 16 + low) as u8);
                rest = more.get(2..).unwrap_or_default();
            }
            _ => {
                bytes.push(*first);
                rest = more;
            }
        }
    }
    bytes
}

/// Whatever is wrong with it is not shown: it holds passwords.
fn parse(text: &[u8], registry: &str) -> Result<Option<String>, String> {
    let config: Value = serde_json::from_slice(text).map_err(|_| "it is no JSON".to_owned())?;
    entry(&config, registry)
}

fn entry(config: &Value, registry: &str) -> Result<Option<String>, String> {
    let names: &[&str] = if registry == "docker.io" { &HUB_NAMES } else { &[registry] };
    let under = |field: &str| {
        let entries = config.get(field)?;
        let exact = names.iter().find_map(|name| entries.get(name));
        exact
            .or_else(|| entries.as_object()?.iter().find(|(key, _)| names.contains(&host(key))).map(|(_, entry)| entry))
    };
    let Some(entry) = under("auths") else {
        if under("credHelpers").is_some() || config.get("credsStore").is_some() {
            return Err(format!("the credentials for {registry} are kept by a helper program, which is not supported"));
        }
        return Ok(None);
    };
    let text = |key: &str| entry.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
    if text("identitytoken").is_some() || text("registrytoken").is_some() {
        return Err(format!("the credentials for {registry} are a token, which is not supported"));
    }
    match (text("username"), text("password"), text("auth")) {
        (Some(user), Some(password), _) => Ok(Some(format!("Basic {}", STANDARD.encode(format!("{user}:{password}"))))),
        (_, _, Some(auth)) if STANDARD.decode(auth).is_ok_and(|pair| pair.contains(&b':')) => {
            Ok(Some(format!("Basic {auth}")))
        }
        _ => Err(format!("the credentials for {registry} are no user with a password")),
    }
}

/// The host of what credentials are kept under: docker takes a URL for its host.
fn host(key: &str) -> &str {
    let behind = key.strip_prefix("https://").or_else(|| key.strip_prefix("http://")).unwrap_or(key);
    behind.split('/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_url_may_name_its_user() {
        let of = |url: &str| {
            let (url, value) = of_url(url);
            let pair = value.map(|value| STANDARD.decode(value.strip_prefix("Basic ").unwrap()).unwrap());
            (url, pair.map(|pair| String::from_utf8(pair).unwrap()))
        };
        let named = |url: &str, pair: &str| (url.to_owned(), Some(pair.to_owned()));
        assert_eq!(of("https://a:b@c:1/d@e?f@g"), named("https://c:1/d@e?f@g", "a:b"));
        assert_eq!(of("http://a%40b:c%3Ad%@e"), named("http://e", "a@b:c:d%"));
        assert_eq!(of("http://a@b"), named("http://b", "a:"));
        assert_eq!(of("http://a@b@c/"), named("http://c/", "a@b:"));
        assert_eq!(of("http://b/c@d"), ("http://b/c@d".to_owned(), None));
        assert_eq!(of("a:b@c"), ("a:b@c".to_owned(), None));
    }

    #[test]
    fn credentials_are_found_by_the_registrys_name() {
        let config = json!({"auths": {
            "r.io": {"auth": "YTpi"},
            "https://s.io/": {"username": "a", "password": "b", "auth": ""},
            "https://u.io:5000/v1/": {"auth": "YTpi"},
            "http://p.io/v2": {"auth": "YTpi"},
            "https://index.docker.io/v1/": {"auth": "YTpi"},
            "bad.io": {"auth": "YQ=="},
            "token.io": {"identitytoken": "x"},
        }});
        let basic = Ok(Some("Basic YTpi".to_owned()));
        for registry in ["r.io", "s.io", "u.io:5000", "p.io", "docker.io"] {
            assert_eq!(entry(&config, registry), basic, "{registry}");
        }
        assert_eq!(entry(&config, "other.io"), Ok(None));
        assert!(entry(&config, "bad.io").unwrap_err().contains("no user with a password"));
        assert!(entry(&config, "token.io").unwrap_err().contains("a token"));
        let helper = json!({"credHelpers": {"r.io": "gcloud"}});
        assert!(entry(&helper, "r.io").unwrap_err().contains("helper program"));
        assert_eq!(entry(&helper, "s.io"), Ok(None));
    }
}
