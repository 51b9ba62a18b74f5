//! A report as a single self-contained page: tables, and plots as inline SVG.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::load_table::sections;
use super::plot::{Line, Plot, escape};
use super::{Cell, Report, Sample};
use crate::bench::subject::Subject;

/// Returns the page.
pub fn page(report: &Report) -> String {
    let title = escape(&report.command);
    let mut page = format!("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title>\n");
    let _ = write!(page, "<style>{STYLE}</style></head><body>\n<h1>{title}</h1>\n");
    let (cores, kernel) = (report.machine.cores, escape(&report.machine.kernel));
    let _ = writeln!(page, "<p>{cores} cores, Linux {kernel}</p>");
    report.cells.iter().for_each(|cell| page.push_str(&section(cell)));
    page + "</body></html>\n"
}

fn section(cell: &Cell) -> String {
    let mut out = format!("<h2>{}</h2>\n", escape(&cell.name));
    let tables: Vec<_> = cell.samples.iter().flat_map(sections).collect();
    match tables.is_empty() {
        true => out.push_str(&medians(cell)),
        false => tables.iter().for_each(|table| out.push_str(&table.html())),
    }
    out.push_str("<ul>\n");
    for gate in &cell.gates {
        let _ = writeln!(out, "<li>{}</li>", escape(&gate.to_string()));
    }
    for (subject, why) in &cell.missing {
        let _ = writeln!(out, "<li>{subject} is missing: {}</li>", escape(why));
    }
    for error in &cell.errors {
        let _ = writeln!(out, "<li>error: {}</li>", escape(error));
    }
    out.push_str("</ul>\n");
    for (figure, title, unit) in TIMELINES {
        let lines = cell.samples.iter().map(|sample| over_time(sample, figure)).collect();
        out.push_str(&Plot { title, x: "seconds", y: unit, lines: drawn(lines) }.svg());
    }
    let lines = cell.samples.iter().map(|sample| {
        // If no behaving client has received a change, the clients of all behaviours are drawn.
        let fan_out = if sample.behaving_fan_out.is_empty() { &sample.fan_out } else { &sample.behaving_fan_out };
        Line { name: name(sample), points: fan_out.clone() }
    });
    let lines = lines.collect();
    let fan_out =
        Plot { title: "Fan-out: clients that have the change", x: "ms after the change", y: "%", lines: drawn(lines) };
    out + &fan_out.svg()
}

fn medians(cell: &Cell) -> String {
    let subjects: BTreeSet<Subject> = cell.samples.iter().map(|sample| sample.subject).collect();
    let mut out = String::from("<table><tr><th>median</th>");
    for subject in &subjects {
        let _ = write!(out, "<th>{subject}</th>");
    }
    out.push_str("</tr>\n");
    let names: BTreeSet<&String> = cell.samples.iter().flat_map(|sample| sample.figures.keys()).collect();
    for name in names {
        let _ = write!(out, "<tr><td>{}</td>", escape(name));
        for subject in &subjects {
            let _ = write!(out, "<td>{}</td>", cell.median(*subject, name).map_or_else(|| "-".into(), super::short));
        }
        out.push_str("</tr>\n");
    }
    out + "</table>\n"
}

fn over_time(sample: &Sample, figure: &str) -> Line {
    // If clients were simulated, only those that behave are drawn.
    let behaving = format!("behaving_{figure}");
    let figure =
        if sample.timeline.iter().any(|point| point.figures.contains_key(&behaving)) { &behaving } else { figure };
    let points = sample.timeline.iter().filter_map(|point| Some((point.seconds, *point.figures.get(figure)?)));
    Line { name: name(sample), points: points.collect() }
}

/// Drops lines without points to draw.
fn drawn(mut lines: Vec<Line>) -> Vec<Line> {
    lines.retain(|line| line.points.len() > 1);
    lines
}

fn name(sample: &Sample) -> String {
    format!("{} {}", sample.subject, sample.repetition + 1)
}

/// The possible plots of a timeline, with title and unit.
const TIMELINES: [(&str, &str, &str); 5] = [
    ("p50_ms", "Change to receipt, half of the clients", "ms"),
    ("p99_ms", "Change to receipt, 99 % of the clients", "ms"),
    ("max_ms", "Change to receipt, the last client", "ms"),
    ("cpu_cores", "Processor time of the server", "cores"),
    ("rss_mib", "RSS of the server", "MiB"),
];
const STYLE: &str = "body{font:15px sans-serif;max-width:72em;margin:2em auto;padding:0 1em}table{border-collapse:collapse}\
td,th{padding:.15em .8em;text-align:right;border-bottom:1px solid #ddd}td:first-child,th:first-child{text-align:left}\
svg{width:35em;max-width:100%;font-size:12px}.title{font-weight:bold}.grid{stroke:#ddd}.y{text-anchor:end}.x{text-anchor:middle}\
polyline{fill:none;stroke-width:1.5}";
