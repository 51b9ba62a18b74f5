//! Reads the file again while the relay runs: what the file changes, and which of the changes have to wait for a restart.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value as Json};

use super::diagnostic::{Diagnostic, Diagnostics};
use super::files::hash_of;
use super::form::Applies;
use super::keys::applies;
use super::load::{self, Config, ConfigError, Review};
use super::schema::schema;
use super::secrets::{without_secrets, without_values};
use super::shown::{fill, hide, json_of};
use super::yaml::{self, Node, Value, YamlEntry};
use crate::file_access;

/// The file of a configuration that is in use.
#[derive(Debug, Clone)]
pub(crate) struct InUse {
    /// The file as it was written, before variables are substituted.
    pub(super) tree: Node,
    /// SHA-256 of the bootstrap, if the servers come from one.
    bootstrap: Option<String>,
    /// Maps a text to the form in which it is compared: unchanged, or as operators may see it.
    text_of: fn(&str) -> String,
    /// Whether the comparison leaves out the values that operators may never see.
    is_shown: bool,
}

/// A file that was read again.
#[derive(Debug)]
pub(crate) struct Reading {
    /// The file's SHA-256, if it could be read. If the file changed meanwhile, the hash is of its earlier content.
    pub(crate) sha256: Option<String>,
    /// The files that the configuration names, as far as it could be read.
    pub(crate) named: BTreeSet<PathBuf>,
    pub(crate) result: Result<Reloaded, ReloadError>,
}

/// What a file changes.
#[derive(Debug)]
pub(crate) struct Reloaded {
    /// The configuration of the file, except for the keys that are pending.
    pub(crate) config: Config,
    /// The keys that have changed, by their paths.
    pub(crate) changed: Vec<String>,
    /// The keys whose change needs a restart.
    pub(crate) pending: Vec<String>,
}

/// Why a valid file changes nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReloadError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("valid only with a restart: without the changes that need one ({pending}), {faults}")]
    OnlyTogether { pending: String, faults: String },
}

impl InUse {
    /// Returns what a later file is compared with.
    pub(crate) fn of(config: &Config) -> Self {
        Self {
            tree: config.tree.clone(),
            bootstrap: config.shown.bootstrap.clone(),
            text_of: str::to_owned,
            is_shown: false,
        }
    }

    /// Makes the same from the configuration that a running relay shows. What operators may not see is not compared.
    pub(crate) fn of_shown(config: &Json, bootstrap: Option<String>) -> Option<Self> {
        let tree = yaml::read(&config.to_string(), &mut Diagnostics::of(Path::new("")))?;
        Some(Self { tree, bootstrap, text_of: without_secrets, is_shown: true })
    }

    /// Reads the file again.
    pub(crate) fn reload(&self, path: &Path) -> Reading {
        let read = file_access::read_blocking(path, file_access::LIMIT);
        let sha256 = read.ok().map(|bytes| hash_of(&bytes));
        let text = match load::read(path) {
            Ok(text) => text,
            Err(error) => return Reading { sha256, named: BTreeSet::new(), result: Err(error.into()) },
        };
        let mut review = load::review_text(path, &text);
        let named = std::mem::take(&mut review.named);
        let new = review.into_config().map_err(ReloadError::from);
        Reading { sha256, named, result: new.and_then(|new| self.compare(path, &text, new)) }
    }

    /// Returns what a file that was read changes.
    pub(crate) fn compare(&self, path: &Path, text: &str, new: Config) -> Result<Reloaded, ReloadError> {
        let pending = self.pending(&new.tree);
        let config = match pending.is_empty() {
            true => new,
            false => self.without(path, text, new.tree, &pending)?,
        };
        let mut changed = self.changes(&config.tree);
        let is_at_once = |key: &String| applies(key) == Applies::AtOnce;
        if changed.iter().all(is_at_once) && config.shown.bootstrap != self.bootstrap {
            changed.push("upstream".into()); // a bootstrap file whose content has changed
        }
        Ok(Reloaded { config, changed, pending })
    }

    fn pending(&self, tree: &Node) -> Vec<String> {
        let rules = |tree| self.comparable(tree).get("permissions").and_then(Json::as_array).map_or(0, Vec::len);
        let is_empty = |tree| rules(tree) == 0;
        let needs_restart = |path: &String| match path.as_str() {
            // Clients that were admitted without any rule were never judged; and a file that has lost its rules must not admit everybody.
            "permissions" => is_empty(&self.tree) != is_empty(tree),
            path => applies(path) == Applies::Restart,
        };
        self.changes(tree).into_iter().filter(needs_restart).collect()
    }

