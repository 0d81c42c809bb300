//! Where code is that is not on this machine: a file behind a URL, or an image in a registry.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use postrider_filter_api::ConfigError;
use postrider_model::{Fields, ValueError};

use crate::read::keep;

/// For one try, where a URL says nothing else.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

/// Most tries that a configuration may ask for after the first.
pub const MAX_RETRIES: u32 = 100;

/// As `AsyncDataSource` of Envoy has them.
const DEFAULT_RETRIES: Retries = Retries { count: 1, first: Duration::from_secs(1), longest: Duration::from_secs(10) };

/// How an image's URL begins.
const IMAGE_SCHEME: &str = "oci://";

/// The cluster that Istio writes where there is none: its agent asks directly.
const NO_CLUSTER: &str = "_";

/// The sum that Istio writes where there is none.
const NO_SUM: &str = "nil";

/// Registries that are asked without TLS, by host and port, apart by commas: `*` is all of them. The name is that of Istio's
/// agent, whose work this is in a mesh.
const INSECURE_REGISTRIES: &str = "WASM_INSECURE_REGISTRIES";

/// Code from elsewhere, as a configuration asks for it. Two that are equal are the same code.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Remote {
    pub place: Place,
    /// In lower-case hexadecimal digits: of a file its content's, of an image its manifest's.
    pub sha256: Option<String>,
    /// For one try, from the first packet to the last.
    pub timeout: Duration,
    pub retries: Retries,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Place {
    /// An `http` or `https` URL, asked directly.
    Url(String),
    /// The same, asked of a cluster's endpoints in its way: by TLS if that is how the cluster is reached.
    Cluster {
        uri: String,
        cluster: String,
    },
    Image(Image),
}

/// An image of a registry.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Image {
    /// `registry/repository:tag` or `registry/repository@sha256:…`.
    pub reference: String,
    /// The registry speaks HTTP without TLS.
    pub insecure: bool,
    pub pull_secret: Option<PullSecret>,
    /// Ask the registry whenever the configuration is read, even when the image is here.
    pub always: bool,
}

/// A docker configuration with credentials.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum PullSecret {
    File(PathBuf),
    /// The text itself.
    Text(String),
}

/// Never the text: it holds passwords.
impl fmt::Debug for PullSecret {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PullSecret::File(path) => write!(to, "File({path:?})"),
            PullSecret::Text(_) => write!(to, "Text"),
        }
    }
}

/// How an image is pulled that Envoy's `http_uri` names, which has no fields for that.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pull {
    pub secret: Option<PullSecret>,
    /// `IfNotPresent`, `Always`, or something else for what the image's name suggests.
    pub policy: Option<String>,
}

/// What follows a try that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Retries {
    pub count: u32,
    /// Doubled from one to the next…
    pub first: Duration,
    /// … up to this.
    pub longest: Duration,
}

impl Remote {
    /// Reads `{http_uri: {uri, cluster, timeout}, sha256, retry_policy}` as Envoy and Istio have it, or `{url, …}` that
    /// names a file or an image without a cluster.
    ///
    /// # Errors
    /// All that is wrong with it.
    pub fn read(fields: Fields<'_>) -> Result<Remote, ConfigError> {
        Remote::read_pulled(fields, Pull::default())
    }

    /// The same, where something else says how an image is pulled that `http_uri` names.
    ///
    /// # Errors
    /// All that is wrong with it.
    pub fn read_pulled(mut fields: Fields<'_>, pull: Pull) -> Result<Remote, ConfigError> {
        let mut errors = Vec::new();
        let sha256 = checksum(&mut fields, &mut errors);
        let retries = retries(&mut fields, &mut errors);
        let uri = keep(fields.map("http_uri"), &mut errors).flatten();
        let url = keep(fields.string("url"), &mut errors).flatten();
        let found = match (uri, url) {
            (Some(uri), None) => through_cluster(uri, pull, &mut errors),
            (None, Some(url)) => {
                let timeout = timeout(&mut fields, &mut errors).unwrap_or(DEFAULT_TIMEOUT);
                directly(url, &mut fields, &mut errors).map(|place| (place, timeout))
            }
            (Some(_), Some(_)) => {
                errors.push(fields.error("url", "`http_uri` is set too; code has one place"));
                fields.skip();
                None
            }
            (None, None) => {
                errors.push(fields.error("url", "there is neither `url` nor `http_uri`"));
                fields.skip();
                None
            }
        };
        if let Some((Place::Url(_) | Place::Cluster { .. }, _)) = &found
            && sha256.is_none()
            && errors.is_empty()
        {
            let message = "there is no `sha256`: without it, whoever answers decides what runs here";
            errors.push(fields.error("sha256", message));
        }
        errors.extend(fields.finish().err().into_iter().flatten());
        match found {
            Some((place, timeout)) if errors.is_empty() => Ok(Remote { place, sha256, timeout, retries }),
            _ => Err(errors),
        }
    }

