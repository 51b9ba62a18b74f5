//! What a session subscribes to of one type, and what it has been sent. Both variants of the protocol share it.
//!
//! `*` keeps two cursors and no names. Names keep no cursor: each has what the client was sent of it, and the pending names are
//! bounded by the requested ones.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::acks::AckTracker;
use super::answers::Answers;
use super::client::Variant;
use super::reply::Carried;
use super::wildcard::{InitialVersions, Wildcard};
use super::{Attempt, ReplyContext, SendScope};
use crate::protocol::faults::Fault;
use crate::protocol::moment::{Clock, Moment, earliest};
use crate::protocol::view::{
    AbsenceEvidence, Claimed, Class, Completeness, Entry, Lookup, NamedError, Presence, ResourceTable, Revision,
    Snapshot,
};
use crate::protocol::visits::visit;
use crate::xds::{Authority, Name, Resource, SetVersion, Type};

#[derive(Debug)]
pub(super) struct Subscription {
    /// The type URL as this client spells it.
    pub(crate) spelling: Arc<str>,
    pub(crate) wildcard: Option<Wildcard>,
    /// Members of collections too, from their first change.
    pub(crate) names: BTreeMap<Name, SentState>,
    pub(crate) globs: BTreeSet<Name>,
    pub(crate) pending: BTreeMap<Name, Pending>,
    /// Requested names of which nothing is known, each with the time of its request: pending as well, but skipped until the view reports a change.
    pub(crate) awaiting_data: BTreeMap<Name, Moment>,
    /// A name, `*` included, was sent on this stream: an empty list no longer means the wildcard (SOTW-38, DELTA-19).
    pub(crate) named_once: bool,
    /// The client stated that it holds something of this type, or it is a relay, whose clients may.
    pub(crate) stated: bool,
    /// The client itself has stated so.
    pub(crate) has_stated: bool,
    /// For how long too little has been known for this client. It stands while the control plane is away.
    pub(crate) unknown: Option<Clock>,
    /// A complete set has to be sent because of a request of that time (SotW, full-state types).
    pub(crate) complete_due: Option<Moment>,
    /// When the latest request was received.
    pub(crate) asked: Moment,
    /// Removals were forgotten before this client was sent them: its set is compared although the history shows no removals.
    pub(crate) missed_removals: bool,
    /// The version that the client of a pure wildcard stated: equal content need not be sent again (SOTW-4).
    pub(crate) initial_version: Option<String>,
    /// The version of the last SotW reply.
    pub(crate) sent: Option<SetVersion>,
    /// The sum over everything that was sent by name.
    pub(crate) sum: SetVersion,
    /// Names that cannot be requested, each with its error until the error was sent.
    pub(crate) rejected: BTreeMap<Name, Option<Arc<NamedError>>>,
    /// How many names of the last SotW list could not be requested.
    pub(crate) refused_before: usize,
    /// Names that this client spells in another form than the canonical one (NAME-16).
    pub(crate) spellings: BTreeMap<Name, Arc<str>>,
    /// An empty reply has to be sent (DELTA-36).
    pub(crate) empty_answer_due: bool,
    /// Claimed names, each with the opening on which it was claimed.
    pub(crate) claimed: BTreeMap<(Class, Name), Revision>,
    pub(crate) claims: Vec<Claimed>,
    pub(crate) answers: Answers,
    /// The view has had no room for claims of the type. Nothing is claimed until it has.
    pub(crate) awaits_claim_room: bool,
    /// The client polls, and gets a full reply whatever it holds.
    pub(crate) asks_once: bool,
    pub(crate) acks: AckTracker,
}

/// What the client was sent of a requested name.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SentState {
    /// What the name adds to the version; empty if nothing was sent.
    pub(crate) holds: SetVersion,
    /// The client stated that it holds something under this name.
    pub(crate) held_before: bool,
    /// The revision of the name's last error that the client was sent.
    pub(crate) error: Revision,
    /// It is a member of a subscribed collection, and not subscribed by itself.
    pub(crate) member: bool,
    /// The view had no room for it. It is tried again when the client requests it again.
    pub(crate) refused: bool,
}

