//! One client's subscription to one type, in either variant: what it covers, what the client was sent, and how the client answered.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::acks::{Ack, AckTracker, AnswerEffect};
use super::additions::additions;
use super::client::{Client, Variant};
use super::client_snapshot::{Books, ClientSnapshot, claim_held};
use super::full_state::{reduced_set, set_with_additions, unsent_since};
use super::interest_changes::InterestChanges;
use super::names::SubscribedNames;
use super::pending::RepliesDue;
use super::rejections::SentResource;
use super::removals::removals;
use super::reply::{Attempt, Reply, ReplyContext, SendScope, SentReply};
use super::requested_names::Wording;
use super::standing_nack::{Nacked, StandingNack};
use super::stated::{Claims, InitialVersions, Stated};
use crate::protocol::moment::{Clock, Moment, earliest};
use crate::protocol::reply_names::ReplyNames;
use crate::protocol::session::options::SessionOptions;
use crate::protocol::view::{
    Claimed, Class, Completeness, InterestChange, NameChanged, NamedError, Revision, Selector, Snapshot,
};
use crate::protocol::visits::visit;
use crate::xds::{Authority, Name, Type};

/// Boxed, because a node of the tree has room for eleven, and most sessions subscribe to few types.
pub(super) type Subscriptions = BTreeMap<Type, Box<Subscription>>;

#[derive(Debug)]
pub(super) struct Subscription {
    books: Books,
    acks: AckTracker,
    /// For how long too little has been known for this client. The clock stands while the control plane is away.
    unknown: Option<Clock>,
    /// The client polls, and gets a full reply whatever it holds.
    asks_once: bool,
}

impl Subscription {
    pub(super) fn new(url: &str) -> Self {
        let books = Books {
            names: SubscribedNames::default(),
            wildcard: None,
            stated: Stated::default(),
            claims: Claims::default(),
            due: RepliesDue::new(),
            wording: Wording::new(url),
        };
        Self { books, acks: AckTracker::default(), unknown: None, asks_once: false }
    }

    pub(super) fn books(&self) -> &Books {
        &self.books
    }

    pub(super) fn acks(&self) -> &AckTracker {
        &self.acks
    }

    pub(super) fn snapshot<'b, 'a>(&'b self, kind: &'b Type, view: &'b ReplyContext<'a>) -> ClientSnapshot<'b, 'a> {
        ClientSnapshot::new(kind, view, &self.books)
    }

    /// Makes every reply a full one from now on, whatever the client holds.
    pub(super) fn ask_once(&mut self) {
        self.asks_once = true;
    }

    pub(super) fn asks_once(&self) -> bool {
        self.asks_once
    }

