//! What a session knows of its client's answers, for operators: which version of each type the client accepted, which it NACKed, and which
//! it has yet to answer; and what waits while it NACKs its routing.
//!
//! A client that has NACKed its latest routing continues with the routing from before, which may refer to what is removed now. Its own
//! removals of clusters and endpoints wait for a limited time. Nobody else's do (I8), and neither do other removals of its own.

use std::time::Duration;

use super::Session;
use super::nack_reason::quoted_names;
use super::reply::{Lag, SentReply};
use super::standing_nack::StandingNack;
use crate::proto::Request;
use crate::protocol::limits::Limits;
use crate::protocol::moment::Moment;
use crate::protocol::view::{Class, Snapshot};
use crate::xds::{Name, Role, SetVersion, Type};

/// How a client has answered the replies of one type.
#[derive(Debug)]
pub(crate) struct Answers<'a> {
    pub(crate) kind: &'a Type,
    pub(crate) newest: SentReply,
    /// The newest reply is unanswered.
    pub(crate) is_pending: bool,
    /// The newest reply that the client accepted.
    pub(crate) accepted: Option<SentReply>,
    pub(crate) nack: Option<&'a StandingNack>,
}

/// What a client's answer settled: of one type, for its first answer to a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answered {
    pub(crate) kind: Type,
    /// It is the first ACK of a reply. A NACK is none.
    pub(crate) is_ack: bool,
    /// How old what the reply carried was by then, for an ACK.
    pub(crate) lag: Lag,
    /// Since when the type's oldest unanswered reply waited before, and since when it does now, if that changed.
    pub(crate) waited_since: Option<Moment>,
    pub(crate) waits_since: Option<Moment>,
}

/// A NACK of one type that ceased to stand, one that began to, or one in place of another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NackChange {
    pub(crate) kind: Type,
    pub(crate) ended: Option<SetVersion>,
    pub(crate) began: Option<SetVersion>,
}

impl Session {
    /// Returns the names that a request quotes as the reason of a NACK. This needs no session.
    pub(crate) fn quoted_names(request: &Request, limit: usize) -> Vec<Name> {
        let error = match request {
            Request::Sotw(request) => request.error_detail.as_ref(),
            Request::Delta(request) => request.error_detail.as_ref(),
        };
        error.map(|status| quoted_names(&status.message, limit)).unwrap_or_default()
    }

    /// Suspects the resources among these names, which the NACK of a type quotes: those that the client subscribes to.
    pub(crate) fn suspect(&mut self, type_url: &str, nonce: u64, quoted: &[Name], state: &Snapshot) {
        let Ok((kind, _)) = self.meant(type_url) else { return };
        let Some(subscription) = self.subscriptions.get_mut(&kind) else { return };
        if subscription.acks.standing().is_none_or(|nack| nack.reply.nonce != nonce) {
            return; // a late one
        }
        for name in quoted.iter().filter(|name| self.client.clearance.allows(&kind, name)) {
            let entry = |class| state.resources(&kind, class).and_then(|table| table.get(name));
            let named = subscription.names.contains_key(name).then(|| entry(Class::Named));
            let wildcard = subscription.wildcard.as_ref().and_then(|_| entry(Class::Wildcard));
            if named.is_some() || wildcard.is_some() {
                let changed = wildcard.or(named.flatten()).map(|entry| entry.changed).unwrap_or_default();
                subscription.acks.suspect(name, changed);
            }
        }
    }

    /// Returns how the client has answered, by type, for types of which it was sent something. Clients that poll send no answers.
    pub(crate) fn answers(&self) -> impl Iterator<Item = Answers<'_>> {
        self.subscriptions().filter(|(_, subscription)| !subscription.asks_once).filter_map(|(kind, subscription)| {
            let acks = &subscription.acks;
            let (newest, is_pending) = acks.newest()?;
            Some(Answers { kind, newest, is_pending, accepted: acks.accepted(), nack: acks.standing() })
        })
    }

    /// Returns what the last request has answered.
    pub(crate) fn take_answered(&mut self) -> Option<Answered> {
        self.answered.take()
    }

    /// Returns since when replies of each type are unanswered, for types with such replies.
    pub(crate) fn unanswered(&self) -> impl Iterator<Item = (&Type, Moment)> {
        let awaited = self.subscriptions().filter(|(_, subscription)| !subscription.asks_once);
        awaited.filter_map(|(kind, subscription)| Some((kind, subscription.acks.unanswered_since()?)))
    }

    /// Returns the NACKs that began or ceased to stand since the last call.
    pub(crate) fn take_nack_changes(&mut self) -> Vec<NackChange> {
        std::mem::take(&mut self.nack_changes)
    }

    pub(super) fn nacked_version(&self, kind: &Type) -> Option<SetVersion> {
        Some(self.subscriptions.get(kind)?.acks.standing()?.reply.version)
    }

    /// Notes whether another version of a type is NACKed than before a request.
    pub(super) fn note_nack_change(&mut self, kind: Type, before: Option<SetVersion>) {
        let Some(subscription) = self.subscriptions.get_mut(&kind).filter(|of| of.acks.standing().is_some()) else {
            return self.nack_changes.extend(before.map(|ended| NackChange { kind, ended: Some(ended), began: None }));
        };
        let (names, has_wildcard) = (&subscription.names, subscription.wildcard.is_some());
        let has_any = has_wildcard || !names.is_empty();
        subscription.acks.settle(has_any, |name| has_wildcard || names.contains_key(name));
        let now = self.nacked_version(&kind);
        if before != now {
            self.nack_changes.push(NackChange { kind, ended: before, began: now });
        }
    }

    /// Ends every NACK: the client leaves.
    pub(super) fn end_nacks(&mut self) {
        for (kind, subscription) in &mut self.subscriptions {
            if let Some(nack) = subscription.acks.end_standing() {
                let ended = Some(nack.reply.version);
                self.nack_changes.push(NackChange { kind: kind.clone(), ended, began: None });
            }
        }
    }
}

/// Since when removals wait, until none is due any more. Those that become due meanwhile wait no longer than the first.
#[derive(Debug, Default)]
pub(super) struct NackHold {
    since: Option<Moment>,
}

impl NackHold {
    /// Records that something is kept back, and returns until when.
    pub(super) fn keep(&mut self, now: Moment, limits: &Limits) -> Moment {
        *self.since.get_or_insert(now) + longest(limits)
    }

    /// Records that nothing is due that it could keep back.
    pub(super) fn end(&mut self) {
        self.since = None;
    }
}

/// SotW replies need the body of what stays, which is remembered only for so long.
pub(super) fn longest(limits: &Limits) -> Duration {
    limits.reference_hold.min(limits.history_age)
}

impl Session {
    /// Whether the client uses earlier routing than the latest that it was sent.
    pub(super) fn nacks_routing(&self) -> bool {
        let mut routing = self.subscriptions.iter().filter(|(kind, _)| kind.is(Role::Routing));
        !self.limits.reference_hold.is_zero() && routing.any(|(_, of)| of.wants_anything() && of.acks.is_nacked())
    }
}

/// Whether removals of a type wait: those of clusters and endpoints, and those of secrets while others do, since clusters may need them.
pub(super) fn may_serve_routing(kind: &Type, others_wait: bool) -> bool {
    kind.is(Role::Clusters) || kind.is(Role::Endpoints) || others_wait && kind.is_secret()
}
