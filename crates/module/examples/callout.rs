//! Asks a cluster about each request, whose name is the configuration: only its 200 lets one pass.

use std::time::Duration;

use postrider_module::{
    Answer, Attribute, Call, CallId, Failure, Head, Hooks, HttpFilter, Refusal, Reply, Setup, Stream,
};

struct Callout {
    cluster: String,
}

impl HttpFilter for Callout {
    type State = ();

    fn new(setup: &mut Setup<'_>) -> Result<Callout, Refusal> {
        Ok(Callout { cluster: std::str::from_utf8(setup.config())?.to_owned() })
    }

    fn begin(&self) -> Option<()> {
        Some(())
    }

    fn hooks(&self) -> Hooks {
        Hooks { request_headers: true, ..Hooks::NONE }
    }

    fn on_request_headers(&self, _: &mut (), stream: &mut Stream<'_>, _: bool) -> Head {
        let path = stream.text(Attribute::RequestPath).unwrap_or("/");
        let call = Call::new(&*self.cluster, "GET", "check", path).timeout(Duration::from_secs(2));
        if let Err(refused) = stream.call(&call) {
            stream.reply(Reply::new(500).body(refused.to_string()).details("no_check"));
        }
        Head::StopAllAndBuffer
    }

    fn on_call_done(&self, _: &mut (), stream: &mut Stream<'_>, _: CallId, answer: Result<Answer<'_>, Failure>) {
        match answer {
            Ok(answer) if answer.status() == 200 => {
                stream.request_headers_mut().set("x-checked", answer.body());
                stream.continue_request();
            }
            Ok(_) => stream.reply(Reply::new(403).body("no").details("not_allowed")),
            Err(failure) => stream.reply(Reply::new(503).body(failure.to_string()).details("check_failed")),
        }
    }
}

postrider_module::entry!(Callout);
