//! What a session knows of one resource: whether its client subscribes to it, was sent it, and has accepted it; and if not, why. And for all
//! resources: which ones the client lacks, has in an earlier version, or should no longer have.
//!
//! Every answer is read from the same state by which the session decides.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::acks::AckTracker;
use super::client::Variant;
use super::client_snapshot::{Books, ClientSnapshot};
use super::delays::{Delay, Delays};
use super::rejections::{RejectedIn, SentResource};
use super::requested_names::NameParser;
use super::standing_nack::InRejected;
use super::wildcard::Wildcard;
use crate::protocol::moment::Moment;
use crate::protocol::view::{AbsenceEvidence, Class, Completeness, Lookup, Presence, Revision, Snapshot, TableEntry};
use crate::xds::{Authority, Name, Resource, Type, Xdstp, nearest_few};

/// What a session knows of one name.
#[derive(Debug)]
pub struct NameBook {
    /// How the client subscribes to the name, if it does.
    pub subscribed: NameSubscription,
    /// Why the client cannot have the resource, if it cannot.
    pub obstacle: Option<Obstacle>,
    /// What the view has.
    pub known: NameInView,
    /// What the client was last sent.
    pub sent: LastSent,
    /// How the client has answered what it was sent.
    pub answer: AckState,
    /// Why the client has not been sent what is due.
    pub delay: Option<Delay>,
    /// How much is known of the wildcard set, if the client subscribes to that.
    pub completeness: Option<Completeness>,
    /// The set that the name would be in is complete and does not have it.
    pub is_outside: bool,
}

/// How a client subscribes to a name.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct NameSubscription {
    /// The client has requested the type.
    pub to_type: bool,
    pub by_name: bool,
    pub by_wildcard: bool,
    pub by_collection: Option<Name>,
    /// If the client does not subscribe to the name: a similar name to which it does.
    pub similar: Option<Name>,
}

/// Why a client cannot have a resource, whatever servers send.
#[derive(Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// Permissions or access rules do not allow it.
    NotAllowed,
    /// The client cannot request the name, for this reason.
    Rejected(String),
    /// The view or the cache has no room for it.
    NoRoom,
    /// The client cannot read the resource, whose body has another name.
    Unreadable,
}

/// What the view has under the name for this client.
#[derive(Debug, PartialEq, Eq)]
pub enum NameInView {
    /// Nothing is known of it yet.
    Unknown,
    /// The resource does not exist; if `suffices` is false, that is not certain enough for a client that may hold it.
    Absent {
        /// The evidence of the absence.
        evidence: AbsenceEvidence,
        /// Since when it is absent.
        since: Moment,
        /// Whether the evidence suffices for a client that may hold the resource.
        suffices: bool,
    },
    /// The view has the resource.
    Present {
        /// The version that the client would be sent.
        version: String,
        /// The index of its server in the plan.
        server: u16,
        /// Since when the view has the resource from this server.
        since: Moment,
        /// It is from an earlier process or configuration, and no server has sent it again yet.
        from_disk: bool,
    },
}

/// What the client was last sent of the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LastSent {
    /// Nothing, on this stream.
    Nothing,
    /// What the view has now: the resource, or its removal.
    Current,
    /// An earlier version, or a resource that is removed by now.
    Earlier,
    /// Nothing on this stream, but it stated that it holds the resource; or nothing by this name, but it may hold it of `*`, which it has left.
    HeldBefore,
}

/// How the client has answered what it was sent.
#[derive(Debug, PartialEq, Eq)]
pub enum AckState {
    /// There was nothing to answer.
    None,
    /// The newest reply of the type is unanswered.
    Pending,
    /// It has accepted what it was sent.
    Accepted,
    /// It rejects the resource, or a NACK stands that may be about another one.
    Nacked {
        /// The client's reason. Empty if it is not known which one of several.
        reason: String,
        /// Since when the NACK stands.
        since: Moment,
        /// How the resource relates to what the client rejects.
        of: InRejected,
    },
}

