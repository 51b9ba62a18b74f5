//! What a session wants of one type, and how far it has been told. Both variants of the protocol share it.
//!
//! `*` keeps two cursors and no names. Names keep no cursor: each knows what the client was told, and what is owed is
//! bounded by what was asked for.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use super::acks::AckTracker;
use super::client::Variant;
use super::progress::Progress;
use super::{Attempt, ReplyContext, SendScope};
use crate::protocol::faults::Fault;
use crate::protocol::moment::Moment;
use crate::protocol::view::{
    AbsenceEvidence, Claimed, Class, Completeness, Entry, Lookup, NamedError, Presence, ResourceTable, Revision,
};
use crate::xds::{Name, Resource, SetVersion, Type};

#[derive(Debug)]
pub(super) struct Subscription {
    /// The type URL as this client spells it.
    pub(crate) spelling: Arc<str>,
    pub(crate) wildcard: Option<Wildcard>,
    /// Those of collections too, once there is something to tell of them.
    pub(crate) names: BTreeMap<Name, SentState>,
    pub(crate) globs: BTreeSet<Name>,
    pub(crate) pending: BTreeMap<Name, Pending>,
    /// Names that were asked for and of which nothing is known: owed as well, and not looked at before the view marks them.
    pub(crate) awaiting_data: BTreeSet<Name>,
    /// A name, `*` included, was given on this stream: an empty list is a wildcard no more (SOTW-38, DELTA-19).
    pub(crate) named_once: bool,
    /// The client said, as it came, that it holds something of this type; or others do that it asks for.
    pub(crate) stated: bool,
    /// A complete answer is owed (SotW, full-state types).
    pub(crate) complete_due: bool,
    /// Removals were forgotten before this client was told: its set is looked at though the journal shows nothing.
    pub(crate) missed_removals: bool,
    /// The version a client of a pure wildcard came with: equal content need not be sent again (SOTW-4).
    pub(crate) initial_version: Option<String>,
    /// The version of the last SotW reply.
    pub(crate) sent: Option<SetVersion>,
    /// The sum over what was told by name.
    pub(crate) sum: SetVersion,
    /// What is wrong with the client's own questions; none once it was told.
    pub(crate) rejected: BTreeMap<Name, Option<Arc<NamedError>>>,
    /// How many names of the last SotW list could not be asked for.
    pub(crate) refused_before: usize,
    /// What this client calls names that it spells in a way of its own (NAME-16).
    pub(crate) spellings: BTreeMap<Name, Arc<str>>,
    /// An answer is owed that says nothing (DELTA-36).
    pub(crate) empty_answer_due: bool,
    /// Names of which it was said that the client may hold them, and the opening on which it was.
    pub(crate) claimed: BTreeMap<(Class, Name), Revision>,
    pub(crate) claims: Vec<Claimed>,
    /// It asks once, and is answered whatever it holds.
    pub(crate) asks_once: bool,
    pub(crate) acks: AckTracker,
}

#[derive(Debug)]
pub(super) struct Wildcard {
    /// Told of all additions up to here.
    pub(crate) added: Revision,
    /// What it may hold, from the first answer on.
    pub(crate) progress: Option<Progress>,
    /// An answer is owed, even an empty one (DELTA-21, SOTW-23).
    pub(crate) first: bool,
    /// What the client says it holds, until it can be judged (DELTA-13).
    pub(crate) initial_versions: Option<InitialVersions>,
    /// Told of all longer lives up to here.
    pub(crate) refreshed: Revision,
    /// Virtual hosts: only those of the route configurations that the client asked for.
    pub(crate) under: Option<BTreeSet<Name>>,
    /// The opening on which it was said what the client holds and nobody knows of.
    pub(crate) claimed_on: Option<Revision>,
    /// A relay was told that it has everything.
    pub(crate) sent_complete: bool,
}

/// `initial_resource_versions`, kept only while the set is not whole.
#[derive(Debug)]
pub(super) struct InitialVersions {
    pub(crate) versions: Arc<HashMap<Name, String>>,
    /// Names of these that the client has been told of since, so that what it came with counts no more.
    pub(crate) outdated: BTreeSet<Name>,
    /// It asked again, and is sent what it said it holds too. What is gone is still to be told.
    pub(crate) send_all: bool,
    /// The state that it was last judged by, which had nothing more to say of it.
    pub(crate) judged_at: Option<(Revision, Completeness)>,
}

/// What the client was told of a name it asked for.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SentState {
    /// The share of the content it holds from us; empty for none.
    pub(crate) holds: SetVersion,
    /// It said as it came that it holds something under this name.
    pub(crate) held_before: bool,
    /// The last of its errors that the client was told of.
    pub(crate) error: Revision,
    /// It is in a collection that the client asked for, and the client did not ask for it by itself.
    pub(crate) member: bool,
}

