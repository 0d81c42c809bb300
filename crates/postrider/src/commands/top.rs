//! `top`: what a running proxy and its filters do right now, from looks at its admin.

mod rates;
mod sample;
mod screen;
mod table;

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use clap::Args;

use super::admin::Admin;
use crate::exit::Exit;
use crate::terminal;
use rates::{Rates, Unit};
use sample::Sample;
use screen::{Screen, View};
use table::Order;

#[derive(Args, Debug)]
pub struct Arguments {
    /// The admin of the proxy
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9901")]
    pub admin: String,

    /// Time between two looks: 500ms, 2s, 1m
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    pub interval: Duration,

    /// Look twice, print and end
    #[arg(long)]
    pub once: bool,

    /// For programs: an object a look, on a line of its own
    #[arg(long)]
    pub json: bool,
}

pub fn run(arguments: &Arguments) -> Exit {
    match watch(&Admin::at(&arguments.admin), arguments) {
        Ok(()) => Exit::Done,
        Err(message) => terminal::fail(message),
    }
}

fn watch(admin: &Admin, arguments: &Arguments) -> Result<(), String> {
    let mut before = Sample::take(admin, arguments.interval)?;
    let terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    if terminal && !arguments.once && !arguments.json {
        return show(admin, before, arguments.interval);
    }
    loop {
        wait(arguments.interval);
        let now = Sample::take(admin, arguments.interval)?;
        let mut rates = Rates::between(&before, &now);
        let text = match arguments.json {
            true => format!("{}\n", rates.json()),
            false => whole(&mut rates),
        };
        let mut out = std::io::stdout().lock();
        // A reader that went away has seen enough.
        if write!(out, "{text}").and_then(|()| out.flush()).is_err() || arguments.once {
            return Ok(());
        }
        before = now;
    }
}

/// On a terminal, until somebody quits.
fn show(admin: &Admin, mut before: Sample, interval: Duration) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("the terminal: {error}");
    let screen = Screen::open().map_err(failed)?;
    let mut view = View::default();
    let mut rates = Rates::between(&before, &before);
    screen.draw(&mut view, &mut rates).map_err(failed)?;
    while screen.serve(&mut view, &mut rates, Instant::now() + interval).map_err(failed)? {
        let now = Sample::take(admin, interval)?;
        rates = Rates::between(&before, &now);
        before = now;
        screen.draw(&mut view, &mut rates).map_err(failed)?;
    }
    Ok(())
}

/// Every table, the busiest rows first.
fn whole(rates: &mut Rates) -> String {
    let mut out = format!("{:.1} requests/s\n", rates.requests);
    for table in rates.tables.iter_mut().filter(|table| !table.rows.is_empty()) {
        let first = table.columns.iter().position(|column| column.unit != Unit::Text).unwrap_or(0);
        table.sort(Order { column: first, descending: true });
        out.push('\n');
        for line in table.lines(None) {
            out.push_str(&line);
            out.push('\n');
        }
    }
    out
}

#[expect(clippy::disallowed_methods, reason = "a command of its own that serves nobody meanwhile")]
fn wait(time: Duration) {
    std::thread::sleep(time);
}

fn interval(text: &str) -> Result<Duration, String> {
    let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let scale = match unit {
        "ms" => 0.001,
        "s" | "" => 1.0,
        "m" => 60.0,
        _ => return Err("expected a time such as 500ms, 2s or 1m".to_owned()),
    };
    let seconds = number.parse::<f64>().map_err(|_| "expected a time such as 500ms, 2s or 1m".to_owned())? * scale;
    // Faster than this it would measure itself.
    if !(0.01..=3600.0).contains(&seconds) {
        return Err("expected a time from 10ms to 60m".to_owned());
    }
    Ok(Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_have_units_and_bounds() {
        assert_eq!(interval("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(interval("2"), Ok(Duration::from_secs(2)));
        assert_eq!(interval("1m"), Ok(Duration::from_secs(60)));
        for wrong in ["", "s", "0s", "1ms", "2h", "-1s", "NaN"] {
            assert!(interval(wrong).is_err(), "{wrong}");
        }
    }
}
