//! What a session keeps of one client and one type, and a snapshot of the view as that client is to see it.
//!
//! Some resources may be loaded from disk and not confirmed by a server yet. A client that comes without state is sent all of them. A client that
//! states what it holds may hold something newer, from a relay that has heard more: it is sent them only if it states a version that this relay has
//! sent to clients. Otherwise each of these resources waits for a server; other resources do not wait.

use std::sync::Arc;

use super::client::Variant;
use super::names::SubscribedNames;
use super::pending::{Pending, RepliesDue};
use super::reply::ReplyContext;
use super::requested_names::Wording;
use super::sent_state::SentState;
use super::stated::{Claims, Stated};
use super::wildcard::Wildcard;
use crate::protocol::view::{
    AbsenceEvidence, Class, Completeness, Lookup, NamedError, Presence, ResourceTable, Revision, TableEntry,
};
use crate::protocol::visits::visit;
use crate::xds::{Name, Resource, SetVersion, Type};

/// What a session keeps of one client and one type, each part in a type of its own.
#[derive(Debug)]
pub(super) struct Books {
    pub(super) names: SubscribedNames,
    pub(super) wildcard: Option<Wildcard>,
    pub(super) stated: Stated,
    pub(super) claims: Claims,
    pub(super) due: RepliesDue,
    pub(super) wording: Wording,
}

/// What a snapshot has of one type, as one client is to see it.
#[derive(Clone, Copy)]
pub(super) struct ClientSnapshot<'b, 'a> {
    kind: &'b Type,
    view: &'b ReplyContext<'a>,
    books: &'b Books,
}

impl<'b, 'a> ClientSnapshot<'b, 'a> {
    pub(super) fn new(kind: &'b Type, view: &'b ReplyContext<'a>, books: &'b Books) -> Self {
        Self { kind, view, books }
    }

