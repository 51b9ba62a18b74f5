//! A client that NACKs and ACKs, and which resources it is known to reject.

use super::*;
use crate::protocol::session::acks::{Ack, AckTracker};
use crate::protocol::session::carried::ReplyAge;
use crate::protocol::session::options::SessionOptions;
use crate::protocol::session::rejections::SentResource;
use crate::xds::TypeTable;

const NOW: Moment = Moment::START;

/// A client that answers replies, each from a snapshot of its own.
#[derive(Default)]
struct Client {
    acks: AckTracker,
    revision: Revision,
    options: SessionOptions,
}

impl Client {
    fn send(&mut self, nonce: u64, removed: &[&str], is_full_set: bool) {
        self.revision = self.revision.next();
        let (version, carried) = (SetVersion::EMPTY, ReplyAge::default());
        let sent = SentReply { nonce, version, revision: self.revision, is_full_set, sent: NOW, carried };
        self.acks.sent(sent, NOW, &self.options);
        let kind = TypeTable::new().resolve("envoy.config.cluster.v3.Cluster");
        let removed: Vec<Name> = removed.iter().map(|name| (*name).into()).collect();
        let names = ReplyNames::of(removed.iter());
        self.acks.note_content(sent, names, &Reply { removed, ..Reply::sample(kind, Vec::new()) }, &self.options);
    }

    fn nack(&mut self, nonce: u64, suspects: &[(&str, Revision)]) {
        let nack = self.acks.answer(&nonce.to_string(), Some((3, "no".into())), NOW);
        assert!(matches!(nack, Ack::Nack { .. }));
        for (name, changed) in suspects {
            self.acks.suspect(&sent(&(*name).into(), *changed));
        }
    }

    fn ack(&mut self, nonce: u64) {
        assert!(matches!(self.acks.answer(&nonce.to_string(), None, NOW), Ack::Ack { .. }));
    }

    fn rejected(&self, name: &str) -> Option<InRejected> {
        Some(self.acks.in_rejected(&sent(&name.into(), FIRST))?.of)
    }

    fn suspects(&self) -> Option<Vec<String>> {
        Some(self.acks.standing()?.suspects().map(Name::to_string).collect())
    }
}

fn sent(name: &Name, changed: Revision) -> SentResource<'_> {
    SentResource { name, own_name: None, is_alias: false, changed }
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
    client.send(1, &["a", "b"], false);
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
fn the_one_resource_of_a_reply_is_suspected_and_what_was_in_no_rejected_reply_is_not_concerned() {
    let mut client = Client::default();
    let of = Client::rejected;
    client.send(1, &["a", "b"], false);
    client.ack(1);
    client.send(2, &["c"], false);
    client.nack(2, &[]);
    assert_eq!(client.suspects().unwrap(), ["c"]);
    let not = |is_pending| Some(InRejected::Not { is_pending });
    assert_eq!((of(&client, "a"), of(&client, "c")), (not(false), Some(InRejected::Alone)));
    client.send(3, &["a"], false);
    assert_eq!((of(&client, "a"), of(&client, "b")), (not(true), not(false)));
    client.ack(3);
    assert_eq!((of(&client, "a"), client.suspects().unwrap()), (not(false), vec!["c".to_owned()]), "c was not in it");
    client.send(4, &["a", "d"], false);
    client.nack(4, &[("d", FIRST)]);
    let among = Some(InRejected::Among { quotes_others: true });
    assert_eq!((of(&client, "d"), of(&client, "a")), (Some(InRejected::Quoted), among));
    assert_eq!((of(&client, "c"), of(&client, "b")), (Some(InRejected::Alone), not(false)), "the first one stands");
    client.send(5, &["a"], false);
    client.ack(5);
    assert_eq!(of(&client, "a"), not(false), "it was accepted since");
    client.send(6, &["c", "d"], false);
    client.ack(6);
    assert_eq!((client.suspects(), of(&client, "c")), (None, None));
}

#[test]
fn a_reply_that_is_rejected_twice_has_what_it_had() {
    let mut client = Client::default();
    client.send(1, &["a", "b"], false);
    client.nack(1, &[]);
    client.nack(1, &[]);
    let of = |name: &str| client.rejected(name);
    assert_eq!(of("a"), Some(InRejected::Among { quotes_others: false }));
    assert!(client.acks.standing().unwrap().others_in_reply().eq(&[Name::from("a"), Name::from("b")]));
}

#[test]
fn a_reply_that_was_on_its_way_ends_the_suspicion_of_the_resource_that_was_alone_in_an_earlier_one() {
    let mut client = Client::default();
    client.send(1, &["a"], false);
    client.send(2, &["a", "b"], false);
    client.nack(1, &[]);
    assert_eq!(client.suspects().unwrap(), ["a"]);
    client.ack(2);
    assert_eq!(client.suspects(), None);
}

