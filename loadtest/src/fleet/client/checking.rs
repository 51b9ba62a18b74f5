//! The checks of a client.

use super::{Client, StreamKey};
use crate::checks::{self, Check, Violation};
use crate::kind::Kind;
use crate::subscription::Response;

impl Client {
    pub(super) fn check_response(&mut self, key: StreamKey, place: Option<usize>, response: &Response) {
        let mut found = Vec::new();
        let Some(Some(stream)) = self.streams.get_mut(key) else { return };
        found.extend(response.unreadable.clone().map(|what| (Check::Readable, what)));
        found.extend(stream.nonces.see(&response.nonce).err().map(|what| (Check::Nonce, what)));
        match place.map(|place| &stream.topics[place]) {
            None => {
                found.push((Check::Unasked, format!("a response of type {:?}, which is not subscribed", response.url)))
            }
            Some(topic) => {
                let kind = topic.kind;
                found.extend(
                    checks::unasked(topic, response).map(|name| (Check::Unasked, format!("{name} is not subscribed"))),
                );
                found.extend(
                    checks::duplicate(response)
                        .map(|name| (Check::Duplicate, format!("{name} is twice in a response"))),
                );
                let older = checks::regression(topic, response);
                let older = older.map(|(name, got, held)| format!("{name} is from update {got}, and {held} is held"));
                found.extend(older.map(|what| (Check::Regression, what)));
                let truth = self.shared.truth.as_ref().filter(|_| self.shared.checks.contains(&Check::Completeness));
                let missing = truth.and_then(|truth| checks::incomplete(truth, topic, response));
                let missing = missing.map(|name| format!("{name} is missing from a complete set"));
                found.extend(missing.map(|what| (Check::Completeness, what)));
                let again = stream.nacked[kind as usize].check(kind, response).err();
                found.extend(again.map(|what| (Check::ResendAfterNack, what)));
            }
        }
        found.into_iter().for_each(|(check, what)| self.violate(check, what));
    }

    pub(super) fn check_order(&mut self, kind: Kind) {
        if !matches!(kind, Kind::Cluster | Kind::Route) {
            return;
        }
        let Some(Some(stream)) = self.streams.first() else { return };
        if !self.behaviour.is_subject_to(Check::MakeBeforeBreak) {
            return;
        }
        let of = |kind| stream.topics.iter().filter(move |topic| topic.kind == kind).map(|topic| &topic.held);
        let Some(clusters) = of(Kind::Cluster).next() else { return };
        if let Some((route, cluster)) = checks::missing_cluster(of(Kind::Route), clusters) {
            let what = format!("{route} leads to {cluster}, which the client does not hold");
            self.violate(Check::MakeBeforeBreak, what);
        }
    }

    pub(super) fn violate(&mut self, check: Check, what: String) {
        let is_wanted = self.shared.checks.contains(&check) && self.behaviour.is_subject_to(check);
        if is_wanted && self.violations.len() < MAX_VIOLATIONS {
            let behaviour = self.behaviour.to_string();
            self.violations.push(Violation {
                client: self.number,
                behaviour,
                check,
                what,
                history: self.history.lines(),
            });
        }
    }
}

/// How many violations are stored until they are taken.
const MAX_VIOLATIONS: usize = 16;