/// Unsent changes of a name. A snapshot between the first and the last includes some of them; a reply from it sends those.
#[derive(Debug, Clone, Copy)]
pub(super) struct Changes {
    first: Revision,
    last: Revision,
    /// The first one that a server has made since the client was sent the name; zero if there is none.
    oldest: Revision,
}

/// Why a name has to be sent.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Pending {
    /// The client requested it then, and is sent it even if it has it already (DELTA-10).
    pub(crate) requested: Option<Moment>,
    /// It changed.
    pub(crate) changed: Option<Changes>,
    /// A cluster waits for it. It is sent at that time, changed or not.
    pub(crate) forced_resend: Option<Moment>,
}

impl SentState {
    /// Whether a reply without this name would make the client drop something.
    pub(crate) fn client_may_hold(&self) -> bool {
        !self.holds.is_empty() || self.held_before
    }
}

impl Subscription {
    pub(crate) fn new(spelling: &str) -> Self {
        Self {
            spelling: spelling.into(),
            wildcard: None,
            names: BTreeMap::new(),
            globs: BTreeSet::new(),
            pending: BTreeMap::new(),
            awaiting_data: BTreeMap::new(),
            named_once: false,
            stated: false,
            has_stated: false,
            unknown: None,
            complete_due: None,
            asked: Moment::START,
            missed_removals: false,
            initial_version: None,
            sent: None,
            sum: SetVersion::EMPTY,
            rejected: BTreeMap::new(),
            refused_before: 0,
            spellings: BTreeMap::new(),
            empty_answer_due: false,
            claimed: BTreeMap::new(),
            claims: Vec::new(),
            answers: Answers::default(),
            awaits_claim_room: false,
            asks_once: false,
            acks: AckTracker::default(),
        }
    }

    /// Returns the length of its longest list, which `limits.names_per_type` bounds.
    pub(crate) fn longest_list(&self) -> usize {
        self.names.len().max(self.pending.len()).max(self.rejected.len())
    }

    /// Whether no reply is due, whichever snapshot there is.
    pub(crate) fn has_nothing_to_send(&self) -> bool {
        let due = self.complete_due.is_some() || self.empty_answer_due || self.rejected.values().any(Option::is_some);
        self.pending.is_empty() && !due
    }

    /// Frees what empty maps keep: a tree keeps its last node, and an idle session needs none.
    pub(super) fn release_room(&mut self) {
        if self.pending.is_empty() {
            self.pending = BTreeMap::new();
        }
        if self.awaiting_data.is_empty() {
            self.awaiting_data = BTreeMap::new();
        }
    }

    /// Returns since when the client has lacked something that there is for it, or has not answered.
    pub(super) fn behind_since(&self, kind: &Type, view: &ReplyContext) -> Option<Moment> {
        let unanswered = self.acks.unanswered_since().and_then(|sent| {
            let carried = self.acks.newest().map(|(newest, _)| newest.carried).unwrap_or_default();
            earliest(Some(sent), earliest(carried.change, carried.request))
        });
        earliest(unanswered, self.unsent_since(kind, view))
    }

    /// Whether the client was sent something of the type on this stream, or has stated that it holds something. A relay states what it
    /// has; what its clients hold beyond that, it waits for itself.
    pub(super) fn client_may_hold_any(&self) -> bool {
        self.has_stated || self.sent.is_some() || self.names.values().any(SentState::client_may_hold)
    }

    /// Notes that too little is known for this client, and returns for how long by a clock that stands while no server of it is
    /// reachable.
    pub(super) fn run_unknown(&mut self, state: &Snapshot, now: Moment) -> &Clock {
        let is_away = |authority: &Authority| state.down.contains(authority);
        let waits_in_vain = !state.down.is_empty()
            && (self.wildcard.is_some() && is_away(&Authority::TopLevel)
                || self.names.keys().chain(&self.globs).any(|name| is_away(&Authority::of(name))));
        let clock = self.unknown.get_or_insert_with(|| Clock::running(now));
        if waits_in_vain {
            clock.stop(now)
        } else {
            clock.start(now)
        }
        clock
    }

