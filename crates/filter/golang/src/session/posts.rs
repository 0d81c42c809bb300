//! What Go code asked for, and what becomes of a stream whose Go code failed.

use postrider_filter_api::plugin::OnError;
use postrider_filter_api::{Closing, Ended, Stream};
use postrider_filter_trial::observe::{self, Event};
use postrider_telemetry::error;

use super::Session;
use crate::bells::Side;
use crate::parsed::Home;
use crate::questions::{Question, Seen};
use crate::request::{Asker, Post};

impl Session {
    /// Does what Go code asked for, in order.
    pub(super) fn drain(&mut self, own: Side, stream: &mut Stream<'_>) {
        loop {
            let posts = self.request().take_posts();
            if posts.is_empty() {
                break;
            }
            posts.into_iter().for_each(|post| self.do_post(post, stream));
        }
        for side in Side::BOTH {
            if side != own
                && self.way(side).has_news()
                && let Some(bells) = self.bells.get()
            {
                bells.ring(side);
            }
        }
    }

    fn do_post(&mut self, post: Post, stream: &mut Stream<'_>) {
        match post {
            Post::Continue(side, verdict) => self.way(side).continued.push_back(verdict),
            Post::Reply(side, reply) => self.way(side).reply = Some(reply),
            Post::Panic(side, details) => self.panicked(side, &details, stream),
            Post::AddData(side, bytes) => self.way(side).added.extend_from_slice(&bytes),
            Post::Inject(side, bytes) => {
                let way = self.way(side);
                way.out.extend_from_slice(&bytes);
                way.head_free = true;
            }
            Post::Question(question, asker) => self.answer_to(&question, asker, &Seen::of(stream)),
            Post::Lost => self.lost(stream),
            other => other.apply(&mut self.request().lock(), stream),
        }
    }

    fn answer_to(&self, question: &Question, asker: Asker, seen: &Seen<'_>) {
        let mut shared = self.request().lock();
        let answer = question.answer(seen, &shared.secrets);
        match (asker, &self.config.home) {
            (Asker::Goroutine(out), Home::Here(library)) => {
                // SAFETY: the goroutine that asked waits until it is woken below.
                unsafe { out.fill(question, answer, &mut shared.slot) };
                drop(shared);
                // SAFETY: the stream is the library's, and not destroyed.
                unsafe { (library.entries.answered)(self.request.as_ptr().cast()) };
            }
            (Asker::Process(number), _) => {
                if let Some(lane) = &self.lane {
                    lane.answer(self.stream, number, &answer);
                }
            }
            // Those about a log are answered where they come in.
            (Asker::Log(_), _) | (Asker::Goroutine(_), Home::Apart(_)) => {}
        }
    }

    /// What was asked and noted since the stream last came by. It is too late for anything else.
    pub(super) fn do_last(&self, closing: &mut Closing<'_>) {
        for post in self.request().take_posts() {
            match post {
                Post::Question(question, asker) => {
                    self.answer_to(&question, asker, &Seen::of_ended(&closing.as_ended()))
                }
                other => other.note(closing.info),
            }
        }
    }

    /// What was asked since then.
    pub(super) fn answer_last(&self, ended: &Ended<'_>) {
        for post in self.request().take_posts() {
            if let Post::Question(question, asker) = post {
                self.answer_to(&question, asker, &Seen::of_ended(ended));
            }
        }
    }

    fn panicked(&mut self, side: Side, details: &str, stream: &Stream<'_>) {
        let name = &self.plugin.recipe.facts.name;
        if observe::is_on() {
            observe::note(Event::Fault { text: format!("panic: {details}"), traceback: String::new() });
        } else {
            error!(Filter, "[go_plugin_http][{name}] filter paniced with error details: {details}");
        }
        self.faulted = true;
        self.plugin.fault(stream);
        match self.plugin.recipe.facts.policy.on_error {
            OnError::Continue => self.failed = true,
            OnError::Respond(status) => {
                let reply = self.plugin.recipe.reply(status);
                self.way(side).reply = Some(Box::new(reply));
            }
        }
    }

    /// The process that had the stream is gone, and what Go code knew of it.
    #[cold]
    fn lost(&mut self, stream: &Stream<'_>) {
        let waits = Side::BOTH.into_iter().find(|side| self.request().phase(*side).is_in_go());
        // Where nothing waits for Go code, whatever it is next to see fails.
        let Some(side) = waits.filter(|_| !self.failed) else { return };
        if !self.faulted {
            self.plugin.lost(stream);
        }
        self.faulted = true;
        match self.plugin.recipe.facts.policy.on_error {
            OnError::Continue => self.failed = true,
            OnError::Respond(status) => {
                self.gone = true;
                let reply = self.plugin.recipe.reply(status);
                self.way(side).reply = Some(Box::new(reply));
            }
        }
    }
}
