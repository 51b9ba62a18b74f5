//! One downstream stream: its subscriptions, what it has been sent, and what to send next.
//!
//! Owns subscriptions, cursors, pending names, and the order of replies. It never keeps a resource or a finished reply.
//! Invariants: what it keeps is bounded by what its client requested; a reply is made only when the transport has accepted the
//! last one; what it sends of one snapshot goes out in rank order, additions before removals (I7).
//!
//! ```text
//!             newest state                                    nothing left on it
//!   idle ───────────────────▶ additions ──▶ removals ──▶ idle ◀───────────────┐
//!                               │    ▲                                         │
//!                               │    └── restart on the newest state ──────────┤
//!                               └─ blocked (ACK, hold, incomplete) or revoked ─┘
//! ```

mod acks;
mod additions;
mod answers;
mod burst;
mod claims;
mod client;
mod collections;
mod delays;
mod explain;
mod full_state;
mod hold;
mod holdings;
mod identity;
mod nack_reason;
mod nacks;
mod removals;
pub(crate) mod reply;
mod requested_names;
mod requests;
mod restored;
mod standing_nack;
mod subscription;
mod summary;
mod wildcard;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use acks::Ack;
pub(crate) use acks::Nack;
pub use client::{Client, Variant};
pub(crate) use delays::{Delay, DelayReason};
pub(crate) use explain::{Answer, Differences, Known, NameBook, Names, Obstacle, Sent, similar_to};
pub(crate) use holdings::{HeldState, Holding, Holdings, NackHolding};
pub use identity::{Identity, IdentityError};
pub(crate) use nacks::{Answered, Answers, NackChange};
pub(crate) use reply::Lag;
pub use reply::{Heartbeat, Reply};
pub(crate) use requested_names::Authorities;
pub use requests::BadRequest;
pub use summary::Footprint;
pub(crate) use summary::{Estimate, Summary};

use self::delays::Delays;
use self::hold::Hold;
use self::nacks::NackHold;
use self::reply::Draft;
use self::subscription::Subscription;
use super::faults::Fault;
use super::limits::Limits;
use super::moment::Moment;
use super::view::{
    Claim, Class, Completeness, InterestChange, Lease, LeaseAccess, NameChanged, NamedError, NoRoom, RefusedName,
    Revision, Selector, Snapshot,
};
use crate::proto::Request;
use crate::xds::{Authority, Denied, HeldVersions, Type, TypeTable};

/// The state of one client stream.
#[derive(Debug)]
pub struct Session {
    client: Client,
    identity: Option<Identity>,
    /// Boxed: a node of the tree has room for eleven, and most sessions have one or a few.
    subscriptions: BTreeMap<Type, Box<Subscription>>,
    lease: Option<Lease>,
    /// The newest revision that it was served from: it is never served from an older snapshot.
    reached: Revision,
    hold: Hold,
    /// What is removed for this client and waits, since it continues with routing from before.
    nack_hold: NackHold,
    /// Changes of interest that the view has not counted yet. Until then the view does not report changes of their names.
    uncounted: usize,
    /// Since when routes wait for a set of clusters that is not complete.
    clusters_awaited: Option<Moment>,
    last_nonce: u64,
    /// Requests for types that this stream does not serve: they stay unanswered and are counted.
    unserved: usize,
    interest: Vec<InterestChange>,
    claims: Vec<Claim>,
    end: Option<CloseReason>,
    /// When the stream ends because removals were forgotten that the client was not sent.
    ends_at: Option<Moment>,
    authorities: Authorities,
    /// How many names were rejected since the count was last taken.
    rejected_names: usize,
    /// NACKs that began or ceased to stand since the last look.
    nack_changes: Vec<NackChange>,
    /// What the last request has answered.
    answered: Option<Answered>,
    /// The last poll left nothing that an ACK or NACK of the client could release.
    at_rest: bool,
    /// A reply waits until more is known (I3).
    waits: bool,
    /// Why something waits, as of the last poll.
    delays: Delays,
    table: Arc<TypeTable>,
    limits: Arc<Limits>,
}