    pub(crate) fn wants_anything(&self) -> bool {
        self.wildcard.is_some() || !self.names.is_empty()
    }

    /// Marks a name. A change up to `reached` is none to the client, unless it was counted late.
    pub(crate) fn on_name_changed(&mut self, name: &Name, revision: Revision, reached: Revision, forget_earlier: bool) {
        self.take_in(name);
        if !self.claimed.is_empty() {
            self.claimed.remove(&(Class::Named, name.clone())); // what is known of it now may not suffice for this client
        }
        if self.names.contains_key(name) {
            self.data_arrived(name);
            let pending = self.pending.entry(name.clone()).or_default();
            pending.changed = pending.changed.filter(|_| !forget_earlier);
            pending.changed_at(revision);
            if let Some(changes) =
                pending.changed.as_mut().filter(|of| revision > reached && of.oldest == Revision::ZERO)
            {
                changes.oldest = revision;
            }
        }
    }

    /// Records that the view had no room for a name. A client that reads errors is sent this one, once.
    pub(super) fn on_name_refused(&mut self, name: Name, error: Option<&Arc<NamedError>>) {
        let Some(sent) = self.names.get_mut(&name).filter(|sent| !sent.member) else { return };
        sent.refused = true;
        if let Some(error) = error {
            self.rejected.entry(name).or_insert_with(|| Some(error.clone()));
        }
    }

    pub(crate) fn data_arrived(&mut self, name: &Name) {
        if let Some(asked) = self.awaiting_data.remove(name) {
            self.pending.entry(name.clone()).or_default().requested.get_or_insert(asked);
        }
    }

    pub(crate) fn recheck_awaiting_data(&mut self) {
        for (name, asked) in std::mem::take(&mut self.awaiting_data) {
            self.pending.entry(name).or_default().requested.get_or_insert(asked);
        }
    }

    /// Endpoints have to follow a cluster that was just sent, if the client is subscribed to them.
    pub(crate) fn force(&mut self, name: &Name, due: Moment) {
        let is_awaiting = self.awaiting_data.contains_key(name);
        if !is_awaiting && (self.wildcard.is_some() || self.names.contains_key(name)) {
            self.pending.entry(name.clone()).or_default().forced_resend.get_or_insert(due);
        }
    }

    /// When the next forced name is due, of those that are not due yet.
    pub(crate) fn next_forced(&self, now: Moment) -> Option<Moment> {
        let all = self.pending.values().inspect(|_| visit());
        all.filter_map(|pending| pending.forced_resend).filter(|due| *due > now).min()
    }

    /// Prepares for a snapshot. Returns `false` if removals that this client should be sent are forgotten.
    pub(crate) fn start_burst(&mut self, kind: &Type, view: &ReplyContext) -> bool {
        let Some(wildcard) = &mut self.wildcard else { return true };
        let horizon = view.state.horizon(kind);
        match (&mut wildcard.progress, view.client.variant) {
            (None, _) => true,
            (Some(progress), _) if progress.removals() >= horizon => true,
            (Some(_), Variant::Delta) => view.limits.faults.has(Fault::IgnoreHorizon),
            (Some(progress), Variant::Sotw) => {
                // Resources that it holds of a forgotten set may still exist without being known.
                self.stated |= progress.removals() < view.state.forgotten();
                progress.record_removals_sent_to(horizon);
                self.missed_removals = true;
                true
            }
        }
    }

    pub(crate) fn addition(&mut self, kind: &Type, view: &ReplyContext, may: SendScope) -> Attempt {
        if self.uses_full_sets(kind, view) {
            self.full_set_with_additions(kind, view, may)
        } else {
            self.additions(kind, view, may)
        }
    }

