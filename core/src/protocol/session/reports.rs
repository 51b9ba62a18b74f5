//! What a session reports: to operators, to metrics, to its view, and to the scheduler of turns.

use std::collections::BTreeMap;

use super::acks::{Nack, TypeAnswers};
use super::burst::SendOrder;
use super::client::{Client, Variant};
use super::client_snapshot::Books;
use super::delays::Delay;
use super::explain::{
    AckState, Differences, NameBook, answer_of_set, differences, explain, explain_unsubscribed, rejected_name,
};
use super::full_state::{has_unsent, is_current};
use super::holdings::Holdings;
use super::reply::{ReplyContext, SentReply};
use super::requested_names::{Authorities, NameParser};
use super::sent_state::KeptNames;
use super::subscription::{Subscription, Subscriptions};
use super::wildcard::Wildcard;
use crate::protocol::moment::Moment;
use crate::protocol::session::options::SessionOptions;
use crate::protocol::view::{Class, Completeness, Lookup, Revision, Snapshot};
use crate::xds::{Name, Type};

/// What a session keeps, in numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Names that the client subscribes to, and members of collections that it was sent.
    pub names: usize,
    /// Names for which the session has something to send.
    pub pending: usize,
    /// Versions that the client stated, kept until they can be compared.
    pub stated: usize,
    pub(crate) warming: usize,
    /// Unanswered replies that are remembered.
    pub answers: usize,
}

/// One type of a session, for reports.
#[derive(Debug)]
pub struct Summary<'a> {
    /// The type.
    pub kind: &'a Type,
    /// The client subscribes to the wildcard set.
    pub wildcard: bool,
    /// How many names the client subscribes to, members of its collections included.
    pub names: usize,
    /// For how many names something is due, or nothing is known yet.
    pub pending: usize,
    /// The last NACK, whether it stands or not.
    pub last_nack: Option<&'a Nack>,
    /// The client has accepted no reply that is newer than the one of its latest NACK.
    pub nacked: bool,
    /// The newest reply, and whether it is unanswered.
    pub newest: Option<(SentReply, bool)>,
    /// The newest reply that the client accepted.
    pub accepted: Option<SentReply>,
    /// Something is known that the client is still to be sent.
    pub has_unsent: bool,
    /// Since when the client has lacked something, or has not answered.
    pub behind_since: Option<Moment>,
    /// Why additions or changes that are due have not been sent.
    pub delay: Option<&'a Delay>,
}

/// An estimate of what a session has to send.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Estimate {
    /// About how many bytes.
    pub bytes: usize,
    /// For some of it, the client was sent no earlier state on this stream.
    pub is_first: bool,
}

impl Footprint {
    pub(super) fn of(subscriptions: &Subscriptions, order: &SendOrder) -> Self {
        let mut sum = Self { warming: order.warming(), ..Self::default() };
        for subscription in subscriptions.values() {
            let names = &subscription.books().names;
            sum.names += names.len();
            sum.pending += names.pending_count() + names.awaiting_data_count();
            sum.stated += subscription.initial_version_count();
            sum.answers += subscription.acks().len();
        }
        sum
    }
}

/// A session, to be read for reports.
#[derive(Clone, Copy)]
pub struct SessionReport<'s> {
    client: &'s Client,
    options: &'s SessionOptions,
    authorities: &'s Authorities,
    subscriptions: &'s Subscriptions,
    order: &'s SendOrder,
    has_ended: bool,
}

impl<'s> SessionReport<'s> {
    pub(super) fn new(
        client: &'s Client,
        options: &'s SessionOptions,
        authorities: &'s Authorities,
        subscriptions: &'s Subscriptions,
        order: &'s SendOrder,
        has_ended: bool,
    ) -> Self {
        Self { client, options, authorities, subscriptions, order, has_ended }
    }

