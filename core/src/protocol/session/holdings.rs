//! What a client was sent and how it answered, for operators. The bodies come from a snapshot: a session keeps none.

use std::collections::BTreeSet;

use super::client::{Client, Variant};
use super::rejections::{RejectedReply, Rejections, SentResource};
use super::reply::SentReply;
use super::subscription::Subscription;
use crate::protocol::view::{Class, Revision, Snapshot, TableEntry};
use crate::xds::{Clearance, Name, Resource, SetVersion, Type};

/// Everything that a client was sent.
#[derive(Debug)]
pub struct Holdings {
    /// By type.
    pub types: Vec<Holding>,
    clearance: Clearance,
    /// The client sees more of a resource than its body.
    reads_wrappers: bool,
}

/// What a client was sent of one type.
#[derive(Debug)]
pub struct Holding {
    /// The type.
    pub kind: Type,
    wildcard: Option<WildcardHolding>,
    names: Vec<(Name, SetVersion)>,
    /// The newest reply.
    pub newest: Option<SentReply>,
    accepted: Option<SentReply>,
    rejections: Rejections,
}

#[derive(Debug)]
struct WildcardHolding {
    /// Up to which revision additions were sent. `None` before the first reply.
    sent: Option<Revision>,
    /// Virtual hosts: the wildcard covers only those of these route configurations.
    under: Option<BTreeSet<Name>>,
}

/// The state of one resource for a client.
#[derive(Debug, Clone, Copy)]
pub struct HeldResource<'a> {
    pub name: &'a Name,
    /// What the view has under the name, if anything.
    pub entry: Option<&'a TableEntry>,
    pub state: HeldState,
    /// The reply with this resource that the client rejected, if it did.
    pub nack: Option<RejectedReply<'a>>,
}

/// How far a resource has come on its way to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeldState {
    /// The client does not have what the view has now.
    NotSent,
    /// It was sent, and the client has not answered.
    Unanswered,
    /// The client has accepted it.
    Accepted,
    /// It is in a reply that the client rejected, and in none that it accepted since.
    Rejected,
}

impl<'a> HeldResource<'a> {
    fn not_sent(name: &'a Name, entry: Option<&'a TableEntry>) -> Self {
        Self { name, entry, state: HeldState::NotSent, nack: None }
    }
}

impl Holding {
    fn of(kind: &Type, of: &Subscription) -> Self {
        let (books, acks) = (of.books(), of.acks());
        let wildcard = books.wildcard.as_ref().map(|wildcard| WildcardHolding {
            sent: wildcard.removals_sent().map(|_| wildcard.added()),
            under: wildcard.under().cloned(),
        });
        let names = books.names.iter().map(|(name, sent)| (name.clone(), sent.holds())).collect();
        let (newest, accepted) = (acks.newest().map(|(newest, _)| newest), acks.accepted());
        Self { kind: kind.clone(), wildcard, names, newest, accepted, rejections: acks.rejections().clone() }
    }

    /// Returns how the client answered a resource that it was sent, and that last changed at revision `changed`.
    fn answer<'a>(&'a self, name: &'a Name, entry: &'a TableEntry, changed: Revision) -> HeldResource<'a> {
        let sent = SentResource::of(&self.kind, name, Some(entry), changed);
        let nack = self.rejections.rejecting(&sent, self.accepted);
        let has_accepted = self.accepted.is_some_and(|accepted| accepted.revision >= changed);
        let state = match (nack.is_some(), has_accepted) {
            (true, _) => HeldState::Rejected,
            (false, true) => HeldState::Accepted,
            (false, false) => HeldState::Unanswered,
        };
        HeldResource { name, entry: Some(entry), state, nack }
    }
}

impl Holdings {
    pub(super) fn of<'s>(client: &Client, subscriptions: impl Iterator<Item = (&'s Type, &'s Subscription)>) -> Self {
        Self {
            types: subscriptions.map(|(kind, of)| Holding::of(kind, of)).collect(),
            clearance: client.clearance.clone(),
            reads_wrappers: client.variant == Variant::Delta || client.wrappers,
        }
    }

    /// Calls `each` for every resource of a type that concerns the client. The snapshot must not be older than what the client was sent.
    pub fn each<'a>(&'a self, of: &'a Holding, snapshot: &'a Snapshot, mut each: impl FnMut(HeldResource<'a>)) {
        let changed = |entry: &TableEntry| if self.reads_wrappers { entry.changed } else { entry.body_changed };
        let table = |class| snapshot.resources(&of.kind, class);
        if let (Some(wildcard), Some(table)) = (&of.wildcard, table(Class::Wildcard)) {
            for (name, entry) in table.entries().filter(|(_, entry)| entry.resource().is_some()) {
                if !wildcard.covers(name) || !self.clearance.allows(&of.kind, name) {
                    continue;
                }
                let changed = changed(entry);
                each(match wildcard.sent {
                    Some(sent) if changed <= sent => of.answer(name, entry, changed),
                    _ => HeldResource::not_sent(name, Some(entry)),
                });
            }
        }
        for (name, holds) in of.names.iter().filter(|(name, _)| self.clearance.allows(&of.kind, name)) {
            let entry = table(Class::Named).and_then(|table| table.get(name));
            each(match entry.and_then(|entry| Some((entry, entry.resource()?))) {
                Some((entry, resource)) if self.share(name, resource) == *holds => {
                    of.answer(name, entry, changed(entry))
                }
                _ => HeldResource::not_sent(name, entry),
            });
        }
    }

    fn share(&self, name: &Name, resource: &Resource) -> SetVersion {
        SetVersion::of(name.as_str(), if self.reads_wrappers { resource.full } else { resource.content() })
    }
}

impl WildcardHolding {
    fn covers(&self, name: &Name) -> bool {
        let Some(routes) = &self.under else { return true };
        name.as_str().rsplit_once('/').is_some_and(|(route, _)| routes.contains(route))
    }
}
