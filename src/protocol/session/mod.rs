//! One downstream stream: what it wants, how far it has been told, and what to tell it next.
//!
//! Owns interests, cursors, what is owed, and the order of replies. It never holds a resource or a finished reply.
//! Always: what it keeps is bounded by what its client asked for; a reply is made only when the last one was taken; what it
//! tells of one state is told in rank order, additions before removals (I7).
//!
//! ```text
//!             newest state                                    nothing left on it
//!   idle ───────────────────▶ additions ──▶ removals ──▶ idle ◀───────────────┐
//!                               │    ▲                                         │
//!                               │    └── restart on the newest state ──────────┤
//!                               └─ blocked (ACK, hold, not whole) or revoked ──┘
//! ```

mod acks;
mod additions;
mod burst;
mod client;
mod collections;
mod full_state;
mod hold;
mod identity;
mod progress;
mod removals;
pub(crate) mod reply;
mod requested_names;
mod requests;
mod subscription;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use acks::Ack;
pub(crate) use acks::Nack;
pub use client::{Client, Variant};
pub use identity::Identity;
pub use reply::Reply;
pub(crate) use requested_names::Authorities;
pub use requests::BadRequest;

use self::hold::Hold;
use self::reply::Draft;
use self::subscription::Subscription;
use super::faults::Fault;
use super::limits::Limits;
use super::moment::Moment;
use super::view::{
    Claim, Class, Completeness, InterestChange, Lease, Leases, NameChanged, Revision, Selector, Snapshot,
};
use crate::proto::Request;
use crate::xds::{Authority, Name, Role, Type, TypeTable};

#[derive(Debug)]
pub struct Session {
    client: Client,
    identity: Option<Identity>,
    subscriptions: BTreeMap<Type, Subscription>,
    lease: Option<Lease>,
    /// How far it has come: never served from a state older than this.
    reached: Revision,
    hold: Hold,
    /// As the view was last told.
    nacks_routing: bool,
    /// Changes of interest on their way to the view. Until they are counted it makes no marks for them, so that a name of
    /// theirs may have changed unnoticed.
    uncounted: usize,
    /// Since when routes wait for clusters that are not all known.
    clusters_awaited: Option<Moment>,
    last_nonce: u64,
    /// Requests for types that are not served on this stream: left unanswered, and counted.
    unserved: usize,
    interest: Vec<InterestChange>,
    claims: Vec<Claim>,
    end: Option<CloseReason>,
    authorities: Authorities,
    /// Names that cannot be asked for, since that was last taken.
    rejected_names: usize,
    /// Something is kept back from the client for as long as it takes, since it may be more than it is known to be (I3).
    waits: bool,
    table: Arc<TypeTable>,
    limits: Arc<Limits>,
}

/// What the driver is to do next.
#[derive(Debug)]
pub enum Step {
    Reply(Box<Reply>),
    /// Nothing now. Ask again when woken, or at this time.
    Idle(Option<Moment>),
    End(CloseReason),
}

/// What comes of asking once.
#[derive(Debug)]
pub enum Fetched {
    /// Something is not known yet. Ask again when woken, or at this time.
    Waiting(Option<Moment>),
    Reply(Box<Reply>),
    /// It was asked for the last time, and not enough is known.
    Unknown,
    End(CloseReason),
}

/// Why the relay ends a stream.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CloseReason {
    /// The client is behind what is remembered of removals; coming back, it says what it holds.
    #[error("removal history expired; reconnect with initial_resource_versions")]
    HistoryExpired,
    /// The client is another one now, and is served as such when it comes back (SOTW-11, KEY-14).
    #[error("node changed to another sharing key; reconnect")]
    KeyChanged,
    /// No server can be reached, nothing this client wants is held, and it may have a server of its own to turn to (XLAT-36).
    #[error("no server is reachable and nothing requested is cached")]
    NoUpstream,
    /// Nobody runs the view any more; coming back, the client gets a new one.
    #[error("internal error in the view of this client; reconnect")]
    ViewFailed,
    #[error("{0}")]
    BadRequest(BadRequest),
}

