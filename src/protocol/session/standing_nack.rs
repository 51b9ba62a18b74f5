//! A NACK for as long as it stands: until the client accepts a newer reply that has what it may be about.
//!
//! A NACK concerns a whole reply and names the bad resource in its text alone, and the client may use the others (DELTA-51, SOTW-18). So
//! the resources that the text quotes are *suspected*. A newer reply that the client accepts ends the suspicion of the resources in it; a
//! full set has them all. Without suspects, any newer reply that the client accepts ends the NACK.

use std::sync::Arc;

use super::reply::{Reply, SentReply};
use crate::protocol::moment::Moment;
use crate::protocol::view::Revision;
use crate::xds::Name;

/// The NACK of a client that has accepted nothing newer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StandingNack {
    /// The reply that was NACKed, the latest of several.
    pub(crate) reply: SentReply,
    pub(crate) reason: Arc<str>,
    pub(crate) at: Moment,
    /// When the first of the NACKs came that stand.
    pub(crate) since: Moment,
    suspects: Vec<Suspect>,
}

/// A resource that the text of a NACK quotes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Suspect {
    name: Name,
    /// The newer replies that had it, the latest few.
    sent_in: Vec<u64>,
}

impl StandingNack {
    pub(super) fn new(reply: SentReply, reason: Arc<str>, at: Moment) -> Self {
        Self { reply, reason, at, since: at, suspects: Vec::new() }
    }

    /// Takes over what stands of an earlier NACK.
    pub(super) fn after(self, earlier: Self) -> Self {
        if earlier.reply.nonce > self.reply.nonce {
            return Self { since: earlier.since.min(self.since), ..earlier }; // a late one
        }
        Self { since: earlier.since, suspects: earlier.suspects, ..self }
    }

    pub(crate) fn suspects(&self) -> impl Iterator<Item = &Name> {
        self.suspects.iter().map(|suspect| &suspect.name)
    }

    /// Suspects a resource, which last changed at a revision. `later` are the replies after the NACKed one that were sent by then: those
    /// from a snapshot with that change had the resource too.
    pub(super) fn suspect(&mut self, name: &Name, changed: Revision, later: impl Iterator<Item = SentReply>) {
        let nacked = self.reply;
        let changed_later = changed > nacked.revision;
        let had_it = |reply: &SentReply| reply.is_full_set || changed_later && changed <= reply.revision;
        let sent_in =
            later.filter(|reply| reply.nonce > nacked.nonce && had_it(reply)).map(|reply| reply.nonce).collect();
        self.suspects.retain(|suspect| suspect.name != *name);
        if self.suspects.len() == MOST_SUSPECTS {
            self.suspects.remove(0);
        }
        self.suspects.push(Suspect { name: name.clone(), sent_in });
    }

    /// Notes which suspected resources a newer reply has.
    pub(super) fn note_sent(&mut self, sent: SentReply, reply: &Reply, most: usize) {
        let has = |name: &Name| {
            let names = reply.resources.iter().map(|resource| &resource.name).chain(&reply.removed);
            names.chain(reply.constrained.iter().map(|(name, _)| name)).any(|had| had == name)
        };
        for suspect in &mut self.suspects {
            if sent.is_full_set || has(&suspect.name) {
                if suspect.sent_in.len() == most {
                    suspect.sent_in.remove(0);
                }
                suspect.sent_in.push(sent.nonce);
            }
        }
    }

    /// Notes that the client accepted a reply. Returns whether the NACK still stands.
    pub(super) fn stands_after(&mut self, accepted: SentReply) -> bool {
        self.suspects.retain(|suspect| !suspect.sent_in.contains(&accepted.nonce));
        accepted.nonce <= self.reply.nonce || !self.suspects.is_empty() && !accepted.is_full_set
    }

    /// Ends suspicions of resources that the client no longer wants. Returns whether the NACK still stands.
    pub(super) fn stands_for(&mut self, wants: impl Fn(&Name) -> bool) -> bool {
        let had_some = !self.suspects.is_empty();
        self.suspects.retain(|suspect| wants(&suspect.name));
        !(had_some && self.suspects.is_empty())
    }
}

