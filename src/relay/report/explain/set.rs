//! What `/explain` shows of `*`: what is known of the wildcard set of a type, how complete it is, and what the client lacks of it.

use serde::Serialize;
use weir_core::protocol::moment::Moment;
use weir_core::protocol::session::{AckState, CountedNames, Delay, Differences, NameInView};
use weir_core::protocol::view::Completeness;
use weir_core::protocol::wait::Wait;

use super::{Reason, Verdict, ViewExplanation, client, server};
use crate::plural::plural;
use crate::relay::Blocker;
use crate::relay::report::upstreams::completeness_name;

/// The state of a wildcard set.
#[derive(Debug, Serialize)]
pub(crate) struct SetReport {
    pub(crate) cached: usize,
    pub(crate) completeness: &'static str,
    /// How long ago the server was last heard about the type.
    pub(crate) heard_seconds: Option<f64>,
}

/// What a session handle knows of a wildcard set.
#[derive(Debug)]
pub(crate) struct SetExplanation {
    pub(crate) now: Moment,
    /// The client has requested the type, and the wildcard.
    pub(crate) is_requested: bool,
    pub(crate) is_subscribed: bool,
    pub(crate) completeness: Completeness,
    /// How many resources of the set are cached.
    pub(crate) present: usize,
    /// Which resources of the set the client lacks, and which it has that it should not.
    pub(crate) differences: Differences,
    pub(crate) answer: AckState,
    pub(crate) delay: Option<Delay>,
    pub(crate) obstruction: Option<(Blocker, Moment)>,
    pub(crate) waits: Vec<Wait>,
}

impl SetReport {
    /// Returns the reason for a name that is not in the set.
    pub(super) fn reason(&self) -> Reason {
        let (code, how) = match self.completeness {
            "complete" => ("set_complete", "is complete"),
            _ => ("set_not_complete", "is not known to be complete"),
        };
        let text = format!("the set has {}, and {how}", plural(self.cached, "resource"));
        Reason { heard_seconds: self.heard_seconds, ..Reason::of(code, text) }
    }
}

impl SetExplanation {
    /// Returns the state of the set at the client.
    pub(crate) fn verdict(&self) -> Verdict {
        let Differences { missing, outdated, surplus, unknown: _ } = &self.differences;
        let has_unsent = missing.count + outdated.count + surplus.count > 0;
        match (&self.answer, self.completeness) {
            _ if !self.is_subscribed => Verdict::NotSubscribed,
            (AckState::Nacked { .. }, _) => Verdict::Nacked,
            (_, Completeness::Unknown) => Verdict::Unknown,
            (AckState::None, _) => Verdict::Waiting,
            _ if has_unsent => Verdict::Waiting,
            (AckState::Pending, _) => Verdict::Unacked,
            (AckState::Accepted, _) => Verdict::Acked,
        }
    }

    /// Returns the state of the set, if something of it has arrived.
    pub(crate) fn set(&self, view: Option<&ViewExplanation>) -> Option<SetReport> {
        let completeness = Some(self.completeness).filter(|of| self.is_subscribed && *of > Completeness::Unknown)?;
        let heard_seconds = view.and_then(ViewExplanation::heard_seconds);
        Some(SetReport { cached: self.present, completeness: completeness_name(completeness), heard_seconds })
    }

    /// Returns the chain of reasons.
    pub(crate) fn reasons(&self, view: Option<&ViewExplanation>) -> Vec<Reason> {
        let mut reasons = vec![match (self.is_requested, self.is_subscribed) {
            (false, _) => Reason::of("type_not_requested", "the client has not requested this type on this stream"),
            (true, false) => Reason::of("not_subscribed", "the client subscribes to names, and not to the wildcard"),
            (true, true) => Reason::of("subscribed_by_wildcard", "the client subscribes to the wildcard"),
        }];
        reasons.extend(view.into_iter().flat_map(|view| server::of_view(view, &NameInView::Unknown)));
        if !self.is_subscribed {
            return reasons;
        }
        reasons.push(Reason { heard_seconds: view.and_then(ViewExplanation::heard_seconds), ..self.known() });
        reasons.extend(self.lacking());
        let is_due = matches!(self.verdict(), Verdict::Waiting | Verdict::Unknown);
        reasons.extend(
            self.delay.as_ref().filter(|_| is_due).map(|of| client::delay(of, Some(self.completeness), self.now)),
        );
        reasons.extend(self.obstruction.map(|(what, since)| client::obstruction(what, since, self.now)));
        reasons.extend(client::answer(&self.answer, "rejected a reply of the type", self.now));
        reasons
    }

