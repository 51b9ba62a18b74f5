//! A reply before it is encoded: handles to shared resources and names, and how this client has to be sent them. Of a reply that was sent a few
//! numbers are remembered, and a few names until the client answers.
//!
//! The file begins with the inputs of a reply, and the outcomes of an attempt to make one.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::carried::{ReplyAge, ReplyLag};
use super::client::Client;
use crate::protocol::moment::Moment;
use crate::protocol::reply_names::ReplyNames;
use crate::protocol::session::options::SessionOptions;
use crate::protocol::set_mark::SetMark;
use crate::protocol::view::{Batch, LeaseProgress, NamedError, Revision, Snapshot, TableEntry};
use crate::xds::{ContentHash, Name, Resource, SetVersion, Type};

/// The inputs of one reply.
#[derive(Clone, Copy)]
pub(super) struct ReplyContext<'a> {
    pub(super) state: &'a Snapshot,
    pub(super) client: &'a Client,
    pub(super) options: &'a SessionOptions,
    pub(super) now: Moment,
}

/// What a type may send now, by the order between types.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SendScope {
    Nothing,
    InitialReplies,
    Anything,
}

pub(super) enum Attempt {
    Nothing,
    Ready(Box<Draft>),
    /// There is something to send, which must wait; at the latest until this time.
    Blocked(Option<Moment>),
    /// There may be something to send when more is known.
    Unknown,
}

/// Returns the remaining TTL of a resource, if the client runs TTLs itself (XLAT-28).
pub(super) fn remaining_ttl(entry: Option<&TableEntry>, view: &ReplyContext) -> Option<Duration> {
    let expires = entry.and_then(|entry| entry.expires).filter(|_| view.client.ttl)?;
    Some((expires - view.now).max(SHORTEST_LIFE))
}

/// The shortest TTL that is sent: a shorter one would end before the client has it.
const SHORTEST_LIFE: Duration = Duration::from_secs(1);

/// One response to a client, ready to be encoded.
#[derive(Debug, Clone)]
pub struct Reply {
    /// The type of the resources.
    pub kind: Type,
    /// The type URL as this client spells it (TYPE-1, TRN-10).
    pub spelling: Arc<str>,
    /// The number of this reply on its stream.
    pub nonce: u64,
    /// The version of what the client holds of this type after this reply. In delta for reports only.
    pub version: SetVersion,
    /// All resources if the reply is a full set, otherwise those that are new or changed. Many clients may be sent the same list.
    pub resources: Arc<[Arc<Resource>]>,
    /// Names in the client's own spelling, each with the index of its resource.
    pub spellings: Vec<(usize, Arc<str>)>,
    /// Remaining TTLs, each with the index of its resource. Only for clients that run TTLs.
    pub ttls: Vec<(usize, Duration)>,
    /// Resources whose TTL is extended without a change.
    pub heartbeats: Vec<Heartbeat>,
    /// Delta only.
    pub removed: Vec<Name>,
    /// Delta only: the removed names that had constraints (DELTA-49), with their constraints.
    pub constrained: Vec<(Name, Bytes)>,
    /// Delta only: aliases that lead to no resource (DELTA-39).
    pub unresolved: Vec<Name>,
    /// Errors, by name.
    pub errors: Vec<(Name, Arc<NamedError>)>,
    /// Delta only, for relays that subscribe to `*`: whether they have been sent all of it with this reply.
    pub set_mark: Option<SetMark>,
    /// The snapshot that it was made from.
    pub revision: Revision,
    /// This client can read wrapped resources in SotW.
    pub wrappers: bool,
    /// How old the content of the reply is.
    pub lag: ReplyLag,
    /// When the reply was made, if the client had answered all earlier replies of the type.
    pub begins_wait: Option<Moment>,
    /// Each piece of the reply that is sent is recorded here as progress, so that the lease of the snapshot goes on.
    pub progress: Option<LeaseProgress>,
    /// Whether clusters of this reply or of earlier ones wait for their endpoints. Then the next reply is made once the connection has taken this one.
    pub awaits_endpoints: bool,
}

/// The extended TTL of a resource that did not change (DELTA-46).
#[derive(Debug, Clone)]
pub struct Heartbeat {
    /// The resource's name.
    pub name: Name,
    /// The version that the client has.
    pub version: ContentHash,
    /// The new remaining time.
    pub ttl: Duration,
}

/// The contents of a reply before it has a nonce.
#[derive(Debug, Default)]
pub(super) struct Draft {
    /// Resources that other clients are sent too. If it is set, `resources` is empty.
    batch: Option<Arc<Batch>>,
    /// The batch is the first response to `*`.
    first: bool,
    resources: Vec<Arc<Resource>>,
    ttls: Vec<(usize, Duration)>,
    heartbeats: Vec<Heartbeat>,
    removed: Vec<Name>,
    constrained: Vec<(Name, Bytes)>,
    unresolved: Vec<Name>,
    errors: Vec<(Name, Arc<NamedError>)>,
    set_mark: Option<SetMark>,
    version: SetVersion,
    /// What the client waits for after a resource: the endpoints of a cluster, or the virtual hosts of a route. Each is with whether the
    /// resource answers a request (`true`) or is a change.
    warms: Vec<(Name, bool)>,
    bytes: usize,
    carried: ReplyAge,
}