/// Returns what a session knows of a name of a type that its client subscribes to.
pub(super) fn explain(snapshot: &ClientSnapshot, acks: &AckTracker, delays: &Delays, name: &Name) -> NameBook {
    let (kind, state) = (snapshot.kind(), snapshot.view().state);
    let subscribed = subscribed(snapshot.books(), name);
    let entry = snapshot.entry(name).or_else(|| known_entry(kind, name, state));
    let known = snapshot.known(name);
    let is_outside = matches!(known, Lookup::Absent(_)) && is_outside(snapshot, name);
    let sent = if subscribed.is_any() { sent(snapshot, name, entry) } else { LastSent::Nothing };
    let current = entry.filter(|_| sent == LastSent::Current);
    NameBook {
        obstacle: obstacle(snapshot, name, known),
        known: NameInView::of(entry.filter(|_| !is_outside), !known.is_unknown()),
        sent,
        answer: if sent == LastSent::Nothing { AckState::None } else { answer(snapshot, acks, name, current) },
        delay: delay(delays, kind, matches!(known, Lookup::Absent(_))),
        completeness: snapshot.books().wildcard.as_ref().map(|_| snapshot.completeness()),
        is_outside,
        subscribed,
    }
}

/// Returns what a session knows of a name of a type that its client does not subscribe to.
pub(super) fn explain_unsubscribed(kind: &Type, name: &Name, state: &Snapshot) -> NameBook {
    NameBook {
        subscribed: NameSubscription::default(),
        obstacle: None,
        known: NameInView::of(known_entry(kind, name, state), true),
        sent: LastSent::Nothing,
        answer: AckState::None,
        delay: None,
        completeness: None,
        is_outside: false,
    }
}

/// Returns why a name cannot be requested. It is read again here, because for clients that do not read errors the session records none.
pub(super) fn rejected_name(parser: &NameParser, name: &Name) -> Option<Obstacle> {
    let read = Xdstp::is_new_style(name.as_str()).then(|| parser.read(name.as_str()));
    read?.err().map(|(_, reason)| Obstacle::Rejected(reason))
}

fn delay(delays: &Delays, kind: &Type, is_removal: bool) -> Option<Delay> {
    let removals = |(reason, until)| Delay { kind: kind.clone(), reason, until };
    let of_addition = delays.of_additions(kind).cloned();
    // A full set that waits has both delays.
    if is_removal { of_addition.or_else(|| delays.of_removals().map(removals)) } else { of_addition }
}

impl NameSubscription {
    pub fn is_any(&self) -> bool {
        self.by_name || self.by_wildcard || self.by_collection.is_some()
    }
}

impl NameInView {
    fn of(entry: Option<&TableEntry>, suffices: bool) -> Self {
        match entry.map(|entry| (entry, &entry.presence)) {
            Some((entry, Presence::Present(resource))) => Self::Present {
                version: resource.full.to_string(),
                server: entry.origin.server,
                since: entry.since,
                from_disk: entry.origin.from_disk,
            },
            Some((entry, Presence::Absent(_))) => {
                Self::Absent { evidence: entry.absence, since: entry.since, suffices }
            }
            Some((_, Presence::Unknown)) | None => Self::Unknown,
        }
    }
}

fn subscribed(books: &Books, name: &Name) -> NameSubscription {
    let Books { names, wildcard, wording, .. } = books;
    let by_name = names.get(name).is_some_and(|sent| !sent.is_member()) || wording.rejects(name);
    let by_wildcard = wildcard.as_ref().is_some_and(|wildcard| wildcard.covers(name));
    let by_collection = names.collection(name).cloned();
    let is_any = by_name || by_wildcard || by_collection.is_some();
    let similar = if is_any { None } else { similar_to(name, names.keys().take(COMPARED), 1).pop() };
    NameSubscription { to_type: true, by_name, by_wildcard, by_collection, similar }
}

/// Whether an absent name lies in a set that is complete, and nothing was ever known of the name itself. `*` does not cover names of other
/// authorities, but a collection may.
fn is_outside(snapshot: &ClientSnapshot, name: &Name) -> bool {
    let Books { names, wildcard, .. } = snapshot.books();
    let has_own = |class| snapshot.table(class).is_some_and(|table| table.get(name).is_some());
    let is_of_wildcard = Authority::of(name) == Authority::TopLevel;
    match wildcard {
        Some(_) if is_of_wildcard && !names.contains(name) => snapshot.is_complete() && !has_own(Class::Wildcard),
        _ => snapshot.collection_completeness(name) == Some(Completeness::Complete) && !has_own(Class::Named),
    }
}

