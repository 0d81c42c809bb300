//! A journey for people: one step after the other, each with its place in the file.

use std::fmt::Write;
use std::time::Duration;

use postrider_filter_api::plugin::Sight;
use postrider_model::{Discovery, EndpointHealth, Route};
use postrider_router::Outcome;

use super::filters::{SeenFilter, to_json};
use super::journey::{Destination, End, Journey, Reading, Routing, Winner};
use super::words;
use crate::config::Places;

/// Columns of the labels on the left.
const LABEL: usize = 14;

/// Writes the journey; `colour` marks what matched and what did not.
pub fn render(journey: &Journey<'_>, places: &Places<'_>, colour: bool) -> String {
    let mut page = Page { out: String::new(), places, colour };
    page.line("listener", &journey.listener.name, &journey.listener.origin.0);
    match journey.chain {
        Some(chain) => {
            let name = if chain.name.is_empty() { "(no name)" } else { &chain.name };
            page.line("filter chain", name, &chain.model.origin.0);
            for (gate, path) in words::gates(&chain.model) {
                page.line("behind", &gate, path.unwrap_or_default());
            }
        }
        None => page.line("filter chain", "none takes this connection: it is closed", ""),
    }
    match &journey.reading {
        Some(Reading::Refused(reject)) => {
            page.line("refused", &format!("with {}, {}", reject.status, reject.details), "");
        }
        Some(Reading::Bytes) => {
            let clusters: Vec<String> =
                words::tcp_clusters(journey).map(|(name, weight)| format!("{name} ({weight})")).collect();
            page.line("carried", &format!("as bytes, unread, to {}", clusters.join(", ")), "");
        }
        Some(Reading::Read(read)) => {
            page.line("request", &format!("{} {}", read.method, read.path), "");
            if read.path != read.target {
                page.line("received as", &read.target, "");
            }
            page.line("host", &read.authority, "");
            if read.redirected_to_path {
                page.line("answer", "307 to the path above, whatever the route says", "");
            }
        }
        None => {}
    }
    if let Some(routing) = &journey.routing {
        page.routing(routing, journey);
    }
    page.out
}

struct Page<'p> {
    out: String,
    places: &'p Places<'p>,
    colour: bool,
}

