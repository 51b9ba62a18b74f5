//! Whether the server has answered the first request of a type on this opening. Until it has, it may send other routing than what is
//! cached, so nothing that waits for that runs out.

use std::collections::BTreeSet;

use super::TypeSubscription;
use crate::protocol::limits::Limits;
use crate::protocol::moment::Moment;
use crate::protocol::session::Variant;
use crate::protocol::upstream::liveness::PollFailure;
use crate::protocol::view::Class;
use crate::protocol::visits::visit;
use crate::xds::{Name, Role, Type};

/// What a server has answered to the first request for a type on one opening.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum FirstAnswer {
    #[default]
    None,
    /// It refuses polls for the type since then.
    Refused(Moment),
    /// A response for the type. Answers to some names may be due.
    Given,
    /// Nothing more, although it is alive and had the time.
    Silence,
}

impl FirstAnswer {
    pub(super) fn after_response(self) -> Self {
        if self == Self::Silence { self } else { Self::Given }
    }

    /// A server that refuses each poll of a type for the resource timer is alive and has nothing of it.
    pub(super) fn after_failure(self, failure: PollFailure, now: Moment, limits: &Limits) -> Self {
        match (failure, self) {
            (PollFailure::Waits, _) | (PollFailure::Refused, Self::Silence) => self,
            (PollFailure::Silent, _) => Self::None,
            (PollFailure::Refused, Self::Refused(since)) if now >= since + limits.resource_timer => Self::Silence,
            (PollFailure::Refused, Self::Refused(_)) => self,
            (PollFailure::Refused, Self::None | Self::Given) => Self::Refused(now),
        }
    }
}

impl TypeSubscription {
    /// The first request is made: an answer to each of its names is due, also to those that follow in another request for lack of
    /// room. A name that is stated under its version needs none of its own, since the server sends it only if it has changed. Neither
    /// does a name that is polled: a poll answers all names at once.
    pub(crate) fn expect_answers(&mut self, kind: &Type, variant: Variant, is_polled: bool) {
        if !kind.is(Role::Routing) || self.class == Class::Wildcard || is_polled {
            return;
        }
        let is_stated = |name: &Name| {
            self.versions.contains_key(name) && !self.unconfirmed.contains(name) && !self.with_ttl.contains(name)
        };
        let due = |name: &&Name| match self.globs.has(name) {
            true => variant == Variant::Delta && self.requested.is_waiting(name),
            false => !is_stated(self.own_name(name)),
        };
        let names: BTreeSet<Name> = self.names.iter().inspect(|_| visit()).filter(due).cloned().collect();
        self.requested.expect(names);
    }

    /// Whether the server was or will be sent a request for the type on this opening.
    pub(crate) fn is_requestable(&self, kind: &Type, variant: Variant) -> bool {
        match variant {
            Variant::Delta => self.wildcard || !self.names.is_empty(),
            Variant::Sotw => !kind.info().delta_only && (self.wildcard || self.names.len() > self.globs.len()),
        }
    }

    /// Whether the server has answered the first request of this opening: for the type, and for each of its names. One silence about
    /// a name is an answer. Names that are requested later do not count.
    pub(crate) fn has_answered_first(&self) -> bool {
        match self.first_answer {
            FirstAnswer::Silence => true,
            FirstAnswer::Given => !self.requested.is_any_due(),
            FirstAnswer::None | FirstAnswer::Refused(_) => false,
        }
    }

    /// The server was alive, and silent about what it has not answered of the first request.
    pub(crate) fn end_first_answer(&mut self) {
        self.first_answer = FirstAnswer::Silence;
    }

    /// When a server that has sent no new routing since `news` has had the time to answer the first request.
    pub(crate) fn first_answer_due(&self, news: Option<Moment>, limits: &Limits) -> Option<Moment> {
        let written = self.written.filter(|_| !self.has_answered_first())?;
        Some(news.map_or(written, |news| news.max(written)) + limits.resource_timer)
    }
}
