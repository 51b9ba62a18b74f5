//! The tables of a run of clients: figures of the clients that behave, separately those of the others, and what the server spent.

use std::collections::BTreeMap;

use super::sample::Sample;
use super::section::Section;

type Figures = BTreeMap<String, f64>;

/// Returns the tables. There are none if the sample is not a run of clients.
pub fn sections(sample: &Sample) -> Vec<Section> {
    if sample.by_behaviour.is_empty() {
        return Vec::new();
    }
    let of = |behaves: bool| {
        let found = sample.by_behaviour.iter().filter(move |(_, figures)| (figures["behaves"] > 0.0) == behaves);
        found.map(|(name, figures)| row(name, figures, "")).collect::<Vec<_>>()
    };
    let (mut behaving, misbehaving) = (of(true), of(false));
    if behaving.len() > 1 {
        behaving.push(row("all of these", &sample.figures, "behaving_"));
    }
    let heads = HEADS.map(str::to_owned).to_vec();
    let clients = [("Clients that behave", behaving), ("Clients that misbehave", misbehaving)];
    let clients = clients.into_iter().filter(|(_, rows)| !rows.is_empty());
    let clients =
        clients.map(|(title, rows)| Section { title: format!("{title}: {TIMES}"), heads: heads.clone(), rows });
    let others = [("The run", RUN.as_slice()), ("The server", &SERVER)].into_iter().filter_map(|(title, lines)| {
        let rows: Vec<_> = lines.iter().filter_map(|line| line.row(&sample.figures)).collect();
        (!rows.is_empty()).then(|| Section { title: title.into(), heads: Vec::new(), rows })
    });
    clients.chain(others).collect()
}

fn row(name: &str, figures: &Figures, prefix: &str) -> Vec<String> {
    let count = |what: &str| figures.get(&format!("{prefix}{what}")).map_or_else(dash, |count| whole(*count));
    let times = |what: &str| {
        let of = |part: &str| figures.get(&format!("{prefix}{what}_{part}_ms")).copied();
        let parts: Option<Vec<_>> = ["p50", "p99", "max"].into_iter().map(of).collect();
        parts.map_or_else(dash, |parts| parts.into_iter().map(short_ms).collect::<Vec<_>>().join(" / "))
    };
    let counts = ["clients", "synced", "changes_received"].map(count);
    let times = ["first_sync", "received", "acked"].map(times);
    [name.to_owned()].into_iter().chain(counts).chain(times).collect()
}

/// A line with one figure.
struct Line {
    label: &'static str,
    figure: &'static str,
    unit: &'static str,
    /// How many digits follow the decimal point.
    digits: usize,
}

impl Line {
    const fn new(label: &'static str, figure: &'static str, unit: &'static str, digits: usize) -> Self {
        Self { label, figure, unit, digits }
    }

    fn row(&self, figures: &Figures) -> Option<Vec<String>> {
        let value = figures.get(self.figure)?;
        let value = if self.digits == 0 { whole(*value) } else { format!("{value:.digits$}", digits = self.digits) };
        let value = if self.unit.is_empty() { value } else { format!("{value} {}", self.unit) };
        Some(vec![self.label.into(), value])
    }
}

/// Returns a whole number with commas between thousands.
fn whole(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) && !out.ends_with('-') {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Returns whole milliseconds, and below ten one digit after the decimal point.
fn short_ms(ms: f64) -> String {
    if ms < 9.95 { format!("{ms:.1}") } else { whole(ms) }
}

fn dash() -> String {
    "-".into()
}

const TIMES: &str = "times are p50 / p99 / max in ms";
const HEADS: [&str; 7] = ["behaviour", "clients", "synced", "changes", "first sync", "change received", "change ACKed"];
const RUN: [Line; 8] = [
    Line::new("duration", "duration_s", "s", 0),
    Line::new("violations", "violations", "", 0),
    Line::new("clients that synced", "synced", "", 0),
    Line::new("connections opened", "connects", "", 0),
    Line::new("connections opened per second", "connects_per_s", "", 1),
    Line::new("changes received", "changes_received", "", 0),
    Line::new("received", "received_mib", "MiB", 0),
    Line::new("growth of this machine's TCP memory", "tcp_memory_growth_mib", "MiB", 0),
];
const SERVER: [Line; 5] = [
    Line::new("processor time", "cpu_s", "s", 2),
    Line::new("processor time per change and client", "cpu_us_per_delivery", "us", 1),
    Line::new("growth of RSS per connection", "rss_kib_per_connection", "KiB", 0),
    Line::new("growth of PSS per connection", "pss_kib_per_connection", "KiB", 0),
    Line::new("write calls", "write_calls", "", 0),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::Subject;

    fn figures(of: &[(&str, f64)]) -> Figures {
        of.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
    }

    #[test]
    fn those_that_behave_are_apart_and_every_figure_has_its_unit() {
        let times = |what: &str, [p50, p99, max]: [f64; 3]| {
            [("p50", p50), ("p99", p99), ("max", max)].map(|(part, value)| (format!("{what}_{part}_ms"), value))
        };
        let mut envoy =
            figures(&[("behaves", 1.0), ("clients", 1200.0), ("synced", 1200.0), ("changes_received", 7.0)]);
        envoy.extend(times("acked", [4.24, 213.7, 12345.6]));
        let slow = figures(&[("behaves", 0.0), ("clients", 20.0), ("synced", 3.0), ("changes_received", 0.0)]);
        let of_run = figures(&[("duration_s", 29.7), ("received_mib", 40.2), ("violations", 0.0), ("cpu_s", 1.234)]);
        let by_behaviour = [("envoy".to_owned(), envoy), ("slow".to_owned(), slow)].into();
        let sample = Sample { figures: of_run, by_behaviour, ..Sample::empty(Subject::Server, 0) };
        let text: String = sections(&sample).iter().map(ToString::to_string).collect();
        let expected = "\
Clients that behave: times are p50 / p99 / max in ms
  behaviour  clients  synced  changes  first sync  change received        change ACKed
  envoy        1,200   1,200        7           -                -  4.2 / 214 / 12,346
Clients that misbehave: times are p50 / p99 / max in ms
  behaviour  clients  synced  changes  first sync  change received  change ACKed
  slow            20       3        0           -                -             -
The run
  duration      30 s
  violations       0
  received    40 MiB
The server
  processor time  1.23 s
";
        assert_eq!(text, expected);
        assert!(sections(&Sample::empty(Subject::Relay, 0)).is_empty());
    }
}
