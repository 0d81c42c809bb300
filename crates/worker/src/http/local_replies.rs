//! What `local_reply_config` makes of answers that the proxy gives itself.

use postrider_http::HeaderId;
use postrider_model::{BodyFormat, HeaderEdits, ReplyMapper};

use super::exchange::Exchange;
use super::{Connection, edits};
use crate::log::Condition;

/// Mappers in the order of the configuration, and the common format.
pub(crate) struct LocalReplies {
    mappers: Vec<Mapper>,
    body: Option<BodyFormat>,
}

struct Mapper {
    condition: Condition,
    model: ReplyMapper,
}

impl LocalReplies {
    pub(crate) fn compile(model: &postrider_model::LocalReplies) -> Box<LocalReplies> {
        let mapper =
            |model: &ReplyMapper| Mapper { condition: Condition::compile(&model.condition), model: model.clone() };
        Box::new(LocalReplies { mappers: model.mappers.iter().map(mapper).collect(), body: model.body.clone() })
    }
}

impl Exchange {
    /// Changes the answer under preparation, whose route has edited it already.
    #[cold]
    #[inline(never)]
    pub(super) fn map_reply(&mut self, connection: &Connection, replies: &LocalReplies) {
        let now = connection.worker.clock.wall(connection.worker.clock.now());
        let kind = self.response.fields.get(HeaderId::ContentType).map(<[u8]>::to_vec);
        let context = self.format_context(&self.reply_body, now);
        let mapper = replies.mappers.iter().find(|mapper| mapper.condition.holds(&context));
        let mapper = mapper.map(|mapper| &mapper.model);
        let mut format = replies.body.as_ref();
        let mut rewritten = false;
        if let Some(mapper) = mapper {
            if let Some(body) = &mapper.body {
                rewritten = *body != self.reply_body;
                self.reply_body.clone_from(body);
            }
            self.add_headers(&mapper.headers, now);
            if let Some(status) = mapper.status.filter(|status| *status != self.info.status) {
                if self.host.is_some() {
                    // The cluster counts what happened, not what the client hears of it.
                    self.upstream_status.get_or_insert(self.info.status);
                }
                self.info.status = status;
                self.response.set_status(status);
            }
            format = mapper.format.as_ref().or(format);
        }
        let mut content_type = "text/plain";
        if let Some(format) = format {
            let mut body = Vec::new();
            self.format_context(&self.reply_body, now).write_log(&format.format, &mut body);
            rewritten |= body != self.reply_body;
            self.reply_body = body;
            content_type = &format.content_type;
        }
        let fields = &mut self.response.fields;
        let is_own = fields.get(HeaderId::ContentType) != kind.as_deref();
        if self.reply_body.is_empty() {
            fields.remove(HeaderId::ContentType);
        } else if !fields.has(HeaderId::ContentType) || rewritten && !is_own {
            let _ = fields.set(HeaderId::ContentType, content_type.as_bytes());
        }
    }

    fn add_headers(&mut self, headers: &HeaderEdits, now: std::time::SystemTime) {
        if !headers.is_empty() {
            let mut values = edits::evaluate(headers, &self.format_context(&self.reply_body, now));
            edits::add(headers, &mut self.response.fields, &mut values);
        }
    }
}