impl Page<'_> {
    fn routing(&mut self, routing: &Routing<'_>, journey: &Journey<'_>) {
        if let Some(http) = journey.http {
            self.line("route table", named(&http.model.routes.name), &http.model.routes.origin.0);
        }
        for host in &routing.explanation.tried_hosts {
            self.marked("domain", host.found, &host.domain, "");
        }
        match routing.virtual_host {
            Some(host) => self.line("virtual host", &host.name, &host.origin.0),
            None => self.line("virtual host", &format!("none has {}: 404", routing.explanation.host), ""),
        }
        for (route, outcome) in &routing.tried {
            let (matched, line) = match outcome {
                Outcome::Matched => (true, route_name(route)),
                Outcome::Failed(why) => (false, format!("{}: {why}", route_name(route))),
            };
            self.marked("route", matched, &line, &route.origin.0);
        }
        if routing.virtual_host.is_some() && routing.winner.is_none() {
            self.line("", "no route matches: 404", "");
        }
        for filter in &routing.filters {
            self.filter(filter);
        }
        if let Some(winner) = &routing.winner {
            self.winner(winner, journey);
        }
    }

    fn filter(&mut self, filter: &SeenFilter<'_>) {
        let state = if filter.on { "" } else { " (off)" };
        let plugin = filter.plugin.filter(|plugin| *plugin != filter.slot.name);
        let plugin = plugin.map(|plugin| format!(", plugin {plugin}")).unwrap_or_default();
        self.line("filter", &format!("{}{plugin}{state}", filter.slot.name), "");
        for config in &filter.configs {
            let says = match (config.value, config.disabled) {
                (Some(value), false) => to_json(value).to_string(),
                (Some(value), true) => format!("off, {}", to_json(value)),
                (None, true) => "off".to_owned(),
                (None, false) => "on".to_owned(),
            };
            self.line("", &format!("  {}: {says}", config.scope.name()), config.origin);
        }
        for seen in &filter.sights {
            let with = seen.cluster.map(|cluster| format!(" with cluster {cluster}")).unwrap_or_default();
            let of = seen.scope.map(|scope| format!(", of the {scope}")).unwrap_or_default();
            let line = match &seen.sight {
                Sight::Off => format!("  does not run here{with}"),
                Sight::Nothing => format!("  sees{with}: nothing but the chain's configuration"),
                Sight::Config(config) => format!("  sees{with}: {}{of}", to_json(config)),
            };
            self.line("", &line, "");
        }
    }

    fn winner(&mut self, winner: &Winner<'_>, journey: &Journey<'_>) {
        match &winner.end {
            End::Respond { status } => self.line("answer", &format!("{status}, by the route itself"), ""),
            End::Redirect { redirect, location } => {
                self.line("answer", &format!("{} to {location}", redirect.status), "");
            }
            End::Forward { forward, path, host, destinations } => {
                self.line("forward", &format!("{path} as host {host}"), "");
                if destinations.is_empty() {
                    self.line("cluster", "the request has no header that names one", "");
                }
                for destination in destinations {
                    self.destination(destination, forward.cluster_not_found_status);
                }
            }
        }
        let limits: Vec<String> = words::timeouts(winner, journey)
            .into_iter()
            .map(|(name, limit)| format!("{} {}", name.replace('_', " "), duration(limit)))
            .collect();
        self.line("timeouts", &limits.join(", "), "");
    }

    fn destination(&mut self, destination: &Destination<'_>, not_found_status: u16) {
        let share = destination.share.map(|(weight, sum)| format!(" ({weight} of {sum})")).unwrap_or_default();
        let Some(cluster) = destination.cluster else {
            let line =
                format!("{}{share}: there is no such cluster, the answer is {not_found_status}", destination.name);
            return self.line("cluster", &line, "");
        };
        let facts = format!(
            "{}{share}: {}, {}, connect timeout {}",
            destination.name,
            words::discovery(&cluster.discovery),
            words::policy(&cluster.balancing.policy),
            duration(Some(cluster.connect_timeout)),
        );
        self.line("cluster", &facts, &cluster.origin.0);
        match &cluster.discovery {
            Discovery::Static(endpoints) if endpoints.is_empty() => self.line("", "  it has no endpoints: 503", ""),
            Discovery::Static(endpoints) => {
                for endpoint in endpoints {
                    let address = endpoint.address.to_string();
                    let mut line = format!("  {address}, weight {}", endpoint.weight);
                    if endpoint.priority > 0 {
                        let _ = write!(line, ", priority {}", endpoint.priority);
                    }
                    if endpoint.health == EndpointHealth::Unhealthy {
                        line.push_str(", unhealthy");
                    }
                    if destination.host.as_ref() == Some(&address) {
                        line.push_str(", would be next");
                    }
                    self.line("", &line, "");
                }
            }
            Discovery::Original(_) => self.line("", "  where the client's connection was meant to go", ""),
            Discovery::StrictDns(dns) | Discovery::LogicalDns(dns) => {
                for name in &dns.names {
                    let line = format!("  {}:{}, resolved when it runs", name.host, name.port);
                    self.line("", &line, "");
                }
            }
        }
    }

    /// A label, a text, and the place that it comes from.
    fn line(&mut self, label: &str, text: &str, path: &str) {
        self.write(label, "", text, path);
    }

    /// The same for something that held or did not.
    fn marked(&mut self, label: &str, holds: bool, text: &str, path: &str) {
        let mark = match (holds, self.colour) {
            (true, false) => "+ ",
            (false, false) => "- ",
            (true, true) => "\x1b[32m+\x1b[0m ",
            (false, true) => "\x1b[31m-\x1b[0m ",
        };
        self.write(label, mark, text, path);
    }

    fn write(&mut self, label: &str, mark: &str, text: &str, path: &str) {
        // What a client sent may hold control characters, which would move the cursor.
        let text: String = text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
        let _ = write!(self.out, "{label:LABEL$}{mark}{text}");
        if let Some(place) = self.places.find(path) {
            let (dim, plain) = if self.colour { ("\x1b[2m", "\x1b[0m") } else { ("", "") };
            let _ = write!(self.out, "  {dim}[{}:{}:{}]{plain}", place.file, place.line, place.column);
        }
        self.out.push('\n');
    }
}

fn route_name(route: &Route) -> String {
    match route.name.as_str() {
        "" => words::path_match(route),
        name => format!("{name} ({})", words::path_match(route)),
    }
}

fn named(name: &str) -> &str {
    if name.is_empty() { "(no name)" } else { name }
}

fn duration(limit: Option<Duration>) -> String {
    limit.map_or_else(|| "none".to_owned(), |limit| format!("{limit:?}"))
}