    fn view<'a>(&self, state: &'a Snapshot, now: Moment) -> ReplyContext<'a>
    where
        's: 'a,
    {
        ReplyContext { state, client: self.client, options: self.options, now }
    }

    fn subscriptions(&self) -> impl Iterator<Item = (&'s Type, &'s Subscription)> + use<'s> {
        self.subscriptions.iter().map(|(kind, subscription)| (kind, &**subscription))
    }

    /// Whether the stream has to end. No request counts any more.
    pub fn has_ended(self) -> bool {
        self.has_ended
    }

    /// Returns how many names the session keeps, including those that cannot be requested.
    pub fn kept_names(&self) -> KeptNames {
        let of = |subscription: &Subscription| {
            let (kept, wording) = (subscription.books().names.kept(), &subscription.books().wording);
            let (rejected, bytes) = (wording.rejected_count(), kept.bytes + wording.bytes());
            KeptNames { names: kept.names + rejected, unsent: kept.unsent + rejected, bytes }
        };
        let names = self.subscriptions().map(|(_, subscription)| of(subscription));
        let sum = names.fold(KeptNames::default(), KeptNames::plus);
        // The first subscription is part of what a session costs.
        let others = self.subscriptions.len().saturating_sub(1) * size_of::<Subscription>();
        KeptNames { bytes: sum.bytes + others, ..sum }
    }

    /// Returns how many names the session has to visit for the next reply.
    pub fn pending_names(&self) -> usize {
        self.subscriptions().map(|(_, subscription)| subscription.books().names.pending_count()).sum()
    }

    /// Returns what the session knows of a name, by the newest snapshot of its view.
    pub fn explain(self, kind: &Type, name: &Name, state: &Snapshot, now: Moment) -> NameBook {
        let view = self.view(state, now);
        let Some(of) = self.subscriptions.get(kind) else { return explain_unsubscribed(kind, name, state) };
        let parser = NameParser::new(kind, self.client, self.authorities);
        let book = explain(&of.snapshot(kind, &view), of.acks(), self.order.delays(), name);
        NameBook { obstacle: rejected_name(&parser, name).or(book.obstacle), ..book }
    }

    /// Returns how the client has answered the wildcard set of a type. Clients that poll send no answers.
    pub fn set_answer(self, kind: &Type, state: &Snapshot, now: Moment) -> AckState {
        let of = self.subscriptions.get(kind).filter(|of| !of.asks_once());
        of.map_or(AckState::None, |of| answer_of_set(&of.snapshot(kind, &self.view(state, now)), of.acks()))
    }

    /// Compares what the client was sent with the newest snapshot of its view, by type. Each list keeps up to `limit` names.
    pub fn differences(
        self,
        newest: &'s Snapshot,
        limit: usize,
        now: Moment,
    ) -> impl Iterator<Item = (&'s Type, Differences)> {
        let view = self.view(newest, now);
        self.subscriptions().map(move |(kind, of)| (kind, differences(&of.snapshot(kind, &view), limit)))
    }

    /// Returns the completeness of each collection of which the client has been sent everything in this snapshot.
    pub fn sent_completeness(self, state: &Snapshot) -> BTreeMap<(Type, Name), Completeness> {
        let of = |(kind, of): (&'s Type, &'s Subscription)| {
            let collections = sent_collections(of.books(), kind, state);
            collections.map(|(glob, completeness)| ((kind.clone(), glob.clone()), completeness)).collect::<Vec<_>>()
        };
        self.subscriptions().flat_map(of).collect()
    }

    /// Returns the latest NACK of each type.
    pub fn nacks(self) -> impl Iterator<Item = (&'s Type, &'s Nack)> {
        self.subscriptions().filter_map(|(kind, of)| Some((kind, of.acks().last_nack()?)))
    }

    /// Returns how the client has answered, for each type of which it was sent something. Clients that poll send no answers.
    pub fn answers(self) -> impl Iterator<Item = TypeAnswers<'s>> {
        self.subscriptions().filter(|(_, of)| !of.asks_once()).filter_map(|(kind, of)| {
            let acks = of.acks();
            let (newest, is_pending) = acks.newest()?;
            Some(TypeAnswers { kind, newest, is_pending, accepted: acks.accepted(), nack: acks.standing() })
        })
    }

    /// Returns since when replies are unanswered, for each type with such replies.
    pub fn unanswered(self) -> impl Iterator<Item = (&'s Type, Moment)> {
        let awaited = self.subscriptions().filter(|(_, of)| !of.asks_once());
        awaited.filter_map(|(kind, of)| Some((kind, of.acks().unanswered_since()?)))
    }

    /// Returns what the client has of each type, compared with the newest snapshot of the view.
    pub fn summaries(self, newest: &'s Snapshot, now: Moment) -> impl Iterator<Item = Summary<'s>> {
        let view = self.view(newest, now);
        self.subscriptions().map(move |(kind, of)| {
            let (Books { names, wildcard, .. }, acks) = (of.books(), of.acks());
            Summary {
                kind,
                wildcard: wildcard.is_some(),
                names: names.len(),
                pending: names.pending_count() + names.awaiting_data_count(),
                last_nack: acks.last_nack(),
                nacked: acks.is_nacked(),
                newest: acks.newest(),
                accepted: acks.accepted(),
                has_unsent: has_unsent(&of.snapshot(kind, &view)),
                behind_since: of.behind_since(kind, &view),
                delay: self.order.delays().of_additions(kind),
            }
        })
    }

    /// Whether no server is reachable and nothing requested is cached, for a client that has other servers. A gRPC client that gets no response
    /// counts what it requested as absent after a while, and never tries its next server. A relay downstream may do the same (XLAT-36).
    pub(super) fn has_no_upstream(self, state: &Snapshot) -> bool {
        let turns_elsewhere = (self.client.grpc || self.client.relay) && self.options.grpc_fail_fast;
        let may_end = turns_elsewhere && !state.down.is_empty();
        let wants = self.subscriptions().any(|(_, of)| of.wants_anything());
        may_end && wants && self.subscriptions().all(|(kind, of)| of.is_without_hope(kind, state))
    }

    pub(super) fn is_of_relay(self) -> bool {
        self.client.relay
    }

    /// Whether the client has all that it wants of some type, or knows that there is nothing.
    pub(super) fn holds_what_is_current(self, state: &Snapshot, now: Moment) -> bool {
        let view = self.view(state, now);
        let mut wanted = self.subscriptions().filter(|(_, of)| of.wants_anything());
        wanted.any(|(kind, of)| {
            let snapshot = of.snapshot(kind, &view);
            !has_unsent(&snapshot) && !snapshot.is_awaiting_data()
        })
    }

    /// Whether something that the client requested is unknown.
    pub(super) fn is_awaiting_data(self, state: &Snapshot, now: Moment) -> bool {
        let view = self.view(state, now);
        self.subscriptions().any(|(kind, of)| of.snapshot(kind, &view).is_awaiting_data())
    }

    /// Whether a client that subscribes to everything of a type has all of it, by the version that it states. This is cheap however large the
    /// set is, if the client may have all of it. `false` may also mean that only the set itself would show it.
    pub fn is_current(self, state: &Snapshot, version: &str, now: Moment) -> bool {
        let (view, mut all) = (self.view(state, now), self.subscriptions());
        all.next().is_some_and(|(kind, of)| is_current(&of.snapshot(kind, &view), version)) && all.next().is_none()
    }

    /// Whether the client waits without a time limit, as of the last search for a reply.
    pub fn is_blocked(self) -> bool {
        self.order.waits()
    }

    /// Returns whether anything waited when the session last searched for a reply.
    pub fn has_waits(self) -> bool {
        self.order.delays().any()
    }

    /// Whether the client has requested something, and all of that is known. To be called when a poll gave no reply. It visits each name.
    pub fn has_sent_all_requested(self, state: &Snapshot, now: Moment) -> bool {
        let view = self.view(state, now);
        let mut all = self.subscriptions().filter(|(_, of)| of.wants_anything()).peekable();
        !self.order.waits()
            && all.peek().is_some()
            && !all.any(|(kind, of)| of.snapshot(kind, &view).is_awaiting_data())
    }

    /// Returns about how much of a snapshot the client would be sent.
    pub fn estimate(self, snapshot: &Snapshot) -> Estimate {
        if self.has_ended {
            return Estimate::default(); // the end of a stream waits for no turn
        }
        let mut estimate = Estimate::default();
        for (kind, of) in self.subscriptions() {
            let Books { names, wildcard, .. } = of.books();
            let pending = names.pending().map(|(name, _)| name);
            let by_name = bytes_of(pending, names.pending_count(), kind, snapshot);
            let of_wildcard = wildcard_bytes(of.books(), kind, self.client.variant, snapshot);
            estimate.bytes += of_wildcard + by_name;
            let is_new = |wildcard: &Wildcard| wildcard.added() == Revision::ZERO;
            estimate.is_first |= of_wildcard > 0 && wildcard.as_ref().is_some_and(is_new);
            estimate.is_first |= by_name > 0 && names.pending().take(SAMPLE).any(|(_, pending)| pending.is_requested());
        }
        estimate
    }

    /// Returns about how many bytes of a snapshot the client would be sent if it came back without state.
    pub fn subscribed_bytes(self, snapshot: &Snapshot) -> usize {
        let of_type = |(kind, of): (&Type, &Subscription)| {
            let Books { names, wildcard, .. } = of.books();
            let table = wildcard.as_ref().and_then(|_| snapshot.resources(kind, Class::Wildcard));
            table.map_or(0, |table| table.sums().bytes()) + bytes_of(names.keys(), names.len(), kind, snapshot)
        };
        self.subscriptions().map(of_type).sum()
    }

    /// Returns what the client was sent. This copies its names.
    pub fn holdings(self) -> Holdings {
        Holdings::of(self.client, self.subscriptions())
    }
}

