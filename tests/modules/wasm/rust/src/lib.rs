//! What the plugins share: reading a configuration that is one JSON object of strings, and logging.

use proxy_wasm::hostcalls;
use proxy_wasm::types::LogLevel;

/// The values of these names in `configuration`; each must be there and not be empty. Says in the log what is missing.
pub fn settings<const N: usize>(configuration: Option<Vec<u8>>, names: [&str; N]) -> Option<[String; N]> {
    let all: serde_json::Value = match serde_json::from_slice(&configuration.unwrap_or_default()) {
        Ok(all) => all,
        Err(error) => {
            log(LogLevel::Critical, &format!("the configuration is no JSON: {error}"));
            return None;
        }
    };
    let text = |name: &str| all[name].as_str().unwrap_or_default().to_owned();
    if let Some(missing) = names.iter().find(|name| text(name).is_empty()) {
        log(LogLevel::Critical, &format!("the configuration lacks {missing:?}"));
        return None;
    }
    Some(names.map(text))
}

pub fn log(level: LogLevel, text: &str) {
    // A line that is lost changes nothing else.
    let _ = hostcalls::log(level, text);
}
