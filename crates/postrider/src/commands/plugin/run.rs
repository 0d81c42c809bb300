//! `plugin run`: one request and its answer through a plugin, and what it did to them.

mod load;

use std::path::{Path, PathBuf};

use clap::Args;
use postrider_filter_plugin::json::from_json_text;
use postrider_filter_trial::{Canned, CannedOutcome, Exchange, Report, Request, Response, Side};
use postrider_model::Value;

pub(super) use load::load;

use crate::exit::Exit;
use crate::terminal;

#[derive(Args, Debug)]
pub struct Arguments {
    /// The plugin's file
    pub file: PathBuf,

    /// What runs it; `auto` finds it out from the file
    #[arg(long, value_enum, default_value = "auto")]
    pub runtime: AnyRuntime,

    /// Method and path
    #[arg(long, value_name = "METHOD PATH", default_value = "GET /")]
    pub request: String,

    /// A header of the request; `:authority` or `host` names the host
    #[arg(short = 'H', long, value_name = "NAME: VALUE")]
    pub header: Vec<String>,

    /// The request's body, or @ and a file
    #[arg(long, value_name = "TEXT|@FILE")]
    pub body: Option<String>,

    /// The status that the upstream answers
    #[arg(long, value_name = "STATUS", default_value = "200", value_parser = clap::value_parser!(u16).range(100..600))]
    pub response: u16,

    /// A header of the answer
    #[arg(long, value_name = "NAME: VALUE")]
    pub response_header: Vec<String>,

    /// The answer's body, or @ and a file
    #[arg(long, value_name = "TEXT|@FILE")]
    pub response_body: Option<String>,

    /// The plugin's configuration: JSON, or @ and a file
    #[arg(long, value_name = "JSON|@FILE")]
    pub config: Option<String>,

    /// What the plugin may do: `on_error`, `budget`, `circuit`, `clusters`, and the options of its runtime, such as `sandbox`
    /// or `root_id`
    #[arg(long, value_name = "JSON|@FILE")]
    pub rules: Option<String>,

    /// The route's configuration of the plugin
    #[arg(long, value_name = "JSON|@FILE")]
    pub route_config: Option<String>,

    /// How a call to a cluster ends: a status with a body, `timeout` or `failure`; the last one for a cluster stays
    #[arg(long, value_name = "CLUSTER=STATUS[:BODY]")]
    pub call: Vec<String>,

    /// For programs
    #[arg(long)]
    pub json: bool,
}

/// `auto` is to find out.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnyRuntime {
    Auto,
    Rider,
    EnvoyLua,
    Wasm,
    Go,
    Native,
}

/// What is wrong with the command line, or with a file that it names.
pub(super) enum Wrong {
    Usage(String),
    Unreadable(String),
}

impl Wrong {
    pub(super) fn tell(self) -> Exit {
        match self {
            Wrong::Usage(message) => {
                eprintln!("error: {message}");
                Exit::Usage
            }
            Wrong::Unreadable(message) => terminal::fail(message),
        }
    }
}

pub fn run(arguments: &Arguments) -> Exit {
    let (exchange, config, rules) = match exchange(arguments) {
        Ok(read) => read,
        Err(wrong) => return wrong.tell(),
    };
    let loaded = load(&arguments.file, arguments.runtime, config, rules);
    match loaded.and_then(|loaded| Ok((loaded.run(&exchange)?, loaded.runtime()))) {
        Ok((report, runtime)) => {
            let printed = match arguments.json {
                true => terminal::print_json(&report.json()),
                false => terminal::print(&(report.text() + gate(runtime, &exchange, &report))),
            };
            if report.is_clean() { printed } else { Exit::Failed }
        }
        Err(errors) => terminal::fail(errors.join("\nerror: ")),
    }
}

/// What is different where Rider's own type configures the plugin.
fn gate(runtime: Option<&str>, exchange: &Exchange, report: &Report) -> &'static str {
    let answers_head = report.steps.iter().any(|step| step.side == Side::Response && !step.in_body_hook);
    match runtime == Some("rider") && exchange.route_config.is_none() && answers_head {
        true => {
            "note: by the type FilterConfig, the hook on response headers runs only on routes with an entry for the plugin, or \
             with allow_no_route: true\n"
        }
        false => "",
    }
}