    pub(super) fn kind(&self) -> &'b Type {
        self.kind
    }

    pub(super) fn view(&self) -> &'b ReplyContext<'a> {
        self.view
    }

    pub(super) fn books(&self) -> &'b Books {
        self.books
    }

    pub(super) fn table(&self, class: Class) -> Option<&'a ResourceTable> {
        self.view.state.resources(self.kind, class)
    }

    /// Returns the wildcard and its table, if the client subscribes to the wildcard and the view has a table for it.
    pub(super) fn wildcard(&self) -> Option<(&'b Wildcard, &'a ResourceTable)> {
        self.books.wildcard.as_ref().zip(self.table(Class::Wildcard))
    }

    pub(super) fn uses_full_sets(&self) -> bool {
        self.view.client.variant == Variant::Sotw && self.kind.info().full_state
    }

    pub(super) fn allows(&self, name: &Name) -> bool {
        self.view.client.clearance.allows(self.kind, name)
    }

    pub(super) fn can_have(&self, resource: &Resource) -> bool {
        self.view.client.can_have(self.kind, resource)
    }

    /// Returns what the client is to be sent for a name. What the server sent for the name itself comes first, then what it sent for `*`, if the
    /// client subscribes to `*` too.
    pub(super) fn known(&self, name: &Name) -> Lookup<'a> {
        if !self.allows(name) {
            return Lookup::Absent(None);
        }
        let claims = &self.books.claims;
        let sent = self.books.names.get(name);
        let named = sent.map(|sent| match self.lookup(Class::Named, name, Some(sent)) {
            Lookup::Unknown if self.is_no_member(name, sent) => Lookup::Absent(None),
            Lookup::Unknown if claims.is_absent(Class::Named, name, self.table(Class::Named)) => Lookup::Absent(None),
            Lookup::Absent(_) if !self.is_absent_by_name(name, sent) => Lookup::Unknown,
            known => known,
        });
        if let Some(Lookup::Present(_)) = named {
            return named.unwrap_or(Lookup::Unknown);
        }
        let among_all = self.books.wildcard.as_ref().map(|_| self.lookup(Class::Wildcard, name, sent));
        match (named, among_all) {
            (None, Some(Lookup::Present(resource))) if self.is_to_withhold(resource) => Lookup::Unknown,
            (_, Some(Lookup::Present(resource))) => Lookup::Present(resource),
            (Some(named), _) => named,
            (None, Some(Lookup::Absent(last))) => Lookup::Absent(last),
            (None, Some(_))
                if self.is_outside_of_wildcard(name)
                    || claims.is_absent(Class::Wildcard, name, self.table(Class::Wildcard)) =>
            {
                Lookup::Absent(None)
            }
            (None, _) => Lookup::Unknown,
        }
    }

    pub(super) fn is_absent(&self, name: &Name) -> bool {
        matches!(self.known(name), Lookup::Absent(_))
    }

    pub(super) fn is_unknown(&self, name: &Name) -> bool {
        self.known(name).is_unknown()
    }

    /// Whether the server has sent a resource for a name that the client subscribes to. What it sent for `*` does not count for the name then.
    pub(super) fn is_present_by_name(&self, name: &Name) -> bool {
        self.books.names.contains(name)
            && matches!(self.view.state.lookup(self.kind, Class::Named, name), Lookup::Present(_))
    }

    /// Returns what is known of a name in one class. If the client stated the name, a resource that was loaded from disk counts as unknown.
    fn lookup(&self, class: Class, name: &Name, sent: Option<&SentState>) -> Lookup<'a> {
        let found = self.view.state.lookup(self.kind, class, name);
        if !sent.is_some_and(SentState::held_before) {
            return found;
        }
        let entry = self.table(class).and_then(|table| table.get(name));
        let is_from_disk = entry.is_some_and(|entry| entry.resource().is_some() && entry.origin.from_disk);
        if is_from_disk { Lookup::Unknown } else { found }
    }

    /// Whether a name without a value counts as absent from its collection. Members that the client stated are judged only when the collection
    /// is complete (DELTA-16).
    fn is_no_member(&self, name: &Name, sent: &SentState) -> bool {
        // The change that made the name pending may be later than this snapshot.
        let is_later = |pending: &Pending| pending.changes_after(self.view.state.revision);
        let of_this_state = !self.books.names.pending_of(name).is_some_and(is_later);
        let is_complete = || self.collection_completeness(name) == Some(Completeness::Complete);
        sent.is_member() && of_this_state && (!sent.held_before() || is_complete())
    }

    pub(super) fn collection_completeness(&self, member: &Name) -> Option<Completeness> {
        self.table(Class::Named)?.collections().completeness_of(self.books.names.collection(member)?)
    }

    /// Whether the evidence that a name is absent suffices for this client. If it stated the name, the evidence has to be from this opening. If it
    /// holds the name at all, or is a relay, silence does not suffice: a relay has clients that may hold the name, and judges silence itself.
    fn is_absent_by_name(&self, name: &Name, sent: &SentState) -> bool {
        let ReplyContext { client, .. } = self.view;
        let Some(table) = self.table(Class::Named) else { return false };
        let Some(entry) = table.get(name) else { return false };
        match entry.absence {
            _ if sent.held_before() => table.coverage().is_absent_by_evidence(entry),
            AbsenceEvidence::Silence => {
                let judges = client.relay && !client.is_view;
                !sent.client_may_hold() && !judges
            }
            AbsenceEvidence::Reported | AbsenceEvidence::Expired => true,
        }
    }

    /// Returns the entry of a name, in the class that [`Self::known`] uses.
    pub(super) fn entry(&self, name: &Name) -> Option<&'a TableEntry> {
        let of = |class| self.table(class).and_then(|table| table.get(name));
        let named = of(Class::Named).filter(|_| self.books.names.contains(name));
        let here = |entry: &&TableEntry| matches!(entry.presence, Presence::Present(_));
        named
            .filter(here)
            .or_else(|| of(Class::Wildcard).filter(|_| self.books.wildcard.is_some()).filter(here))
            .or(named)
    }

    /// Returns the error of a name, if this client reads errors and was not sent this one yet.
    pub(super) fn unsent_error(&self, name: &Name) -> Option<(Revision, Arc<NamedError>)> {
        let sent = self.books.names.get(name).filter(|_| self.view.client.errors)?;
        let error = match self.view.client.variant {
            _ if !self.allows(name) => Some((Revision::ZERO.next(), Arc::new(NamedError::not_allowed()))),
            // SotW has no other way to express absence.
            Variant::Sotw if self.is_absent_by_name(name, sent) => self.view.state.error_or_absence(self.kind, name),
            _ => self.view.state.error(self.kind, name).map(|(revision, error)| (revision, error.clone())),
        };
        error.filter(|(revision, _)| *revision > sent.error())
    }

    /// Whether something that was requested is unknown. Nothing is ever known of the name of a collection that has members.
    pub(super) fn is_awaiting_data(&self) -> bool {
        let mut names = self.books.names.keys().inspect(|_| visit());
        names.any(|name| self.is_unknown(name) && !self.is_settled_collection(name))
            || self.books.wildcard.is_some() && !self.can_send_full_set()
    }

    /// Whether a name is that of a collection whose members are known.
    fn is_settled_collection(&self, name: &Name) -> bool {
        let completeness = || self.table(Class::Named)?.collections().completeness_of(name);
        self.books.names.has_glob(name) && completeness() >= Some(Completeness::Settled)
    }

    pub(super) fn completeness(&self) -> Completeness {
        self.table(Class::Wildcard).map_or(Completeness::Unknown, |table| table.coverage().completeness())
    }

    /// Whether all of `*` is known, so that what is missing does not exist.
    pub(super) fn is_complete(&self) -> bool {
        self.completeness() == Completeness::Complete
    }

    /// Whether `*` is complete and has no such name. A name whose resource came and could not be read does exist.
    fn is_outside_of_wildcard(&self, name: &Name) -> bool {
        self.is_complete() && !self.table(Class::Wildcard).is_some_and(|table| table.coverage().is_unreadable(name))
    }

    /// Whether the cached set can be sent to this client as the complete one. The client would drop whatever it holds and the view does not
    /// know. A client holds no such resource if it stated nothing, or stated a version that the set had.
    pub(super) fn can_send_full_set(&self) -> bool {
        let Some(table) = self.table(Class::Wildcard) else { return false };
        if !self.books.stated.holds_something() || self.states_past_version(table) {
            return table.coverage().completeness() >= Completeness::FirstResponse;
        }
        table.coverage().completeness() == Completeness::Complete && table.coverage().is_readable()
    }

    fn states_past_version(&self, table: &ResourceTable) -> bool {
        self.view.client.variant == Variant::Sotw && self.books.stated.is_past_version(table)
    }

    /// Whether `*` has resources that a server may still confirm, and of which this client may hold a newer version.
    pub(super) fn may_hold_newer(&self) -> bool {
        self.may_hold_newer_than(|table| table.sums().awaits_confirmation())
    }

    /// Whether resources of `*` that were loaded from disk are kept back from this client.
    pub(super) fn withholds(&self) -> bool {
        self.may_hold_newer_than(|table| table.sums().loaded_from_disk() > 0)
    }

    fn may_hold_newer_than(&self, concerns: fn(&ResourceTable) -> bool) -> bool {
        let Some(wildcard) = self.books.wildcard.as_ref().filter(|_| self.books.stated.holds_something()) else {
            return false;
        };
        let table = self.table(Class::Wildcard).filter(|table| concerns(table));
        table.is_some_and(|table| {
            let is_known = match wildcard.initial_versions() {
                Some(stated) => stated.sum().is_some_and(|sum| table.sums().knows_sum(sum)),
                None => self.states_past_version(table),
            };
            !is_known
        })
    }

    /// Whether this resource of `*` is to be kept back from this client.
    fn is_to_withhold(&self, resource: &Resource) -> bool {
        let Some((wildcard, table)) = self.wildcard() else { return false };
        let holds_it = || wildcard.initial_versions().is_some_and(|stated| stated.has_or_was_sent(resource));
        let entry = table.get(&resource.name);
        let is_at_stake = entry.is_some_and(|entry| wildcard.keeps_back(&resource.name, entry, self.view.client));
        is_at_stake && self.withholds() && !holds_it()
    }

    /// Whether the client is to be sent that `*` lost a name.
    pub(super) fn is_lost(&self, name: &Name, gone: &TableEntry, wildcard: &Wildcard) -> bool {
        // A name that is subscribed by itself follows what the server sent for that name.
        let sent = self.books.names.get(name);
        let by_name = sent.is_some_and(|sent| match self.view.state.lookup(self.kind, Class::Named, name) {
            Lookup::Present(_) => true,
            Lookup::Unknown => !sent.is_member(),
            Lookup::Absent(_) => false,
        });
        let may_have = self.allows(name);
        wildcard.client_may_hold(gone) && !by_name && may_have && wildcard.covers(name) && !self.is_reached(name)
    }

    /// Whether a removal of this name would take from the client what it is to keep: an alias, `*` or the name itself leads to a resource.
    pub(super) fn is_reached(&self, own: &Name) -> bool {
        let Books { names, wildcard, .. } = self.books;
        let leads_there =
            |name: &Name| matches!(self.known(name), Lookup::Present(of) if of.name == *own && self.can_have(of));
        let is_sent = || names.contains(own) || wildcard.as_ref().is_some_and(|wildcard| wildcard.covers(own));
        let by_own_name = || self.is_present_by_name(own) || is_sent() && leads_there(own);
        self.kind.info().by_alias && (by_own_name() || names.targets().aliases_of(own).any(leads_there))
    }

    /// Returns what a resource adds to the versions that this client is sent. For SotW clients that cannot read wrappers only the body counts.
    pub(super) fn share(&self, name: &Name, resource: &Resource) -> SetVersion {
        let full = self.view.client.variant == Variant::Delta || self.view.client.wrappers;
        SetVersion::of(name.as_str(), if full { resource.full } else { resource.content() })
    }

    /// Returns the version of what the client has of the type with this snapshot. For a client that may not have everything this visits every
    /// resource.
    pub(super) fn version(&self) -> SetVersion {
        let sum = self.books.names.version();
        let wildcard = self.wildcard();
        wildcard.map_or(sum, |(wildcard, table)| {
            let withheld = wildcard.withheld().names().filter_map(|name| table.get(name)?.resource());
            sum.plus(self.wildcard_version(table)).minus(self.sum_of(withheld))
        })
    }

    /// Returns the version of everything of a type that this client may have.
    pub(super) fn wildcard_version(&self, table: &ResourceTable) -> SetVersion {
        if !self.view.client.clearance.restricts(self.kind) {
            return table.sums().version(self.view.client.wrappers);
        }
        let all = table.additions(Revision::ZERO).map(|(_, resource)| resource);
        self.sum_of(all.filter(|resource| self.can_have(resource)))
    }

    fn sum_of<'r>(&self, resources: impl Iterator<Item = &'r Arc<Resource>>) -> SetVersion {
        resources.fold(SetVersion::EMPTY, |sum, of| sum.plus(self.share(&of.name, of)))
    }
}