    pub(crate) fn removal(&mut self, kind: &Type, view: &ReplyContext) -> Attempt {
        if self.uses_full_sets(kind, view) { self.full_set_reduced(kind, view) } else { self.removals(kind, view) }
    }

    /// Returns what the client is sent under a name: what the server sent for the name, or else for `*` if the client subscribes
    /// to that too.
    pub(crate) fn known<'a>(&self, kind: &Type, name: &Name, view: &ReplyContext<'a>) -> Lookup<'a> {
        if !view.client.clearance.allows(kind, name) {
            return Lookup::Absent(None);
        }
        let sent = self.names.get(name);
        let named = sent.map(|sent| match Self::looked_up(kind, Class::Named, name, Some(sent), view) {
            Lookup::Unknown if self.is_no_member(kind, name, *sent, view) => Lookup::Absent(None),
            Lookup::Unknown if self.answers.is_absent(Class::Named, name, view.state.resources(kind, Class::Named)) => {
                Lookup::Absent(None)
            }
            Lookup::Absent(_) if !self.is_absent_for_client(kind, name, *sent, view) => Lookup::Unknown,
            known => known,
        });
        if let Some(Lookup::Present(_)) = named {
            return named.unwrap_or(Lookup::Unknown);
        }
        let among_all = self.wildcard.as_ref().map(|_| Self::looked_up(kind, Class::Wildcard, name, sent, view));
        match (named, among_all) {
            (None, Some(Lookup::Present(resource))) if self.is_to_withhold(kind, resource, view) => Lookup::Unknown,
            (_, Some(Lookup::Present(resource))) => Lookup::Present(resource),
            (Some(named), _) => named,
            (None, Some(Lookup::Absent(last))) => Lookup::Absent(last),
            (None, Some(_))
                if self.is_outside_of_wildcard(kind, name, view)
                    || self.answers.is_absent(Class::Wildcard, name, view.state.resources(kind, Class::Wildcard)) =>
            {
                Lookup::Absent(None)
            }
            (None, _) => Lookup::Unknown,
        }
    }

    /// Whether something that was requested is unknown.
    pub(crate) fn is_awaiting_data(&self, kind: &Type, view: &ReplyContext) -> bool {
        let mut names = self.names.keys().inspect(|_| visit());
        let unknown = names.any(|name| self.known(kind, name, view).is_unknown());
        unknown || self.wildcard.is_some() && !self.can_send_full_set(kind, view)
    }

    /// Whether all of `*` is known, so that what is missing does not exist.
    pub(crate) fn is_wildcard_complete(&self, kind: &Type, view: &ReplyContext) -> bool {
        self.wildcard_completeness(kind, view) == Completeness::Complete
    }

    /// Whether `*` is known not to have a name of which nothing is cached: one that came and could not be read exists.
    fn is_outside_of_wildcard(&self, kind: &Type, name: &Name, view: &ReplyContext) -> bool {
        let table = view.state.resources(kind, Class::Wildcard);
        self.is_wildcard_complete(kind, view) && !table.is_some_and(|table| table.is_unreadable(name))
    }

    pub(crate) fn wildcard_completeness(&self, kind: &Type, view: &ReplyContext) -> Completeness {
        view.state.resources(kind, Class::Wildcard).map_or(Completeness::Unknown, |table| table.completeness)
    }

    /// Whether the cached set can be sent to this client as the complete one. The client must not drop resources that it holds
    /// and the view does not know: a client that stated nothing, or a version that the set had, holds no such resource.
    pub(crate) fn can_send_full_set(&self, kind: &Type, view: &ReplyContext) -> bool {
        let Some(table) = view.state.resources(kind, Class::Wildcard) else { return false };
        let partial_as_complete = view.limits.faults.has(Fault::TakePartForWhole);
        if partial_as_complete || !self.stated || self.has_past_version(table, view) {
            let enough = if view.limits.faults.has(Fault::CachedIsKeptBack) {
                Completeness::Settled
            } else {
                Completeness::FirstResponse
            };
            return table.completeness >= enough || partial_as_complete;
        }
        table.completeness == Completeness::Complete && table.is_readable()
    }

    pub(super) fn has_past_version(&self, table: &ResourceTable, view: &ReplyContext) -> bool {
        let known = |version: &String| table.knows_version(version);
        view.client.variant == Variant::Sotw && self.initial_version.as_ref().is_some_and(known)
    }

    /// Whether there is enough evidence for this client that a name is absent: if it stated the name, evidence from this opening;
    /// if it holds the name at all, more than silence. A relay may have clients that hold it, and judges by silence itself.
    fn is_absent_for_client(&self, kind: &Type, name: &Name, sent: SentState, view: &ReplyContext) -> bool {
        let Some(table) = view.state.resources(kind, Class::Named) else { return false };
        let Some(entry) = table.get(name) else { return false };
        match entry.absence {
            _ if view.limits.faults.has(Fault::JudgeStatedWhileCold) => true,
            AbsenceEvidence::Silence if view.limits.faults.has(Fault::SilenceIsAbsence) => true,
            _ if sent.held_before => table.is_absent_by_evidence(entry),
            AbsenceEvidence::Silence => {
                let judges = view.client.relay && !view.client.is_view;
                let judges = judges && !view.limits.faults.has(Fault::SilentRelayIsSilentServer);
                !sent.client_may_hold() && !judges
            }
            AbsenceEvidence::Reported | AbsenceEvidence::Expired => true,
        }
    }

    /// Returns what a resource adds to this client's versions: for SotW clients that cannot read wrappers, the body alone.
    pub(crate) fn share(view: &ReplyContext, name: &Name, resource: &Resource) -> SetVersion {
        let full = view.client.variant == Variant::Delta || view.client.wrappers;
        SetVersion::of(name.as_str(), if full { resource.full } else { resource.content() })
    }

    /// Returns the version of everything of a type that this client may have.
    pub(crate) fn wildcard_version(kind: &Type, table: &ResourceTable, view: &ReplyContext) -> SetVersion {
        if !view.client.clearance.restricts(kind) {
            return table.version(view.client.wrappers);
        }
        let visible = table.additions(Revision::ZERO).filter(|(_, resource)| view.client.can_have(kind, resource));
        visible.fold(SetVersion::EMPTY, |sum, (_, resource)| sum.plus(Self::share(view, &resource.name, resource)))
    }

    /// Records what the client has been sent of a name.
    pub(crate) fn record_sent(&mut self, name: &Name, share: SetVersion) {
        if let Some(sent) = self.names.get_mut(name) {
            self.sum = self.sum.minus(sent.holds).plus(share);
            *sent = SentState { holds: share, held_before: false, ..*sent };
        }
    }

    /// Returns the error of a name, if this client reads errors and has not been sent this one.
    pub(crate) fn unsent_error(
        &self,
        kind: &Type,
        name: &Name,
        view: &ReplyContext,
    ) -> Option<(Revision, Arc<NamedError>)> {
        let sent = self.names.get(name).filter(|_| view.client.errors)?;
        let error = match view.client.variant {
            _ if !view.client.clearance.allows(kind, name) => {
                Some((Revision::ZERO.next(), Arc::new(NamedError::not_allowed())))
            }
            // SotW has no other way to express absence.
            Variant::Sotw if self.is_absent_for_client(kind, name, *sent, view) => {
                view.state.error_or_absence(kind, name)
            }
            _ => view.state.error(kind, name).map(|(revision, error)| (revision, error.clone())),
        };
        error.filter(|(revision, _)| *revision > sent.error)
    }

    /// Returns the entry of a name, of the class that [`Self::known`] uses.
    pub(crate) fn entry<'a>(&self, kind: &Type, name: &Name, view: &ReplyContext<'a>) -> Option<&'a Entry> {
        let of = |class| view.state.resources(kind, class).and_then(|table| table.get(name));
        let named = of(Class::Named).filter(|_| self.names.contains_key(name));
        let here = |entry: &&Entry| matches!(entry.presence, Presence::Present(_));
        named.filter(here).or_else(|| of(Class::Wildcard).filter(|_| self.wildcard.is_some()).filter(here)).or(named)
    }

    pub(crate) fn record_error_sent(&mut self, name: &Name, revision: Revision) {
        if let Some(sent) = self.names.get_mut(name) {
            sent.error = revision;
        }
    }

    pub(crate) fn initial_version_count(&self) -> usize {
        let stated = self.wildcard.as_ref().and_then(|wildcard| wildcard.initial_versions.as_ref());
        stated.map_or(0, InitialVersions::len)
    }

    pub(crate) fn uses_full_sets(&self, kind: &Type, view: &ReplyContext) -> bool {
        view.client.variant == Variant::Sotw && kind.info().full_state
    }
}