fn exchange(arguments: &Arguments) -> Result<(Exchange, Value, Value), Wrong> {
    let (method, path) = arguments.request.trim().split_once(' ').ok_or_else(|| {
        Wrong::Usage(format!("--request takes a method and a path, as in 'GET /a', not `{}`", arguments.request))
    })?;
    let exchange = Exchange {
        request: Request {
            method: method.to_owned(),
            path: path.trim().to_owned(),
            headers: headers(&arguments.header)?,
            body: body(arguments.body.as_deref())?,
            trailers: Vec::new(),
        },
        response: Response {
            status: arguments.response,
            headers: headers(&arguments.response_header)?,
            body: body(arguments.response_body.as_deref())?,
            trailers: Vec::new(),
        },
        route_config: arguments.route_config.as_deref().map(|text| json("--route-config", text)).transpose()?,
        canned: arguments.call.iter().map(|call| canned(call)).collect::<Result<_, _>>()?,
    };
    let config = arguments.config.as_deref().map_or(Ok(Value::Null), |text| json("--config", text))?;
    Ok((exchange, config, rules(arguments.rules.as_deref())?))
}

/// What `--rules` says; nothing where it is not given.
pub(super) fn rules(given: Option<&str>) -> Result<Value, Wrong> {
    match given.map_or(Ok(Value::Null), |text| json("--rules", text))? {
        rules @ (Value::Null | Value::Map(_)) => Ok(rules),
        _ => Err(Wrong::Usage("--rules takes an object".to_owned())),
    }
}

fn headers(lines: &[String]) -> Result<Vec<(String, Vec<u8>)>, Wrong> {
    let split = |line: &String| {
        // The first character may be the colon of `:authority`.
        let colon = line.char_indices().skip(1).find(|(_, c)| *c == ':').map(|(at, _)| at);
        let (name, value) = colon
            .and_then(|at| Some((line.get(..at)?, line.get(at + 1..)?)))
            .ok_or_else(|| Wrong::Usage(format!("a header is `name: value`, not `{line}`")))?;
        Ok((name.trim().to_owned(), value.trim().as_bytes().to_vec()))
    };
    lines.iter().map(split).collect()
}

fn body(given: Option<&str>) -> Result<Vec<Vec<u8>>, Wrong> {
    given.map(bytes).transpose().map(|body| body.into_iter().collect())
}

fn json(flag: &str, text: &str) -> Result<Value, Wrong> {
    let bytes = bytes(text)?;
    from_json_text(&String::from_utf8_lossy(&bytes))
        .map_err(|error| Wrong::Usage(format!("{flag} is no JSON: {error}")))
}

/// The text itself, or what is in the file behind `@`.
fn bytes(text: &str) -> Result<Vec<u8>, Wrong> {
    match text.strip_prefix('@') {
        None => Ok(text.as_bytes().to_vec()),
        Some(file) => {
            std::fs::read(Path::new(file)).map_err(|error| Wrong::Unreadable(format!("cannot read {file}: {error}")))
        }
    }
}

fn canned(text: &str) -> Result<Canned, Wrong> {
    let wrong = || {
        Wrong::Usage(format!("--call takes CLUSTER=STATUS[:BODY], CLUSTER=timeout or CLUSTER=failure, not `{text}`"))
    };
    let (cluster, outcome) = text.split_once('=').ok_or_else(wrong)?;
    let outcome = match outcome {
        "timeout" => CannedOutcome::Timeout,
        "failure" => CannedOutcome::Failure,
        answer => {
            let (status, body) = answer.split_once(':').unwrap_or((answer, ""));
            let status = status.parse().ok().filter(|status| (100..600).contains(status)).ok_or_else(wrong)?;
            CannedOutcome::plain(status, &bytes(body)?)
        }
    };
    Ok(Canned { cluster: cluster.to_owned(), outcome })
}
