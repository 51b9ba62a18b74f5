//! The declaration of each key: the rows of the one table of settings.

use serde_json::Value as Json;

/// When a changed key takes effect in a running relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Applies {
    /// At once, for everything.
    AtOnce,
    /// For new streams at once. Earlier streams end, spread over `reload.spread`, and their clients reconnect.
    NewStreams,
    /// When the program starts the next time.
    Restart,
}

/// What a section has if the key is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::config) enum Presence {
    /// The key must not be left out.
    Needed,
    /// Nothing, which is valid.
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
    /// What applies without the key, if it has no default.
    pub(crate) absent: Option<&'static str>,
    /// The kinds of servers that have the key, if not all.
    pub(crate) only: Option<&'static str>,
    pub(crate) pages: Pages,
}

/// What only the pages and config/relay.yaml need. A test writes these files, or compares them.
#[derive(Debug)]
#[cfg_attr(not(test), expect(dead_code))]
pub(in crate::config) struct Pages {
    pub(crate) form: fn() -> String,
    /// The key's value in config/relay.yaml, and whether it is in force there. Keys with a default are in force with it.
    pub(crate) example: Option<(&'static str, bool)>,
}

/// The keys below a key.
pub(in crate::config) struct Inner {
    /// What a path has between the key and the keys below it: nothing, `[]` for items of a list, or `.<name>` for entries of a map.
    pub(crate) items: &'static str,
    pub(crate) rows: Vec<Row>,
}

/// Returns a value, by default or in force, as a file may have it.
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

    /// Sets when a change of the key takes effect.
    pub(crate) fn applies(self, when: Applies) -> Self {
        Self { applies: Some(when), ..self }
    }

    /// Sets what applies without the key.
    pub(crate) fn absent(self, what: &'static str) -> Self {
        Self { absent: Some(what), ..self }
    }

    /// Sets the kinds of servers that have the key.
    pub(crate) fn only(self, servers: &'static str) -> Self {
        Self { only: Some(servers), ..self }
    }

    /// Sets the value that config/relay.yaml has as a comment.
    pub(crate) fn example(self, value: &'static str) -> Self {
        Self { pages: Pages { example: Some((value, false)), ..self.pages }, ..self }
    }

    /// Sets the value that is in force in config/relay.yaml.
    pub(crate) fn written(self, value: &'static str) -> Self {
        Self { pages: Pages { example: Some((value, true)), ..self.pages }, ..self }
    }

    /// Returns the comment without its first paragraph. Pages have both.
    #[cfg(test)]
    pub(crate) fn more(&self) -> String {
        let lines = self.doc.lines().map(str::trim).skip_while(|line| line.is_empty());
        let lines = lines.skip_while(|line| !line.is_empty()).filter(|line| !line.is_empty());
        lines.collect::<Vec<_>>().join(" ")
    }
}