impl ReplyContext<'_> {
    /// Whether this client is sent the same as all others that subscribe to `*` in its variant: it may have everything, and no
    /// TTL is part of it.
    pub(crate) fn sends_the_same_to_all(&self, kind: &Type) -> bool {
        let immortal = || self.state.resources(kind, Class::Wildcard).is_none_or(|table| !table.is_mortal());
        !self.client.clearance.restricts(kind) && (!self.client.ttl || immortal())
    }

    /// Returns the remaining TTL of a resource, for a client that runs TTLs (XLAT-28).
    pub(crate) fn ttl(&self, entry: Option<&Entry>) -> Option<Duration> {
        let expires = entry.and_then(|entry| entry.expires).filter(|_| self.client.ttl)?;
        Some((expires - self.now).max(SHORTEST_LIFE))
    }
}

/// The shortest TTL that is sent: a shorter one would end on the way.
const SHORTEST_LIFE: Duration = Duration::from_secs(1);

impl Pending {
    pub(crate) fn requested(asked: Moment) -> Self {
        Self { requested: Some(asked), ..Self::default() }
    }

    /// Whether it is due now, if there is something to send.
    pub(super) fn is_ripe(&self, view: &ReplyContext) -> bool {
        self.requested.is_some()
            || self.changed_by(view.state.revision)
            || self.forced_resend.is_some_and(|due| due <= view.now)
    }

