//! The memory that the relay would use, the uses that have a share of it, and how many clients fit into it.

use std::fmt::Write;

use tokio::runtime::Handle;

use crate::config::{Config, size_text};
use crate::downstream::default_shards;
use crate::memory::costs;
use crate::open_files;

pub(super) fn report(config: &Config) -> String {
    let budget = &config.views.memory;
    let mut rows = vec![("limits.memory", budget.to_string())];
    rows.push(("worker threads", Handle::current().metrics().num_workers().to_string()));
    let (view, downstream) = (&config.views.protocol.view, &config.downstream);
    let shards = downstream.shards.unwrap_or_else(|| default_shards(open_files::raised_limit()));
    rows.push(("shards", shards.to_string()));
    let rest = config.rest.as_ref().map_or(0, |rest| rest.response_bytes);
    for (key, bytes) in [
        ("limits.cached_bytes", view.cached_bytes),
        ("limits.incomplete_request_bytes", downstream.incomplete_request_bytes),
        ("limits.stated_versions_bytes", config.views.stated_versions_bytes),
        ("limits.outdated_reply_bytes", downstream.outdated_reply_bytes),
        ("rest.response_bytes", rest),
    ] {
        rows.push((key, format!("at most {} of it", rounded(bytes))));
    }
    if budget.bytes > 0 {
        for (what, streams, names) in CLIENTS {
            rows.push((
                what,
                format!(
                    "{} beside {} of resources",
                    fit(budget.bytes, streams, names),
                    rounded(budget.part(RESOURCES))
                ),
            ));
        }
    }
    let width = rows.iter().map(|(key, _)| key.len()).max().unwrap_or_default();
    let mut out = String::from("memory\n");
    for (key, value) in rows {
        let _ = writeln!(out, "  {key:width$}  {value}"); // writing to a String does not fail
    }
    out
}

/// Returns how many clients fit into the budget's shared part, after resources and the program itself have theirs.
fn fit(budget: usize, streams: usize, names: usize) -> usize {
    let client = costs::client(streams, names);
    (budget / 100 * (SHARED - RESOURCES)).saturating_sub(costs::PROGRAM + costs::LOG_QUEUE) / client
}

fn rounded(bytes: usize) -> String {
    match bytes >> 20 {
        0 => size_text(bytes),
        mib => format!("{mib} MiB"),
    }
}

/// Kinds of clients, by their streams and the names on each.
const CLIENTS: [(&str, usize, usize); 2] =
    [("clients with ADS, 20 names", 1, 20), ("clients with 6 streams of 20 names", 6, 20)];
/// The assumed memory of resources, in percent of `limits.memory`.
const RESOURCES: usize = 20;
/// Up to this use of the memory, in percent of `limits.memory`, no client's request is refused for its share.
const SHARED: usize = 70;

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[tokio::test]
    async fn what_fits_follows_from_the_memory_that_is_stated() {
        let path = std::env::temp_dir().join(format!("weir-check-memory-{}.yaml", std::process::id()));
        let text =
            "listen: [{address: ':1'}]\nupstream: {servers: [{uri: 'http://cp:1'}]}\nlimits: {cached_bytes: 7MiB}\n";
        std::fs::write(&path, text).unwrap();
        let report = |memory: usize| {
            report(
                &Config::review(Path::new(&path), &std::fs::read_to_string(&path).unwrap(), Some(memory))
                    .config
                    .unwrap(),
            )
        };
        let (small, large) = (report(512 << 20), report(2 << 30));
        std::fs::remove_file(&path).unwrap();
        assert!(small.contains("384 MiB, 75% of 512 MiB (as stated)"), "{small}");
        assert!(small.contains("at most 7 MiB of it"), "what the file says stays: {small}");
        let clients = |report: &str| {
            let line = report.lines().find(|line| line.contains("with ADS")).unwrap();
            line.split_whitespace().find_map(|word| word.parse::<usize>().ok().filter(|count| *count > 20)).unwrap()
        };
        assert!(clients(&large) > 4 * clients(&small), "{small}{large}");
    }
}