    /// For people. Nobody is shown a password.
    pub fn name(&self) -> String {
        match &self.place {
            Place::Url(url) => without_user(url).0,
            Place::Cluster { uri, .. } => without_user(uri).0,
            Place::Image(image) => format!("{IMAGE_SCHEME}{}", image.reference),
        }
    }
}

/// A URL without the user and the password that it names, and these as they stand there, with a colon between them
/// (RFC 3986 section 3.2.1).
pub fn without_user(url: &str) -> (String, Option<&str>) {
    let Some((scheme, rest)) = url.split_once("://") else { return (url.to_owned(), None) };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    match authority.rsplit_once('@') {
        Some((user, host)) => (format!("{scheme}://{host}{path}"), Some(user)),
        None => (url.to_owned(), None),
    }
}

fn through_cluster(mut uri: Fields<'_>, pull: Pull, errors: &mut ConfigError) -> Option<(Place, Duration)> {
    let before = errors.len();
    let mut needed = |key: &str, uri: &mut Fields<'_>| {
        let text = keep(uri.string(key), errors).flatten().unwrap_or_default().to_owned();
        if text.is_empty() {
            errors.push(uri.error(key, format!("there is no `{key}`")));
        }
        text
    };
    let (address, cluster) = (needed("uri", &mut uri), needed("cluster", &mut uri));
    let image = address.strip_prefix(IMAGE_SCHEME).filter(|reference| !reference.is_empty());
    if !address.is_empty() && !is_http(&address) && image.is_none() {
        let shown = without_user(&address).0;
        errors.push(uri.error("uri", format!("expected a URL of http, https or oci, found `{shown}`")));
    }
    let timeout = timeout(&mut uri, errors);
    if timeout.is_none() && errors.len() == before {
        errors.push(uri.error("timeout", "there is no `timeout`"));
    }
    errors.extend(uri.finish().err().into_iter().flatten());
    let place = match image {
        Some(reference) => Place::Image(Image {
            insecure: is_insecure(reference, &std::env::var(INSECURE_REGISTRIES).unwrap_or_default()),
            pull_secret: pull.secret,
            always: match pull.policy.as_deref() {
                Some("Always") => true,
                Some("IfNotPresent") => false,
                _ => may_move(reference),
            },
            reference: reference.to_owned(),
        }),
        None if cluster == NO_CLUSTER => Place::Url(address),
        None => Place::Cluster { uri: address, cluster },
    };
    Some((place, timeout?))
}

/// Whether the registry of an image is among those of a list.
fn is_insecure(reference: &str, list: &str) -> bool {
    let registry = reference.split('/').next().unwrap_or_default();
    list.split(',').map(str::trim).any(|one| one == "*" || (one == registry && !one.is_empty()))
}

fn directly(url: &str, fields: &mut Fields<'_>, errors: &mut ConfigError) -> Option<Place> {
    if is_http(url) {
        return Some(Place::Url(url.to_owned()));
    }
    let Some(reference) = url.strip_prefix(IMAGE_SCHEME).filter(|reference| !reference.is_empty()) else {
        let shown = without_user(url).0;
        errors.push(fields.error("url", format!("expected a URL of http, https or oci, found `{shown}`")));
        fields.skip();
        return None;
    };
    let always = match keep(fields.string("pull_policy"), errors).flatten() {
        Some("IfNotPresent") => false,
        Some("Always") => true,
        None => may_move(reference),
        Some(other) => {
            errors.push(fields.error("pull_policy", format!("expected IfNotPresent or Always, found `{other}`")));
            false
        }
    };
    Some(Place::Image(Image {
        reference: reference.to_owned(),
        insecure: keep(fields.bool("insecure"), errors).flatten().unwrap_or(false),
        pull_secret: keep(fields.string("image_pull_secret"), errors)
            .flatten()
            .map(|path| PullSecret::File(path.into())),
        always,
    }))
}

