//! What counts as a difference: two comparisons find it, some time apart, while the view has the same resource. So a resource that changes all
//! the time does not hide a difference in another one.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::protocol::keys::Revision;
use crate::protocol::moment::Moment;
use crate::xds::{Name, Type};

/// A place in a resource in which the two sides differ.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Differing {
    /// The type of the resource.
    pub kind: Type,
    /// The resource.
    pub name: Name,
    /// Where in it. Empty if one side does not have the resource.
    pub path: String,
    /// When the view's resource last changed. If it changed and changed back, the difference is another one.
    pub changed: Option<Revision>,
}

/// What an audit does after a comparison.
#[derive(Debug, PartialEq, Eq)]
pub enum NextStep {
    /// It ends: both sides have the same.
    Equal,
    /// It compares again at this moment.
    CompareAt(Moment),
    /// It ends: these differ.
    Differ(BTreeSet<Differing>),
}

/// The comparisons of one audit.
#[derive(Debug)]
pub struct Comparisons {
    gap: Duration,
    last: Option<Comparison>,
}

#[derive(Debug)]
struct Comparison {
    at: Moment,
    found: BTreeSet<Differing>,
}

impl Comparisons {
    /// Starts without a comparison. Two comparisons count if they are at least `gap` apart.
    pub fn apart_by(gap: Duration) -> Self {
        Self { gap, last: None }
    }

    /// Takes what a comparison has found.
    pub fn note(&mut self, found: BTreeSet<Differing>, now: Moment) -> NextStep {
        if found.is_empty() {
            return NextStep::Equal;
        }
        let Some(last) = &self.last else { return self.begin(Comparison { at: now, found }) };
        if now < last.at + self.gap {
            return NextStep::CompareAt(last.at + self.gap);
        }
        let both: BTreeSet<_> = last.found.intersection(&found).cloned().collect();
        if both.is_empty() {
            return self.begin(Comparison { at: now, found }); // one side has changed all that differed
        }
        NextStep::Differ(both)
    }

    fn begin(&mut self, comparison: Comparison) -> NextStep {
        let again = comparison.at + self.gap;
        self.last = Some(comparison);
        NextStep::CompareAt(again)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xds::TypeTable;

    const GAP: Duration = Duration::from_secs(30);

    fn at(seconds: u64) -> Moment {
        Moment::START + Duration::from_secs(seconds)
    }

    /// Returns differences at these paths, after this many changes of the view's resource.
    fn with(changes: usize, paths: &[&str]) -> BTreeSet<Differing> {
        let kind = TypeTable::new().resolve("envoy.config.cluster.v3.Cluster");
        let changed = Some((0..changes).fold(Revision::ZERO, |revision, _| revision.next()));
        let of = |path: &&str| Differing { kind: kind.clone(), name: "a".into(), path: (*path).to_owned(), changed };
        paths.iter().map(of).collect()
    }

    fn found(paths: &[&str]) -> BTreeSet<Differing> {
        with(1, paths)
    }

    #[test]
    fn what_two_comparisons_have_found_counts_and_what_one_has_does_not() {
        let mut comparisons = Comparisons::apart_by(GAP);
        assert_eq!(comparisons.note(found(&["x", "y"]), at(1)), NextStep::CompareAt(at(31)));
        assert_eq!(comparisons.note(found(&["x", "y"]), at(20)), NextStep::CompareAt(at(31)), "too soon");
        assert_eq!(comparisons.note(found(&["y", "z"]), at(31)), NextStep::Differ(found(&["y"])));
    }

    #[test]
    fn what_the_view_has_changed_between_begins_anew_and_hides_nothing_else() {
        let mut comparisons = Comparisons::apart_by(GAP);
        comparisons.note(with(1, &["x"]), at(1));
        assert_eq!(comparisons.note(with(2, &["x"]), at(31)), NextStep::CompareAt(at(61)));
        let both: BTreeSet<_> = with(3, &["x"]).into_iter().chain(with(2, &["x", "y"])).collect();
        assert_eq!(comparisons.note(both, at(61)), NextStep::Differ(with(2, &["x"])));
    }

    #[test]
    fn a_difference_that_is_gone_is_none_and_neither_is_one_that_moves() {
        let mut comparisons = Comparisons::apart_by(GAP);
        comparisons.note(found(&["x"]), at(1));
        assert_eq!(comparisons.note(found(&["y"]), at(31)), NextStep::CompareAt(at(61)));
        assert_eq!(comparisons.note(found(&[]), at(61)), NextStep::Equal);
    }
}