    /// Starts to apply what a request subscribes to.
    pub(super) fn on_request<'r>(
        &'r mut self,
        kind: &'r Type,
        client: &'r Client,
        now: Moment,
        interest: &'r mut VecDeque<InterestChange>,
    ) -> InterestChanges<'r> {
        self.books.due.on_request(now);
        InterestChanges::new(kind, client, &mut self.books, interest)
    }

    /// Returns the length of its longest list, which `limits.names_per_type` bounds.
    pub(super) fn longest_list(&self) -> usize {
        let Books { names, wording, .. } = &self.books;
        names.len().max(names.pending_count()).max(wording.rejected_count())
    }

    /// Returns how many names the client states that it holds, until they are all compared.
    pub(super) fn initial_version_count(&self) -> usize {
        self.initial_versions().map_or(0, InitialVersions::len)
    }

    fn initial_versions(&self) -> Option<&InitialVersions> {
        self.books.wildcard.as_ref()?.initial_versions()
    }

    /// Returns the limit of the store, if the store has no room any more for what the client stated.
    pub(super) fn refused_above(&self) -> Option<usize> {
        self.initial_versions()?.refused_above()
    }

    pub(super) fn forget_initial_versions(&mut self) {
        self.books.wildcard.iter_mut().for_each(|wildcard| wildcard.forget_initial_versions());
    }

    /// Limits a wildcard of virtual hosts to these route configurations, unless something was sent for it.
    pub(super) fn limit_to(&mut self, routes: BTreeSet<Name>) {
        if let Some(wildcard) = &mut self.books.wildcard {
            wildcard.limit_to(routes);
        }
    }

    /// Records which route configurations the client requests now, for a wildcard that is limited to them.
    pub(super) fn follow_routes(&mut self, routes: BTreeSet<Name>) {
        if let Some(wildcard) = &mut self.books.wildcard {
            wildcard.follow_routes(routes);
        }
    }

    pub(super) fn wants_anything(&self) -> bool {
        self.books.wildcard.is_some() || !self.books.names.is_empty()
    }

    /// Returns everything that the view counts for this subscription.
    pub(super) fn selectors(&self) -> impl Iterator<Item = Selector> {
        let wildcard = self.books.wildcard.is_some().then_some(Selector::Wildcard);
        let requested = self.books.names.iter().filter(|(_, sent)| !sent.is_member());
        wildcard.into_iter().chain(requested.map(|(name, _)| Selector::Name(name.clone())))
    }

    /// Whether nothing is known of what the client requested, and no server that could send it is reachable.
    pub(super) fn is_without_hope(&self, kind: &Type, state: &Snapshot) -> bool {
        let by_name = self.books.names.keys().all(|name| {
            state.lookup(kind, Class::Named, name).is_unknown() && state.down.contains(&Authority::of(name))
        });
        let of_wildcard = state.resources(kind, Class::Wildcard).map(|table| table.coverage().completeness());
        let is_cold = of_wildcard.is_none_or(|of| of == Completeness::Unknown);
        by_name && (self.books.wildcard.is_none() || is_cold && state.down.contains(&Authority::TopLevel))
    }

    /// Whether the subscription itself is no reason for a reply. A snapshot may be one all the same, by what `*` has.
    pub(super) fn has_nothing_to_send(&self) -> bool {
        let Books { names, due, wording, .. } = &self.books;
        let is_due = due.complete().is_some() || due.is_empty_due() || wording.has_unsent_error();
        names.pending_count() == 0 && !is_due
    }

    /// Returns since when the client has lacked something that the view has, or has not answered.
    pub(super) fn behind_since(&self, kind: &Type, view: &ReplyContext) -> Option<Moment> {
        let unanswered = self.acks.unanswered_since().and_then(|sent| {
            let carried = self.acks.newest().map(|(newest, _)| newest.carried).unwrap_or_default();
            earliest(Some(sent), carried.oldest())
        });
        earliest(unanswered, unsent_since(&self.snapshot(kind, view)))
    }

    /// Frees the memory of empty maps.
    pub(super) fn release_room(&mut self) {
        self.books.names.release_room();
    }

    /// Whether the client was sent something of the type on this stream, or has stated that it holds something. What the clients of a relay hold
    /// beyond that does not count: the relay itself waits for it.
    pub(super) fn client_may_hold_any(&self) -> bool {
        let Books { stated, due, names, .. } = &self.books;
        stated.is_by_client() || due.last().is_some() || names.client_may_hold_any()
    }

    /// Records that too little is known for this client. Returns for how long, by a clock that stands while a server that it needs is
    /// unreachable.
    pub(super) fn run_unknown(&mut self, state: &Snapshot, now: Moment) -> &Clock {
        let Books { names, wildcard, .. } = &self.books;
        let is_away = |authority: &Authority| state.down.contains(authority);
        let waits_in_vain = !state.down.is_empty()
            && (wildcard.is_some() && is_away(&Authority::TopLevel)
                || names.keys().chain(names.globs()).any(|name| is_away(&Authority::of(name))));
        let clock = self.unknown.get_or_insert_with(|| Clock::running(now));
        if waits_in_vain {
            clock.stop(now)
        } else {
            clock.start(now)
        }
        clock
    }

    /// Records that enough is known for this client.
    pub(super) fn end_unknown(&mut self) {
        self.unknown = None;
    }

    /// Returns for how long too little has been known.
    pub(super) fn unknown(&self) -> Option<&Clock> {
        self.unknown.as_ref()
    }

    /// Makes a changed name pending, or forgets it. The client already has every change up to `reached`, unless the view counted its interest later.
    /// Returns the revision of the change if it has removed a member that is forgotten.
    pub(super) fn on_name_changed(&mut self, change: &NameChanged, reached: Revision) -> Option<Revision> {
        self.books.claims.end(Class::Named, &change.name); // what is known of it now may not suffice for this client: then it is claimed again
        self.books.names.on_reported(change, reached)
    }

    /// Records that the view had no room for a name. A client that reads errors is sent `error` once.
    pub(super) fn on_name_refused(&mut self, name: Name, error: Option<&Arc<NamedError>>) {
        if self.books.names.refuse(&name)
            && let Some(error) = error
        {
            self.books.wording.add_without_room(name, error);
        }
    }

    /// Records that the view has counted all that the client subscribes to: names that it has not refused again have got room.
    pub(super) fn on_all_counted(&mut self) {
        let Books { names, wording, .. } = &mut self.books;
        wording.retain_without_room(|name| names.get(name).is_some_and(|sent| sent.is_refused()));
    }

    /// Records that a claimed name does not exist.
    pub(super) fn on_claim_answered(&mut self, class: Class, name: &Name, revision: Revision, reached: Revision) {
        let Books { names, wildcard, claims, .. } = &mut self.books;
        let is_claimed = claims.end(class, name);
        let is_asked = names.contains(name) || names.pending_of(name).is_some();
        let stated = wildcard.as_ref().and_then(|wildcard| wildcard.initial_versions());
        if !is_claimed && !is_asked && !stated.is_some_and(|stated| stated.has(name)) {
            return; // more sessions claim the name than the view remembers, so it tells all sessions; this one does not claim it
        }
        claims.add_absent(class, name, revision);
        wildcard.iter_mut().for_each(|wildcard| wildcard.judge_again());
        if class == Class::Named {
            names.on_changed(name, revision, reached);
        }
    }

    /// Records that the view has no room for a claim.
    pub(super) fn on_claim_refused(&mut self, claim: Claimed) {
        let Claimed::Name(class, name) = claim else { return };
        self.books.claims.on_refused(class, name);
        if let (Class::Wildcard, Some(wildcard)) = (class, &mut self.books.wildcard) {
            wildcard.forget_claim();
        }
    }

    /// Records that the view has room again for claims.
    pub(super) fn on_claim_room(&mut self) {
        self.books.claims.on_room();
    }

    /// Returns the new claims. While the view has no room for any, returns `None`.
    pub(super) fn take_claims(&mut self, kind: &Type, view: &ReplyContext) -> Option<impl Iterator<Item = Claimed>> {
        if self.books.claims.awaits_room() {
            return None;
        }
        claim_held(&mut self.books, kind, view);
        Some(self.books.claims.take_new())
    }

    /// Forces endpoints to follow a cluster that was just sent, if the client subscribes to them.
    pub(super) fn force(&mut self, name: &Name, due: Moment) {
        if self.books.wildcard.is_some() || self.books.names.contains(name) {
            self.books.names.force(name, due);
        }
    }

    /// Forces virtual hosts to be sent again, because the client was just sent their routes.
    pub(super) fn force_under(&mut self, kind: &Type, view: &ReplyContext, is_under: impl Fn(&Name) -> bool) {
        let Books { names, .. } = &self.books;
        let is_under = |name: &&Name| is_under(name);
        let named: Vec<_> = names.keys().inspect(|_| visit()).filter(is_under).cloned().collect();
        let snapshot = self.snapshot(kind, view);
        let present = snapshot.wildcard().into_iter().flat_map(|(_, table)| table.present_names());
        let allowed = present.filter(is_under).filter(|name| snapshot.allows(name));
        let of_wildcard: Vec<_> = allowed.cloned().collect();
        named.iter().chain(&of_wildcard).for_each(|name| self.force(name, view.now));
    }

    /// Returns when the next forced name is due, of those that are not due yet.
    pub(super) fn next_forced(&self, now: Moment) -> Option<Moment> {
        self.books.names.next_forced(now)
    }

    /// Prepares for a burst on a snapshot. Returns `false` if removals that this client should be sent are forgotten.
    pub(super) fn start_burst(&mut self, kind: &Type, view: &ReplyContext) -> bool {
        let Some(wildcard) = &mut self.books.wildcard else { return true };
        let horizon = view.state.horizon(kind);
        match (wildcard.removals_sent(), view.client.variant) {
            (None, _) => true,
            (Some(sent), _) if sent >= horizon => true,
            (Some(_), Variant::Delta) => false,
            (Some(sent), Variant::Sotw) => {
                // Resources that the client holds of a forgotten set may exist without being known.
                if sent < view.state.forgotten() {
                    self.books.stated.doubt();
                }
                wildcard.record_removals_sent_to(horizon);
                self.books.due.miss_removals();
                true
            }
        }
    }

    /// Makes a reply with additions, if one is due and may be sent.
    pub(super) fn addition(&mut self, kind: &Type, view: &ReplyContext, may: SendScope) -> Attempt {
        let unanswered = self.acks.waiting(view.now);
        if self.snapshot(kind, view).uses_full_sets() {
            set_with_additions(&mut self.books, kind, view, may, unanswered, self.asks_once)
        } else {
            additions(&mut self.books, kind, view, may, unanswered)
        }
    }

    /// Makes a reply with removals, if one is due.
    pub(super) fn removal(&mut self, kind: &Type, view: &ReplyContext) -> Attempt {
        if self.snapshot(kind, view).uses_full_sets() {
            reduced_set(&mut self.books, kind, view, self.acks.waiting(view.now))
        } else {
            removals(&mut self.books, kind, view)
        }
    }

    /// Records a reply, and changes it to the client's own spelling.
    pub(super) fn on_reply(&mut self, sent: SentReply, names: ReplyNames, reply: &mut Reply, options: &SessionOptions) {
        let is_awaited = !self.asks_once && self.acks.unanswered_since().is_none();
        reply.begins_wait = is_awaited.then_some(sent.sent);
        self.acks.sent(sent, sent.sent, options);
        self.acks.note_content(sent, names, reply, options);
        self.books.wording.spell(reply);
    }

    /// Records the ACK of a nonce, or its NACK with code and reason. Returns what that settled.
    pub(super) fn on_answer(
        &mut self,
        kind: &Type,
        nonce: &str,
        nack: Option<(i32, Arc<str>)>,
        now: Moment,
    ) -> (Ack, Option<AnswerEffect>) {
        let (since, unanswered) = (self.acks.unanswered_since(), self.acks.unanswered(nonce));
        let answer = self.acks.answer(nonce, nack, now);
        let acknowledged = unanswered.filter(|_| matches!(answer, Ack::Ack { .. }));
        let waits_since = self.acks.unanswered_since();
        let is_news = !self.asks_once && (answer != Ack::UnknownNonce || since != waits_since);
        let answered = is_news.then(|| AnswerEffect {
            kind: kind.clone(),
            is_ack: acknowledged.is_some(),
            lag: acknowledged.map(|reply| reply.carried.lag(now)).unwrap_or_default(),
            waited_since: since.filter(|_| since != waits_since),
            waits_since: waits_since.filter(|_| since != waits_since),
        });
        (answer, answered)
    }

    /// Stops waiting for answers if the client subscribes to nothing of the type. Returns since when one was missing.
    pub(super) fn stop_waiting(&mut self) -> Option<Moment> {
        if self.wants_anything() || self.asks_once { None } else { self.acks.stop_waiting() }
    }

    /// Suspects resources whose names the NACK of a reply quotes. Quoted names that the client does not subscribe to are skipped.
    pub(super) fn suspect<'a>(
        &mut self,
        kind: &Type,
        nonce: u64,
        quoted: impl Iterator<Item = &'a Name>,
        state: &Snapshot,
    ) {
        if self.acks.standing().is_none_or(|nack| nack.reply.nonce != nonce) {
            return; // a late NACK
        }
        for name in quoted {
            let entry = |class| state.resources(kind, class).and_then(|table| table.get(name));
            let named = self.books.names.contains(name).then(|| entry(Class::Named));
            let wildcard = self.books.wildcard.as_ref().and_then(|_| entry(Class::Wildcard));
            if named.is_some() || wildcard.is_some() {
                self.acks.suspect(&SentResource::quoted(kind, name, wildcard.or(named.flatten())));
            }
        }
    }

    /// Returns what the client NACKs.
    pub(super) fn nacked(&self) -> Option<Nacked> {
        self.acks.standing().map(StandingNack::nacked)
    }

    /// Ends the NACK that stands if it is about nothing that the client still wants.
    pub(super) fn settle_nack(&mut self, kind: &Type) {
        let Books { names, wildcard, .. } = &self.books;
        let wants_any = wildcard.is_some() || !names.is_empty();
        self.acks.settle(wants_any, kind.info().by_alias, |name| wildcard.is_some() || names.contains(name));
    }

    /// Ends the NACK that stands, and returns it.
    pub(super) fn end_nack(&mut self) -> Option<Nacked> {
        self.acks.end_standing().as_deref().map(StandingNack::nacked)
    }
}