fn is_http(url: &str) -> bool {
    ["http://", "https://"].iter().any(|scheme| url.len() > scheme.len() && url.starts_with(scheme))
}

/// A digest names one image for good, and a tag but the latest is not expected to move.
fn may_move(reference: &str) -> bool {
    !reference.contains('@') && (reference.ends_with(":latest") || !has_tag(reference))
}

/// A colon behind the last slash; one before it is a port's.
fn has_tag(reference: &str) -> bool {
    reference.rsplit('/').next().is_some_and(|last| last.contains(':'))
}

fn checksum(fields: &mut Fields<'_>, errors: &mut ConfigError) -> Option<String> {
    let written = keep(fields.string("sha256"), errors).flatten().filter(|written| !matches!(*written, "" | NO_SUM))?;
    if written.len() == 64 && written.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Some(written.to_ascii_lowercase());
    }
    errors.push(fields.error("sha256", format!("expected 64 hexadecimal digits, found `{written}`")));
    None
}

fn timeout(fields: &mut Fields<'_>, errors: &mut ConfigError) -> Option<Duration> {
    let timeout = keep(fields.duration("timeout"), errors).flatten()?;
    if timeout.is_zero() {
        errors.push(fields.error("timeout", "expected a duration above zero"));
    }
    Some(timeout)
}

