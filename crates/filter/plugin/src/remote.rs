//! Where code is that is not on this machine: a file behind a URL, or an image in a registry.

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
    /// A docker configuration file with credentials.
    pub pull_secret: Option<PathBuf>,
    /// Ask the registry whenever the configuration is read, even when the image is here.
    pub always: bool,
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
    /// Reads `{http_uri: {uri, cluster, timeout}, sha256, retry_policy}` as Envoy has it, or `{url, …}` that names a file
    /// or an image without a cluster.
    ///
    /// # Errors
    /// All that is wrong with it.
    pub fn read(mut fields: Fields<'_>) -> Result<Remote, ConfigError> {
        let mut errors = Vec::new();
        let sha256 = checksum(&mut fields, &mut errors);
        let retries = retries(&mut fields, &mut errors);
        let uri = keep(fields.map("http_uri"), &mut errors).flatten();
        let url = keep(fields.string("url"), &mut errors).flatten();
        let found = match (uri, url) {
            (Some(uri), None) => through_cluster(uri, &mut errors),
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

    /// For people.
    pub fn name(&self) -> String {
        match &self.place {
            Place::Url(url) => url.clone(),
            Place::Cluster { uri, .. } => uri.clone(),
            Place::Image(image) => format!("{IMAGE_SCHEME}{}", image.reference),
        }
    }
}

fn through_cluster(mut uri: Fields<'_>, errors: &mut ConfigError) -> Option<(Place, Duration)> {
    let before = errors.len();
    let mut needed = |key: &str, uri: &mut Fields<'_>| {
        let text = keep(uri.string(key), errors).flatten().unwrap_or_default().to_owned();
        if text.is_empty() {
            errors.push(uri.error(key, format!("there is no `{key}`")));
        }
        text
    };
    let (address, cluster) = (needed("uri", &mut uri), needed("cluster", &mut uri));
    if !address.is_empty() && !is_http(&address) {
        errors.push(uri.error("uri", format!("expected an http or https URL, found `{address}`")));
    }
    let timeout = timeout(&mut uri, errors);
    if timeout.is_none() && errors.len() == before {
        errors.push(uri.error("timeout", "there is no `timeout`"));
    }
    errors.extend(uri.finish().err().into_iter().flatten());
    Some((Place::Cluster { uri: address, cluster }, timeout?))
}

fn directly(url: &str, fields: &mut Fields<'_>, errors: &mut ConfigError) -> Option<Place> {
    if is_http(url) {
        return Some(Place::Url(url.to_owned()));
    }
    let Some(reference) = url.strip_prefix(IMAGE_SCHEME).filter(|reference| !reference.is_empty()) else {
        errors.push(fields.error("url", format!("expected a URL of http, https or oci, found `{url}`")));
        fields.skip();
        return None;
    };
    let always = match keep(fields.string("pull_policy"), errors).flatten() {
        Some("IfNotPresent") => false,
        Some("Always") => true,
        // A digest names one image for good, and a tag but the latest is not expected to move.
        None => !reference.contains('@') && (reference.ends_with(":latest") || !has_tag(reference)),
        Some(other) => {
            errors.push(fields.error("pull_policy", format!("expected IfNotPresent or Always, found `{other}`")));
            false
        }
    };
    Some(Place::Image(Image {
        reference: reference.to_owned(),
        insecure: keep(fields.bool("insecure"), errors).flatten().unwrap_or(false),
        pull_secret: keep(fields.string("image_pull_secret"), errors).flatten().map(PathBuf::from),
        always,
    }))
}

fn is_http(url: &str) -> bool {
    ["http://", "https://"].iter().any(|scheme| url.len() > scheme.len() && url.starts_with(scheme))
}

/// A colon behind the last slash; one before it is a port's.
fn has_tag(reference: &str) -> bool {
    reference.rsplit('/').next().is_some_and(|last| last.contains(':'))
}

fn checksum(fields: &mut Fields<'_>, errors: &mut ConfigError) -> Option<String> {
    let written = keep(fields.string("sha256"), errors).flatten().filter(|written| !written.is_empty())?;
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
        assert_eq!(pulled, Image { reference, insecure: true, pull_secret: Some("/s".into()), always: false });
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
                vec!["http_uri.cluster: there is no", "http_uri.uri: expected an http"],
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
