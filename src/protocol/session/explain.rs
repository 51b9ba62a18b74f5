//! What a session knows of one resource: whether its client subscribes to it, was sent it, and has accepted it; and if not, why. Of all
//! resources: which the client lacks, has in an earlier version, or should no longer have.
//!
//! Every answer is read from what the session decides by.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::acks::AckTracker;
use super::delays::Delay;
use super::requested_names::NameParser;
use super::subscription::Subscription;
use super::{ReplyContext, Session};
use crate::protocol::moment::Moment;
use crate::protocol::view::{AbsenceEvidence, Class, Completeness, Entry, Lookup, Presence, Revision, Snapshot};
use crate::xds::{Name, Resource, Type, Xdstp, nearest};

/// What a session knows of one name.
#[derive(Debug)]
pub(crate) struct NameBook {
    /// Everything that the client subscribes to and that has the name in it.
    pub(crate) subscribed: Subscribed,
    pub(crate) obstacle: Option<Obstacle>,
    pub(crate) known: Known,
    pub(crate) sent: Sent,
    pub(crate) answer: Answer,
    /// Why what is due has not been sent.
    pub(crate) delay: Option<Delay>,
    /// How much is known of the wildcard set, if the client subscribes to that.
    pub(crate) completeness: Option<Completeness>,
}

/// How a client subscribes to a name.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Subscribed {
    /// The client has requested the type.
    pub(crate) to_type: bool,
    pub(crate) by_name: bool,
    pub(crate) by_wildcard: bool,
    pub(crate) by_collection: Option<Name>,
    /// A name that it subscribes to instead and that differs little from this one.
    pub(crate) similar: Option<Name>,
}

/// Why a client cannot have a name, whatever servers send.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Obstacle {
    /// Permissions or access rules do not allow it.
    NotAllowed,
    /// It cannot be requested.
    Rejected(String),
    /// The view or the cache has no room for it.
    NoRoom,
    /// The client cannot read it: its name in the body is another.
    Unreadable,
}

/// What the view has under the name for this client.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Known {
    Unknown,
    /// It does not exist; or, if `suffices` is false, not certainly enough for a client that may hold it.
    Absent {
        evidence: AbsenceEvidence,
        since: Moment,
        suffices: bool,
    },
    Present {
        version: String,
        /// The place of its server in the plan.
        server: u16,
        since: Moment,
        from_disk: bool,
    },
}

/// What the client was last sent of the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sent {
    Nothing,
    /// What the view has now: the resource, or its removal.
    Current,
    /// An earlier version, or the resource where it is removed now.
    Earlier,
    /// It stated that it holds the resource, and was not sent it on this stream.
    HeldBefore,
}

/// How the client has answered what it was sent.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    None,
    /// The newest reply of the type is unanswered.
    Pending,
    Accepted,
    Nacked {
        reason: String,
        since: Moment,
        /// The reason quotes the name.
        is_suspect: bool,
    },
}

impl Session {
    /// Returns what the session knows of a name, with the newest snapshot of its view.
    pub(crate) fn explain(&self, kind: &Type, name: &Name, state: &Snapshot, now: Moment) -> NameBook {
        let view = ReplyContext { state, client: &self.client, limits: &self.limits, now };
        let Some(of) = self.subscriptions.get(kind) else {
            return NameBook {
                subscribed: Subscribed::default(),
                obstacle: None,
                known: Known::of(known_entry(kind, name, state), true),
                sent: Sent::Nothing,
                answer: Answer::None,
                delay: None,
                completeness: None,
            };
        };
        let subscribed = of.subscribed(name);
        let entry = of.entry(kind, name, &view).or_else(|| known_entry(kind, name, state));
        let known = of.known(kind, name, &view);
        let suffices = !known.is_unknown();
        let sent = if subscribed.is_any() { of.sent(kind, name, entry, &view) } else { Sent::Nothing };
        let is_removal = matches!(known, Lookup::Absent(_));
        NameBook {
            obstacle: self.rejected_name(kind, name).or_else(|| of.obstacle(kind, name, known, &view)),
            known: Known::of(entry, suffices),
            sent,
            answer: if sent == Sent::Nothing { Answer::None } else { answer(&of.acks, name) },
            delay: self.delay(kind, is_removal),
            completeness: of.wildcard.as_ref().map(|_| of.wildcard_completeness(kind, &view)),
            subscribed,
        }
    }