/// `envoy.config.core.v3.RetryPolicy`.
fn retries(fields: &mut Fields<'_>, errors: &mut ConfigError) -> Retries {
    let Some(mut policy) = keep(fields.map("retry_policy"), errors).flatten() else { return DEFAULT_RETRIES };
    let mut retries = DEFAULT_RETRIES;
    if let Some(count) = keep(policy.integer("num_retries"), errors).flatten() {
        match u32::try_from(count) {
            Ok(count) if count <= MAX_RETRIES => retries.count = count,
            _ => errors.push(policy.error("num_retries", format!("expected 0 to {MAX_RETRIES}, found {count}"))),
        }
    }
    if let Some(mut pause) = keep(policy.map("retry_back_off"), errors).flatten() {
        if let Some(first) = keep(pause.duration("base_interval"), errors).flatten() {
            retries.first = first;
            // As Envoy has it.
            retries.longest = first.saturating_mul(10);
        }
        if let Some(longest) = keep(pause.duration("max_interval"), errors).flatten() {
            retries.longest = longest;
        }
        if retries.first.is_zero() || retries.longest < retries.first {
            let message = "expected `base_interval` above zero and `max_interval` not below it";
            errors.push(ValueError { path: pause.path().to_owned(), message: message.to_owned() });
        }
        errors.extend(pause.finish().err().into_iter().flatten());
    }
    errors.extend(policy.finish().err().into_iter().flatten());
    retries
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::from_json_text;

    const SUM: &str = "E3B0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    fn read(text: &str) -> Result<Remote, Vec<String>> {
        let value = from_json_text(&text.replace("SUM", SUM)).unwrap();
        Remote::read(value.fields().unwrap())
            .map_err(|errors| errors.iter().map(|error| format!("{}: {}", error.path, error.message)).collect())
    }

    #[test]
    fn a_cluster_is_asked_as_envoy_does() {
        let remote = read(
            r#"{"http_uri": {"uri": "https://a/b.lua", "cluster": "c", "timeout": "5s"}, "sha256": "SUM",
                "retry_policy": {"num_retries": 3, "retry_back_off": {"base_interval": "0.5s"}}}"#,
        )
        .unwrap();
        assert_eq!(remote.place, Place::Cluster { uri: "https://a/b.lua".into(), cluster: "c".into() });
        assert_eq!(remote.sha256.as_deref(), Some(SUM.to_lowercase().as_str()));
        let retries = Retries { count: 3, first: Duration::from_millis(500), longest: Duration::from_secs(5) };
        assert_eq!((remote.timeout, remote.retries), (Duration::from_secs(5), retries));
    }

    #[test]
    fn a_url_names_a_file_or_an_image() {
        let file = read(r#"{"url": "https://a/b", "sha256": "SUM", "timeout": "1s"}"#).unwrap();
        assert_eq!((file.place, file.timeout), (Place::Url("https://a/b".into()), Duration::from_secs(1)));
        let image = |text: &str| match read(text).unwrap().place {
            Place::Image(image) => image,
            other => panic!("{other:?}"),
        };
        let pulled = image(r#"{"url": "oci://r.io/a/b:1", "image_pull_secret": "/s", "insecure": true}"#);
        let reference = "r.io/a/b:1".to_owned();
        let pull_secret = Some(PullSecret::File("/s".into()));
        assert_eq!(pulled, Image { reference, insecure: true, pull_secret, always: false });
        for (url, always) in [
            ("r.io/b", true),
            ("r.io:5000/b", true),
            ("r.io/b:latest", true),
            ("r.io/b:1", false),
            ("r.io/b@sha256:0", false),
        ] {
            assert_eq!(image(&format!(r#"{{"url": "oci://{url}"}}"#)).always, always, "{url}");
        }
        assert!(!image(r#"{"url": "oci://r.io/b", "pull_policy": "IfNotPresent"}"#).always);
        assert!(image(r#"{"url": "oci://r.io/b:1", "pull_policy": "Always"}"#).always);
    }

    #[test]
    fn an_image_where_envoy_has_a_url_is_pulled_as_istio_says() {
        let read = |uri: &str, sum: &str, policy: &str| {
            let text =
                format!(r#"{{"http_uri": {{"uri": "{uri}", "cluster": "_", "timeout": "5s"}}, "sha256": "{sum}"}}"#);
            let pull = Pull { secret: Some(PullSecret::Text("pass".into())), policy: Some(policy.to_owned()) };
            Remote::read_pulled(from_json_text(&text).unwrap().fields().unwrap(), pull)
        };
        for (policy, always) in [("UNSPECIFIED_POLICY", true), ("IfNotPresent", false), ("Always", true)] {
            let remote = read("oci://r.io/a", "nil", policy).unwrap();
            assert!(!format!("{remote:?}").contains("pass"));
            let pull_secret = Some(PullSecret::Text("pass".into()));
            let image = Image { reference: "r.io/a".into(), insecure: false, pull_secret, always };
            assert_eq!((remote.place, remote.sha256), (Place::Image(image), None), "{policy}");
        }
        assert_eq!(read("https://a/b", SUM, "").unwrap().place, Place::Url("https://a/b".into()));
        assert!(read("https://a/b", "nil", "").unwrap_err()[0].message.starts_with("there is no `sha256`"));
        assert!(read("oci://", "nil", "").unwrap_err()[0].message.contains("http, https or oci"));
    }

    #[test]
    fn registries_without_tls_are_named() {
        assert!(is_insecure("r.io:5000/a:1", "x, r.io:5000"));
        assert!(is_insecure("r.io/a", "*"));
        for list in ["", ",", "r.io:5000", "r"] {
            assert!(!is_insecure("r.io/a", list), "{list}");
        }
    }

    #[test]
    fn what_is_wrong_is_told_at_once() {
        for (text, wanted) in [
            ("{}", vec!["url: there is neither"]),
            (r#"{"url": "ftp://a"}"#, vec!["url: expected a URL of http, https or oci, found `ftp://a`"]),
            (r#"{"url": "https://a"}"#, vec!["sha256: there is no `sha256`"]),
            (r#"{"url": "https://a", "sha256": "12"}"#, vec!["sha256: expected 64 hexadecimal digits, found `12`"]),
            (r#"{"url": "https://a", "sha256": "SUM", "insecure": true}"#, vec!["insecure: the field"]),
            (r#"{"url": "oci://a/b", "http_uri": {}}"#, vec!["url: `http_uri` is set too"]),
            (
                r#"{"http_uri": {"uri": "x"}, "sha256": "SUM"}"#,
                vec!["http_uri.cluster: there is no", "http_uri.uri: expected a URL of http"],
            ),
            (
                r#"{"url": "oci://a", "pull_policy": "Never", "retry_policy": {"num_retries": 101, "retry_on": "5xx"}}"#,
                vec![
                    "retry_policy.num_retries: expected 0 to 100",
                    "retry_policy.retry_on: the",
                    "pull_policy: expected",
                ],
            ),
            (
                r#"{"url": "oci://a", "timeout": "0s", "retry_policy": {"retry_back_off": {"max_interval": "0.1s"}}}"#,
                vec!["retry_policy.retry_back_off: expected", "timeout: expected a duration above zero"],
            ),
        ] {
            let errors = read(text).unwrap_err();
            let all = errors.len() == wanted.len()
                && errors.iter().zip(&wanted).all(|(error, wanted)| error.starts_with(wanted));
            assert!(all, "{text}: {errors:#?}");
        }
    }
}