/// Whether a client is sent the same as all others that subscribe to `*` in its variant: it may have everything, and its replies carry no TTL.
pub(super) fn is_the_same_for_all(kind: &Type, view: &ReplyContext) -> bool {
    let immortal = || view.state.resources(kind, Class::Wildcard).is_none_or(|table| table.expirations().is_empty());
    !view.client.clearance.restricts(kind) && (!view.client.ttl || immortal())
}

/// Claims what the client holds of its subscriptions and the view does not know.
pub(super) fn claim_held(books: &mut Books, kind: &Type, view: &ReplyContext) {
    claim_wildcard(books, kind, view);
    let snapshot = ClientSnapshot::new(kind, view, books);
    let Some(table) = snapshot.table(Class::Named) else { return };
    let mut names = unknown_members(&snapshot);
    if snapshot.uses_full_sets() {
        names.extend(doubted_names(&snapshot, table));
    }
    names.iter().for_each(|name| books.claims.claim(Class::Named, name, table.coverage().opening()));
}

/// Returns the members of collections that the client holds and the view does not know.
fn unknown_members(snapshot: &ClientSnapshot) -> Vec<Name> {
    let names = &snapshot.books().names;
    if !names.has_collections() {
        return Vec::new();
    }
    let is_held = |name: &Name| names.get(name).is_some_and(|sent| sent.is_member() && sent.held_before());
    let held = names.pending().map(|(name, _)| name).filter(|name| is_held(name));
    let settled = held.filter(|name| snapshot.collection_completeness(name) == Some(Completeness::Settled));
    settled.filter(|name| snapshot.is_unknown(name)).cloned().collect()
}

