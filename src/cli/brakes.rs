//! `weir brakes`: the removals that brakes of a running relay hold, and how to release them.

use std::fmt::Write;
use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use serde_json::Value;
use weir_core::xds::short_type_name;

use super::admin::{AdminArgs, AdminError, shell_word};
use super::output::{OutputArgs, finish};
use super::table::Table;
use super::view_words::ViewWords;
use super::{printable, seconds};
use crate::plural::plural;

/// Shows the removals that brakes of a running relay hold, with the command that lets them go
///
/// Exit code: 0 if nothing is held, 1 if something is, 2 if the relay cannot be asked.
#[derive(Debug, Args)]
pub struct Brakes {
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    relay: AdminArgs,
}

impl Brakes {
    /// Asks the relay and prints the answer.
    pub async fn run(self) -> ExitCode {
        finish(answer(&self.relay, &self.output).await)
    }
}

/// Returns the held removals as output, and whether there are any.
pub(super) async fn answer(relay: &AdminArgs, output: &OutputArgs) -> Result<(String, bool), AdminError> {
    let page = relay.get("/brakes", &[]).await?;
    let found = page["servers"].as_array().is_some_and(|servers| !servers.is_empty());
    if output.is_json() || !found {
        return Ok((output.of(&page, || "nothing is held\n".to_owned()), found));
    }
    let (words, address) = (ViewWords::ask(relay).await?, where_changes_are_taken(relay).await);
    Ok((text(&page, &words, address.as_deref()), found))
}

/// Returns the options for a relay address that takes changes: the given address, or the relay's socket. `None` if no such address is known.
async fn where_changes_are_taken(relay: &AdminArgs) -> Option<String> {
    let address = relay.address();
    if address.starts_with("unix:") || address.starts_with("https:") {
        return Some(relay.typed(address));
    }
    let page = relay.get("/config", &[]).await.ok()?;
    let socket = Path::new(page["config"]["admin"]["socket"].as_str()?);
    let socket = Path::new(page["file"].as_str()?).parent()?.join(socket); // relative to the folder of the file
    Some(relay.typed(&format!("unix:{}", socket.display())))
}

fn text(page: &Value, words: &ViewWords, address: Option<&str>) -> String {
    let mut out = String::new();
    // Writing to a String does not fail.
    for of in page["servers"].as_array().into_iter().flatten() {
        let server = printable(of["server"].as_str().unwrap_or_default());
        let count = |key: &str| of[key].as_u64().unwrap_or_default() as usize;
        let (removals, views) = (plural(count("held"), "removal"), plural(count("views"), "view"));
        let _ = writeln!(out, "{removals} by {server} held in {views}; to let them go:");
        let _ = match address {
            Some(address) => {
                let word = shell_word(of["server"].as_str().unwrap_or_default());
                writeln!(out, "  weir release {address} --server {word} --generation {}", of["generation"])
            }
            None => writeln!(
                out,
                "  not over this address, which only reads: set admin.socket, or admin.tls with may_change"
            ),
        };
    }
    let mut table = Table::new(["VIEW", "TYPE", "SET", "HELD", "OF", "FOR", "LET GO IN", "NAMES"].map(str::to_owned));
    let sets: Vec<_> = page["sets"].as_array().into_iter().flatten().collect();
    for set in &sets {
        let of = |key: &str| set[key].as_str().unwrap_or("-").to_owned();
        let time = |key: &str| set[key].as_f64().map_or_else(|| "-".to_owned(), seconds);
        let names: Vec<_> = set["names"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let more = if names.len() > NAMES { ", …" } else { "" };
        let names = format!("{}{more}", names[..names.len().min(NAMES)].join(", "));
        table.row([
            words.full(&of("view")),
            short_type_name(&of("type")),
            of("set"),
            set["held"].to_string(),
            set["of"].to_string(),
            time("seconds"),
            time("first_release_seconds"),
            names,
        ]);
    }
    let _ = write!(out, "\n{table}");
    let count = page["sets_count"].as_u64().unwrap_or_default();
    if count > sets.len() as u64 {
        let _ = writeln!(out, "\n{} of {count} sets", sets.len());
    }
    out
}

/// The number of names that are shown of each set.
const NAMES: usize = 3;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_held_is_shown_with_the_command_that_lets_it_go_where_that_is_possible() {
        let page = json!({
            "servers": [{"server": "http://cp:1 (REST)", "views": 1, "held": 480, "generation": 1763}],
            "sets": [{"view": "7e73", "type": "envoy.config.cluster.v3.Cluster", "set": "*", "seconds": 41, "generation": 1763, "held": 480,
                "of": 500, "first_release_seconds": 259, "names": ["a", "b", "c", "d"]}],
            "sets_count": 1,
        });
        let words = ViewWords::of(&json!([{"view": "7e73", "key_fields": {"cluster": "shop"}}]));
        let table = "
VIEW                 TYPE  SET  HELD  OF   FOR  LET GO IN  NAMES
cluster=shop (7e73)  CDS   *    480   500  41s  4m 19s     a, b, c, …
";
        let head = "480 removals by http://cp:1 (REST) held in 1 view; to let them go:\n";
        let command = "  weir release --admin unix:/run/a --server 'http://cp:1 (REST)' --generation 1763\n";
        assert_eq!(text(&page, &words, Some("--admin unix:/run/a")), format!("{head}{command}{table}"));
        let none = "  not over this address, which only reads: set admin.socket, or admin.tls with may_change\n";
        assert_eq!(text(&page, &words, None), format!("{head}{none}{table}"));
    }
}