/// What a session keeps, in numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Footprint {
    pub names: usize,
    pub pending: usize,
    pub stated: usize,
    pub(crate) warming: usize,
    pub answers: usize,
}

/// One type of a session, for reports.
#[derive(Debug)]
pub(crate) struct Summary<'a> {
    pub(crate) kind: &'a Type,
    pub(crate) wildcard: bool,
    pub(crate) names: usize,
    pub(crate) pending: usize,
    pub(crate) last_nack: Option<&'a Nack>,
    /// The latest refusal is not followed by an acceptance.
    pub(crate) nacked: bool,
}

/// What everything below looks at while one reply is made.
struct ReplyContext<'a> {
    state: &'a Snapshot,
    client: &'a Client,
    limits: &'a Limits,
    now: Moment,
}

/// What the order between types lets a type send at this moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum SendScope {
    Nothing,
    InitialReplies,
    Anything,
}

enum Attempt {
    Nothing,
    Ready(Box<Draft>),
    /// There is something to send, and it must wait, at the latest until then.
    Blocked(Option<Moment>),
    /// There may be something to send once more is known.
    Unknown,
}

impl Session {
    pub fn new(client: Client, table: Arc<TypeTable>, limits: Arc<Limits>) -> Self {
        Self {
            client,
            identity: None,
            subscriptions: BTreeMap::new(),
            lease: None,
            reached: Revision::ZERO,
            hold: Hold::default(),
            nacks_routing: false,
            uncounted: 0,
            clusters_awaited: None,
            last_nonce: 0,
            unserved: 0,
            interest: Vec::new(),
            claims: Vec::new(),
            end: None,
            authorities: Authorities::default(),
            rejected_names: 0,
            waits: false,
            table,
            limits,
        }
    }

    /// Names of these authorities may be asked for, beside old-style ones.
    pub fn with_authorities(self, authorities: Authorities) -> Self {
        Self { authorities, ..self }
    }

    /// From here on a node that leads to another key ends the stream.
    pub fn with_identity(self, identity: Identity) -> Self {
        Self { identity: Some(identity), ..self }
    }

    /// Takes over what the client wants, and what it says of replies it has had.
    pub fn on_request(&mut self, request: Request, now: Moment) -> Option<Ack> {
        if self.end.is_some() {
            return None;
        }
        if let (Some(identity), Some(node)) = (&mut self.identity, request.node())
            && !identity.still_is(node)
        {
            self.end = Some(CloseReason::KeyChanged);
            return None;
        }
        match self.apply_request(request, now) {
            Ok(answer) => answer,
            Err(bad) => {
                self.end = Some(CloseReason::BadRequest(bad));
                None
            }
        }
    }

    /// A name that this client asked for has changed in the view.
    pub fn on_name_changed(&mut self, mark: &NameChanged) {
        if !self.client.clearance.allows(&mark.kind, &mark.name) {
            return; // of a collection; nothing else that it may not have is asked for on its behalf
        }
        let limit = self.limits.names;
        if let Some(subscription) = self.subscriptions.get_mut(&mark.kind) {
            let forget_earlier = self.limits.faults.has(Fault::LastChangeOnly);
            subscription.on_name_changed(&mark.name, mark.revision, forget_earlier);
            if subscription.longest_list() > limit {
                self.end.get_or_insert(CloseReason::BadRequest(BadRequest::TooManyNames(limit)));
            }
        }
    }

    /// Changes of interest that the view has to hear of, since the last call. Whoever takes any says when they are counted.
    pub fn take_interest(&mut self) -> Vec<InterestChange> {
        let changes = std::mem::take(&mut self.interest);
        self.uncounted += usize::from(!changes.is_empty());
        changes
    }

