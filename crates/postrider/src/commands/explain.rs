//! `explain FILE METHOD URL`: where a request would go, and why, by the code that traffic runs. Contacts nobody.

mod filters;
mod journey;
mod json;
mod request;
mod text;
mod words;

#[cfg(test)]
mod tests;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::Args;
use postrider_model::Value;
use postrider_worker::{ListenerPlan, Plan};

use self::journey::Journey;
use self::request::WireRequest;
use super::validate;
use crate::config::{Input, Places};
use crate::exit::Exit;
use crate::terminal::{self, Output};

#[derive(Args, Debug)]
pub struct Arguments {
    /// The file; `-` is standard input
    pub file: PathBuf,

    /// The request's method
    pub method: String,

    /// The URL that a client would ask for
    pub url: String,

    /// A header of the request, `name: value`; may be repeated
    #[arg(short = 'H', long = "header", value_name = "LINE")]
    pub headers: Vec<String>,

    /// What a filter noted in the filter state, `NAME=TEXT`; may be repeated
    #[arg(long = "filter-state", value_name = "NAME=TEXT", value_parser = noted)]
    pub filter_state: Vec<(String, Value)>,

    /// The listener that takes the connection, where the URL's port does not say it
    #[arg(long, value_name = "NAME")]
    pub listener: Option<String>,

    /// Where the client is
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1", value_parser = client_address)]
    pub from: SocketAddr,

    /// Form of the result
    #[arg(long, value_enum, default_value_t, value_name = "FORM")]
    pub output: Output,
}

pub fn run(arguments: &Arguments) -> Exit {
    let request = match WireRequest::new(&arguments.method, &arguments.url, &arguments.headers) {
        Ok(request) => request,
        Err(error) => return usage(&error.to_string()),
    };
    let checked = match validate::check(&Input::argument(&arguments.file)) {
        Ok(checked) => checked,
        Err(exit) => return exit,
    };
    let Some(plan) = &checked.plan else {
        eprint!("{}", checked.findings(terminal::stderr_colour()));
        return Exit::InvalidConfig;
    };
    let listener = match choose_listener(plan, arguments.listener.as_deref(), &request) {
        Ok(listener) => listener,
        Err(why) => return usage(&why),
    };
    let journey = Journey::follow(plan, listener, &request, arguments.from, &arguments.filter_state);
    let places = Places(&checked.outcome);
    match arguments.output {
        Output::Text => terminal::print(&text::render(&journey, &places, terminal::stdout_colour())),
        Output::Json => terminal::print_json(&json::render(&journey, &places)),
    }
}

/// The listener of that name; else the one on the URL's port; else the only one.
fn choose_listener<'p>(plan: &'p Plan, name: Option<&str>, request: &WireRequest) -> Result<&'p ListenerPlan, String> {
    let names = || plan.listeners.iter().map(|listener| listener.model.name.as_str()).collect::<Vec<_>>().join(", ");
    if let Some(name) = name {
        let found = plan.listener(name).map(AsRef::as_ref);
        return found.ok_or_else(|| format!("no listener is named `{name}`; there are: {}", names()));
    }
    let on_port = plan.listeners.iter().find(|listener| {
        listener.model.addresses.iter().any(|address| match address {
            postrider_model::Address::Tcp(address) => address.port() == request.port,
            postrider_model::Address::Unix { .. } => false,
        })
    });
    match (on_port, plan.listeners.as_slice()) {
        (Some(listener), _) => Ok(listener),
        (None, [only]) => Ok(only),
        (None, []) => Err("the file has no listener".to_owned()),
        (None, _) => {
            Err(format!("no listener has port {}: choose one with --listener; there are: {}", request.port, names()))
        }
    }
}

/// An object of the filter state: a text, as filters that note one write it.
fn noted(text: &str) -> Result<(String, Value), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), Value::String(value.to_owned()))),
        _ => Err("expected NAME=TEXT".to_owned()),
    }
}

/// An address with or without a port.
fn client_address(text: &str) -> Result<SocketAddr, String> {
    let address = text.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, 0)).or_else(|_| text.parse());
    address.map_err(|_| "expected an IP address, with or without a port".to_owned())
}

fn usage(message: &str) -> Exit {
    eprintln!("error: {message}");
    Exit::Usage
}
