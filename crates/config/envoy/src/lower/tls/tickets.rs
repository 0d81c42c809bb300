//! How sessions are resumed without the server's memory.

use postrider_model::{Data, SessionTickets};

use crate::lower::context::Lowering;
use crate::lower::{data, secrets};
use crate::reader::Reader;

/// Name, MAC key and encryption key.
const KEY_BYTES: usize = 80;

/// `None` after an error.
pub(super) fn tickets(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Option<SessionTickets> {
    match at.oneof("session_ticket_keys_type") {
        Some("session_ticket_keys") => keys(cx, &at.message("session_ticket_keys")?),
        Some("session_ticket_keys_sds_secret_config") => {
            let config = at.message("session_ticket_keys_sds_secret_config")?;
            let found = secrets::find(cx, &config, "session_ticket_keys")?;
            keys(cx, &found)
        }
        Some(_) if at.bool("disable_stateless_session_resumption") => Some(SessionTickets::Off),
        _ => Some(SessionTickets::Rotating),
    }
}

fn keys(cx: &mut Lowering<'_>, at: &Reader<'_>) -> Option<SessionTickets> {
    let mut all = Vec::new();
    for source in at.list("keys") {
        let key = data::named_source(cx, &source);
        if let Some(Data::Inline(bytes)) = &key
            && bytes.len() != KEY_BYTES
        {
            let text = format!("a session ticket key has {KEY_BYTES} bytes, and this one has {}", bytes.len());
            let field = source.oneof("specifier").unwrap_or("inline_bytes");
            cx.error(&source, field, "invalid-value", text);
        }
        all.push(key);
    }
    all.into_iter().collect::<Option<Vec<Data>>>().map(SessionTickets::Keys)
}
