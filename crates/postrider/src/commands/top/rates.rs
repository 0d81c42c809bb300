//! What happens per second, from two looks.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::sample::{Calls, Counts, Sample};

/// What is shown of one kind of thing.
#[derive(Debug, Default, PartialEq)]
pub struct Table {
    pub title: &'static str,
    /// The first ones name a row, the others are numbers.
    pub columns: &'static [Column],
    pub rows: Vec<Vec<Cell>>,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Column {
    pub title: &'static str,
    /// For programs.
    pub key: &'static str,
    pub unit: Unit,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    Text,
    /// With one decimal place.
    Rate,
    Count,
    /// Shown in MiB.
    Bytes,
    /// A share of one core, shown in percent.
    Share,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    Text(String),
    /// `None` where it is not known.
    Number(Option<f64>),
}

/// Tables in the order of their keys.
#[derive(Debug, PartialEq)]
pub struct Rates {
    pub seconds: f64,
    /// Over all listeners.
    pub requests: f64,
    pub tables: [Table; 4],
}

const fn column(title: &'static str, key: &'static str, unit: Unit) -> Column {
    Column { title, key, unit }
}

const LISTENERS: &[Column] = &[
    column("listener", "name", Unit::Text),
    column("requests/s", "requests_per_second", Unit::Rate),
    column("5xx/s", "errors_per_second", Unit::Rate),
    column("connections", "connections", Unit::Count),
];

const ROUTES: &[Column] = &[
    column("route", "name", Unit::Text),
    column("requests/s", "requests_per_second", Unit::Rate),
    column("5xx/s", "errors_per_second", Unit::Rate),
    column("filter calls/s", "filter_calls_per_second", Unit::Rate),
    column("filters cpu %", "filters_cpu_share", Unit::Share),
];

const CLUSTERS: &[Column] = &[
    column("cluster", "name", Unit::Text),
    column("requests/s", "requests_per_second", Unit::Rate),
    column("5xx/s", "errors_per_second", Unit::Rate),
    column("active", "active", Unit::Count),
    column("connections", "connections", Unit::Count),
    column("failed/s", "connect_failures_per_second", Unit::Rate),
    column("healthy", "healthy", Unit::Count),
    column("hosts", "hosts", Unit::Count),
    column("p50 ms", "p50_ms", Unit::Rate),
    column("p99 ms", "p99_ms", Unit::Rate),
];

const FILTERS: &[Column] = &[
    column("filter", "filter", Unit::Text),
    column("route", "route", Unit::Text),
    column("calls/s", "calls_per_second", Unit::Rate),
    column("errors/s", "errors_per_second", Unit::Rate),
    column("replies/s", "local_replies_per_second", Unit::Rate),
    column("bypassed/s", "bypassed_per_second", Unit::Rate),
    column("mean µs", "mean_us", Unit::Rate),
    column("p50 µs", "p50_us", Unit::Rate),
    column("p99 µs", "p99_us", Unit::Rate),
    column("cpu %", "cpu_share", Unit::Share),
    column("allocs/call", "allocations_per_call", Unit::Rate),
    column("bytes/call", "allocated_bytes_per_call", Unit::Count),
    column("memory", "memory_bytes", Unit::Bytes),
    column("circuit", "circuit", Unit::Text),
];

impl Rates {
    /// Counts that went back were reset in between, and count as none.
    pub fn between(before: &Sample, now: &Sample) -> Rates {
        let seconds = now.at.saturating_duration_since(before.at).as_secs_f64().max(1e-9);
        let looks = Looks { before, now, seconds };
        let listeners = Table { title: "listeners", columns: LISTENERS, rows: looks.listeners() };
        let requests = listeners.rows.iter().filter_map(|row| row.get(1)).map(Cell::number).sum();
        let tables = [
            listeners,
            Table { title: "routes", columns: ROUTES, rows: looks.routes() },
            Table { title: "clusters", columns: CLUSTERS, rows: looks.clusters() },
            Table { title: "filters", columns: FILTERS, rows: looks.filters() },
        ];
        Rates { seconds, requests, tables }
    }