/// What the caller of [`Session::poll`] is to do next.
#[derive(Debug)]
pub enum Step {
    /// Send this, and poll again when the transport has accepted it.
    Reply(Box<Reply>),
    /// Nothing now: poll again when woken, or at this time.
    Idle(Option<Moment>),
    /// End the stream.
    End(CloseReason),
}

/// The result of [`Session::fetch`].
#[derive(Debug)]
pub enum Fetched {
    /// Something is not known yet: fetch again when woken, or at this time.
    Waiting(Option<Moment>),
    /// The response.
    Reply(Box<Reply>),
    /// This was the last attempt, and not enough is known.
    Unknown,
    /// The request cannot be served.
    End(CloseReason),
}

/// Why the relay ends a stream.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CloseReason {
    /// Removals that the client has not been sent are forgotten. When it reconnects, it states what it holds.
    #[error("removal history expired; reconnect with initial_resource_versions")]
    HistoryExpired,
    /// The node changed to another key; the client is served under it when it reconnects (SOTW-11, KEY-14).
    #[error("node changed to another sharing key; reconnect")]
    KeyChanged,
    /// No server is reachable, nothing that this client wants is cached, and it may have another server to turn to (XLAT-36).
    #[error("no server is reachable and nothing requested is cached")]
    NoUpstream,
    /// The view's task ended; on reconnecting, the client gets a new view.
    #[error("internal error in the view of this client; reconnect")]
    ViewFailed,
    /// The client broke the protocol or a limit.
    #[error("{0}")]
    BadRequest(BadRequest),
    /// A later node is one that the client may not be.
    #[error("{0}")]
    Denied(Box<Denied>),
}

/// The inputs of one reply.
struct ReplyContext<'a> {
    state: &'a Snapshot,
    client: &'a Client,
    limits: &'a Limits,
    now: Moment,
}

/// What the order between types allows a type to send now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum SendScope {
    Nothing,
    InitialReplies,
    Anything,
}

enum Attempt {
    Nothing,
    Ready(Box<Draft>),
    /// There is something to send that must wait, at the latest until then.
    Blocked(Option<Moment>),
    /// There may be something to send when more is known.
    Unknown,
}

impl Session {
    /// Starts a session without subscriptions.
    pub fn new(client: Client, table: Arc<TypeTable>, limits: Arc<Limits>) -> Self {
        Self {
            client,
            identity: None,
            subscriptions: BTreeMap::new(),
            lease: None,
            reached: Revision::ZERO,
            hold: Hold::default(),
            nack_hold: NackHold::default(),
            uncounted: 0,
            clusters_awaited: None,
            last_nonce: 0,
            unserved: 0,
            interest: Vec::new(),
            claims: Vec::new(),
            end: None,
            ends_at: None,
            authorities: Authorities::default(),
            rejected_names: 0,
            nack_changes: Vec::new(),
            answered: None,
            at_rest: false,
            waits: false,
            delays: Delays::default(),
            table,
            limits,
        }
    }

    /// Lets the client subscribe to names of these authorities, beside old-style names.
    pub fn with_authorities(self, authorities: Authorities) -> Self {
        Self { authorities, ..self }
    }

    /// Ends the stream if a later node leads to another key.
    pub fn with_identity(self, identity: Identity) -> Self {
        Self { identity: Some(identity), ..self }
    }

    /// Applies a request: its subscriptions and its ACK or NACK.
    pub fn on_request(&mut self, request: Request, now: Moment) -> Option<Ack> {
        self.on_request_stating(request, None, now)
    }