/// Returns the completeness of each collection of which the client has been sent everything.
fn sent_collections<'a>(
    books: &'a Books,
    kind: &'a Type,
    state: &'a Snapshot,
) -> impl Iterator<Item = (&'a Name, Completeness)> {
    let table = state.resources(kind, Class::Named);
    let completeness = move |glob: &Name| {
        table.and_then(|table| table.collections().completeness_of(glob)).filter(|of| *of >= Completeness::Settled)
    };
    let by_glob = books.names.globs().filter_map(move |glob| Some((glob, completeness(glob)?)));
    // Claimed names, which the view does not know, do not count as unsent.
    let is_claimed = |name: &Name| books.claims.is_claimed(Class::Named, name);
    by_glob.filter(move |(glob, _)| books.names.pending_in(glob).all(is_claimed))
}

fn wildcard_bytes(books: &Books, kind: &Type, variant: Variant, snapshot: &Snapshot) -> usize {
    let Some(wildcard) = &books.wildcard else { return 0 };
    let Some(table) = snapshot.resources(kind, Class::Wildcard) else { return 0 };
    let mut additions = table.additions(wildcard.added()).map(|(_, resource)| resource.body.bytes().len()).peekable();
    if additions.peek().is_none() && books.due.complete().is_none() {
        return 0;
    }
    // A client that states what it holds mostly has already what it would be sent.
    let returns = wildcard.is_first() && (books.stated.has_version() || wildcard.initial_versions().is_some());
    if returns {
        return 0;
    }
    let complete = variant == Variant::Sotw && kind.info().full_state || wildcard.added() == Revision::ZERO;
    if complete {
        return table.sums().bytes();
    }
    let some: Vec<usize> = additions.take(SAMPLE).collect();
    if some.len() < SAMPLE { some.iter().sum() } else { table.sums().bytes() }
}

/// Returns about how many bytes the resources with these names have.
fn bytes_of<'a>(names: impl Iterator<Item = &'a Name>, count: usize, kind: &Type, snapshot: &Snapshot) -> usize {
    let length = |name: &Name| match snapshot.lookup(kind, Class::Named, name) {
        Lookup::Present(resource) => resource.body.bytes().len(),
        Lookup::Absent(_) | Lookup::Unknown => 0,
    };
    let sample: usize = names.take(SAMPLE).map(length).sum();
    sample * count.div_ceil(SAMPLE)
}

/// How many names are visited. The others are assumed to be like them.
const SAMPLE: usize = 64;