impl Draft {
    pub(super) fn is_empty(&self) -> bool {
        self.is_unchanged() && self.heartbeats.is_empty()
    }

    pub(super) fn is_unchanged(&self) -> bool {
        let Self { batch, resources, removed, constrained, unresolved, errors, .. } = self;
        batch.as_ref().is_none_or(|batch| batch.resources.is_empty())
            && resources.is_empty()
            && removed.is_empty()
            && constrained.is_empty()
            && unresolved.is_empty()
            && errors.is_empty()
    }

    /// Returns a draft of a batch alone.
    pub(super) fn of_batch(batch: Arc<Batch>, first: bool) -> Self {
        let mut draft = Self::default();
        draft.add_batch(batch, first);
        draft
    }

    pub(super) fn add_batch(&mut self, batch: Arc<Batch>, first: bool) {
        self.bytes += batch.bytes;
        self.version = batch.version;
        (self.batch, self.first) = (Some(batch), first);
    }

    /// Converts the draft to a batch, for all clients that are sent the same.
    pub(super) fn into_batch(self, cut_after: Option<Revision>, oldest_change: Option<Moment>) -> Batch {
        let refers_to = self.warms.into_iter().map(|(name, _)| name).collect();
        let Self { resources, bytes, version, .. } = self;
        let names = ReplyNames::of(resources.iter().map(|resource| &resource.name));
        Batch { resources: resources.into(), names, refers_to, bytes, version, cut_after, oldest_change }
    }

    pub(super) fn resources(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.batch.iter().flat_map(|batch| &*batch.resources).chain(&self.resources)
    }

    /// Returns what the client waits for after the resources of the draft, each with whether its resource answers a request.
    pub(super) fn warms(&self) -> impl Iterator<Item = (&Name, bool)> {
        let of_batch = self.batch.iter().flat_map(|batch| &batch.refers_to).map(|name| (name, self.first));
        of_batch.chain(self.warms.iter().map(|(name, first)| (name, *first)))
    }

    /// Returns the names in the draft, to be remembered until the client answers. The names of a batch are shared.
    pub(super) fn names(&self) -> ReplyNames {
        let Self { batch, resources, heartbeats, removed, constrained, unresolved, errors, .. } = self;
        let named = resources.iter().map(|resource| &resource.name).chain(heartbeats.iter().map(|beat| &beat.name));
        let gone = removed.iter().chain(unresolved).chain(constrained.iter().map(|(name, _)| name));
        let own = named.chain(gone).chain(errors.iter().map(|(name, _)| name));
        batch.as_ref().map(|batch| batch.names.clone()).unwrap_or_default().with(own)
    }

    pub(super) fn removed(&self) -> impl Iterator<Item = &Name> {
        self.removed.iter()
    }

    /// Returns all removed names, with those that had constraints.
    pub(super) fn all_removed(&self) -> impl Iterator<Item = &Name> {
        self.removed().chain(self.constrained.iter().map(|(name, _)| name))
    }

