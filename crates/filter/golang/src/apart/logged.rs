//! Streams as they were when their process was told to log them: what Go code asks about one then is answered from here, since the
//! worker waits for no log.

use std::cell::RefCell;
use std::collections::HashMap;

use postrider_filter_api::{Ended, RouteFacts, StreamInfo};
use postrider_http::{Fields, RequestHead, ResponseHead};

use crate::questions::{Answer, Question, Secrets, Seen};

/// Most streams of one worker that are kept for a process that is behind with its logs. Questions about others find nothing.
const MAX_KEPT: usize = 4096;

#[derive(Default)]
pub(super) struct Logged {
    streams: RefCell<HashMap<u64, Kept>>,
}

struct Kept {
    /// The process was told so often, and did not say yet that it is through.
    times: u32,
    request: RequestHead,
    response: ResponseHead,
    trailers: Fields,
    info: StreamInfo,
    route: Option<RouteFacts>,
    weighted: Option<usize>,
    secrets: Secrets,
}

impl Logged {
    pub(super) fn keep(&self, stream: u64, ended: &Ended<'_>, secrets: &Secrets) {
        let mut streams = self.streams.borrow_mut();
        let times = streams.get(&stream).map_or(0, |kept| kept.times);
        if times == 0 && streams.len() >= MAX_KEPT {
            return;
        }
        let kept = Kept {
            times: times + 1,
            request: ended.request.clone(),
            response: ended.response.clone(),
            trailers: ended.response_trailers.clone(),
            info: ended.info.clone(),
            route: ended.route.cloned(),
            weighted: ended.weighted,
            secrets: secrets.clone(),
        };
        streams.insert(stream, kept);
    }

    /// The process logged it.
    pub(super) fn done(&self, stream: u64) {
        let mut streams = self.streams.borrow_mut();
        let Some(kept) = streams.get_mut(&stream) else { return };
        kept.times -= 1;
        if kept.times == 0 {
            streams.remove(&stream);
        }
    }

    pub(super) fn clear(&self) {
        self.streams.borrow_mut().clear();
    }

    pub(super) fn answer(&self, stream: u64, question: &Question) -> Answer {
        let streams = self.streams.borrow();
        let Some(kept) = streams.get(&stream) else { return Answer::Missing };
        let seen = Seen {
            request: &kept.request,
            response: &kept.response,
            trailers: &kept.trailers,
            info: &kept.info,
            route: kept.route.as_ref(),
            weighted: kept.weighted,
        };
        question.answer(&seen, &kept.secrets)
    }
}

#[cfg(test)]
mod tests {
    use postrider_filter_api::testing::FakeStream;

    use super::*;

    #[test]
    fn a_stream_is_known_until_its_last_log_is_done() {
        let (logged, secrets) = (Logged::default(), Secrets::default());
        let mut stream = FakeStream::new("GET", "/", &[]);
        let mut keep = |number: u64, path: &str| {
            stream.request.set_path(path.as_bytes()).unwrap();
            stream.with(|stream| {
                let ended = Ended {
                    request: stream.request,
                    response: stream.response,
                    request_trailers: stream.request_trailers,
                    response_trailers: stream.response_trailers,
                    info: stream.info,
                    route: stream.route,
                    weighted: stream.weighted,
                };
                logged.keep(number, &ended, &secrets);
            });
        };
        let asked = |stream| logged.answer(stream, &Question::Property("request.path".to_owned()));
        let found = |path: &str| Answer::Found(path.as_bytes().to_vec());
        assert_eq!(asked(1), Answer::Missing);
        keep(1, "/begun");
        assert_eq!(asked(1), found("/begun"));
        keep(1, "/ended");
        assert_eq!(asked(1), found("/ended"));
        logged.done(1);
        assert_eq!(asked(1), found("/ended"), "it is logged once more");
        logged.done(1);
        logged.done(1);
        assert_eq!(asked(1), Answer::Missing);
        (0..MAX_KEPT as u64 + 2).for_each(|number| keep(number, "/many"));
        assert_eq!((asked(0), asked(MAX_KEPT as u64)), (found("/many"), Answer::Missing));
        logged.clear();
        assert_eq!(asked(0), Answer::Missing);
    }
}