const MOST_SUSPECTS: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::limits::Limits;
    use crate::protocol::session::Ack;
    use crate::protocol::session::acks::AckTracker;
    use crate::protocol::session::reply::Carried;
    use crate::xds::{SetVersion, TypeTable};

    const NOW: Moment = Moment::START;

    /// A client that answers replies, each from a snapshot of its own.
    #[derive(Default)]
    struct Client {
        acks: AckTracker,
        revision: Revision,
        limits: Limits,
    }

    impl Client {
        fn send(&mut self, nonce: u64, removed: &[&str], is_full_set: bool) {
            self.revision = self.revision.next();
            let (version, carried) = (SetVersion::EMPTY, Carried::default());
            let sent = SentReply { nonce, version, revision: self.revision, is_full_set, sent: NOW, carried };
            self.acks.sent(sent, NOW, &self.limits);
            let kind = TypeTable::new().resolve("envoy.config.cluster.v3.Cluster");
            let removed = removed.iter().map(|name| (*name).into()).collect();
            self.acks.note_content(sent, &Reply { removed, ..Reply::sample(kind, Vec::new()) }, &self.limits);
        }

        fn nack(&mut self, nonce: u64, suspects: &[(&str, Revision)]) {
            let nack = self.acks.answer(&nonce.to_string(), Some((3, "no".into())), NOW);
            assert!(matches!(nack, Ack::Nack { .. }));
            suspects.iter().for_each(|(name, changed)| self.acks.suspect(&(*name).into(), *changed));
        }

        fn ack(&mut self, nonce: u64) {
            assert!(matches!(self.acks.answer(&nonce.to_string(), None, NOW), Ack::Ack { .. }));
        }

        fn suspects(&self) -> Option<Vec<String>> {
            Some(self.acks.standing()?.suspects().map(Name::to_string).collect())
        }
    }

    const FIRST: Revision = Revision::ZERO;

    #[test]
    fn a_suspected_resource_stays_until_a_newer_reply_with_it_is_accepted() {
        let mut client = Client::default();
        client.send(1, &["a", "b", "c"], false);
        client.nack(1, &[("a", FIRST), ("b", FIRST)]);
        client.send(2, &["c"], false);
        client.ack(2);
        assert_eq!(client.suspects().unwrap(), ["a", "b"], "neither was in it");
        client.send(3, &["a"], false);
        assert_eq!(client.suspects().unwrap(), ["a", "b"], "sent is not accepted");
        client.ack(3);
        assert_eq!(client.suspects().unwrap(), ["b"]);
        client.send(4, &["b"], false);
        client.nack(4, &[]);
        assert_eq!(client.suspects().unwrap(), ["b"], "what stood before stands");
        client.send(5, &["b"], false);
        client.ack(5);
        assert_eq!(client.suspects(), None);
    }

    #[test]
    fn without_a_suspect_and_for_full_sets_any_newer_reply_ends_it() {
        let mut client = Client::default();
        client.send(1, &["a"], false);
        client.nack(1, &[]);
        client.send(2, &[], false);
        client.ack(2);
        assert_eq!(client.suspects(), None);
        client.send(3, &["a"], true);
        client.nack(3, &[("a", FIRST)]);
        client.send(4, &[], true);
        client.ack(4);
        assert_eq!(client.suspects(), None);
    }

    #[test]
    fn a_reply_on_its_way_ends_a_suspicion_if_the_resource_had_changed_by_then() {
        let mut client = Client::default();
        client.send(1, &["a", "b"], false);
        let first = client.revision;
        client.send(2, &["a"], false);
        client.nack(1, &[("a", client.revision), ("b", first)]);
        client.ack(2);
        assert_eq!(client.suspects().unwrap(), ["b"]);
    }

    #[test]
    fn an_ack_of_an_older_reply_ends_nothing_and_a_nack_of_one_begins_nothing() {
        let mut client = Client::default();
        (1..=3).for_each(|nonce| client.send(nonce, &[], false));
        client.nack(2, &[]);
        client.ack(1);
        assert!(client.suspects().is_some());
        client.ack(3);
        assert!(client.suspects().is_none());
        client.send(4, &[], false);
        client.send(5, &[], false);
        client.ack(5);
        client.nack(4, &[]);
        assert!(client.suspects().is_none(), "it has accepted a newer one");
    }

    #[test]
    fn what_the_client_no_longer_wants_is_not_suspected_and_their_number_is_bounded() {
        let mut client = Client::default();
        client.send(1, &[], false);
        let names: Vec<_> = (0..100).map(|number| number.to_string()).collect();
        client.nack(1, &names.iter().map(|name| (name.as_str(), FIRST)).collect::<Vec<_>>());
        assert_eq!(client.suspects().unwrap().len(), MOST_SUSPECTS);
        client.acks.settle(true, |name| name.as_str() == "99");
        assert_eq!(client.suspects().unwrap(), ["99"]);
        client.acks.settle(true, |_| false);
        assert_eq!(client.suspects(), None);
    }
}
