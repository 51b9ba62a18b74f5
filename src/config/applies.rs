//! When a changed key counts in a relay that runs. docs/reload.md has the same table.

/// When a changed key counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Applies {
    /// At once, for everything.
    AtOnce,
    /// For new streams at once. The others end, spread over `reload.spread`, and their clients come back.
    NewStreams,
    /// When the program starts the next time.
    Restart,
}

/// Every key of the file, or a section for all keys in it. The files for TLS of an address may change alone.
const KEYS: [(&str, Applies); 59] = [
    ("access", Applies::NewStreams),
    ("admin", Applies::Restart),
    ("brakes", Applies::NewStreams),
    ("clients", Applies::NewStreams),
    ("drain", Applies::AtOnce),
    ("limits.absent_names_per_stream", Applies::NewStreams),
    ("limits.cached_bytes", Applies::NewStreams),
    ("limits.clusters_timeout", Applies::NewStreams),
    ("limits.connections", Applies::Restart),
    ("limits.connections_per_address", Applies::Restart),
    ("limits.connections_per_identity", Applies::Restart),
    ("limits.fetch_timeout", Applies::NewStreams),
    ("limits.file_bytes", Applies::NewStreams),
    ("limits.first_request_timeout", Applies::Restart),
    ("limits.handshake_timeout", Applies::Restart),
    ("limits.handshakes", Applies::Restart),
    ("limits.handshakes_per_address", Applies::Restart),
    ("limits.header_bytes", Applies::Restart),
    ("limits.incomplete_request_bytes", Applies::Restart),
    ("limits.linger", Applies::NewStreams),
    ("limits.lingering", Applies::NewStreams),
    ("limits.message_bytes", Applies::NewStreams),
    ("limits.name_bytes", Applies::NewStreams),
    ("limits.names_per_stream", Applies::NewStreams),
    ("limits.names_per_type", Applies::NewStreams),
    ("limits.names_per_view", Applies::NewStreams),
    ("limits.new_connections_per_second", Applies::Restart),
    ("limits.new_names_per_second", Applies::NewStreams),
    ("limits.new_streams_per_second", Applies::Restart),
    ("limits.node_bytes", Applies::NewStreams),
    ("limits.outdated_reply_bytes", Applies::NewStreams),
    ("limits.reference_hold", Applies::NewStreams),
    ("limits.removal_history_age", Applies::NewStreams),
    ("limits.removal_history_bytes", Applies::NewStreams),
    ("limits.reply_bytes", Applies::NewStreams),
    ("limits.request_bytes_per_second", Applies::Restart),
    ("limits.request_entries", Applies::NewStreams),
    ("limits.requests_per_second", Applies::NewStreams),
    ("limits.resource_timer", Applies::NewStreams),
    ("limits.second_silence", Applies::NewStreams),
    ("limits.sought_names", Applies::NewStreams),
    ("limits.stated_versions_bytes", Applies::NewStreams),
    ("limits.streams", Applies::Restart),
    ("limits.streams_per_connection", Applies::Restart),
    ("limits.streams_per_identity", Applies::Restart),
    ("limits.types_per_stream", Applies::NewStreams),
    ("limits.views_per_connection", Applies::NewStreams),
    ("limits.views_per_identity", Applies::NewStreams),
    ("listen", Applies::Restart),
    ("listen.tls", Applies::AtOnce),
    ("load_reports", Applies::NewStreams),
    ("permissions", Applies::AtOnce),
    ("probes", Applies::Restart),
    ("reload", Applies::AtOnce),
    ("rest", Applies::NewStreams),
    ("state", Applies::Restart),
    ("types", Applies::Restart),
    ("upstream", Applies::NewStreams),
    ("views", Applies::NewStreams),
];

impl Applies {
    /// Returns when a key counts, by its path from the top of the file.
    pub(crate) fn of(path: &str) -> Self {
        row_of(path).map_or(Self::Restart, |(_, applies)| *applies)
    }
}

fn row_of(path: &str) -> Option<&'static (&'static str, Applies)> {
    let is_of = |key: &str| path.strip_prefix(key).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    KEYS.iter().filter(|(key, _)| is_of(key)).max_by_key(|(key, _)| key.len())
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::config::schema;

    /// Returns the keys that have no section below them. What lists have in them is one key.
    fn keys(schema: &Value, path: &str, found: &mut Vec<String>) {
        match schema["properties"].as_object() {
            Some(properties) => properties.iter().for_each(|(key, schema)| {
                let dot = if path.is_empty() { "" } else { "." };
                keys(schema, &format!("{path}{dot}{key}"), found);
            }),
            None => found.push(path.to_owned()),
        }
    }

    #[test]
    fn every_key_is_in_the_list_once_and_the_page_says_the_same() {
        let mut all = Vec::new();
        keys(&schema(), "", &mut all);
        assert!(all.len() > 80, "{all:?}");
        for key in &all {
            let rows = KEYS.iter().filter(|(row, _)| key == row || key.starts_with(&format!("{row}.")));
            assert_eq!(rows.count(), 1, "{key}");
        }
        all.push("listen.tls".into());
        for (row, _) in KEYS {
            assert!(all.iter().any(|key| key == row || key.starts_with(&format!("{row}."))), "{row} is no key");
        }
        let rows = include_str!("../../docs/reload.md").lines().filter_map(|line| line.strip_prefix("| `"));
        let rows = rows.filter_map(|row| row.trim_end_matches(" |").split_once("` | "));
        let rows: Vec<_> = rows.map(|(key, when)| (key.to_owned(), when.to_owned())).collect();
        let words = |applies| match applies {
            Applies::AtOnce => "at once",
            Applies::NewStreams => "new streams",
            Applies::Restart => "restart",
        };
        let known: Vec<_> = KEYS.iter().map(|(key, applies)| ((*key).to_owned(), words(*applies).to_owned())).collect();
        assert_eq!(rows, known);
    }
}