fn obstacle(snapshot: &ClientSnapshot, name: &Name, known: Lookup) -> Option<Obstacle> {
    if !snapshot.allows(name) {
        return Some(Obstacle::NotAllowed);
    }
    if snapshot.books().names.get(name).is_some_and(|sent| sent.is_refused()) {
        return Some(Obstacle::NoRoom);
    }
    match known {
        Lookup::Present(resource) if !snapshot.can_have(resource) => Some(Obstacle::Unreadable),
        _ => None,
    }
}

/// Returns what the client was last sent for a name that it subscribes to.
fn sent(snapshot: &ClientSnapshot, name: &Name, entry: Option<&TableEntry>) -> LastSent {
    let Books { names, wildcard, .. } = snapshot.books();
    let resource = entry.and_then(TableEntry::resource);
    match names.get(name) {
        Some(sent) if sent.held_before() => return LastSent::HeldBefore,
        Some(sent) if !sent.holds().is_empty() => {
            let is_current = resource.is_some_and(|resource| sent.holds() == snapshot.share(name, resource));
            return if is_current { LastSent::Current } else { LastSent::Earlier };
        }
        Some(_) if wildcard.is_none() => {
            let is_due = names.pending_of(name).is_some() || names.is_awaiting_data(name);
            let is_absent = snapshot.is_absent(name);
            return if is_absent && !is_due { LastSent::Current } else { LastSent::Nothing };
        }
        _ => {}
    }
    let Some((wildcard, entry)) = wildcard.as_ref().zip(entry) else { return LastSent::Nothing };
    sent_of_wildcard(wildcard, entry, resource)
}

fn sent_of_wildcard(wildcard: &Wildcard, entry: &TableEntry, resource: Option<&Arc<Resource>>) -> LastSent {
    if resource.is_some_and(|resource| wildcard.withheld().has(&resource.name)) {
        return LastSent::Nothing;
    }
    let Some(removals_sent) = wildcard.removals_sent() else { return LastSent::Nothing };
    let (sent_up_to, holds_earlier) = match resource {
        Some(_) => {
            let was_sent = entry.history.overlaps(Revision::ZERO, wildcard.added(), entry.changed);
            (wildcard.added(), was_sent && wildcard.client_may_hold(entry)) // it may have been sent a removal since then
        }
        None => (removals_sent, wildcard.client_may_hold(entry)),
    };
    match entry.changed <= sent_up_to {
        true => LastSent::Current,
        false if holds_earlier => LastSent::Earlier,
        false => LastSent::Nothing,
    }
}

/// Returns what the view has for a name, requested by name or as a part of the wildcard set.
fn known_entry<'a>(kind: &Type, name: &Name, state: &'a Snapshot) -> Option<&'a TableEntry> {
    let of = |class| state.resources(kind, class).and_then(|table| table.get(name));
    of(Class::Named).or_else(|| of(Class::Wildcard))
}

/// Returns how the client has answered a resource. `current` is the entry, if the client was sent its present version.
fn answer(snapshot: &ClientSnapshot, acks: &AckTracker, name: &Name, current: Option<&TableEntry>) -> AckState {
    let client = snapshot.view().client;
    let reads_wrappers = client.variant == Variant::Delta || client.wrappers;
    let changed = |entry: &TableEntry| if reads_wrappers { entry.changed } else { entry.body_changed };
    let changed = current.map_or(Revision::ZERO, changed);
    let sent = SentResource::of(snapshot.kind(), name, current, changed);
    if let Some(RejectedIn { of, reason, since }) = acks.in_rejected(&sent) {
        return AckState::Nacked { reason: reason.to_owned(), since, of };
    }
    answer_of_newest(acks)
}

/// Returns how the client has answered the wildcard set. A NACK without suspects ends when the client accepts any newer reply, although that reply
/// need not have the rejected resources. If not all names of a rejected reply are remembered, it may be any resource that has not changed since.
pub(super) fn answer_of_set(snapshot: &ClientSnapshot, acks: &AckTracker) -> AckState {
    if let Some(nack) = acks.standing() {
        return AckState::Nacked { reason: nack.reason.to_string(), since: nack.since, of: InRejected::Unknown };
    }
    let unnamed = acks.rejections().unnamed_up_to().zip(snapshot.wildcard());
    let others = unnamed.into_iter().flat_map(|(up_to, (_, table))| {
        table.entries().filter(move |(_, entry)| entry.body_changed <= up_to).map(|(name, _)| name)
    });
    let rejected = acks.rejections().named().chain(others).find_map(|name| {
        let (wildcard, table) = snapshot.wildcard()?;
        let entry = table.get(name).filter(|entry| entry.resource().is_some())?;
        if !wildcard.covers(name) || !snapshot.allows(name) {
            return None;
        }
        let sent = sent(snapshot, name, Some(entry));
        match answer(snapshot, acks, name, Some(entry).filter(|_| sent == LastSent::Current)) {
            _ if !matches!(sent, LastSent::Current | LastSent::Earlier) => None,
            AckState::Nacked { of: InRejected::Not { .. }, .. } => None,
            AckState::Nacked { reason, since, .. } => Some(AckState::Nacked { reason, since, of: InRejected::Unknown }),
            AckState::None | AckState::Pending | AckState::Accepted => None,
        }
    });
    rejected.unwrap_or_else(|| answer_of_newest(acks))
}

