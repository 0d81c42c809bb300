//! Rates as a table for people.

use std::fmt::Write;

use super::sample::Rates;

const TITLES: [&str; 9] = ["plugin", "route", "calls/s", "errors/s", "p50 µs", "p99 µs", "cpu %", "memory", "circuit"];

/// How many of the columns begin with text, at the left; the others are numbers, at the right.
const TEXTS: usize = 2;

pub fn text(rates: &Rates) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail, here and below.
    let _ = write(rates, &mut out);
    out
}

fn write(rates: &Rates, out: &mut String) -> std::fmt::Result {
    let total: f64 = rates.listeners.iter().map(|(_, rate)| rate).sum();
    writeln!(out, "{total:.1} requests/s")?;
    for (name, rate) in &rates.listeners {
        writeln!(out, "  listener {name}: {rate:.1}/s")?;
    }
    if rates.plugins.is_empty() {
        return writeln!(out, "no plugins");
    }
    let mut rows = vec![TITLES.map(str::to_owned)];
    for plugin in &rates.plugins {
        let name = match plugin.version.as_str() {
            "" => plugin.name.clone(),
            version => format!("{} {version}", plugin.name),
        };
        let memory = format!("{:.1} MiB", plugin.memory as f64 / f64::from(1 << 20));
        let row = |route: String, numbers: [String; 5]| {
            let [calls, errors, p50, p99, cpu] = numbers;
            [name.clone(), route, calls, errors, p50, p99, cpu, memory.clone(), plugin.circuit.clone()]
        };
        if plugin.routes.is_empty() {
            rows.push(row("-".to_owned(), std::array::from_fn(|_| "-".to_owned())));
        }
        for route in &plugin.routes {
            let numbers = [route.calls, route.errors, route.p50, route.p99, route.cpu * 100.0];
            rows.push(row(route.route.clone(), numbers.map(|number| format!("{number:.1}"))));
        }
    }
    let widths: Vec<usize> = (0..TITLES.len())
        .map(|column| rows.iter().map(|row| row.get(column).map_or(0, |cell| cell.chars().count())).max().unwrap_or(0))
        .collect();
    out.push('\n');
    for row in rows {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            match column < TEXTS {
                true => write!(line, "{cell:<width$}  ")?,
                false => write!(line, "{cell:>width$}  ")?,
            }
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::sample::{PluginRates, RouteRates};
    use super::*;

    #[test]
    fn columns_stand_below_each_other() {
        let route = |name: &str, calls| RouteRates { route: name.into(), calls, cpu: 0.25, ..RouteRates::default() };
        let rates = Rates {
            seconds: 1.0,
            listeners: vec![("127.0.0.1_80".into(), 12.0)],
            plugins: vec![
                PluginRates {
                    name: "mark".into(),
                    version: "1.0".into(),
                    memory: 1 << 20,
                    circuit: "closed".into(),
                    routes: vec![route("api", 1000.5), route("rest", 1.0)],
                },
                PluginRates { name: "idle".into(), circuit: "open".into(), ..PluginRates::default() },
            ],
        };
        let text = text(&rates);
        assert_eq!(
            text,
            "12.0 requests/s
  listener 127.0.0.1_80: 12.0/s

plugin    route  calls/s  errors/s  p50 µs  p99 µs  cpu %   memory  circuit
mark 1.0  api     1000.5       0.0     0.0     0.0   25.0  1.0 MiB   closed
mark 1.0  rest       1.0       0.0     0.0     0.0   25.0  1.0 MiB   closed
idle      -            -         -       -       -      -  0.0 MiB     open
",
            "{text}"
        );
    }
}