/// Changes of a name that are untold. A state between the first and the last has some of them, and tells those.
#[derive(Debug, Clone, Copy)]
pub(super) struct Changes {
    first: Revision,
    last: Revision,
}

/// Why a name has to be told.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Pending {
    /// The client asked, and is answered whatever it holds (DELTA-10).
    pub(crate) requested: bool,
    /// It changed.
    pub(crate) changed: Option<Changes>,
    /// A cluster waits for it, from then on with or without a change.
    pub(crate) forced_resend: Option<Moment>,
}

impl Wildcard {
    pub(crate) fn new(stated: Option<InitialVersions>) -> Self {
        Self {
            added: Revision::ZERO,
            progress: None,
            first: true,
            initial_versions: stated,
            refreshed: Revision::ZERO,
            under: None,
            claimed_on: None,
            sent_complete: false,
        }
    }

    /// Whether this wildcard is about a resource at all. What stands before the last `/` names the route configuration
    /// (DELTA-37).
    pub(crate) fn covers(&self, name: &Name) -> bool {
        let Some(routes) = &self.under else { return true };
        name.as_str().rsplit_once('/').is_some_and(|(route, _)| routes.contains(route))
    }

    /// Additions up to a state have been told: from the first answer on the client holds things, and has to hear when they go.
    pub(crate) fn record_additions_sent(&mut self, mark: Revision) {
        self.progress.get_or_insert_with(|| Progress::starting(mark)).record_additions_sent(mark);
    }
}

impl InitialVersions {
    pub(crate) fn holds(&self, resource: &Resource) -> bool {
        !self.send_all
            && !self.outdated.contains(&resource.name)
            && self.versions.get(&resource.name).is_some_and(|version| *version == resource.full.to_string())
    }
}

