//! A tap that somebody asks the admin for: from the request to the filters, and their traces back.

use std::sync::Arc;

use postrider_admin::{Tap, TapBatch, Trace};
use postrider_config_core::SourceFile;
use postrider_config_envoy::{Format, LoadOptions, take_message};
use postrider_filter_native::tap::{Traced, attach};
use tokio::sync::mpsc;

/// Traces that may wait for the client; what comes beyond is lost and counted.
const WAITING_TRACES: usize = 256;

/// What such a request says, whatever form the configuration has.
const REQUEST: &str = "envoy.admin.v3.TapRequest";

/// Puts the tap in force.
///
/// # Errors
/// What is wrong with the request, a line each.
pub fn open(request: &[u8], only_failed: bool) -> Result<Tap, String> {
    let (sender, traces) = mpsc::channel::<Trace>(WAITING_TRACES);
    let deliver = Arc::new(move |traced: Traced| sender.try_send(Box::new(move || traced.bytes())).is_ok());
    // A tap whose traces go to files has nothing to send, and yet lasts until the client goes.
    let lasting = deliver.clone();
    // JSON is YAML, too.
    let options = LoadOptions { format: Some(Format::Yaml), ..LoadOptions::default() };
    let file = SourceFile::from_bytes("request", request.to_vec());
    let attached = take_message(&file, REQUEST, &options, |value| attach(value, only_failed, deliver))
        .map_err(|errors| errors.iter().map(|error| format!("{error}\n")).collect::<String>())?;
    let batch = attached.batch.map(|batch| TapBatch { traces: batch.traces, timeout: batch.timeout });
    Ok(Tap { traces, batch, guard: Box::new((attached, lasting)) })
}
