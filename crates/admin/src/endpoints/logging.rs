//! `/logging`: who logs how much.

use crate::control::Control;
use crate::request::Request;
use crate::response::Reply;
use hyper::StatusCode;
use postrider_telemetry::log::{self, Component, Level};
use std::fmt::Write;

pub(super) const PARAMETERS: &[(&str, &str)] = &[
    (
        "paths",
        "Change multiple logging levels by setting to <logger_name1>:<desired_level1>,<logger_name2>:<desired_level2>",
    ),
    (
        "level",
        "desired logging level, this will change all loggers's level; One of (, trace, debug, info, warning, error, critical, off)",
    ),
];

/// Lists the levels after changing what the query says: all (`level=`), some (`paths=`) or one (`<name>=`).
pub(super) fn logging(_: &dyn Control, request: &Request) -> Reply {
    match change(&request.query) {
        Ok(()) => Reply::text(levels()),
        Err(error) => Reply::refusal(StatusCode::BAD_REQUEST, format!("error: {error}\n\n{USAGE}{}", levels())),
    }
}

const USAGE: &str = "usage: /logging?<name>=<level> (change single level)\n\
                     usage: /logging?paths=name1:level1,name2:level2,... (change multiple levels)\n\
                     usage: /logging?level=<level> (change all levels)\n\
                     levels: trace debug info warning error critical off \n";

fn change(query: &[(String, String)]) -> Result<(), &'static str> {
    let mut chosen: Option<(&str, &str)> = None;
    for (key, value) in query {
        match chosen {
            // The fields of a page's form are there although nobody wrote into them.
            _ if value.is_empty() => {}
            // The first one counts.
            Some((known, _)) if known == key => {}
            Some(_) => return Err("invalid number of parameters"),
            None => chosen = Some((key, value)),
        }
    }
    let Some((key, value)) = chosen else { return Ok(()) };
    match key {
        "group" => return Err("group parameter requires fine-grain logging to be enabled"),
        "level" => log::set_level(level(value)?),
        "paths" => {
            let change = |path: &str| {
                let (name, wanted) = path
                    .split_once(':')
                    .filter(|(name, level)| !name.is_empty() && !level.is_empty())
                    .ok_or("empty logger name or empty logger level")?;
                let wanted = level(wanted)?;
                Ok((component(name)?, wanted))
            };
            let paths = value.split(',').filter(|path| !path.trim().is_empty());
            // All or none.
            let changes: Vec<_> = paths.map(change).collect::<Result<_, &'static str>>()?;
            changes.into_iter().for_each(|(component, level)| log::set_component_level(component, level));
        }
        name => {
            let wanted = level(value)?;
            log::set_component_level(component(name)?, wanted);
        }
    }
    Ok(())
}

fn component(name: &str) -> Result<Component, &'static str> {
    name.parse().map_err(|()| "unknown logger name")
}

fn level(name: &str) -> Result<Level, &'static str> {
    // Flags take `warn` as well, Envoy's endpoint does not.
    let level = name.parse().ok().filter(|level: &Level| level.name() == name);
    level.ok_or("unknown logger level")
}

fn levels() -> String {
    let mut out = String::from("active loggers:\n");
    for component in Component::ALL {
        // Writing to a String cannot fail.
        let _ = writeln!(out, "  {}: {}", component.name(), log::level(component).name());
    }
    out.push('\n');
    out
}
