//! The names of images: `registry/repository:tag@sha256:…`.

/// Where images without a registry are.
const HUB: &str = "docker.io";

/// Whom one asks there.
const HUB_HOST: &str = "registry-1.docker.io";

/// An image's name, in its parts.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Reference {
    /// As the name has it: what credentials are kept under.
    pub registry: String,
    pub repository: String,
    /// A tag, or `sha256:…`.
    pub version: String,
}

impl Reference {
    /// # Errors
    /// It is no image's name.
    pub fn parse(text: &str) -> Result<Reference, String> {
        let wrong = || format!("`{text}` is no image: expected registry/repository:tag");
        let (name, digest) = match text.split_once('@') {
            Some((name, digest)) => (name, Some(digest)),
            None => (text, None),
        };
        if digest.is_some_and(|digest| !is_digest(digest)) {
            return Err(format!("`{text}` is no image: expected @sha256: and 64 hexadecimal digits"));
        }
        // A colon before the last slash is a port's.
        let (name, tag) = match name.rsplit_once(':') {
            Some((name, tag)) if !tag.contains('/') => (name, tag),
            _ => (name, "latest"),
        };
        let (registry, repository) = match name.split_once('/') {
            Some((first, rest)) if first.contains(['.', ':']) || first == "localhost" => (first, rest.to_owned()),
            Some(_) => (HUB, name.to_owned()),
            None => (HUB, format!("library/{name}")),
        };
        let known = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-/".contains(&byte);
        let in_tag = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let sound = !repository.is_empty()
            && !repository.ends_with('/')
            && repository.bytes().all(known)
            && !repository.contains("..");
        if !sound || tag.is_empty() || !tag.bytes().all(in_tag) {
            return Err(wrong());
        }
        Ok(Reference {
            registry: registry.to_owned(),
            repository,
            version: digest.map_or_else(|| tag.to_owned(), str::to_ascii_lowercase),
        })
    }

    /// Host and port to ask.
    pub fn host(&self) -> &str {
        if self.registry == HUB { HUB_HOST } else { &self.registry }
    }

    /// The sum that the manifest must have, where the name says so.
    pub fn digest(&self) -> Option<&str> {
        self.version.strip_prefix("sha256:")
    }
}

/// Whether it is `sha256:` with 64 hexadecimal digits.
pub(crate) fn is_digest(text: &str) -> bool {
    text.strip_prefix("sha256:")
        .is_some_and(|digits| digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_a_registry_a_repository_and_a_version() {
        let digest = format!("sha256:{}", "0a".repeat(32));
        for (text, wanted) in [
            ("ghcr.io/a/b:v1".to_owned(), ("ghcr.io", "a/b", "v1")),
            ("127.0.0.1:5000/b".to_owned(), ("127.0.0.1:5000", "b", "latest")),
            ("localhost/b:v_1.0-A".to_owned(), ("localhost", "b", "v_1.0-A")),
            ("a/b".to_owned(), ("docker.io", "a/b", "latest")),
            ("b:1".to_owned(), ("docker.io", "library/b", "1")),
            (format!("r.io/b:1@{digest}"), ("r.io", "b", digest.as_str())),
        ] {
            let reference = Reference::parse(&text).unwrap();
            let parts = (reference.registry.as_str(), reference.repository.as_str(), reference.version.as_str());
            assert_eq!(parts, wanted, "{text}");
        }
        assert_eq!(Reference::parse("b").unwrap().host(), "registry-1.docker.io");
        for wrong in ["", "r.io/", "r.io/A", "r.io/a b", "r.io/../b", "r.io/a:", "r.io/a@sha256:1", "r.io/a:b@c"] {
            assert!(Reference::parse(wrong).is_err(), "{wrong}");
        }
    }
}
