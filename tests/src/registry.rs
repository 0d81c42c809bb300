//! A registry of images, and a server of files, for code that is fetched.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use postrider_testkit::{Origin, Request};
use serde_json::{Value, json};
use zlib_rs::{Deflate, DeflateConfig, DeflateFlush};

/// The token that the registry takes.
const TOKEN: &str = "dG9rZW4";

/// Answers by path, which tests may change while it serves.
pub struct Shelf {
    pub origin: Origin,
    answers: Arc<Mutex<HashMap<String, Vec<u8>>>>,
}

impl Shelf {
    /// Answers 404 to everything as yet.
    pub fn start() -> Shelf {
        Shelf::guarded(|_| None)
    }

    /// The same with a guard that may answer in its place.
    pub fn guarded(guard: impl Fn(&Request) -> Option<Vec<u8>> + Send + Sync + 'static) -> Shelf {
        let answers: Arc<Mutex<HashMap<String, Vec<u8>>>> = Arc::default();
        let own = answers.clone();
        let origin = Origin::start(move |connection| {
            while let Some(request) = connection.request() {
                let path = request.target.split('?').next().unwrap_or_default().to_owned();
                let none = || b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_vec();
                let known = || own.lock().unwrap().get(&path).cloned();
                connection.write(&guard(&request).or_else(known).unwrap_or_else(none));
            }
        });
        Shelf { origin, answers }
    }

    /// Puts a whole answer at a path.
    pub fn answer(&self, path: &str, answer: impl Into<Vec<u8>>) {
        self.answers.lock().unwrap().insert(path.to_owned(), answer.into());
    }

    /// Puts a file at a path.
    pub fn put(&self, path: &str, content: impl AsRef<[u8]>) {
        self.answer(path, ok("application/octet-stream", content));
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.origin.address)
    }

    /// The requests for a path so far.
    pub fn asked(&self, path: &str) -> usize {
        self.origin.requests().iter().filter(|request| request.target == path).count()
    }

    /// Makes `repository:tag` an image of these layers; answers the sum of its manifest.
    pub fn image(&self, repository: &str, tag: &str, layers: &[(&str, &[u8])]) -> String {
        let mut described = Vec::new();
        for (kind, content) in layers {
            let digest = format!("sha256:{}", sha256(content));
            self.put(&format!("/v2/{repository}/blobs/{digest}"), content);
            described.push(json!({"mediaType": kind, "digest": digest, "size": content.len()}));
        }
        self.manifest(repository, tag, &json!({"schemaVersion": 2, "layers": described}))
    }

    /// Puts a manifest under its tag and its sum, which is answered.
    pub fn manifest(&self, repository: &str, tag: &str, manifest: &Value) -> String {
        let text = manifest.to_string();
        let sum = sha256(&text);
        for name in [tag, &format!("sha256:{sum}")] {
            let answer = ok("application/vnd.oci.image.manifest.v1+json", &text);
            self.answer(&format!("/v2/{repository}/manifests/{name}"), answer);
        }
        sum
    }

    /// `host:port`
    pub fn host(&self) -> String {
        self.origin.address.to_string()
    }
}

/// A registry that takes nobody without a token, and gives tokens to those who know the password, or to all when there is
/// none.
pub fn registry(password: Option<&'static str>) -> Shelf {
    Shelf::guarded(move |request| {
        let shown = request.headers.values("authorization").join("|");
        let host = request.headers.values("host").join("|");
        if request.target.starts_with("/token?") {
            let known = password.is_none_or(|password| shown == format!("Basic {}", STANDARD.encode(password)));
            let denied = || b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n".to_vec();
            return Some(if known { ok("application/json", json!({"token": TOKEN}).to_string()) } else { denied() });
        }
        let repository = request.target.trim_start_matches("/v2/").split("/manifests/").next().unwrap_or_default();
        let challenge =
            format!(r#"Bearer realm="http://{host}/token",service="test",scope="repository:{repository}:pull""#);
        let denied = format!("HTTP/1.1 401 Unauthorized\r\nwww-authenticate: {challenge}\r\ncontent-length: 0\r\n\r\n");
        (shown != format!("Bearer {TOKEN}")).then(|| denied.into_bytes())
    })
}

pub fn ok(kind: &str, content: impl AsRef<[u8]>) -> Vec<u8> {
    let content = content.as_ref();
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n", content.len());
    [head.as_bytes(), content].concat()
}

/// In hexadecimal digits.
pub fn sha256(content: impl AsRef<[u8]>) -> String {
    let sum = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, content.as_ref());
    sum.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A tar archive with one file.
pub fn tar(name: &str, content: impl AsRef<[u8]>) -> Vec<u8> {
    let content = content.as_ref();
    let mut header = vec![0; 512];
    let mut set = |at: usize, text: &str| header[at..at + text.len()].copy_from_slice(text.as_bytes());
    set(0, name);
    set(124, &format!("{:011o}", content.len()));
    set(156, "0");
    set(257, "ustar");
    let mut all = header;
    all.extend_from_slice(content);
    all.resize(all.len().next_multiple_of(512) + 1024, 0);
    all
}

/// The same bytes as a gzip stream.
pub fn gzip(content: &[u8]) -> Vec<u8> {
    let mut packed = vec![0; content.len() + 1024];
    let mut deflate = Deflate::new_with_config(DeflateConfig { window_bits: 31, ..DeflateConfig::default() });
    deflate.compress(content, &mut packed, DeflateFlush::Finish).expect("room for all of it");
    packed.truncate(usize::try_from(deflate.total_out()).expect("a small stream"));
    packed
}
