//! Images of registries, by the OCI distribution protocol, in the forms that Istio's WasmPlugin takes: an artifact whose
//! layer is the module itself, and a Docker or OCI image whose last layer is an archive with `plugin.wasm` at its top.
//!
//! ```text
//!  manifest? ── 401 and a realm ──> token ──> manifest ──> layer ──> (redirect to where blobs are)
//!      └── a list of manifests ──> the one for wasm, or the only one ──┘
//! ```

use hyper::StatusCode;
use hyper::header::WWW_AUTHENTICATE;
use postrider_filter_plugin::Image;
use serde_json::Value;

use crate::cache::Cache;
use crate::client::{Answer, MAX_CODE_BYTES, Question, ask};
use crate::reference::{Reference, is_digest};
use crate::way::Way;
use crate::{archive, credentials, sum};

/// Largest manifest: registries refuse larger ones.
const MAX_MANIFEST_BYTES: usize = 4 << 20;

/// Largest answer of who gives tokens.
const MAX_TOKEN_BYTES: usize = 1 << 20;

/// The module of an image with such a layer is that layer: as WasmPlugin has it, and the registries of WebAssembly's components.
const MODULE_LAYERS: [&str; 2] = ["application/vnd.module.wasm.content.layer.v1+wasm", "application/wasm"];

/// Layers that are archives.
const ARCHIVE_LAYERS: [&str; 4] = [
    "application/vnd.docker.image.rootfs.diff.tar.gzip",
    "application/vnd.docker.image.rootfs.diff.tar",
    "application/vnd.oci.image.layer.v1.tar+gzip",
    "application/vnd.oci.image.layer.v1.tar",
];

/// The file of an archive that is the module.
const MODULE_FILE: &str = "plugin.wasm";

const MANIFESTS: &str = "application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json, \
                         application/vnd.oci.image.index.v1+json, application/vnd.docker.distribution.manifest.list.v2+json";

/// What came of an image.
pub(crate) struct Pulled {
    pub code: Vec<u8>,
    /// The sum of the manifest that its name stands for, or of the one taken of a list, where that was asked for.
    pub manifest: String,
    /// The code itself was here before.
    pub cached: bool,
}

/// Asks the registry what the image is, and fetches its code unless that is in the cache. `wanted` is the sum that the
/// manifest must have.
///
/// # Errors
/// For people.
pub(crate) async fn pull(image: &Image, wanted: Option<&str>, cache: &Cache) -> Result<Pulled, String> {
    let reference = Reference::parse(&image.reference)?;
    let credentials = match &image.pull_secret {
        Some(secret) => credentials::of(secret, &reference.registry)?,
        None => None,
    };
    let scheme = if image.insecure { "http" } else { "https" };
    let base = format!("{scheme}://{}/v2/{}", reference.host(), reference.repository);
    let way = Way::of_url(&base)?;
    let repository = reference.repository.clone();
    let mut registry = Registry { base, repository, way, insecure: image.insecure, credentials, authorization: None };
    let (manifest, found) = registry.manifest(&reference.version).await?;
    let chosen = choice(&manifest)?;
    // Of a list, Istio means the manifest that is taken of it.
    let is_chosen = |wanted: &str| chosen.and_then(|digest| digest.strip_prefix("sha256:")) == Some(wanted);
    let known_as = wanted.filter(|wanted| is_chosen(wanted)).unwrap_or(&found).to_owned();
    for (wanted, is) in [(reference.digest(), &found), (wanted, &known_as)] {
        if let Some(wanted) = wanted.filter(|wanted| wanted != is) {
            return Err(format!("the SHA-256 of its manifest is {is}, not {wanted}"));
        }
    }
    if let Some(code) = cache.read_named(&image.reference, Some(&known_as)) {
        return Ok(Pulled { code, manifest: known_as, cached: true });
    }
    let listed;
    let manifest = match chosen {
        Some(digest) => {
            let (manifest, got) = registry.manifest(digest).await?;
            if Some(got.as_str()) != digest.strip_prefix("sha256:") {
                return Err(format!("the SHA-256 of a manifest is {got}, not {digest}"));
            }
            listed = manifest;
            &listed
        }
        None => &manifest,
    };
    let layer = layer(manifest)?;
    let bytes = registry.blob(layer.digest).await?;
    let code = if layer.is_module { bytes } else { archive::file(bytes, MODULE_FILE)? };
    Ok(Pulled { code, manifest: known_as, cached: false })
}

/// A repository of a registry.
struct Registry {
    /// `https://host/v2/repository`
    base: String,
    repository: String,
    way: Way,
    insecure: bool,
    credentials: Option<String>,
    /// What the registry takes of us.
    authorization: Option<String>,
}