    pub(super) fn has_errors(&self) -> bool {
        !self.errors.is_empty()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn version(&self) -> SetVersion {
        self.version
    }

    pub(super) fn carried(&self) -> ReplyAge {
        self.carried
    }

    /// Returns when the oldest change of a batch was received. The outer `None` means that there is no batch.
    pub(super) fn oldest_of_batch(&self) -> Option<Option<Moment>> {
        self.batch.as_ref().map(|batch| batch.oldest_change)
    }

    pub(super) fn set_version(&mut self, version: SetVersion) {
        self.version = version;
    }

    /// Adds the part of a resource to the version.
    pub(super) fn count_in(&mut self, share: SetVersion) {
        self.version = self.version.plus(share);
    }

    pub(super) fn set_mark(&mut self, mark: Option<SetMark>) {
        self.set_mark = mark;
    }

    pub(super) fn note(&mut self, carried: ReplyAge) {
        self.carried.note(carried);
    }

    /// Records that the client will wait for what a resource refers to. `first` is set if the resource answers a request.
    pub(super) fn warm(&mut self, resource: &Resource, first: bool) {
        self.warms.extend(resource.refers_to.clone().map(|name| (name, first)));
    }

    /// Adds a resource, with its remaining TTL if it has one and the client runs TTLs.
    pub(super) fn add(&mut self, resource: &Arc<Resource>, ttl: Option<Duration>) {
        self.count(&resource.name, resource.body.bytes().len());
        self.ttls.extend(ttl.map(|ttl| (self.resources.len(), ttl)));
        self.resources.push(resource.clone());
    }

    /// Adds a removal; `last` is the removed resource, if it is still known.
    pub(super) fn add_removed(&mut self, name: Name, last: Option<&Arc<Resource>>) {
        let name = last.map_or(name, |last| last.name.clone());
        self.count(&name, 0);
        match last.and_then(|last| last.constraints()) {
            Some(constraints) => self.constrained.push((name, constraints.clone())),
            None => self.removed.push(name),
        }
    }

    pub(super) fn add_unresolved(&mut self, alias: Name) {
        self.count(&alias, 0);
        self.unresolved.push(alias);
    }

    /// Drops aliases that lead to no resource and whose text is also the name of a resource in the reply, sent or removed (DELTA-33).
    pub(super) fn drop_repeated_aliases(&mut self) {
        if self.unresolved.is_empty() {
            return; // the usual case
        }
        let mut unresolved = std::mem::take(&mut self.unresolved);
        let sent = self.resources().map(|resource| &resource.name);
        let named: HashSet<_> = sent.chain(self.all_removed()).collect();
        unresolved.retain(|alias| !named.contains(alias));
        self.unresolved = unresolved;
    }

    pub(super) fn add_error(&mut self, name: Name, error: Arc<NamedError>) {
        self.count(&name, error.message.len());
        self.errors.push((name, error));
    }

    pub(super) fn add_heartbeat(&mut self, resource: &Resource, ttl: Duration) {
        self.count(&resource.name, 0);
        let (name, version) = (resource.name.clone(), resource.full);
        self.heartbeats.push(Heartbeat { name, version, ttl });
    }

    fn count(&mut self, name: &Name, beside: usize) {
        self.bytes += name.as_str().len() + beside + PER_ENTRY;
    }
}

impl Reply {
    /// Whether a resource is sent in a wrapper in SotW. It is if something has to be sent with it and the client can read that, and always if
    /// only the wrapper can carry its name (SOTW-49, XLAT-26). The one resource of a type without names needs no wrapper.
    pub fn wraps(&self, resource: &Resource, ttl: Option<Duration>) -> bool {
        let beside = resource.full != resource.content() || resource.name_mismatch || ttl.is_some();
        let needs_name = self.kind.info().name_field.is_none() && !resource.name.as_str().is_empty();
        needs_name || (self.wrappers && beside)
    }

    /// Returns a reply for tests of encoding and delivery.
    pub fn sample(kind: Type, resources: Vec<Arc<Resource>>) -> Self {
        let spelling = kind.url().into();
        Self { spelling, ..Self::new(kind, 7, Revision::ZERO, true, Draft { resources, ..Draft::default() }) }
    }

    /// Sets the type URL and the names to the client's own spelling.
    pub(super) fn spell(&mut self, url: &Arc<str>, names: &BTreeMap<Name, Arc<str>>) {
        self.spelling = url.clone();
        if names.is_empty() {
            return;
        }
        let of = |name: &Name| names.get(name).cloned();
        let spelt = self.resources.iter().enumerate().filter_map(|(at, resource)| Some((at, of(&resource.name)?)));
        self.spellings = spelt.collect();
        let errors = self.errors.iter_mut().map(|(name, _)| name);
        let constrained = self.constrained.iter_mut().map(|(name, _)| name);
        let heartbeats = self.heartbeats.iter_mut().map(|beat| &mut beat.name);
        let others = self.removed.iter_mut().chain(&mut self.unresolved);
        for name in others.chain(errors).chain(constrained).chain(heartbeats) {
            if let Some(own) = of(name) {
                *name = (*own).into();
            }
        }
    }

    pub(super) fn new(kind: Type, nonce: u64, mark: Revision, wrappers: bool, draft: Draft) -> Self {
        let Draft {
            batch,
            resources,
            ttls,
            heartbeats,
            removed,
            constrained,
            unresolved,
            errors,
            set_mark,
            version,
            ..
        } = draft;
        Self {
            kind,
            spelling: Arc::default(),
            nonce,
            version,
            resources: batch.map_or_else(|| resources.into(), |batch| batch.resources.clone()),
            spellings: Vec::new(),
            ttls,
            heartbeats,
            removed,
            constrained,
            unresolved,
            errors,
            set_mark,
            revision: mark,
            wrappers,
            lag: ReplyLag::default(),
            begins_wait: None,
            progress: None,
            awaits_endpoints: false,
        }
    }
}

/// Roughly how many bytes one entry adds on the wire beside its name and body: tags, lengths, a version.
pub(super) const PER_ENTRY: usize = 48;

/// What is remembered of a reply that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SentReply {
    pub(crate) nonce: u64,
    /// The version of what the client has of the type after the reply: the `version_info` of SotW.
    pub version: SetVersion,
    /// The snapshot that it was made from.
    pub(crate) revision: Revision,
    /// The reply has all that the client may have of the type.
    pub(crate) is_full_set: bool,
    /// When it was handed to the transport.
    pub sent: Moment,
    pub(crate) carried: ReplyAge,
}

#[cfg(test)]
mod tests;