/// Returns names that the client subscribes to and may hold, if the evidence of their absence does not suffice for this client.
fn doubted_names(snapshot: &ClientSnapshot, table: &ResourceTable) -> Vec<Name> {
    let is_gone = |name: &Name| matches!(table.get(name).map(|entry| &entry.presence), Some(Presence::Absent(_)));
    let names = &snapshot.books().names;
    let pending = names.pending().map(|(name, _)| name);
    let doubted = pending.filter(|name| names.client_may_hold(name) && is_gone(name) && snapshot.is_unknown(name));
    doubted.cloned().collect()
}

fn claim_wildcard(books: &mut Books, kind: &Type, view: &ReplyContext) {
    let states_names = books.wildcard.as_ref().is_some_and(|wildcard| wildcard.initial_versions().is_some());
    let Books { claims, names, .. } = &mut *books;
    claims.release_answers(kind, view.state, |class, name| {
        states_names && class == Class::Wildcard || names.pending_of(name).is_some()
    });
    let snapshot = ClientSnapshot::new(kind, view, books);
    let table = snapshot.table(Class::Wildcard);
    let Some(table) = table.filter(|table| table.coverage().completeness() == Completeness::Settled) else { return };
    // A relay's clients may hold more than the relay has stated. It is sent completeness marks, so it needs the end of each set.
    let full_state = kind.info().full_state;
    let passes_on = view.client.relay && view.client.variant == Variant::Delta && full_state;
    let lacks_end = books.stated.holds_something() && (states_names || !snapshot.can_send_full_set());
    // What was loaded from disk and is not confirmed is kept back from this client until the set ends.
    let awaits_all = states_names && full_state && snapshot.may_hold_newer();
    if !lacks_end && !passes_on {
        return;
    }
    let Books { wildcard: Some(wildcard), claims, names, .. } = books else { return };
    // Before the first reply, only the horizon shows whether the table has forgotten removals that this client lacks.
    let forgotten = if wildcard.removals_sent().is_none() { table.journal().horizon() } else { Revision::ZERO };
    if !wildcard.claim_on(table.coverage().opening(), forgotten) {
        return;
    }
    if passes_on || awaits_all {
        claims.claim_set();
    }
    match (wildcard.initial_versions(), view.client.variant) {
        (Some(stated), _) => {
            let is_unknown = |name: &&Name| {
                table.get(name).is_none_or(|entry| {
                    !matches!(entry.presence, Presence::Present(_)) && !table.coverage().is_absent_by_evidence(entry)
                })
            };
            let held = stated.current().map(|(_, name)| name);
            let held = held.filter(|name| !names.contains(name) && !name.asks_for_end());
            claims.claim_stated(held.filter(is_unknown), table);
        }
        (None, Variant::Sotw) if full_state => claims.claim_set(),
        (None, _) => {}
    }
}