impl Registry {
    /// A manifest with its sum.
    async fn manifest(&mut self, version: &str) -> Result<(Value, String), String> {
        let answer = self.get(&format!("manifests/{version}"), Some(MANIFESTS), MAX_MANIFEST_BYTES).await?;
        let manifest =
            serde_json::from_slice(&answer.body).map_err(|error| format!("its manifest is no JSON: {error}"))?;
        Ok((manifest, sum(&answer.body)))
    }

    /// A blob, whose sum is checked.
    async fn blob(&mut self, digest: &str) -> Result<Vec<u8>, String> {
        let blob = self.get(&format!("blobs/{digest}"), None, MAX_CODE_BYTES).await?.body;
        let found = sum(&blob);
        if digest.strip_prefix("sha256:") != Some(found.as_str()) {
            return Err(format!("the SHA-256 of its layer is {found}, not {digest}"));
        }
        Ok(blob)
    }

    /// Asks, and shows who we are when that is asked for.
    async fn get(&mut self, what: &str, accept: Option<&str>, limit: usize) -> Result<Answer, String> {
        let mut shown = false;
        loop {
            let question = Question {
                url: format!("{}/{what}", self.base),
                accept,
                authorization: self.authorization.clone(),
                limit,
                insecure: self.insecure,
            };
            let answer = ask(question, &self.way).await?;
            match answer.status {
                StatusCode::OK => return Ok(answer),
                StatusCode::UNAUTHORIZED if !shown => {
                    self.authorization = Some(self.authorize(&answer).await?);
                    shown = true;
                }
                status => return Err(format!("the registry answers {} to {what}", status.as_u16())),
            }
        }
    }

    /// What a challenge asks for: a token of the realm that it names, or the credentials themselves.
    async fn authorize(&self, answer: &Answer) -> Result<String, String> {
        let challenges = answer.headers.get_all(WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok());
        let mut named = None;
        for challenge in challenges {
            let (scheme, rest) = challenge.trim().split_once(' ').unwrap_or((challenge.trim(), ""));
            if scheme.eq_ignore_ascii_case("bearer") {
                return self.token(&parameters(rest)).await;
            }
            named = Some(scheme.to_owned());
        }
        match (named, &self.credentials) {
            (Some(scheme), Some(credentials)) if scheme.eq_ignore_ascii_case("basic") => Ok(credentials.clone()),
            (Some(scheme), None) if scheme.eq_ignore_ascii_case("basic") => {
                Err("the registry asks for a user and password, and no `image_pull_secret` has them".to_owned())
            }
            (Some(scheme), _) => Err(format!("the registry asks for `{scheme}`, which is not supported")),
            (None, _) => Err("the registry answers 401 and does not say what it asks for".to_owned()),
        }
    }

    async fn token(&self, challenge: &[(String, String)]) -> Result<String, String> {
        let value = |name: &str| challenge.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
        let realm = value("realm").ok_or("the registry does not say who gives tokens")?;
        let way = Way::of_url(realm)?;
        if !way.is_private() && !self.insecure {
            return Err(format!("tokens are given without TLS, by {realm}"));
        }
        let mut url = realm.to_owned();
        // A registry may leave it to its clients to say what for.
        let pull = format!("repository:{}:pull", self.repository);
        for (name, without) in [("service", None), ("scope", Some(pull.as_str()))] {
            if let Some(value) = value(name).or(without) {
                url.push(if url.contains('?') { '&' } else { '?' });
                url.push_str(&format!("{name}={}", escaped(value)));
            }
        }
        let question = Question {
            url,
            authorization: self.credentials.clone(),
            limit: MAX_TOKEN_BYTES,
            insecure: self.insecure,
            accept: None,
        };
        let answer = ask(question, &way).await?;
        if answer.status != StatusCode::OK {
            return Err(format!("who gives tokens answers {}", answer.status.as_u16()));
        }
        let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        let token = ["token", "access_token"].into_iter().find_map(|key| body.get(key)?.as_str());
        token.map(|token| format!("Bearer {token}")).ok_or_else(|| "who gives tokens gave none".to_owned())
    }
}

/// The manifest to take of a list, by its digest; `None` when it is no list.
fn choice(manifest: &Value) -> Result<Option<&str>, String> {
    let Some(all) = manifest.get("manifests").and_then(Value::as_array) else { return Ok(None) };
    let is = |entry: &Value, architecture: &str| {
        entry.pointer("/platform/architecture").and_then(Value::as_str) == Some(architecture)
    };
    // Images that are built for no machine often claim to be for the most common one.
    let chosen = (all.iter().find(|entry| is(entry, "wasm")))
        .or(if let [only] = all.as_slice() { Some(only) } else { None })
        .or_else(|| all.iter().find(|entry| is(entry, "amd64")));
    let chosen = chosen.ok_or("the image is a list of images, none of which is for wasm or amd64")?;
    digest(chosen).map(Some)
}