    fn known(&self) -> Reason {
        let (code, text) = match self.completeness {
            Completeness::Unknown => ("set_unknown", "nothing has come of the set"),
            Completeness::Arriving => ("set_arriving", "the set comes in pieces, and more may come"),
            Completeness::FirstResponse => ("set_first_response", "the first response has come, and more may come"),
            Completeness::Settled => ("set_settled", "the set was quiet or complete once; what it lacks may exist"),
            Completeness::Complete => ("set_complete", "the set is complete: what it lacks does not exist"),
        };
        Reason::of(code, format!("{text}; {} cached", self.present))
    }

    fn lacking(&self) -> impl Iterator<Item = Reason> {
        let Differences { missing, outdated, surplus, unknown: _ } = &self.differences;
        let of = [
            ("not_sent", "the client was not sent", missing),
            ("earlier_sent", "the client was sent an earlier version of", outdated),
            ("removal_not_sent", "the client was not sent the removal of", surplus),
        ];
        let lacking = of.into_iter().filter(|(_, _, names)| names.count > 0);
        lacking.map(|(code, text, names)| Reason::of(code, format!("{text} {}", shown(names))))
    }
}

fn shown(names: &CountedNames) -> String {
    let first = names.first.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    match names.count - names.first.len() {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use weir_core::protocol::session::InRejected;

    use super::*;

    fn book(completeness: Completeness, answer: AckState) -> SetExplanation {
        SetExplanation {
            now: Moment::START,
            is_requested: true,
            is_subscribed: true,
            completeness,
            present: 2,
            differences: Differences::default(),
            answer,
            delay: None,
            obstruction: None,
            waits: Vec::new(),
        }
    }

    fn names(first: &[&str], count: usize) -> CountedNames {
        CountedNames { first: first.iter().map(|name| (*name).into()).collect(), count }
    }

    #[test]
    fn the_verdict_on_a_set_is_that_of_what_stands_first_in_its_way() {
        let unknown = book(Completeness::Unknown, AckState::None);
        assert_eq!(unknown.verdict(), Verdict::Unknown);
        assert_eq!(SetExplanation { is_subscribed: false, ..unknown }.verdict(), Verdict::NotSubscribed);
        for (answer, verdict) in [
            (AckState::None, Verdict::Waiting),
            (AckState::Pending, Verdict::Unacked),
            (AckState::Accepted, Verdict::Acked),
        ] {
            assert_eq!(book(Completeness::Settled, answer).verdict(), verdict);
        }
        let nacked = AckState::Nacked { reason: "no".into(), since: Moment::START, of: InRejected::Unknown };
        assert_eq!(book(Completeness::Complete, nacked).verdict(), Verdict::Nacked);
        let differences = Differences { outdated: names(&["a"], 1), ..Differences::default() };
        let lacks = SetExplanation { differences, ..book(Completeness::Complete, AckState::Accepted) };
        assert_eq!(lacks.verdict(), Verdict::Waiting);
    }

    #[test]
    fn a_set_has_its_size_how_complete_it_is_and_what_the_client_lacks_of_it() {
        let differences = Differences { missing: names(&["a", "b"], 5), ..Differences::default() };
        let lacks = SetExplanation { differences, ..book(Completeness::FirstResponse, AckState::Accepted) };
        let reasons: Vec<_> = lacks.reasons(None).into_iter().map(|reason| (reason.code, reason.text)).collect();
        assert_eq!(
            reasons[1],
            ("set_first_response", "the first response has come, and more may come; 2 cached".into())
        );
        assert_eq!(reasons[2], ("not_sent", "the client was not sent a, b and 3 more".into()));
        assert_eq!((reasons[0].0, reasons[3].0, reasons.len()), ("subscribed_by_wildcard", "acked", 4));
    }
}