    pub fn json(&self) -> Value {
        let mut out = Map::new();
        out.insert("seconds".into(), json!(self.seconds));
        out.insert("requests_per_second".into(), json!(self.requests));
        for table in &self.tables {
            let row = |row: &Vec<Cell>| -> Value {
                let both = table.columns.iter().zip(row);
                both.map(|(column, cell)| (column.key.to_owned(), cell.json())).collect::<Map<_, _>>().into()
            };
            out.insert(table.title.into(), table.rows.iter().map(row).collect());
        }
        out.into()
    }
}

impl Cell {
    /// What it is sorted by; what is not known comes last.
    pub fn number(&self) -> f64 {
        match self {
            Cell::Number(Some(number)) => *number,
            Cell::Number(None) | Cell::Text(_) => 0.0,
        }
    }

    fn json(&self) -> Value {
        match self {
            Cell::Text(text) => json!(text),
            Cell::Number(number) => json!(number),
        }
    }
}

/// Two looks.
struct Looks<'s> {
    before: &'s Sample,
    now: &'s Sample,
    seconds: f64,
}

impl Looks<'_> {
    fn listeners(&self) -> Vec<Vec<Cell>> {
        let row = |(name, now): (&String, &Counts)| {
            let known = self.before.listeners.get(name).copied().unwrap_or_default();
            vec![
                text(name),
                self.rate(now.requests, known.requests),
                self.rate(now.errors, known.errors),
                count(now.connections),
            ]
        };
        self.now.listeners.iter().map(row).collect()
    }

    fn clusters(&self) -> Vec<Vec<Cell>> {
        let row = |(name, now): (&String, &Counts)| {
            let known = self.before.clusters.get(name).copied().unwrap_or_default();
            vec![
                text(name),
                self.rate(now.requests, known.requests),
                self.rate(now.errors, known.errors),
                count(now.active),
                count(now.connections),
                self.rate(now.connect_failures, known.connect_failures),
                count(now.healthy),
                count(now.hosts),
                Cell::Number(now.p50),
                Cell::Number(now.p99),
            ]
        };
        self.now.clusters.iter().map(row).collect()
    }

    /// Those that count themselves, and those that filters were called for.
    fn routes(&self) -> Vec<Vec<Cell>> {
        let filtered = self.now.filters.keys().map(|(_, route)| route);
        let names: BTreeSet<&String> = self.now.routes.keys().chain(filtered).collect();
        let row = |name: &String| {
            let requests = self.now.routes.get(name).map(|now| {
                let known = self.before.routes.get(name).copied().unwrap_or_default();
                [self.rate(now.requests, known.requests), self.rate(now.errors, known.errors)]
            });
            let [requests, errors] = requests.unwrap_or([Cell::Number(None), Cell::Number(None)]);
            let of_route = self.now.filters.iter().filter(|((_, route), _)| route == name);
            let (calls, time) = of_route.fold((0, 0), |(calls, time), (key, now)| {
                let known = self.known(key);
                (calls + now.calls.saturating_sub(known.calls), time + now.time.saturating_sub(known.time))
            });
            vec![text(name), requests, errors, self.rate(calls, 0), self.share(time)]
        };
        names.into_iter().map(row).collect()
    }

    fn filters(&self) -> Vec<Vec<Cell>> {
        let row = |(key, now): (&(String, String), &Calls)| {
            let (filter, route) = key;
            let known = self.known(key);
            let calls = now.calls.saturating_sub(known.calls);
            let time = now.time.saturating_sub(known.time);
            let each = |total: f64| Cell::Number((calls > 0).then(|| total / calls as f64));
            let plugin = self.now.plugins.get(filter);
            let name = match plugin.map(|plugin| plugin.version.as_str()) {
                None | Some("") => filter.clone(),
                Some(version) => format!("{filter} {version}"),
            };
            vec![
                Cell::Text(name),
                text(route),
                self.rate(now.calls, known.calls),
                self.rate(now.errors, known.errors),
                self.rate(now.local_replies, known.local_replies),
                self.rate(now.bypassed, known.bypassed),
                each(time as f64 / 1000.0),
                Cell::Number(now.p50.map(|nanoseconds| nanoseconds / 1000.0)),
                Cell::Number(now.p99.map(|nanoseconds| nanoseconds / 1000.0)),
                self.share(time),
                match plugin {
                    Some(_) => Cell::Number(None),
                    None => each(now.allocations.saturating_sub(known.allocations) as f64),
                },
                match now.allocated {
                    0 => Cell::Number(None),
                    bytes => each(bytes.saturating_sub(known.allocated) as f64),
                },
                Cell::Number(plugin.map(|plugin| plugin.memory as f64)),
                Cell::Text(plugin.map(|plugin| plugin.circuit.clone()).unwrap_or_default()),
            ]
        };
        let mut rows: Vec<_> = self.now.filters.iter().map(row).collect();
        for (name, plugin) in &self.now.plugins {
            if !self.now.filters.keys().any(|(filter, _)| filter == name) {
                // Never called, and yet it takes memory.
                let nothing = (2..FILTERS.len() - 2).map(|_| Cell::Number(None));
                let rest = [Cell::Number(Some(plugin.memory as f64)), text(&plugin.circuit)];
                rows.push([text(name), text("-")].into_iter().chain(nothing).chain(rest).collect());
            }
        }
        rows
    }

    fn known(&self, key: &(String, String)) -> Calls {
        self.before.filters.get(key).copied().unwrap_or_default()
    }

    fn rate(&self, now: u64, before: u64) -> Cell {
        Cell::Number(Some(now.saturating_sub(before) as f64 / self.seconds))
    }

    /// Of one core.
    fn share(&self, nanoseconds: u64) -> Cell {
        Cell::Number(Some(nanoseconds as f64 / 1e9 / self.seconds))
    }
}

