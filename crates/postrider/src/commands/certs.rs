//! `certs`: which certificates a file or a running proxy uses, where, and when they end.

use std::fmt::Write;
use std::path::PathBuf;
use std::time::SystemTime;

use clap::Args;
use postrider_admin::certificates_json;
use serde_json::Value;

use super::admin::Admin;
use super::validate;
use crate::certificates;
use crate::config::Input;
use crate::exit::Exit;
use crate::terminal;

const TITLES: [&str; 6] = ["ends", "days", "kind", "names", "where", "file"];

/// Of the columns, the one with numbers.
const DAYS: usize = 1;

#[derive(Args, Debug)]
pub struct Arguments {
    /// A configuration; `-` is standard input. Without one, a running proxy is asked
    #[arg(conflicts_with = "admin")]
    pub file: Option<PathBuf>,

    /// The admin of the proxy
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9901")]
    pub admin: String,

    /// For programs: what `/certs?places` of the admin says
    #[arg(long)]
    pub json: bool,
}

pub fn run(arguments: &Arguments) -> Exit {
    let told = match &arguments.file {
        Some(file) => match of_file(&Input::argument(file)) {
            Ok(told) => told,
            Err(exit) => return exit,
        },
        None => match Admin::at(&arguments.admin).json("/certs?places=1") {
            Ok(told) => told,
            Err(message) => return terminal::fail(message),
        },
    };
    if arguments.json { terminal::print_json(&told) } else { terminal::print(&table(&told)) }
}

/// A file that is refused is no answer: its errors are.
fn of_file(input: &Input) -> Result<Value, Exit> {
    let checked = validate::check(input)?;
    match &checked.plan {
        Some(plan) => Ok(certificates_json(&certificates::statuses(plan), SystemTime::now(), true)),
        None => {
            eprint!("{}", checked.findings(terminal::stderr_colour()));
            Err(Exit::InvalidConfig)
        }
    }
}

/// The first to end comes first.
fn table(told: &Value) -> String {
    let mut rows: Vec<[String; 6]> = Vec::new();
    for context in list(told, "certificates") {
        let place = match (text(context, "cluster"), text(context, "listener"), text(context, "filter_chain")) {
            ("", listener, "") => format!("listener {listener}"),
            ("", listener, chain) => format!("listener {listener}, chain {chain}"),
            (cluster, ..) => format!("cluster {cluster}"),
        };
        for (field, kind) in [("cert_chain", "own"), ("ca_cert", "CA")] {
            for certificate in list(context, field) {
                rows.push(row(certificate, kind, &place));
            }
        }
    }
    if rows.is_empty() {
        return "no certificates\n".to_owned();
    }
    rows.sort();
    let rows: Vec<_> = std::iter::once(TITLES.map(str::to_owned)).chain(rows).collect();
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..TITLES.len()).map(|column| width(column).unwrap_or(0)).collect();
    let mut out = String::new();
    for row in &rows {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            // Writing to a String cannot fail.
            let _ = match column {
                DAYS => write!(line, "{cell:>width$}  "),
                _ => write!(line, "{cell:<width$}  "),
            };
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

fn row(certificate: &Value, kind: &str, place: &str) -> [String; 6] {
    let names = list(certificate, "subject_alt_names").iter().filter_map(Value::as_object);
    let names: Vec<&str> = names.flat_map(|name| name.values()).filter_map(Value::as_str).collect();
    let shown = match names.as_slice() {
        [] => text(certificate, "subject").to_owned(),
        [only] => (*only).to_owned(),
        [first, more @ ..] => format!("{first} +{}", more.len()),
    };
    let end = text(certificate, "expiration_time");
    let ended = end < now().as_str();
    let days = if ended { "ended" } else { text(certificate, "days_until_expiration") };
    let day = end.split('T').next().unwrap_or_default();
    [day.to_owned(), days.to_owned(), kind.to_owned(), shown, place.to_owned(), text(certificate, "path").to_owned()]
}

/// In the form that certificates' times have, which is in the order of time.
fn now() -> String {
    certificates::moment(SystemTime::now())
}

fn list<'v>(value: &'v Value, field: &str) -> &'v [Value] {
    value.get(field).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn text<'v>(value: &'v Value, field: &str) -> &'v str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_ends_first_stands_first() {
        let certificate = |end: &str, days: &str, names: Value| {
            json!({
                "path": "a.pem", "subject": "CN=a", "subject_alt_names": names,
                "days_until_expiration": days, "expiration_time": end,
            })
        };
        let told = json!({"certificates": [
            {
                "listener": "web", "filter_chain": "",
                "cert_chain": [certificate("9026-12-12T00:00:00Z", "2557000", json!([{"dns": "a.test"}, {"uri": "x:y"}]))],
                "ca_cert": [certificate("9030-01-02T00:00:00Z", "2558000", json!([]))],
            },
            {"cluster": "back", "cert_chain": [certificate("2020-01-01T00:00:00Z", "0", json!([]))]},
        ]});
        assert_eq!(
            table(&told),
            "ends           days  kind  names      where         file
2020-01-01    ended  own   CN=a       cluster back  a.pem
9026-12-12  2557000  own   a.test +1  listener web  a.pem
9030-01-02  2558000  CA    CN=a       listener web  a.pem
"
        );
        assert_eq!(table(&json!({"certificates": []})), "no certificates\n");
    }
}
