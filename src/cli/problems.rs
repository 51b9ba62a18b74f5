//! `weir problems`: what is wrong with a running relay.

use std::fmt::Write;
use std::process::ExitCode;

use clap::Args;
use serde_json::Value;

use super::admin::{AdminArgs, AdminError, shell_word};
use super::again::show_again;
use super::output::{OutputArgs, finish};
use super::{printable, seconds};
use crate::plural::plural;

/// Shows what is wrong with a running relay, the worst first
///
/// A paragraph for each problem: what it is about, since when, why, what clients notice of it, and the command that says more. Exit code: 0
/// if nothing is wrong, 1 if something is, 2 if the relay cannot be asked.
#[derive(Debug, Args)]
pub struct Problems {
    /// Show it again every two seconds, until interrupted
    #[arg(long)]
    watch: bool,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    relay: AdminArgs,
}

impl Problems {
    /// Asks the relay and prints the answer, once or again and again.
    pub async fn run(self) -> ExitCode {
        if !self.watch {
            return finish(self.answer().await);
        }
        show_again(true, async || self.answer().await.map(|(text, _)| text)).await
    }

    async fn answer(&self) -> Result<(String, bool), AdminError> {
        let page = self.relay.get("/problems", &[]).await?;
        let found = page["count"].as_u64().unwrap_or_default() > 0;
        let none = || "nothing is wrong\n".to_owned();
        let text = || if found { text(&page, &self.relay) } else { none() };
        Ok((self.output.of(&page, text), found))
    }
}

/// Returns a paragraph for each problem of a page.
fn text(page: &Value, relay: &AdminArgs) -> String {
    let problems: Vec<_> = page["problems"].as_array().into_iter().flatten().collect();
    let mut out = String::new();
    for problem in &problems {
        let reason = printable(problem["reason"].as_str().unwrap_or_default());
        let noticed = printable(problem["noticed"].as_str().unwrap_or_default());
        // Writing to a String does not fail.
        let _ = writeln!(out, "{}", line(problem));
        let _ = writeln!(out, "  why: {reason}");
        let _ = writeln!(out, "  clients notice: {noticed}");
        let names = several(&problem["names"]);
        if !names.is_empty() {
            let _ = writeln!(out, "  names: {names}");
        }
        let views = several(&problem["views"]);
        if !views.is_empty() {
            let _ = writeln!(out, "  views: {views}");
        }
        let _ = writeln!(out, "  next: {}\n", next(problem, relay));
    }
    let more = page["count"].as_u64().unwrap_or_default().saturating_sub(problems.len() as u64);
    if more > 0 {
        let _ = writeln!(out, "and {}", plural(more as usize, "more problem"));
    }
    out
}

/// Returns a problem on one line: its kind, what it is about, how many are concerned, and since when.
pub(super) fn line(problem: &Value) -> String {
    let of = |key: &str| printable(problem[key].as_str().unwrap_or_default());
    let count = |value: &Value| value.as_u64().unwrap_or_default() as usize;
    let mut parts = Vec::new();
    for (key, word) in [("names", "name"), ("views", "view")] {
        let counted = count(&problem[key]["count"]);
        parts.extend((counted > 0).then(|| plural(counted, word)));
    }
    let (clients, times) = (count(&problem["clients"]), count(&problem["times"]));
    parts.extend((clients > 0).then(|| plural(clients, "client stream")));
    parts.extend((times > 0).then(|| plural(times, "time")));
    let since = problem["since_seconds"].as_f64().unwrap_or_default();
    let since = format!("for {}", seconds(since));
    parts.push(if problem["flaps"] == true { format!("comes and goes {since}") } else { since });
    format!("{}: {}: {}", of("title"), of("subject"), parts.join(", "))
}

/// Returns the command that shows more, as it is typed to ask the same relay.
pub(super) fn next(problem: &Value, relay: &AdminArgs) -> String {
    let words: Vec<_> = problem["next"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let typed = words.iter().map(|word| shell_word(word)).collect::<Vec<_>>().join(" ");
    match words.first() {
        // `weir check` reads a file on the relay's machine and asks no relay.
        Some(&"weir") if words.get(1) != Some(&"check") && !relay.is_default() => {
            format!("{typed} {}", relay.typed(relay.address()))
        }
        _ => typed,
    }
}

fn several(of: &Value) -> String {
    let first: Vec<_> = of["first"].as_array().into_iter().flatten().filter_map(Value::as_str).map(printable).collect();
    let more = (of["count"].as_u64().unwrap_or_default() as usize).saturating_sub(first.len());
    match (first.is_empty(), more) {
        (true, _) => String::new(),
        (false, 0) => first.join(", "),
        (false, more) => format!("{} and {more} more", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::endpoint::TlsArgs;
    use super::*;

    #[test]
    fn a_problem_is_a_paragraph_that_ends_with_the_command_as_it_works() {
        let several = |count: u64, first: &[&str]| json!({"count": count, "first": first});
        let nack = json!({"kind": "nacks", "title": "clients NACK", "subject": "CDS", "reason": "bad\u{1b} cluster",
            "servers": several(0, &[]), "views": several(7, &["cluster=a", "cluster=b"]), "times": 0, "clients": 30,
            "names": several(0, &[]), "since_seconds": 75.0, "flaps": false, "noticed": "they keep what they had before",
            "next": ["weir", "nacks", "--type", "x.Cluster"]});
        let page = json!({"problems": [nack], "count": 3});
        let relay = AdminArgs::of("--admin", "unix:/run/a b.sock".into(), TlsArgs::default());
        let expected = "\
clients NACK: CDS: 7 views, 30 client streams, for 1m 15s
  why: bad\u{fffd} cluster
  clients notice: they keep what they had before
  views: cluster=a, cluster=b and 5 more
  next: weir nacks --type x.Cluster --admin 'unix:/run/a b.sock'

and 2 more problems
";
        assert_eq!(text(&page, &relay), expected);
        let file = json!({"title": "t", "subject": "s", "next": ["openssl", "-in", "/a b"], "flaps": true, "since_seconds": 3.0});
        assert_eq!(next(&file, &relay), "openssl -in '/a b'");
        assert_eq!(line(&file), "t: s: comes and goes for 3.0s");
    }
}
