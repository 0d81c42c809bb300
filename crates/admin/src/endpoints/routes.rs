//! Counts by route that are kept only while somebody looks at them.

use crate::control::Control;
use crate::request::Request;
use crate::response::Reply;
use hyper::StatusCode;
use std::time::Duration;

pub(super) const PARAMETERS: &[(&str, &str)] = &[("seconds", "For how long, from 1 to 86400; 10 by default")];

/// Who goes away without a word is forgotten after so long.
const USUAL: u64 = 10;
const MOST: u64 = 86_400;

pub(super) fn watch(control: &dyn Control, request: &Request) -> Reply {
    let seconds = request.parameter("seconds").map_or(Some(USUAL), |text| text.parse().ok());
    match seconds.filter(|seconds| (1..=MOST).contains(seconds)) {
        Some(seconds) => {
            control.watch_routes(Duration::from_secs(seconds));
            Reply::done()
        }
        None => Reply::refusal(StatusCode::BAD_REQUEST, "seconds: a number from 1 to 86400 is wanted\n".to_owned()),
    }
}