    /// Whether the client stays with routing that it had, since it refused what came last, if that has changed since the last call.
    pub(crate) fn take_routing_nack(&mut self) -> Option<bool> {
        let mut routing = self.subscriptions.iter().filter(|(kind, _)| kind.is(Role::Routing));
        let refuses = routing.any(|(_, of)| of.acks.is_nacked());
        (std::mem::replace(&mut self.nacks_routing, refuses) != refuses).then_some(refuses)
    }

    /// What the client holds and nobody knows of, since the last call: the view has it asked for.
    pub fn take_claims(&mut self) -> Vec<Claim> {
        std::mem::take(&mut self.claims)
    }

    /// Takes claims back that found nobody to take them.
    pub(crate) fn return_claims(&mut self, claims: Vec<Claim>) {
        self.claims.extend(claims);
    }

    fn note_claims(&mut self, state: &Snapshot, now: Moment) {
        let view = ReplyContext { state, client: &self.client, limits: &self.limits, now };
        for (kind, subscription) in &mut self.subscriptions {
            if subscription.stated {
                subscription.claim_wildcard(kind, &view);
            }
            subscription.claim_members(kind, &view);
            if subscription.uses_full_sets(kind, &view) {
                subscription.claim_pending(kind, &view);
            }
            let claims = subscription.claims.drain(..);
            self.claims.extend(claims.map(|of| Claim { kind: kind.clone(), of }));
        }
    }

    /// The view has counted what was taken at one time, and its marks for it have been delivered.
    pub fn on_interest_applied(&mut self) {
        self.uncounted = self.uncounted.saturating_sub(1);
    }

    /// Gives up every interest. The session is of no use afterwards.
    pub fn close(&mut self) {
        self.lease = None;
        for (kind, subscription) in std::mem::take(&mut self.subscriptions) {
            let off = |wanted| InterestChange { kind: kind.clone(), selector: wanted, on: false };
            let wildcard = subscription.wildcard.is_some().then_some(Selector::Wildcard);
            let requested = subscription.names.into_iter().filter(|(_, sent)| !sent.member);
            let names = requested.map(|(name, _)| Selector::Name(name));
            self.interest.extend(wildcard.into_iter().chain(names).map(off));
        }
    }