    /// Applies a request whose `initial_resource_versions` were taken out of it.
    pub fn on_request_stating(&mut self, request: Request, stated: Option<HeldVersions>, now: Moment) -> Option<Ack> {
        let was_at_rest = std::mem::take(&mut self.at_rest);
        if self.end.is_some() {
            return None;
        }
        if let (Some(identity), Some(node)) = (&mut self.identity, request.node())
            && let Some(end) = match identity.still_is(node) {
                Ok(true) => None,
                Ok(false) => Some(CloseReason::KeyChanged),
                Err(denied) => Some(CloseReason::Denied(Box::new(denied))),
            }
        {
            self.end = Some(end);
            return None;
        }
        let kind = self.answered_type(&request);
        let states = stated.is_some();
        match self.apply_request(request, stated, now) {
            Ok(answer) => {
                if states {
                    self.end_if_refused(); // the store may have done it while the request waited
                }
                let nothing_new = self.interest.is_empty() && matches!(answer, Some(Ack::Ack { .. }));
                let of = kind.and_then(|kind| self.subscriptions.get(&kind));
                self.at_rest = was_at_rest && nothing_new && of.is_some_and(|of| of.has_nothing_to_send());
                answer
            }
            Err(bad) => {
                self.end = Some(CloseReason::BadRequest(bad));
                None
            }
        }
    }

    /// Ends the stream if there is no room any more for what it stated. That stays unjudged: the client is sent no removal.
    pub(crate) fn end_if_refused(&mut self) {
        let stated = |of: &Subscription| of.wildcard.as_ref()?.initial_versions.as_ref()?.refused_above();
        let Some(limit) = self.subscriptions.values().find_map(|of| stated(of)) else { return };
        self.end.get_or_insert(CloseReason::BadRequest(BadRequest::TooManyStatedVersions(limit)));
        for wildcard in self.subscriptions.values_mut().filter_map(|of| of.wildcard.as_mut()) {
            wildcard.initial_versions = None;
        }
    }

    /// Returns the type of a request that may be nothing but an ACK or a NACK.
    fn answered_type(&self, request: &Request) -> Option<Type> {
        let names = match request {
            Request::Sotw(_) => 0, // each ACK repeats the list
            Request::Delta(request) => {
                let names = [&request.resource_names_subscribe, &request.resource_names_unsubscribe];
                let locators = [&request.resource_locators_subscribe, &request.resource_locators_unsubscribe];
                names.map(Vec::len).iter().sum::<usize>() + locators.map(Vec::len).iter().sum::<usize>()
            }
        };
        let (kind, _) = self.meant(request.type_url()).ok()?;
        (names == 0).then_some(kind)
    }

    /// Marks a name as pending, since it has changed in the view.
    pub fn on_name_changed(&mut self, mark: &NameChanged) {
        if !self.client.clearance.allows(&mark.kind, &mark.name) {
            return; // a member of a collection; other names that the client may not have are never requested for it
        }
        let limit = self.limits.names;
        if let Some(subscription) = self.subscriptions.get_mut(&mark.kind) {
            let forget_earlier = self.limits.faults.has(Fault::LastChangeOnly);
            if let Some(class) = mark.claimed {
                return subscription.on_claim_answered(class, &mark.name, mark.revision, self.reached);
            }
            subscription.on_name_changed(&mark.name, mark.revision, self.reached, forget_earlier);
            if subscription.longest_list() > limit {
                self.end.get_or_insert(CloseReason::BadRequest(BadRequest::TooManyNames(limit)));
            }
        }
    }

    /// Records names for which there is no room. They stay requested, and a client that reads errors is sent one for each.
    pub fn on_names_refused(&mut self, names: &[RefusedName]) {
        let mut errors = BTreeMap::<NoRoom, Arc<NamedError>>::new();
        for RefusedName { kind, name, why } in names {
            let error = self.client.errors.then(|| &*errors.entry(*why).or_insert_with(|| Arc::new(why.error())));
            if let Some(subscription) = self.subscriptions.get_mut(kind) {
                subscription.on_name_refused(name.clone(), error);
            }
        }
    }

    /// Returns the changes of interest since the last call, for the view. The caller reports when the view has counted them.
    pub fn take_interest(&mut self) -> Vec<InterestChange> {
        let changes = std::mem::take(&mut self.interest);
        self.uncounted += usize::from(!changes.is_empty());
        changes
    }

    /// Returns whether a request changed something that the view task needs to know.
    pub(crate) fn has_news_for_view(&self) -> bool {
        !self.interest.is_empty()
    }