struct Layer<'m> {
    digest: &'m str,
    is_module: bool,
}

fn layer(manifest: &Value) -> Result<Layer<'_>, String> {
    let layers = manifest.get("layers").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let kind = |layer: &Value| layer.get("mediaType").and_then(Value::as_str).unwrap_or_default().to_owned();
    if let Some(module) = layers.iter().find(|layer| MODULE_LAYERS.contains(&kind(layer).as_str())) {
        return Ok(Layer { digest: digest(module)?, is_module: true });
    }
    let last = layers.last().ok_or("the image has no layers")?;
    if !ARCHIVE_LAYERS.contains(&kind(last).as_str()) {
        return Err(format!("the image's last layer is `{}`, which is no module and no known archive", kind(last)));
    }
    Ok(Layer { digest: digest(last)?, is_module: false })
}

fn digest(descriptor: &Value) -> Result<&str, String> {
    let digest = descriptor.get("digest").and_then(Value::as_str).unwrap_or_default();
    if is_digest(digest) { Ok(digest) } else { Err(format!("`{digest}` is no digest of SHA-256")) }
}

/// `a="b,c",d=e` of a challenge. Names in lower case.
fn parameters(text: &str) -> Vec<(String, String)> {
    let mut all = Vec::new();
    let mut rest = text;
    while let Some((name, behind)) = rest.split_once('=') {
        let name = name.trim_matches([',', ' ']).to_ascii_lowercase();
        let (value, behind) = match behind.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
            None => behind.split_once(',').unwrap_or((behind, "")),
        };
        all.push((name, value.trim().to_owned()));
        rest = behind;
    }
    all
}

/// For a query's value.
fn escaped(value: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/:,".contains(&byte);
    value.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn challenges_have_parameters() {
        let text = r#"realm="https://a/token",Service="r.io",scope="repository:a/b:pull,push", error=x"#;
        let wanted =
            [("realm", "https://a/token"), ("service", "r.io"), ("scope", "repository:a/b:pull,push"), ("error", "x")];
        let all = parameters(text);
        let all: Vec<(&str, &str)> = all.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(all, wanted);
        assert_eq!(escaped("a b&c/d:e"), "a%20b%26c/d:e");
    }

    #[test]
    fn a_list_of_manifests_is_chosen_from() {
        let digest = |n: u8| format!("sha256:{}", format!("{n:02x}").repeat(32));
        let entry = |n: u8, kind: &str| json!({"digest": digest(n), "platform": {"architecture": kind}});
        assert_eq!(choice(&json!({"layers": []})), Ok(None));
        for (list, wanted) in [
            (vec![entry(1, "arm64"), entry(2, "amd64"), entry(3, "wasm")], Some(digest(3))),
            (vec![entry(1, "arm64"), entry(2, "amd64")], Some(digest(2))),
            (vec![entry(1, "arm64")], Some(digest(1))),
        ] {
            assert_eq!(choice(&json!({"manifests": list})).unwrap(), wanted.as_deref());
        }
        assert!(choice(&json!({"manifests": [entry(1, "arm64"), entry(2, "arm")]})).is_err());
        assert!(choice(&json!({"manifests": [{"digest": "sha256:../x"}]})).is_err());
    }

    #[test]
    fn the_layer_is_the_module_or_the_last_archive() {
        let digest = |n: u8| format!("sha256:{}", format!("{n:02x}").repeat(32));
        let entry = |n: u8, kind: &str| json!({"digest": digest(n), "mediaType": kind});
        let of = |layers: Value| {
            let manifest = json!({"layers": layers});
            super::layer(&manifest).map(|layer| (layer.digest.to_owned(), layer.is_module))
        };
        assert_eq!(of(json!([entry(1, "application/x"), entry(2, MODULE_LAYERS[0])])), Ok((digest(2), true)));
        assert_eq!(of(json!([entry(1, MODULE_LAYERS[1])])), Ok((digest(1), true)));
        assert_eq!(of(json!([entry(1, "application/x"), entry(2, ARCHIVE_LAYERS[0])])), Ok((digest(2), false)));
        let zstd = "application/vnd.oci.image.layer.v1.tar+zstd";
        assert!(of(json!([entry(1, zstd)])).unwrap_err().contains(zstd));
        assert!(of(json!([])).unwrap_err().contains("no layers"));
    }
}