impl SentState {
    /// Whether an answer without this name would make the client drop something.
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
            awaiting_data: BTreeSet::new(),
            named_once: false,
            stated: false,
            complete_due: false,
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
            asks_once: false,
            acks: AckTracker::default(),
        }
    }

    /// What bounds it: nothing of this is longer than a client may ask for.
    pub(crate) fn longest_list(&self) -> usize {
        self.names.len().max(self.pending.len()).max(self.rejected.len())
    }

    pub(crate) fn wants_anything(&self) -> bool {
        self.wildcard.is_some() || !self.names.is_empty()
    }

    pub(crate) fn on_name_changed(&mut self, name: &Name, revision: Revision, forget_earlier: bool) {
        self.take_in(name);
        if !self.claimed.is_empty() {
            self.claimed.remove(&(Class::Named, name.clone())); // what is known of it now may not do for this client
        }
        if self.names.contains_key(name) {
            self.data_arrived(name);
            let pending = self.pending.entry(name.clone()).or_default();
            pending.changed = pending.changed.filter(|_| !forget_earlier);
            pending.changed_at(revision);
        }
    }

    pub(crate) fn data_arrived(&mut self, name: &Name) {
        if self.awaiting_data.remove(name) {
            self.pending.entry(name.clone()).or_default().requested = true;
        }
    }

    pub(crate) fn recheck_awaiting_data(&mut self) {
        for name in std::mem::take(&mut self.awaiting_data) {
            self.pending.entry(name).or_default().requested = true;
        }
    }

    /// The endpoints of a cluster just sent have to follow it, if the client is subscribed to them.
    pub(crate) fn force(&mut self, name: &Name, due: Moment) {
        let is_awaiting = self.awaiting_data.contains(name);
        if !is_awaiting && (self.wildcard.is_some() || self.names.contains_key(name)) {
            self.pending.entry(name.clone()).or_default().forced_resend.get_or_insert(due);
        }
    }

    /// When the next forced name falls due that has not yet.
    pub(crate) fn next_forced(&self, now: Moment) -> Option<Moment> {
        self.pending.values().filter_map(|pending| pending.forced_resend).filter(|due| *due > now).min()
    }

    /// Gets ready for a state. `false` if removals that this client should hear of are forgotten.
    pub(crate) fn start_burst(&mut self, kind: &Type, view: &ReplyContext) -> bool {
        let Some(wildcard) = &mut self.wildcard else { return true };
        let horizon = view.state.horizon(kind);
        match (&mut wildcard.progress, view.client.variant) {
            (None, _) => true,
            (Some(progress), _) if progress.removals() >= horizon => true,
            (Some(_), Variant::Delta) => view.limits.faults.has(Fault::IgnoreHorizon),
            (Some(progress), Variant::Sotw) => {
                // What it holds went by evidence, or of a set that was forgotten, may be there still and not be known.
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

    /// What the client is to see under a name: what upstream said to the name, or else to `*` if it has that too.
    pub(crate) fn known<'a>(&self, kind: &Type, name: &Name, view: &ReplyContext<'a>) -> Lookup<'a> {
        if !view.client.clearance.allows(kind, name) {
            return Lookup::Absent(None);
        }
        let named = self.names.get(name).map(|sent| match view.state.lookup(kind, Class::Named, name) {
            Lookup::Unknown if self.is_no_member(kind, name, *sent, view) => Lookup::Absent(None),
            Lookup::Absent(_) if !self.is_absent_for_client(kind, name, *sent, view) => Lookup::Unknown,
            known => known,
        });
        if let Some(Lookup::Present(_)) = named {
            return named.unwrap_or(Lookup::Unknown);
        }
        let among_all = self.wildcard.as_ref().map(|_| view.state.lookup(kind, Class::Wildcard, name));
        match (named, among_all) {
            (_, Some(Lookup::Present(resource))) => Lookup::Present(resource),
            (Some(named), _) => named,
            (None, Some(Lookup::Absent(last))) => Lookup::Absent(last),
            (None, Some(_)) if self.is_wildcard_complete(kind, view) => Lookup::Absent(None),
            (None, _) => Lookup::Unknown,
        }
    }

    /// Whether something that was asked for is not known.
    pub(crate) fn is_awaiting_data(&self, kind: &Type, view: &ReplyContext) -> bool {
        let unknown = self.names.keys().any(|name| self.known(kind, name, view).is_unknown());
        unknown || self.wildcard.is_some() && !self.can_send_full_set(kind, view)
    }

    /// Whether the end of what there is under `*` is known, so that what is not there does not exist.
    pub(crate) fn is_wildcard_complete(&self, kind: &Type, view: &ReplyContext) -> bool {
        self.wildcard_completeness(kind, view) == Completeness::Complete
    }

    pub(crate) fn wildcard_completeness(&self, kind: &Type, view: &ReplyContext) -> Completeness {
        view.state.resources(kind, Class::Wildcard).map_or(Completeness::Unknown, |table| table.completeness)
    }

    /// Whether this client may take what is here for all there is. It must not be made to drop what it holds and nobody knows of:
    /// who came with nothing, or with a version of what was here, holds no such thing.
    pub(crate) fn can_send_full_set(&self, kind: &Type, view: &ReplyContext) -> bool {
        let Some(table) = view.state.resources(kind, Class::Wildcard) else { return false };
        let partial_as_complete = view.limits.faults.has(Fault::TakePartForWhole);
        if partial_as_complete || !self.stated || self.has_past_version(table, view) {
            let enough = if view.limits.faults.has(Fault::HeldIsKeptBack) {
                Completeness::Settled
            } else {
                Completeness::FirstResponse
            };
            return table.completeness >= enough || partial_as_complete;
        }
        table.completeness == Completeness::Complete && table.is_readable()
    }

    fn has_past_version(&self, table: &ResourceTable, view: &ReplyContext) -> bool {
        let known = |version: &String| table.knows_version(version);
        view.client.variant == Variant::Sotw && self.initial_version.as_ref().is_some_and(known)
    }

    /// Whether it is said of a name that it does not exist, in a way that does for this client: who came with it has to be told
    /// so on the present opening, and who holds it at all not by silence.
    fn is_absent_for_client(&self, kind: &Type, name: &Name, sent: SentState, view: &ReplyContext) -> bool {
        let Some(table) = view.state.resources(kind, Class::Named) else { return false };
        let Some(entry) = table.get(name) else { return false };
        match entry.absence {
            _ if view.limits.faults.has(Fault::JudgeStatedWhileCold) => true,
            AbsenceEvidence::Silence if view.limits.faults.has(Fault::SilenceIsAbsence) => true,
            _ if sent.held_before => table.is_absent_by_evidence(entry),
            AbsenceEvidence::Silence => !sent.client_may_hold(),
            AbsenceEvidence::Reported | AbsenceEvidence::Expired => true,
        }
    }

    /// The client holds this, as far as can be told, and what is known of it does not do for an answer.
    pub(crate) fn claim(&mut self, class: Class, name: &Name, opening: Revision) {
        if self.claimed.insert((class, name.clone()), opening) != Some(opening) {
            self.claims.push(Claimed::Name(class, name.clone()));
        }
    }

    /// What this client holds of `*` and nobody knows of, once on each opening: it is asked for.
    pub(crate) fn claim_wildcard(&mut self, kind: &Type, view: &ReplyContext) {
        let Some(table) =
            view.state.resources(kind, Class::Wildcard).filter(|table| table.completeness == Completeness::Settled)
        else {
            return;
        };
        if self.can_send_full_set(kind, view)
            && self.wildcard.as_ref().is_none_or(|wildcard| wildcard.initial_versions.is_none())
        {
            return;
        }
        let Some(wildcard) = &mut self.wildcard else { return };
        if wildcard.claimed_on.replace(table.opening()) == Some(table.opening()) {
            return;
        }
        match (&wildcard.initial_versions, view.client.variant) {
            (Some(stated), _) => {
                let unknown = |name: &&Name| {
                    !stated.outdated.contains(*name)
                        && !self.names.contains_key(*name)
                        && table.get(name).is_none_or(|entry| {
                            !matches!(entry.presence, Presence::Present(_)) && !table.is_absent_by_evidence(entry)
                        })
                };
                let names = stated.versions.keys().filter(unknown).cloned();
                self.claims.extend(names.map(|name| Claimed::Name(Class::Wildcard, name)));
            }
            (None, Variant::Sotw) if self.stated && kind.info().full_state => self.claims.push(Claimed::Set),
            (None, _) => {}
        }
    }

    /// What a resource is worth in this client's versions: SotW clients that cannot read wrappers see the body alone.
    pub(crate) fn share(view: &ReplyContext, name: &Name, resource: &Resource) -> SetVersion {
        let full = view.client.variant == Variant::Delta || view.client.wrappers;
        SetVersion::of(name.as_str(), if full { resource.full } else { resource.content() })
    }

    /// The version of everything of a type that this client may have.
    pub(crate) fn wildcard_version(kind: &Type, table: &ResourceTable, view: &ReplyContext) -> SetVersion {
        if !view.client.clearance.restricts(kind) {
            return table.version(view.client.wrappers);
        }
        let visible = table.additions(Revision::ZERO).filter(|(_, resource)| view.client.can_have(kind, resource));
        visible.fold(SetVersion::EMPTY, |sum, (_, resource)| sum.plus(Self::share(view, &resource.name, resource)))
    }

    /// Notes what the client has now been told of a name it asked for.
    pub(crate) fn record_sent(&mut self, name: &Name, share: SetVersion) {
        if let Some(sent) = self.names.get_mut(name) {
            self.sum = self.sum.minus(sent.holds).plus(share);
            *sent = SentState { holds: share, held_before: false, ..*sent };
        }
    }

    /// What is wrong with a name, if this client reads that and has not been told.
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
            Variant::Delta => view.state.error(kind, name).map(|(revision, error)| (revision, error.clone())),
            Variant::Sotw => view.state.error_or_absence(kind, name), // absence has no other words there
        };
        error.filter(|(revision, _)| *revision > sent.error)
    }

    /// The entry that a name shows to the client, of the class that [`Self::known`] goes by.
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
        stated.map_or(0, |stated| stated.versions.len() + stated.outdated.len())
    }

    pub(crate) fn uses_full_sets(&self, kind: &Type, view: &ReplyContext) -> bool {
        view.client.variant == Variant::Sotw && kind.info().full_state
    }
}

