//! What the declarations say of each key: the rows of the one table of settings.

use serde_json::Value as Json;

/// When a changed key counts in a relay that runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Applies {
    /// At once, for everything.
    AtOnce,
    /// For new streams at once. The others end, spread over `reload.spread`, and their clients come back.
    NewStreams,
    /// When the program starts the next time.
    Restart,
}

/// Whether there is something without the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::config) enum Presence {
    /// Not without it.
    Needed,
    /// Nothing, and that is valid.
    Optional,
    /// A default, or an empty section, list or map.
    Always,
}

/// One key of a section.
#[derive(Debug)]
pub(in crate::config) struct Row {
    pub(crate) key: &'static str,
    pub(super) doc: &'static str,
    pub(crate) schema: fn() -> Json,
    pub(crate) inner: fn() -> Inner,
    pub(crate) presence: Presence,
    pub(crate) default: Option<Json>,
    pub(crate) applies: Option<Applies>,
    /// What counts without the key, if it has no default.
    pub(crate) absent: Option<&'static str>,
    /// The kinds of servers that have it, if not all.
    pub(crate) only: Option<&'static str>,
    pub(crate) pages: Pages,
}

/// What pages and config/relay.yaml say of a key besides. A test writes and compares them.
#[derive(Debug)]
#[cfg_attr(not(test), expect(dead_code))]
pub(in crate::config) struct Pages {
    pub(crate) form: fn() -> String,
    /// Its value in config/relay.yaml, and whether it is in force there. Keys with a default are in force with it.
    pub(crate) example: Option<(&'static str, bool)>,
}

/// The keys below a key.
pub(in crate::config) struct Inner {
    /// What stands between them in a path: nothing, `[]` for items of a list, or `.<name>` for entries of a map.
    pub(crate) items: &'static str,
    pub(crate) rows: Vec<Row>,
}

/// Returns a value of a default or in force as a file may have it.
pub(in crate::config) fn as_written(value: &Json) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

impl Inner {
    pub(crate) const NONE: Self = Self { items: "", rows: Vec::new() };
}

impl Row {
    /// Returns what the key is for, as in the JSON schema: the first paragraph of its comment.
    pub(crate) fn summary(&self) -> String {
        let lines = self.doc.lines().map(str::trim).skip_while(|line| line.is_empty());
        lines.take_while(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
    }

    /// When a change of the key counts.
    pub(crate) fn applies(self, when: Applies) -> Self {
        Self { applies: Some(when), ..self }
    }

    /// What counts without it.
    pub(crate) fn absent(self, what: &'static str) -> Self {
        Self { absent: Some(what), ..self }
    }

    /// The kinds of servers that have it.
    pub(crate) fn only(self, servers: &'static str) -> Self {
        Self { only: Some(servers), ..self }
    }

    /// A value that config/relay.yaml has as a comment.
    pub(crate) fn example(self, value: &'static str) -> Self {
        Self { pages: Pages { example: Some((value, false)), ..self.pages }, ..self }
    }

    /// A value that is in force in config/relay.yaml.
    pub(crate) fn written(self, value: &'static str) -> Self {
        Self { pages: Pages { example: Some((value, true)), ..self.pages }, ..self }
    }

    /// Returns the comment but for its first paragraph. Pages have both.
    #[cfg(test)]
    pub(crate) fn more(&self) -> String {
        let lines = self.doc.lines().map(str::trim).skip_while(|line| line.is_empty());
        let lines = lines.skip_while(|line| !line.is_empty()).filter(|line| !line.is_empty());
        lines.collect::<Vec<_>>().join(" ")
    }
}
