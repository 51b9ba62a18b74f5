//! What a client was sent and how it answered, for operators. The bodies are those of a snapshot: a session keeps none.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::client::{Client, Variant};
use super::reply::SentReply;
use super::subscription::Subscription;
use crate::protocol::moment::Moment;
use crate::protocol::view::{Class, Entry, Revision, Snapshot};
use crate::xds::{Clearance, Name, Resource, SetVersion, Type};

/// Everything that a client was sent.
#[derive(Debug)]
pub struct Holdings {
    /// By type.
    pub types: Vec<Holding>,
    clearance: Clearance,
    /// It sees more of a resource than the body.
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
    /// The NACK that stands, if one does.
    pub nack: Option<NackHolding>,
}

#[derive(Debug)]
struct WildcardHolding {
    /// Additions were sent up to here; none before the first reply.
    sent: Option<Revision>,
    /// Virtual hosts: only those of these route configurations.
    under: Option<BTreeSet<Name>>,
}

/// A NACK that stands.
#[derive(Debug)]
pub struct NackHolding {
    /// The reply that it rejects.
    pub reply: SentReply,
    /// The words of the client.
    pub reason: Arc<str>,
    /// When it came.
    pub at: Moment,
    suspects: Vec<Name>,
}

/// One resource, as far as a client is concerned.
#[derive(Debug, Clone, Copy)]
pub struct Held<'a> {
    pub name: &'a Name,
    /// What the view has under the name, if anything.
    pub entry: Option<&'a Entry>,
    pub state: HeldState,
}

/// How far a resource has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeldState {
    /// The client does not have what the view has now.
    NotSent,
    /// It was sent, and the client has not answered.
    Unanswered,
    /// The client has accepted it.
    Accepted,
    /// It is in a reply that the client rejected.
    Rejected,
}

impl Holding {
    fn of(kind: &Type, of: &Subscription) -> Self {
        let (books, acks) = (of.books(), of.acks());
        let wildcard = books.wildcard.as_ref().map(|wildcard| WildcardHolding {
            sent: wildcard.removals_sent().map(|_| wildcard.added()),
            under: wildcard.under().cloned(),
        });
        let nack = acks.standing().map(|nack| NackHolding {
            reply: nack.reply,
            reason: nack.reason.clone(),
            at: nack.at,
            suspects: nack.suspects().cloned().collect(),
        });
        let names = books.names.iter().map(|(name, sent)| (name.clone(), sent.holds())).collect();
        let (newest, accepted) = (acks.newest().map(|(newest, _)| newest), acks.accepted());
        Self { kind: kind.clone(), wildcard, names, newest, accepted, nack }
    }

    /// Returns how the client answered a resource that it was sent, by the snapshots that replies were made from.
    fn answer(&self, name: &Name, changed: Revision) -> HeldState {
        let has_accepted = self.accepted.is_some_and(|accepted| accepted.revision >= changed);
        let is_rejected = self.nack.as_ref().is_some_and(|nack| match nack.suspects.is_empty() {
            true => nack.reply.revision >= changed && !has_accepted,
            false => nack.suspects.contains(name) && nack.reply.revision >= changed,
        });
        match is_rejected {
            true => HeldState::Rejected,
            false if has_accepted => HeldState::Accepted,
            false => HeldState::Unanswered,
        }
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

    /// Calls `each` for every resource of a type that concerns the client, in a snapshot that is no older than what it was sent.
    pub fn each<'a>(&'a self, of: &'a Holding, snapshot: &'a Snapshot, mut each: impl FnMut(Held<'a>)) {
        let changed = |entry: &Entry| if self.reads_wrappers { entry.changed } else { entry.body_changed };
        let table = |class| snapshot.resources(&of.kind, class);
        if let (Some(wildcard), Some(table)) = (&of.wildcard, table(Class::Wildcard)) {
            for (name, entry) in table.entries().filter(|(_, entry)| entry.resource().is_some()) {
                if !wildcard.covers(name) || !self.clearance.allows(&of.kind, name) {
                    continue;
                }
                let changed = changed(entry);
                let state = match wildcard.sent {
                    Some(sent) if changed <= sent => of.answer(name, changed),
                    _ => HeldState::NotSent,
                };
                each(Held { name, entry: Some(entry), state });
            }
        }
        for (name, holds) in of.names.iter().filter(|(name, _)| self.clearance.allows(&of.kind, name)) {
            let entry = table(Class::Named).and_then(|table| table.get(name));
            let state = match entry.and_then(|entry| Some((entry, entry.resource()?))) {
                Some((entry, resource)) if self.share(name, resource) == *holds => of.answer(name, changed(entry)),
                _ => HeldState::NotSent,
            };
            each(Held { name, entry, state });
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
