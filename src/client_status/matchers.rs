//! Matches the clients that a request is about.

use super::Failure;
use crate::proto::status::string_matcher::MatchPattern;
use crate::proto::status::{NodeMatcher, StringMatcher};

/// Alternatives, each a pattern for the id of a node (CSDS-7). A session keeps only the id of its node, beside the fields that its view has.
#[derive(Debug)]
pub(super) struct Matchers(Vec<Option<IdMatcher>>);

#[derive(Debug)]
struct IdMatcher {
    pattern: Pattern,
    ignores_case: bool,
}

#[derive(Debug)]
enum Pattern {
    Exact(String),
    Prefix(String),
    Suffix(String),
    Contains(String),
}

impl Matchers {
    pub(super) fn of(listed: &[NodeMatcher]) -> Result<Self, Failure> {
        listed.iter().map(matcher).collect::<Result<_, _>>().map(Self)
    }

    pub(super) fn take(&self, node_id: &str) -> bool {
        self.0.iter().any(|matcher| matcher.as_ref().is_none_or(|matcher| matcher.takes(node_id)))
    }
}

/// Reads a matcher. Without an id, it matches all clients.
fn matcher(of: &NodeMatcher) -> Result<Option<IdMatcher>, Failure> {
    if !of.node_metadatas.is_empty() {
        let reason = "node_metadatas are not supported: the metadata of nodes is not kept; expected node_id";
        return Err(Failure::Invalid(reason.into()));
    }
    of.node_id.as_ref().map(id_matcher).transpose()
}

fn id_matcher(of: &StringMatcher) -> Result<IdMatcher, Failure> {
    let ignores_case = of.ignore_case;
    let cased = |text: &String| if ignores_case { text.to_lowercase() } else { text.clone() };
    let pattern = match &of.match_pattern {
        Some(MatchPattern::Exact(text)) => Pattern::Exact(cased(text)),
        Some(MatchPattern::Prefix(text)) => Pattern::Prefix(cased(text)),
        Some(MatchPattern::Suffix(text)) => Pattern::Suffix(cased(text)),
        Some(MatchPattern::Contains(text)) => Pattern::Contains(cased(text)),
        Some(MatchPattern::SafeRegex(_) | MatchPattern::Custom(_)) | None => {
            let reason = "invalid node_id: expected exact, prefix, suffix or contains";
            return Err(Failure::Invalid(reason.into()));
        }
    };
    Ok(IdMatcher { pattern, ignores_case })
}

impl IdMatcher {
    fn takes(&self, node_id: &str) -> bool {
        let lower = self.ignores_case.then(|| node_id.to_lowercase());
        let node_id = lower.as_deref().unwrap_or(node_id);
        match &self.pattern {
            Pattern::Exact(text) => node_id == text,
            Pattern::Prefix(text) => node_id.starts_with(text),
            Pattern::Suffix(text) => node_id.ends_with(text),
            Pattern::Contains(text) => node_id.contains(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CSDS-7: several matchers are alternatives.
    #[test]
    fn matchers_are_alternatives_and_what_cannot_be_judged_is_refused() {
        let by = |pattern: MatchPattern, ignore_case| NodeMatcher {
            node_id: Some(StringMatcher { match_pattern: Some(pattern), ignore_case }),
            node_metadatas: Vec::new(),
        };
        let exact = by(MatchPattern::Exact("a".into()), false);
        let matchers = Matchers::of(&[exact.clone(), by(MatchPattern::Prefix("WEB-".into()), true)]).unwrap();
        assert_eq!(
            ["a", "A", "web-1", "Web-2", "x-web-"].map(|id| matchers.take(id)),
            [true, false, true, true, false]
        );
        let parts = [by(MatchPattern::Suffix("-z".into()), false), by(MatchPattern::Contains("mid".into()), false)];
        let matchers = Matchers::of(&parts).unwrap();
        assert_eq!(["a-z", "amidb", "z-a"].map(|id| matchers.take(id)), [true, true, false]);
        assert!(Matchers::of(&[NodeMatcher::default()]).unwrap().take("any"), "an empty one is for all");
        let metadata = NodeMatcher { node_metadatas: vec![Default::default()], ..exact.clone() };
        for bad in [metadata, by(MatchPattern::SafeRegex(Default::default()), false)] {
            assert!(matches!(Matchers::of(&[exact.clone(), bad]), Err(Failure::Invalid(_))));
        }
    }

    #[test]
    fn the_case_of_letters_counts_unless_it_is_said_for_each_kind_of_pattern() {
        type Kind = fn(String) -> MatchPattern;
        let patterns: [(Kind, &str, &str); 4] = [
            (MatchPattern::Exact, "Web-1", "wEB-1"),
            (MatchPattern::Prefix, "Web", "wEB-1"),
            (MatchPattern::Suffix, "B-1", "wEb-1"),
            (MatchPattern::Contains, "B-", "wEb-1"),
        ];
        for (pattern, text, id) in patterns {
            let takes = |ignore_case| {
                let node_id = Some(StringMatcher { match_pattern: Some(pattern(text.into())), ignore_case });
                Matchers::of(&[NodeMatcher { node_id, node_metadatas: Vec::new() }]).unwrap().take(id)
            };
            assert_eq!((takes(true), takes(false)), (true, false), "{text}");
        }
        let none = NodeMatcher { node_id: Some(StringMatcher::default()), node_metadatas: Vec::new() };
        assert!(matches!(Matchers::of(&[none]), Err(Failure::Invalid(_))), "a matcher that says nothing");
    }
}