    /// Returns how old what is sent of it is.
    pub(crate) fn carried(&self, view: &ReplyContext) -> Carried {
        let oldest = self.changed.filter(|changes| self.requested.is_none() && changes.oldest != Revision::ZERO);
        let change = oldest.and_then(|changes| view.state.received(changes.oldest));
        Carried { change, request: self.requested }
    }

    pub(crate) fn changed_at(&mut self, revision: Revision) {
        let changes = self.changed.get_or_insert(Changes { first: revision, last: revision, oldest: Revision::ZERO });
        changes.first = changes.first.min(revision);
        changes.last = changes.last.max(revision);
    }

    pub(crate) fn with_change(mut self, revision: Revision) -> Self {
        self.changed_at(revision);
        self
    }

    /// Whether one of the unsent changes may be this one.
    pub(crate) fn covers(&self, revision: Revision) -> bool {
        self.changed.is_some_and(|changes| changes.first <= revision && revision <= changes.last)
    }

    /// Whether a snapshot has an unsent change.
    pub(crate) fn changed_by(&self, mark: Revision) -> bool {
        self.changed.is_some_and(|changes| changes.first <= mark)
    }

    /// Returns what is left after the snapshot of revision `mark` was sent.
    pub(crate) fn after(self, mark: Revision) -> Option<Self> {
        let last = self.changed.map(|changes| changes.last).filter(|last| *last > mark)?;
        Some(Self { changed: Some(Changes { first: mark.next(), last, oldest: mark.next() }), ..Self::default() })
    }
}
