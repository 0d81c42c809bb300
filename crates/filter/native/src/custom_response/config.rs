//! Reading what takes the place of an answer.

use std::sync::Arc;

use postrider_filter_api::WatchedFile;
use postrider_model::{HeaderValue, Reading};

use super::local::{self, LocalPolicy};
use super::redirect::{self, RedirectPolicy};
use crate::read;

#[derive(Debug)]
pub(super) enum Policy {
    /// An answer that the proxy makes itself.
    Local(LocalPolicy),
    /// One that is fetched.
    Redirect(Arc<RedirectPolicy>),
}

impl Policy {
    /// The `typed_config` of an action.
    pub(super) fn read(at: &mut Reading<'_>, kind: &str, files: &mut Vec<WatchedFile>) -> Option<Policy> {
        match kind {
            local::KIND => Some(Policy::Local(LocalPolicy::read(at, files))),
            redirect::KIND => RedirectPolicy::read(at).map(Arc::new).map(Policy::Redirect),
            _ => {
                let known = [local::KIND, redirect::KIND].join(" and ");
                at.error("@type", format!("{kind}: not supported by Postrider here; {known} are"));
                at.skip();
                None
            }
        }
    }
}

/// A status of an answer.
pub(super) fn status(at: &mut Reading<'_>) -> Option<u16> {
    let status = at.number("status_code")?;
    if !(200..600).contains(&status) {
        at.error("status_code", "a status from 200 to 599 is wanted");
    }
    u16::try_from(status).ok()
}

pub(super) fn headers(at: &mut Reading<'_>, key: &str) -> Vec<HeaderValue> {
    at.each(key, read::header_option).into_iter().flatten().collect()
}
