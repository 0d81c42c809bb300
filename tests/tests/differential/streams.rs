//! The other scenes once more, with their requests as streams of HTTP/2.

use crate::scene::{Over, Scene};
use crate::wire::as_stream;

/// What the names of these scenes begin with.
pub const PREFIX: &str = "h2-";

/// Those that have requests with a meaning in HTTP/2; `every` so many of them are enough.
pub fn scenes(of: impl IntoIterator<Item = Scene>, every: usize) -> Vec<Scene> {
    let translated = |scene: Scene| {
        let name = format!("{PREFIX}{}", scene.name);
        let requests = scene.requests.iter().filter(|request| as_stream(request).is_some());
        let requests: Vec<Vec<u8>> = requests.step_by(every).cloned().collect();
        (!requests.is_empty()).then(|| Scene { name, requests, ..scene.over(Over::Http2) })
    };
    // Envoy drops the trailers of these; see "trailers" in `docs/envoy-differences.md`.
    let trailing = |scene: &Scene| scene.name.starts_with("grpc") || scene.name == "decompressor-answers";
    of.into_iter().filter(|scene| !trailing(scene)).filter_map(translated).collect()
}