impl ReplyContext<'_> {
    /// What is left of the life of a resource, for a client that can make use of it (XLAT-28).
    pub(crate) fn ttl(&self, entry: Option<&Entry>) -> Option<Duration> {
        let expires = entry.and_then(|entry| entry.expires).filter(|_| self.client.ttl)?;
        Some((expires - self.now).max(SHORTEST_LIFE))
    }
}

/// A resource that is about to die is sent with this much left: less would end it on the way.
const SHORTEST_LIFE: Duration = Duration::from_secs(1);

impl Pending {
    pub(crate) fn requested() -> Self {
        Self { requested: true, ..Self::default() }
    }

    pub(crate) fn changed_at(&mut self, revision: Revision) {
        let changes = self.changed.get_or_insert(Changes { first: revision, last: revision });
        changes.first = changes.first.min(revision);
        changes.last = changes.last.max(revision);
    }

    pub(crate) fn with_change(mut self, revision: Revision) -> Self {
        self.changed_at(revision);
        self
    }

    /// Whether one of the untold changes may be this.
    pub(crate) fn covers(&self, revision: Revision) -> bool {
        self.changed.is_some_and(|changes| changes.first <= revision && revision <= changes.last)
    }

    /// Whether a state has a change that is untold.
    pub(crate) fn changed_by(&self, mark: Revision) -> bool {
        self.changed.is_some_and(|changes| changes.first <= mark)
    }

    /// What is left after the state up to `mark` has been told.
    pub(crate) fn after(self, mark: Revision) -> Option<Self> {
        let last = self.changed.map(|changes| changes.last).filter(|last| *last > mark)?;
        Some(Self { changed: Some(Changes { first: mark.next(), last }), ..Self::default() })
    }
}