    /// The next reply, if there is one. To be called when the last one has been taken and something has happened.
    pub fn poll(&mut self, newest: &Arc<Snapshot>, leases: &mut Leases, now: Moment) -> Step {
        loop {
            if let Some(end) = &self.end {
                return Step::End(end.clone());
            }
            let standing = self.lease.as_ref().and_then(|lease| leases.state(lease, now));
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
                // Nothing more to do here, or nothing that may be done yet: either way the newest state is the better one.
                Err(deadline) => {
                    self.lease = None;
                    if state.revision == newest.revision {
                        self.note_claims(&state, now);
                        return Step::Idle(deadline);
                    }
                }
            }
        }
    }

    /// One answer to all that was asked, for a client that asks once and is gone (TRN-22). It waits until all of it is known, and
    /// at last takes what there is, as long as that takes nothing away from the client.
    pub fn fetch(&mut self, newest: &Arc<Snapshot>, leases: &mut Leases, now: Moment, at_last: bool) -> Fetched {
        for subscription in self.subscriptions.values_mut() {
            subscription.asks_once = true; // it is answered in full, whatever it holds
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
                // All is known, and there is nothing. Of a full-state type that would have been said as a set.
                match self.subscriptions.keys().next().filter(|kind| known && !kind.info().full_state).cloned() {
                    Some(kind) => Fetched::Reply(self.finish(&kind, Draft::default(), newest, now).into()),
                    None if at_last => Fetched::Unknown,
                    None => Fetched::Waiting(None),
                }
            }
        }
    }

    /// How much is known of collections of which the client has been told everything that there is, by the end of this state.
    pub(crate) fn sent_completeness(&self, state: &Snapshot) -> BTreeMap<(Type, Name), Completeness> {
        let of = |(kind, of): (&Type, &Subscription)| {
            of.sent_collections(kind, state)
                .map(|(glob, completeness)| ((kind.clone(), glob.clone()), completeness))
                .collect::<Vec<_>>()
        };
        self.subscriptions.iter().flat_map(of).collect()
    }

    /// Whether a client that asks for everything of a type holds it all, by the version that it states. To say so costs nothing,
    /// however large the set is; where it is not sure, the set itself has to be made.
    pub fn is_current(&self, state: &Snapshot, version: &str, now: Moment) -> bool {
        let view = ReplyContext { state, client: &self.client, limits: &self.limits, now };
        let mut all = self.subscriptions.iter();
        all.next().is_some_and(|(kind, of)| of.is_current(kind, version, &view)) && all.next().is_none()
    }

    pub(crate) fn nacks(&self) -> impl Iterator<Item = (&Type, &Nack)> {
        self.subscriptions.iter().filter_map(|(kind, subscription)| Some((kind, subscription.acks.last_nack()?)))
    }

    /// A piece of the last reply went out: the client is slow, maybe, and not stuck.
    pub(crate) fn progressed(&self, leases: &mut Leases, now: Moment) {
        if let Some(lease) = &self.lease {
            leases.state(lease, now);
        }
    }

    pub(crate) fn summaries(&self) -> impl Iterator<Item = Summary<'_>> {
        self.subscriptions.iter().map(|(kind, subscription)| Summary {
            kind,
            wildcard: subscription.wildcard.is_some(),
            names: subscription.names.len(),
            pending: subscription.pending.len() + subscription.awaiting_data.len(),
            last_nack: subscription.acks.last_nack(),
            nacked: subscription.acks.is_nacked(),
        })
    }

    /// The state it is in the middle of, if that lease still stands when it next asks.
    pub fn leased_revision(&self) -> Option<Revision> {
        self.lease.as_ref().map(Lease::revision)
    }

    pub(crate) fn take_rejected_names(&mut self) -> usize {
        std::mem::take(&mut self.rejected_names)
    }

    /// Whether the client is kept waiting without a bound, by what was last looked at.
    pub(crate) fn is_blocked(&self) -> bool {
        self.waits
    }

    /// Requests that were left unanswered because their type is not served on this stream.
    pub fn unsupported_requests(&self) -> usize {
        self.unserved
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Whether a change of routing is kept back for endpoints.
    pub fn holds_routing(&self) -> bool {
        self.hold.is_keeping_back()
    }

    pub fn footprint(&self) -> Footprint {
        let mut sum = Footprint { warming: self.hold.len(), ..Footprint::default() };
        for subscription in self.subscriptions.values() {
            sum.names += subscription.names.len();
            sum.pending += subscription.pending.len() + subscription.awaiting_data.len();
            sum.stated += subscription.initial_version_count();
            sum.answers += subscription.acks.len();
        }
        sum
    }

    /// A gRPC client whose stream answers nothing takes what it asked for as absent after a while, and never turns to the next
    /// server of its list; a relay may take it for absent too. One that has had an answer stays (XLAT-36).
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
        let wants = self.subscriptions.values().any(Subscription::wants_anything);
        may_end && wants && self.subscriptions.iter().all(without_hope)
    }

    fn start_on(
        &mut self,
        newest: &Arc<Snapshot>,
        leases: &mut Leases,
        now: Moment,
    ) -> Result<Arc<Snapshot>, CloseReason> {
        let (lease, state) = leases.take(newest, self.reached, now);
        self.reached = lease.revision();
        self.lease = Some(lease);
        for (kind, subscription) in &mut self.subscriptions {
            let view = ReplyContext { state: &state, client: &self.client, limits: &self.limits, now };
            if !subscription.start_burst(kind, &view) {
                self.end = Some(CloseReason::HistoryExpired);
                self.lease = None;
                return Err(CloseReason::HistoryExpired);
            }
        }
        Ok(state)
    }
}
