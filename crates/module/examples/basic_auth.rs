//! Basic authentication (RFC 7617): requests pass with the credentials that the configuration names, in base64.

use postrider_module::{Head, Hooks, HttpFilter, Refusal, Reply, Setup, Stream};

struct BasicAuth {
    /// What `authorization` must say.
    expected: Vec<u8>,
}

impl HttpFilter for BasicAuth {
    type State = ();

    fn new(setup: &mut Setup<'_>) -> Result<BasicAuth, Refusal> {
        if setup.config().is_empty() {
            return Err("the configuration names no credentials".into());
        }
        Ok(BasicAuth { expected: [b"Basic ", setup.config()].concat() })
    }

    fn begin(&self) -> Option<()> {
        Some(())
    }

    fn hooks(&self) -> Hooks {
        Hooks { request_headers: true, ..Hooks::NONE }
    }

    fn on_request_headers(&self, _: &mut (), stream: &mut Stream<'_>, _: bool) -> Head {
        let sent = stream.request_headers().get("authorization");
        if sent.is_some_and(|sent| same(sent, &self.expected)) {
            stream.request_headers_mut().set("x-user", "known");
            return Head::Continue;
        }
        let reply = Reply::new(401).header("www-authenticate", "Basic realm=\"module\"").body("who are you?");
        stream.reply(reply.details("no_credentials"));
        Head::Stop
    }
}

/// Compares in a time that does not tell how much was right.
fn same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.iter().zip(other).fold(0, |differ, (one, other)| differ | (one ^ other)) == 0
}

postrider_module::entry!(BasicAuth);

#[cfg(test)]
mod tests {
    use super::same;

    #[test]
    fn only_equal_credentials_are_the_same() {
        assert!(same(b"Basic eA==", b"Basic eA=="));
        assert!(!same(b"Basic eA==", b"Basic eQ=="));
        assert!(!same(b"Basic eA==", b"Basic eA="));
    }
}