    /// Clients that do not read errors get none for such names, so none is recorded.
    fn rejected_name(&self, kind: &Type, name: &Name) -> Option<Obstacle> {
        let parser = NameParser { kind, client: &self.client, authorities: &self.authorities };
        let read = Xdstp::is_new_style(name.as_str()).then(|| parser.read(name.as_str()));
        read?.err().map(|(_, reason)| Obstacle::Rejected(reason))
    }

    fn delay(&self, kind: &Type, is_removal: bool) -> Option<Delay> {
        let removals = |(reason, until)| Delay { kind: kind.clone(), reason, until };
        let of_removal = || self.delays.of_removals().map(removals);
        let of_addition = || self.delays.of_additions(kind).cloned();
        // A full set that waits has both.
        if is_removal { of_addition().or_else(of_removal) } else { of_addition() }
    }
}

impl Subscribed {
    pub(crate) fn is_any(&self) -> bool {
        self.by_name || self.by_wildcard || self.by_collection.is_some()
    }
}

impl Known {
    fn of(entry: Option<&Entry>, suffices: bool) -> Self {
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

impl Subscription {
    fn subscribed(&self, name: &Name) -> Subscribed {
        let by_name = self.names.get(name).is_some_and(|sent| !sent.member) || self.rejected.contains_key(name);
        let by_wildcard = self.wildcard.as_ref().is_some_and(|wildcard| wildcard.covers(name));
        let by_collection = self.collection(name).cloned();
        let is_any = by_name || by_wildcard || by_collection.is_some();
        let similar = if is_any { None } else { similar_to(name, self.names.keys()) };
        Subscribed { to_type: true, by_name, by_wildcard, by_collection, similar }
    }

    fn obstacle(&self, kind: &Type, name: &Name, known: Lookup, view: &ReplyContext) -> Option<Obstacle> {
        if !view.client.clearance.allows(kind, name) {
            return Some(Obstacle::NotAllowed);
        }
        if self.names.get(name).is_some_and(|sent| sent.refused) {
            return Some(Obstacle::NoRoom);
        }
        match known {
            Lookup::Present(resource) if !view.client.can_have(kind, resource) => Some(Obstacle::Unreadable),
            _ => None,
        }
    }

    /// Returns what the client was last sent of a name that it subscribes to.
    pub(super) fn sent_of(&self, kind: &Type, name: &Name, view: &ReplyContext) -> Sent {
        let entry = self.entry(kind, name, view).or_else(|| known_entry(kind, name, view.state));
        self.sent(kind, name, entry, view)
    }

    fn sent(&self, kind: &Type, name: &Name, entry: Option<&Entry>, view: &ReplyContext) -> Sent {
        let resource = entry.and_then(Entry::resource);
        let by_name = self.names.get(name);
        match by_name {
            Some(sent) if sent.held_before => return Sent::HeldBefore,
            Some(sent) if !sent.holds.is_empty() => {
                let is_current = resource.is_some_and(|resource| sent.holds == Self::share(view, name, resource));
                return if is_current { Sent::Current } else { Sent::Earlier };
            }
            Some(_) if self.wildcard.is_none() => {
                let is_due = self.pending.contains_key(name) || self.awaiting_data.contains_key(name);
                let is_absent = matches!(self.known(kind, name, view), Lookup::Absent(_));
                return if is_absent && !is_due { Sent::Current } else { Sent::Nothing };
            }
            _ => {}
        }
        self.sent_of_wildcard(entry, resource)
    }

    fn sent_of_wildcard(&self, entry: Option<&Entry>, resource: Option<&Arc<Resource>>) -> Sent {
        let Some((wildcard, entry)) = self.wildcard.as_ref().zip(entry) else { return Sent::Nothing };
        if resource.is_some_and(|resource| self.is_withheld(&resource.name)) {
            return Sent::Nothing;
        }
        let Some(progress) = &wildcard.progress else { return Sent::Nothing };
        let (sent_up_to, holds_earlier) = match resource {
            Some(_) => {
                let was_sent = entry.history.overlaps(Revision::ZERO, wildcard.added, entry.changed);
                (wildcard.added, was_sent && progress.client_may_hold(entry)) // it may have been sent a removal since
            }
            None => (progress.removals(), progress.client_may_hold(entry)),
        };
        match entry.changed <= sent_up_to {
            true => Sent::Current,
            false if holds_earlier => Sent::Earlier,
            false => Sent::Nothing,
        }
    }
}

/// Returns what the view has under a name, requested by name or as a part of the wildcard set.
fn known_entry<'a>(kind: &Type, name: &Name, state: &'a Snapshot) -> Option<&'a Entry> {
    let of = |class| state.resources(kind, class).and_then(|table| table.get(name));
    of(Class::Named).or_else(|| of(Class::Wildcard))
}