fn answer_of_newest(acks: &AckTracker) -> AckState {
    match acks.newest() {
        None => AckState::None,
        Some((_, true)) => AckState::Pending,
        Some((_, false)) => AckState::Accepted,
    }
}

/// Returns up to `count` names that are probably meant, because they differ in a few letters only.
pub fn similar_to<'a>(name: &Name, among: impl Iterator<Item = &'a Name>, count: usize) -> Vec<Name> {
    let limit = (name.as_str().len() / 3).clamp(1, MAX_TYPOS);
    let found = nearest_few(name.as_str(), among.map(Name::as_str), limit, count);
    found.into_iter().map(Name::from).collect()
}

const MAX_TYPOS: usize = 2;
/// With how many of a session's names a name is compared.
const COMPARED: usize = 10_000;

/// The differences of one type: the first names of each kind, and how many there are.
#[derive(Debug, Default)]
pub struct Differences {
    /// Resources that exist and that the client was not sent.
    pub missing: CountedNames,
    /// Resources of which the client was sent an earlier version.
    pub outdated: CountedNames,
    /// Resources that do not exist, and whose removal the client was not sent.
    pub surplus: CountedNames,
    /// Names to which the client subscribes and of which nothing is known.
    pub unknown: CountedNames,
}

/// The first names in order, and the count of all names.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct CountedNames {
    /// The first ones.
    pub first: Vec<Name>,
    /// How many there are.
    pub count: usize,
}

impl CountedNames {
    fn add(&mut self, name: &Name, limit: usize) {
        self.count += 1;
        if self.first.len() < limit {
            self.first.push(name.clone());
        }
    }
}

/// Compares what the client was sent of a type with a snapshot. Each list keeps up to `limit` names.
pub(super) fn differences(snapshot: &ClientSnapshot, limit: usize) -> Differences {
    let mut differences = Differences::default();
    for name in unsent_names(snapshot) {
        let entry = snapshot.entry(name).or_else(|| known_entry(snapshot.kind(), name, snapshot.view().state));
        let list = match (snapshot.known(name), sent(snapshot, name, entry)) {
            (Lookup::Present(resource), _) if !snapshot.can_have(resource) => continue,
            (Lookup::Present(_), LastSent::Nothing | LastSent::HeldBefore) => &mut differences.missing,
            (Lookup::Present(_), LastSent::Earlier) => &mut differences.outdated,
            (Lookup::Absent(_), LastSent::Earlier | LastSent::HeldBefore) => &mut differences.surplus,
            (Lookup::Unknown, _) => &mut differences.unknown,
            (_, LastSent::Current) | (Lookup::Absent(_), LastSent::Nothing) => continue,
        };
        list.add(name, limit);
    }
    differences
}

/// Returns every name for which something may be due.
fn unsent_names<'a>(snapshot: &ClientSnapshot<'a, 'a>) -> BTreeSet<&'a Name> {
    let listed = &snapshot.books().names;
    let mut names: BTreeSet<_> = listed.pending().map(|(name, _)| name).chain(listed.awaiting_data()).collect();
    if let Some((wildcard, table)) = snapshot.wildcard() {
        let allowed = |name: &&Name| wildcard.covers(name) && snapshot.allows(name);
        let changed = table.changed_since(wildcard.added()).map(|(name, _)| name);
        names.extend(changed.chain(wildcard.withheld().names()).filter(allowed));
        let removed = wildcard.removals_sent().into_iter().flat_map(|from| table.removals(from));
        let held = removed.filter(|(_, entry)| wildcard.client_may_hold(entry));
        names.extend(held.map(|(name, _)| name).filter(allowed));
    }
    names
}