    /// Returns the paths of the keys that differ. A list counts as one key, and so does a section that only one of the files has.
    fn changes(&self, tree: &Node) -> Vec<String> {
        let mut found = Vec::new();
        compare(&self.comparable(&self.tree), &self.comparable(tree), "", &mut found);
        found
    }

    fn comparable(&self, tree: &Node) -> Json {
        let mut values = json_of(tree, &self.text_of);
        if self.is_shown {
            hide(&mut values, schema());
        }
        fill(&mut values, schema());
        values
    }

    /// Checks the file with the values in use for these keys.
    fn without(&self, path: &Path, text: &str, mut tree: Node, pending: &[String]) -> Result<Config, ReloadError> {
        for key in pending {
            let steps: Vec<_> = key.split('.').collect();
            put(&mut tree, &steps, get(&self.tree, &steps));
        }
        let Review { config, faults, warnings, .. } = load::review_tree(path, text, tree);
        let only_together = || ReloadError::OnlyTogether {
            pending: pending.join(", "),
            faults: faults.iter().map(Diagnostic::to_string).collect::<Vec<_>>().join("; "),
        };
        Ok(Config { warnings, ..config.ok_or_else(only_together)? })
    }
}

/// Returns a message about a file without the values of environment variables: some who see the message may not see these.
pub(crate) fn without_environment(message: &str, path: &Path) -> String {
    let text = load::read(path).unwrap_or_default();
    let names = text.split("${").skip(1).filter_map(|rest| rest.split_once('}')).map(|(name, _)| name);
    let known: Vec<_> = names.filter_map(|name| Some((name.to_owned(), std::env::var(name).ok()?))).collect();
    without_values(message, &known)
}

fn compare(one: &Json, other: &Json, path: &str, found: &mut Vec<String>) {
    if path == "listen" && one != other && differ_in_tls_alone(one, other) {
        return found.push("listen.tls".into());
    }
    let (Json::Object(one), Json::Object(other)) = (one, other) else {
        let is_nothing = |value: &Json| value.is_null() || value.as_array().is_some_and(Vec::is_empty);
        if one != other && !(is_nothing(one) && is_nothing(other)) {
            found.push(path.to_owned());
        }
        return;
    };
    let keys: BTreeSet<_> = one.keys().chain(other.keys()).collect();
    for key in keys {
        let dot = if path.is_empty() { "" } else { "." };
        let of = |map: &Map<String, Json>| map.get(key).cloned().unwrap_or_default();
        compare(&of(one), &of(other), &format!("{path}{dot}{key}"), found);
    }
}

/// Whether only files for TLS differ between the same addresses. An address that gains or loses TLS differs in more.
fn differ_in_tls_alone(one: &Json, other: &Json) -> bool {
    let (Some(one), Some(other)) = (one.as_array(), other.as_array()) else { return false };
    let same = |(one, other): (&Json, &Json)| {
        let without = |place: &Json| place.as_object().cloned().map(|mut place| (place.remove("tls").is_some(), place));
        without(one) == without(other)
    };
    one.len() == other.len() && one.iter().zip(other).all(same)
}

fn get<'a>(tree: &'a Node, steps: &[&str]) -> Option<&'a Node> {
    let Some((first, rest)) = steps.split_first() else { return Some(tree) };
    let Value::Map(entries) = &tree.value else { return None };
    get(&entries.iter().find(|entry| entry.key == *first)?.node, rest)
}

/// Sets a value in a tree, or removes it.
fn put(tree: &mut Node, steps: &[&str], value: Option<&Node>) {
    let Some((first, rest)) = steps.split_first() else { return };
    if !matches!(tree.value, Value::Map(_)) {
        tree.value = Value::Map(Vec::new()); // a section without a key
    }
    let place = tree.place.clone();
    let Value::Map(entries) = &mut tree.value else { return };
    let at = entries.iter().position(|entry| entry.key == *first);
    match (at, rest, value) {
        (Some(at), [], None) => {
            entries.remove(at);
        }
        (Some(at), [], Some(value)) => entries[at].node = value.clone(),
        (Some(at), ..) => put(&mut entries[at].node, rest, value),
        (None, _, None) => {}
        (None, ..) => {
            let mut node = Node { place: place.below(first), value: Value::Map(Vec::new()) };
            match (rest, value) {
                ([], Some(value)) => node = value.clone(),
                _ => put(&mut node, rest, value),
            }
            entries.push(YamlEntry { key: (*first).to_owned(), place, node });
        }
    }
}

#[cfg(test)]
mod tests;