fn answer(acks: &AckTracker, name: &Name) -> Answer {
    if let Some(nack) = acks.standing() {
        let is_suspect = nack.suspects().any(|suspect| suspect == name);
        return Answer::Nacked { reason: nack.reason.to_string(), since: nack.since, is_suspect };
    }
    match acks.newest() {
        None => Answer::None,
        Some((_, true)) => Answer::Pending,
        Some((_, false)) => Answer::Accepted,
    }
}

/// Returns the name that is probably meant, if a few letters differ.
pub(crate) fn similar_to<'a>(name: &Name, among: impl Iterator<Item = &'a Name>) -> Option<Name> {
    let limit = (name.as_str().len() / 3).clamp(1, MAX_TYPOS);
    let alike = |other: &&Name| other.as_str().len().abs_diff(name.as_str().len()) <= limit;
    nearest(name.as_str(), among.filter(alike).take(COMPARED).map(Name::as_str), limit).map(Name::from)
}

const MAX_TYPOS: usize = 3;
/// How many names are compared.
const COMPARED: usize = 10_000;

/// The differences of one type: the first names of each kind, and how many there are.
#[derive(Debug, Default)]
pub(crate) struct Differences {
    /// They exist, and the client was not sent them.
    pub(crate) missing: Names,
    /// The client was sent an earlier version.
    pub(crate) outdated: Names,
    /// They do not exist, and the client was not sent the removal.
    pub(crate) surplus: Names,
    /// The client subscribes to them, and nothing is known of them.
    pub(crate) unknown: Names,
}

/// The first names in order, and the count of all.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Names {
    pub(crate) first: Vec<Name>,
    pub(crate) count: usize,
}

impl Names {
    fn add(&mut self, name: &Name, limit: usize) {
        self.count += 1;
        if self.first.len() < limit {
            self.first.push(name.clone());
        }
    }
}

impl Session {
    /// Compares what the client was sent with the newest snapshot of its view, by type. Of each list it keeps so many names.
    pub(crate) fn differences<'a>(
        &'a self,
        newest: &'a Snapshot,
        limit: usize,
        now: Moment,
    ) -> impl Iterator<Item = (&'a Type, Differences)> {
        let view = ReplyContext { state: newest, client: &self.client, limits: &self.limits, now };
        self.subscriptions().map(move |(kind, of)| (kind, of.differences(kind, &view, limit)))
    }
}

impl Subscription {
    fn differences(&self, kind: &Type, view: &ReplyContext, limit: usize) -> Differences {
        let mut differences = Differences::default();
        for name in self.unsent_names(kind, view) {
            let (sent, known) = (self.sent_of(kind, name, view), self.known(kind, name, view));
            let list = match (known, sent) {
                (Lookup::Present(resource), _) if !view.client.can_have(kind, resource) => continue,
                (Lookup::Present(_), Sent::Nothing | Sent::HeldBefore) => &mut differences.missing,
                (Lookup::Present(_), Sent::Earlier) => &mut differences.outdated,
                (Lookup::Absent(_), Sent::Earlier | Sent::HeldBefore) => &mut differences.surplus,
                (Lookup::Unknown, _) => &mut differences.unknown,
                (Lookup::Present(_), Sent::Current) | (Lookup::Absent(_), Sent::Current | Sent::Nothing) => continue,
            };
            list.add(name, limit);
        }
        differences
    }

    /// Returns every name of which something may be due.
    fn unsent_names<'a>(&'a self, kind: &Type, view: &ReplyContext<'a>) -> BTreeSet<&'a Name> {
        let mut names: BTreeSet<&Name> = self.pending.keys().chain(self.awaiting_data.keys()).collect();
        let table = view.state.resources(kind, Class::Wildcard);
        if let Some((wildcard, table)) = self.wildcard.as_ref().zip(table) {
            let allowed = |name: &&Name| wildcard.covers(name) && view.client.clearance.allows(kind, name);
            let changed = table.changed_since(wildcard.added).map(|(name, _)| name);
            names.extend(changed.chain(wildcard.withheld.names()).filter(allowed));
            let removed = wildcard.progress.iter().flat_map(|progress| {
                table.removals(progress.removals()).filter(|(_, entry)| progress.client_may_hold(entry))
            });
            names.extend(removed.map(|(name, _)| name).filter(allowed));
        }
        names
    }
}