#[test]
fn what_is_not_remembered_of_replies_is_not_concluded() {
    let mut client = Client::default();
    let of = Client::rejected;
    let many: Vec<_> = (0..20).map(|number| number.to_string()).collect();
    client.send(1, &["a"], false);
    client.ack(1);
    client.send(2, &many.iter().map(String::as_str).collect::<Vec<_>>(), false);
    client.nack(2, &[]);
    let among = Some(InRejected::Among { quotes_others: false });
    let not = Some(InRejected::Not { is_pending: false });
    assert_eq!((of(&client, "0"), of(&client, "19")), (among, Some(InRejected::Unknown)));
    assert_eq!(of(&client, "a"), not, "it is known not to be in the reply");
    assert_eq!(client.acks.standing().unwrap().others_in_reply().count(), 16);
    let mut full = Client::default();
    full.send(1, &["a"], true);
    full.nack(1, &[]);
    assert_eq!((of(&full, "a"), full.suspects().unwrap().len()), (Some(InRejected::Unknown), 0), "a full set");
    let mut slow = Client::default();
    (1..=9).for_each(|nonce| slow.send(nonce, &[&nonce.to_string()], false));
    slow.nack(9, &[]);
    assert_eq!(of(&slow, "1"), Some(InRejected::Unknown), "it is forgotten, and has no answer");
    (2..=8).for_each(|nonce| slow.ack(nonce));
    assert_eq!(
        (of(&slow, "1"), of(&slow, "2")),
        (Some(InRejected::Not { is_pending: false }), Some(InRejected::Not { is_pending: false })),
        "an answer settles all before it"
    );
}

#[test]
fn what_was_rejected_is_not_accepted_with_a_reply_that_does_not_have_it() {
    let mut client = Client::default();
    client.send(1, &["a", "b"], false);
    client.nack(1, &[]);
    client.send(2, &["z"], false);
    client.ack(2);
    let among = Some(InRejected::Among { quotes_others: false });
    assert_eq!((client.suspects(), client.rejected("a"), client.rejected("z")), (None, among, None));
    client.send(3, &["a"], false);
    assert_eq!(client.rejected("a"), among, "sent is not accepted");
    client.ack(3);
    assert_eq!((client.rejected("a"), client.rejected("b")), (None, among));
    for nonce in 4..20 {
        client.send(nonce, &[&nonce.to_string()], false);
        client.nack(nonce, &[]);
    }
    assert_eq!((client.rejected("b"), client.rejected("4")), (Some(InRejected::Unknown), Some(InRejected::Unknown)));
    assert_eq!(client.rejected("19"), Some(InRejected::Alone), "however many are rejected");
    client.send(20, &["b"], false);
    client.ack(20);
    assert!(matches!(client.rejected("b"), Some(InRejected::Not { .. })));
}

#[test]
fn a_resource_that_the_rejected_reply_does_not_have_is_not_suspected_although_it_is_quoted() {
    let mut client = Client::default();
    client.send(1, &["a"], false);
    client.ack(1);
    client.send(2, &["b", "c"], false);
    client.nack(2, &[("a", FIRST), ("b", FIRST)]);
    assert_eq!((client.suspects().unwrap(), client.rejected("b")), (vec!["b".to_owned()], Some(InRejected::Quoted)));
    client.send(3, &["d", "e"], false);
    client.nack(3, &[]);
    let among = |quotes_others| Some(InRejected::Among { quotes_others });
    assert_eq!((client.rejected("c"), client.rejected("d")), (among(true), among(false)), "each by its own reply");
}

#[test]
fn what_is_sent_again_in_a_large_reply_and_accepted_is_not_rejected_any_more() {
    let mut client = Client::default();
    let many: Vec<_> = (0..20).map(|number| number.to_string()).collect();
    let many: Vec<_> = many.iter().map(String::as_str).collect();
    client.send(1, &many, false);
    client.nack(1, &[]);
    client.send(2, &many, false);
    client.ack(2);
    let (name, changed) = (Name::from("19"), client.revision);
    assert_eq!(client.rejected("19"), Some(InRejected::Unknown), "it may not have been in the second one");
    assert!(client.acks.in_rejected(&sent(&name, changed)).is_none(), "it has changed, so it was");
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
fn a_nack_of_the_one_resource_of_a_reply_ends_when_the_client_no_longer_wants_that() {
    let mut client = Client::default();
    client.send(1, &["a"], false);
    client.nack(1, &[]);
    client.acks.settle(true, false, |name| name.as_str() == "a");
    assert_eq!(client.suspects().unwrap(), ["a"]);
    client.acks.settle(true, false, |_| false);
    assert_eq!(client.suspects(), None);
}

#[test]
fn a_nack_of_the_one_resource_of_a_reply_that_may_be_wanted_by_an_alias_ends_with_any_newer_reply() {
    let mut client = Client::default();
    client.send(1, &["a"], false);
    client.nack(1, &[]);
    client.acks.settle(true, true, |_| false);
    assert!(client.suspects().unwrap().is_empty(), "it may still be wanted");
    client.send(2, &["b"], false);
    client.ack(2);
    assert_eq!((client.suspects(), client.rejected("a")), (None, Some(InRejected::Alone)), "for operators it stays");
}

#[test]
fn what_the_client_no_longer_wants_is_not_suspected_and_their_number_is_bounded() {
    let mut client = Client::default();
    client.send(1, &[], true);
    let names: Vec<_> = (0..100).map(|number| number.to_string()).collect();
    client.nack(1, &names.iter().map(|name| (name.as_str(), FIRST)).collect::<Vec<_>>());
    assert_eq!(client.suspects().unwrap().len(), MOST_SUSPECTS);
    client.acks.settle(true, false, |name| name.as_str() == "99");
    assert_eq!(client.suspects().unwrap(), ["99"]);
    client.acks.settle(true, false, |_| false);
    assert_eq!(client.suspects(), None);
}
