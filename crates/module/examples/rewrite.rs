//! Rewrites both messages: a field on each head, and both bodies in capitals, collected first.

use postrider_module::{Head, HttpFilter, Piece, Refusal, Setup, Stream, Trailers};

struct Rewrite;

impl HttpFilter for Rewrite {
    type State = ();

    fn new(_: &mut Setup<'_>) -> Result<Rewrite, Refusal> {
        Ok(Rewrite)
    }

    fn begin(&self) -> Option<()> {
        Some(())
    }

    fn on_request_headers(&self, _: &mut (), stream: &mut Stream<'_>, end: bool) -> Head {
        let mut headers = stream.request_headers_mut();
        headers.set("x-rewritten", "request");
        headers.remove("x-secret");
        // The head waits for its body, whose length may change.
        if end { Head::Continue } else { Head::Stop }
    }

    fn on_request_body(&self, _: &mut (), stream: &mut Stream<'_>, end: bool) -> Piece {
        if !end {
            return Piece::StopAndBuffer;
        }
        let body = stream.request_body().to_ascii_uppercase();
        stream.set_request_body(body);
        Piece::Continue
    }

    fn on_request_trailers(&self, _: &mut (), stream: &mut Stream<'_>) -> Trailers {
        let body = stream.request_body().to_ascii_uppercase();
        stream.set_request_body(body);
        Trailers::Continue
    }

    fn on_response_headers(&self, _: &mut (), stream: &mut Stream<'_>, end: bool) -> Head {
        stream.response_headers_mut().add("x-rewritten", "response");
        if end { Head::Continue } else { Head::Stop }
    }

    fn on_response_body(&self, _: &mut (), stream: &mut Stream<'_>, end: bool) -> Piece {
        if !end {
            return Piece::StopAndBuffer;
        }
        let body = stream.response_body().to_ascii_uppercase();
        stream.set_response_body(body);
        Piece::Continue
    }

    fn on_response_trailers(&self, _: &mut (), stream: &mut Stream<'_>) -> Trailers {
        let body = stream.response_body().to_ascii_uppercase();
        stream.set_response_body(body);
        Trailers::Continue
    }
}

postrider_module::entry!(Rewrite);