    /// Whether nothing is pending that an ACK or NACK could release: then polling again gives no reply.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.at_rest
    }

    /// Returns what the client holds and the view does not know, since the last call. The view has it requested.
    pub fn take_claims(&mut self) -> Vec<Claim> {
        std::mem::take(&mut self.claims)
    }

    /// Takes back claims that could not be delivered.
    pub(crate) fn return_claims(&mut self, claims: Vec<Claim>) {
        self.claims.extend(claims);
    }

    /// Takes back claims for which the view has no room.
    pub fn on_claims_refused(&mut self, claims: Vec<Claim>) {
        for Claim { kind, of } in claims {
            if let Some(subscription) = self.subscriptions.get_mut(&kind) {
                subscription.on_claim_refused(of);
            }
        }
    }

    /// The view has room again: the next poll claims what had none.
    pub fn on_claim_room(&mut self) {
        self.subscriptions.values_mut().for_each(|subscription| subscription.awaits_claim_room = false);
    }

    fn note_claims(&mut self, state: &Snapshot, now: Moment) {
        let view = ReplyContext { state, client: &self.client, limits: &self.limits, now };
        for (kind, subscription) in &mut self.subscriptions {
            if subscription.awaits_claim_room {
                continue;
            }
            subscription.claim_wildcard(kind, &view);
            subscription.claim_members(kind, &view);
            if subscription.uses_full_sets(kind, &view) {
                subscription.claim_pending(kind, &view);
            }
            let claims = subscription.claims.drain(..);
            self.claims.extend(claims.map(|of| Claim { kind: kind.clone(), of }));
        }
    }

    /// Records that the view has counted the changes of one [`Self::take_interest`], and has reported their names.
    pub fn on_interest_applied(&mut self) {
        self.uncounted = self.uncounted.saturating_sub(1);
    }

    /// Ends every subscription. The session cannot be used afterwards.
    pub fn close(&mut self) {
        self.lease = None;
        self.claims.clear();
        self.end_nacks();
        for (kind, subscription) in std::mem::take(&mut self.subscriptions) {
            let off = |wanted| InterestChange { kind: kind.clone(), selector: wanted, on: false };
            let wildcard = subscription.wildcard.is_some().then_some(Selector::Wildcard);
            let requested = subscription.names.into_iter().filter(|(_, sent)| !sent.member);
            let names = requested.map(|(name, _)| Selector::Name(name));
            self.interest.extend(wildcard.into_iter().chain(names).map(off));
        }
    }

    /// Returns the next reply, if there is one. To be called when the transport has accepted the last one and something has
    /// happened.
    pub fn poll(&mut self, newest: &Arc<Snapshot>, leases: &mut impl LeaseAccess, now: Moment) -> Step {
        self.at_rest = false;
        loop {
            if let Some(end) = &self.end {
                return Step::End(end.clone());
            }
            let standing = self.lease.as_ref().and_then(|lease| leases.access(|leases| leases.state(lease, now)));
            let state = match standing {
                Some(state) => state,
                None => match self.start_on(newest, leases, now) {
                    Ok(state) => state,
                    Err(end) => return Step::End(end),
                },
            };
            if self.has_no_upstream(&state) {
                self.lease = None;
                return Step::End(CloseReason::NoUpstream);
            }
            match self.next_draft(&state, now) {
                Ok((kind, draft)) => return Step::Reply(self.finish(&kind, draft, &state, now).into()),
                // Nothing is left to do on this snapshot, or nothing may be done yet: either way the newest one is better.
                Err(deadline) => {
                    self.lease = None;
                    if state.revision == newest.revision {
                        self.note_claims(&state, now);
                        self.subscriptions.values_mut().for_each(|subscription| subscription.release_room());
                        return Step::Idle(deadline);
                    }
                }
            }
        }
    }

    /// Returns one reply to everything that was requested, for a client that polls (TRN-22). It waits until everything is known.
    /// With `at_last` it accepts less, as long as the reply deletes nothing at the client.
    pub fn fetch(
        &mut self,
        newest: &Arc<Snapshot>,
        leases: &mut impl LeaseAccess,
        now: Moment,
        at_last: bool,
    ) -> Fetched {
        for subscription in self.subscriptions.values_mut() {
            subscription.asks_once = true; // it gets a full reply, whatever it holds
        }
        let view = ReplyContext { state: newest, client: &self.client, limits: &self.limits, now };
        let awaits = self.subscriptions.iter().any(|(kind, of)| of.is_awaiting_data(kind, &view));
        if awaits && !at_last {
            self.note_claims(newest, now);
            return Fetched::Waiting(None);
        }
        match self.poll(newest, leases, now) {
            Step::Reply(reply) => Fetched::Reply(reply),
            Step::End(end) => Fetched::End(end),
            Step::Idle(_) => {
                let known = !awaits && self.subscriptions.values().all(|of| of.awaiting_data.is_empty());
                // Everything is known, and nothing is present. For a full-state type the reply would have been an empty set.
                match self.subscriptions.keys().next().filter(|kind| known && !kind.info().full_state).cloned() {
                    Some(kind) => Fetched::Reply(self.finish(&kind, Draft::default(), newest, now).into()),
                    None if at_last => Fetched::Unknown,
                    None => Fetched::Waiting(None),
                }
            }
        }
    }

    fn subscriptions(&self) -> impl Iterator<Item = (&Type, &Subscription)> {
        self.subscriptions.iter().map(|(kind, subscription)| (kind, &**subscription))
    }

    /// Whether a client that subscribes to everything of a type has all of it, by the version that it states. This costs nothing,
    /// however large the set is. `false` also means that only the set itself would show it.
    pub fn is_current(&self, state: &Snapshot, version: &str, now: Moment) -> bool {
        let view = ReplyContext { state, client: &self.client, limits: &self.limits, now };
        let mut all = self.subscriptions.iter();
        all.next().is_some_and(|(kind, of)| of.is_current(kind, version, &view)) && all.next().is_none()
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// A gRPC client that gets no response counts what it requested as absent after a while, and never tries the next server of
    /// its list; so may a relay. A client that has had a response stays (XLAT-36).
    fn has_no_upstream(&self, state: &Snapshot) -> bool {
        let turns_elsewhere = (self.client.grpc || self.client.relay) && self.limits.grpc_fail_fast;
        let may_end = turns_elsewhere && !state.down.is_empty() && self.last_nonce == 0;
        let without_hope = |(kind, of): (&Type, &Subscription)| {
            let by_name = of.names.keys().all(|name| {
                state.lookup(kind, Class::Named, name).is_unknown() && state.down.contains(&Authority::of(name))
            });
            let cold = || {
                state.resources(kind, Class::Wildcard).is_none_or(|table| table.completeness == Completeness::Unknown)
            };
            by_name && (of.wildcard.is_none() || cold() && state.down.contains(&Authority::TopLevel))
        };
        let wants = self.subscriptions.values().any(|of| of.wants_anything());
        may_end && wants && self.subscriptions().all(without_hope)
    }

    fn start_on(
        &mut self,
        newest: &Arc<Snapshot>,
        leases: &mut impl LeaseAccess,
        now: Moment,
    ) -> Result<Arc<Snapshot>, CloseReason> {
        let (lease, state) = leases.access(|leases| leases.take(newest, self.reached, now));
        self.reached = lease.revision();
        self.lease = Some(lease);
        let mut has_missed = false;
        for (kind, subscription) in &mut self.subscriptions {
            let view = ReplyContext { state: &state, client: &self.client, limits: &self.limits, now };
            has_missed |= !subscription.start_burst(kind, &view);
        }
        // Nobody can tell a delta client what it has lost. Until its stream ends, it is sent what is new.
        let ends_at = || leases.access(|leases| leases.reserve_end(now));
        self.ends_at = has_missed.then(|| self.ends_at.unwrap_or_else(ends_at));
        if self.ends_at.is_some_and(|at| at <= now) {
            self.end = Some(CloseReason::HistoryExpired);
            self.lease = None;
            return Err(CloseReason::HistoryExpired);
        }
        Ok(state)
    }
}

#[cfg(test)]
mod tests;
