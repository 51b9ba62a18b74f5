//! Views by what operators know of them: the fields of their sharing key instead of its hash.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::admin::{AdminArgs, AdminError};
use super::printable;

/// What to call each view, by its hash.
#[derive(Debug, Default)]
pub(super) struct ViewWords(BTreeMap<String, String>);

impl ViewWords {
    pub(super) async fn ask(relay: &AdminArgs) -> Result<Self, AdminError> {
        Ok(Self::of(&relay.get("/upstreams", &[]).await?))
    }

    /// Takes them from the page of the views.
    pub(super) fn of(upstreams: &Value) -> Self {
        let views = upstreams.as_array().into_iter().flatten();
        let named = views.filter_map(|view| {
            let fields = view["key_fields"].as_object()?.iter();
            let words: Vec<_> =
                fields.map(|(field, value)| format!("{field}={}", value.as_str().unwrap_or("?"))).collect();
            let words = if words.is_empty() { "all".to_owned() } else { words.join(" ") };
            Some((view["view"].as_str()?.to_owned(), printable(&words)))
        });
        Self(named.collect())
    }

    /// Returns what to call a view. One that has come meanwhile has its hash.
    pub(super) fn name<'a>(&'a self, view: &'a str) -> &'a str {
        self.0.get(view).map_or(view, String::as_str)
    }

    /// Returns some views in one cell: the first, and how many more there are.
    pub(super) fn some(&self, views: &BTreeSet<String>) -> String {
        let first = views.iter().next().map_or("-", |view| self.name(view));
        match views.len() {
            0 | 1 => first.to_owned(),
            count => format!("{first} and {} more", count - 1),
        }
    }

    /// Returns the hash of the view that was meant, by its words or its hash.
    pub(super) fn meant<'a>(&'a self, text: &'a str) -> &'a str {
        self.0.iter().find(|(_, words)| *words == text).map_or(text, |(view, _)| view)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_view_is_called_by_the_fields_of_its_key_and_found_by_them() {
        let page = json!([
            {"view": "7e73", "key_fields": {"cluster": "shop", "locality.region": "eu\u{7}"}},
            {"view": "a2b2", "key_fields": {}},
        ]);
        let words = ViewWords::of(&page);
        assert_eq!(words.name("7e73"), "cluster=shop locality.region=eu\u{fffd}");
        assert_eq!((words.name("a2b2"), words.name("new")), ("all", "new"));
        assert_eq!((words.meant("all"), words.meant("7e73"), words.meant("typo")), ("a2b2", "7e73", "typo"));
        let views = |views: &[&str]| views.iter().map(ToString::to_string).collect::<BTreeSet<_>>();
        assert_eq!(words.some(&views(&["a2b2"])), "all");
        assert_eq!(words.some(&views(&["a2b2", "b", "c"])), "all and 2 more");
    }
}