fn text(text: &str) -> Cell {
    Cell::Text(text.to_owned())
}

fn count(count: u64) -> Cell {
    Cell::Number(Some(count as f64))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    fn sample(at: Instant, requests: u64, calls: u64, time: u64) -> Sample {
        let stats = json!({"stats": [
            {"name": "listener.0.0.0.0_80.http.web.downstream_rq_completed", "value": requests},
            {"name": "cluster.a.upstream_rq_completed", "value": requests},
        ]});
        let plugins = json!({
            "plugins": [{
                "name": "mark", "version": "1", "memory_bytes": 2048, "circuit": "closed",
                "routes": [{"route": "r", "calls": calls, "errors": 1, "allocated_bytes": 64 * calls, "time_ns": {"sum": time, "p50": 1500.0, "p99": 2500.0}}],
            }],
            "filters": [{"name": "cors", "routes": [
                {"route": "r", "calls": calls, "local_replies": 0, "time_ns": time, "allocations": 2 * calls}]}],
        });
        Sample::read(&stats, &plugins, at)
    }

    #[test]
    fn rates_are_what_grew_over_the_time_between() {
        let start = Instant::now();
        let later = start + Duration::from_secs(2);
        let rates = Rates::between(&sample(start, 10, 100, 0), &sample(later, 30, 300, 1_000_000_000)).json();
        assert_eq!(rates["requests_per_second"], 10.0);
        assert_eq!(rates["clusters"][0]["requests_per_second"], 10.0);
        let [cors, mark] = [&rates["filters"][0], &rates["filters"][1]];
        assert_eq!((&mark["filter"], &mark["calls_per_second"]), (&json!("mark 1"), &json!(100.0)));
        assert_eq!((&mark["cpu_share"], &mark["mean_us"], &mark["p99_us"]), (&json!(0.5), &json!(5000.0), &json!(2.5)));
        assert_eq!((&cors["allocations_per_call"], &cors["p99_us"]), (&json!(2.0), &Value::Null));
        let bytes = |filter: &Value| filter["allocated_bytes_per_call"].clone();
        assert_eq!((bytes(mark), bytes(cors)), (json!(64.0), Value::Null));
        // Of both.
        assert_eq!((&rates["routes"][0]["name"], &rates["routes"][0]["filters_cpu_share"]), (&json!("r"), &json!(1.0)));
        assert_eq!(rates["routes"][0]["requests_per_second"], Value::Null);
    }

    #[test]
    fn counts_that_were_reset_are_no_rate() {
        let start = Instant::now();
        let rates = Rates::between(&sample(start, 10, 100, 9), &sample(start + Duration::from_secs(1), 1, 0, 0));
        assert_eq!(rates.requests, 0.0);
        assert!(rates.tables[3].rows.iter().all(|row| row[2].number() == 0.0));
    }
}
