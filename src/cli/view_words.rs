//! Names views by what operators know of them: the fields of their sharing key instead of its hash.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::admin::{AdminArgs, AdminError};
use super::printable;
use crate::view_words::view_words;

/// The name of each view, by its hash.
#[derive(Debug, Default)]
pub(super) struct ViewWords(BTreeMap<String, String>);

impl ViewWords {
    pub(super) async fn ask(relay: &AdminArgs) -> Result<Self, AdminError> {
        Ok(Self::of(&relay.get("/upstreams", &[]).await?))
    }

    /// Reads the names from the page of the views.
    pub(super) fn of(upstreams: &Value) -> Self {
        let views = upstreams.as_array().into_iter().flatten();
        let named = views.filter_map(|view| {
            let fields = view["key_fields"].as_object()?;
            let words = view_words(fields.iter().map(|(field, value)| (&**field, value.as_str().unwrap_or("?"))));
            Some((view["view"].as_str()?.to_owned(), printable(&words)))
        });
        Self(named.collect())
    }

    /// Returns the name of a view. A view that was created after the page was read is named by its hash.
    pub(super) fn name<'a>(&'a self, view: &'a str) -> &'a str {
        self.0.get(view).map_or(view, String::as_str)
    }

    /// Returns the name of a view, with its hash.
    pub(super) fn full(&self, view: &str) -> String {
        self.0.get(view).map_or_else(|| view.to_owned(), |words| format!("{words} ({view})"))
    }

    /// Returns some views in one cell: the first, and the number of others.
    pub(super) fn some(&self, views: &BTreeSet<String>) -> String {
        let first = views.iter().next().map_or("-", |view| self.name(view));
        match views.len() {
            0 | 1 => first.to_owned(),
            count => format!("{first} and {} more", count - 1),
        }
    }

    /// Returns the hash of the view that a text means, by hash, name or both. A text that fits several views is returned as it is.
    pub(super) fn meant<'a>(&'a self, text: &'a str) -> &'a str {
        let hash = text.rsplit_once(" (").and_then(|(_, hash)| hash.strip_suffix(')'));
        if let Some((view, _)) = hash.and_then(|hash| self.0.get_key_value(hash)) {
            return view;
        }
        let mut meant = self.0.iter().filter(|(_, words)| *words == text).map(|(view, _)| view.as_str());
        match (meant.next(), meant.next()) {
            (Some(view), None) => view,
            _ => text,
        }
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
            {"view": "c", "key_fields": {"cluster": "", "locality": ""}},
            {"view": "d", "key_fields": {"cluster": "x".repeat(100), "locality": ""}},
        ]);
        let words = ViewWords::of(&page);
        assert_eq!(words.name("7e73"), "cluster=shop locality.region=eu\u{fffd}");
        assert_eq!((words.name("a2b2"), words.name("new"), words.name("c")), ("all", "new", "nothing stated"));
        assert_eq!(words.name("d"), format!("cluster={}…", "x".repeat(52)));
        assert_eq!(words.meant(&words.full("d")), "d");
        assert_eq!((words.meant("all"), words.meant("7e73"), words.meant("typo")), ("a2b2", "7e73", "typo"));
        assert_eq!((words.full("a2b2"), words.full("new")), ("all (a2b2)".to_owned(), "new".to_owned()));
        assert_eq!(words.meant("all (a2b2)"), "a2b2");
        let twice = json!([{"view": "1", "key_fields": {"a": "b c=d"}}, {"view": "2", "key_fields": {"a": "b", "c": "d"}}, {"view": "3", "key_fields": {"a": "b", "c": "d"}}]);
        let twice = ViewWords::of(&twice);
        assert_eq!((twice.name("1"), twice.name("2")), ("a=\"b c=d\"", "a=b c=d"));
        assert_eq!(twice.meant("a=b c=d"), "a=b c=d", "which of them?");
        let views = |views: &[&str]| views.iter().map(ToString::to_string).collect::<BTreeSet<_>>();
        assert_eq!(words.some(&views(&["a2b2"])), "all");
        assert_eq!(words.some(&views(&["a2b2", "b", "c"])), "all and 2 more");
    }
}
