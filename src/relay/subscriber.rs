//! The sessions of a view, as its task uses them.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use weir_core::protocol::moment::Moment;
use weir_core::protocol::upstream::ServerStatus;
use weir_core::protocol::view::{Claim, NameChanged, NoRoom, Notifications, RefusedName, SessionId, View};
use weir_core::xds::{MemberNode, Type};

use super::report::AnswersSource;
use super::traces::OpenChange;
use super::wakes::Wakes;
use crate::limit::{Limit, LimitCounters};

/// A notice to a session, mostly of the view task.
#[derive(Debug)]
pub(super) enum Notice {
    NamesChanged(VecDeque<NameChanged>),
    /// The session's subscriptions were counted by the view.
    InterestApplied,
    /// The view has no room for these names.
    NamesRefused(Vec<RefusedName>),
    /// The view has no room for these claims, and gives them back.
    ClaimsRefused(VecDeque<Claim>),
    /// The view has room for claims again.
    ClaimRoom,
    /// The last reply has waited this long, since it was made or since such a wait was last reported.
    ReplyLate(Duration),
    StatedVersionsRefused,
    /// The server ends streams that request this type.
    TypeRefused(Type, Arc<ServerStatus>),
    /// The server refuses the headers or the node that the view shows it.
    ViewRefused(Arc<ServerStatus>),
}

impl Notice {
    /// Returns how many names it has.
    pub(super) fn names(&self) -> usize {
        match self {
            Self::NamesChanged(changes) => changes.len(),
            Self::NamesRefused(names) => names.len(),
            Self::ClaimsRefused(claims) => claims.len(),
            _ => 0,
        }
    }
}

/// A session, as its view task uses it.
pub(super) trait Subscriber: Send {
    fn id(&self) -> SessionId;
    /// Takes the client's node, and since when the client is connected, if servers may be shown it.
    fn take_node(&mut self) -> Option<(MemberNode, Moment)> {
        None
    }
    /// Returns the session, to count its client's answers outside of the task.
    fn answers(&self) -> Arc<dyn AnswersSource>;
    /// Passes a notice on. Wakes the session if the notice may give it something to send and the task does not wake it itself.
    fn notify(&self, notice: Notice);
    /// A traced change concerns the session.
    fn on_traced_change(&self, change: &Arc<OpenChange>);
    /// Whether its client is sent replies and answers them.
    fn answers_replies(&self) -> bool;
    /// Wakes the session, with others or at once: there may be something to send.
    fn wake(&self, others: &mut Wakes);
}

/// The sessions of a view, and those that must still be notified that their subscriptions were counted.
pub(super) struct Subscribers {
    sessions: HashMap<SessionId, Box<dyn Subscriber>>,
    /// Sessions whose interest was counted since the last publication.
    interest_applied: Vec<SessionId>,
    limits: Arc<LimitCounters>,
}

impl Subscribers {
    pub(super) fn none(limits: Arc<LimitCounters>) -> Self {
        Self { sessions: HashMap::new(), interest_applied: Vec::new(), limits }
    }

    pub(super) fn join(&mut self, session: Box<dyn Subscriber>) {
        self.sessions.insert(session.id(), session);
    }

    pub(super) fn leave(&mut self, session: SessionId) {
        self.sessions.remove(&session);
    }

    pub(super) fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Returns the sessions, to count the answers of their clients elsewhere.
    pub(super) fn answers(&self) -> Vec<Arc<dyn AnswersSource>> {
        self.sessions.values().map(|session| session.answers()).collect()
    }

    /// Returns those of the given sessions whose clients answer replies.
    pub(super) fn that_answer(&self, sessions: &BTreeSet<SessionId>) -> Vec<&dyn Subscriber> {
        let sessions = sessions.iter().filter_map(|session| self.sessions.get(session));
        sessions.map(|session| &**session).filter(|session| session.answers_replies()).collect()
    }

    /// Notifies sessions of names that the last changes of interest had no room for.
    pub(super) fn refuse_names(&self, view: &mut View) {
        for (session, names) in view.take_refused_names() {
            let reached = |of: fn(&NoRoom) -> bool| names.iter().any(|refused| of(&refused.why));
            if reached(|why| matches!(why, NoRoom::InView(_))) {
                self.limits.reached(Limit::NamesPerView);
            }
            if reached(|why| matches!(why, NoRoom::InCache(_))) {
                self.limits.reached(Limit::CachedBytes);
            }
            if reached(|why| matches!(why, NoRoom::InRequest(_))) {
                self.limits.reached(Limit::MaxRequestBytes);
            }
            self.notify(session, Notice::NamesRefused(names));
        }
    }

    /// Gives back claims that the view has no room for.
    pub(super) fn refuse_claims(&self, view: &mut View) {
        for (session, claims) in view.take_refused_claims() {
            self.limits.reached(Limit::SoughtNames);
            self.notify(session, Notice::ClaimsRefused(claims.into()));
        }
    }

    /// Wakes sessions whose claims had no room, once there is.
    pub(super) fn admit_claims(&self, view: &mut View) {
        view.take_sessions_to_claim().into_iter().for_each(|session| self.notify(session, Notice::ClaimRoom));
    }

    /// Marks the changed names. Must be called before the sessions can read the snapshot: a session that read it without the marks would miss the
    /// changes.
    pub(super) fn mark(&self, notifications: &Notifications) {
        let concerned =
            notifications.0.iter().filter_map(|(session, changes)| Some((self.sessions.get(session)?, changes)));
        concerned.for_each(|(session, changes)| session.notify(Notice::NamesChanged(changes.clone().into())));
    }

    /// Wakes the sessions concerned, and those whose interest is part of the snapshot by now, which are notified of that. To be called when they can
    /// read the snapshot.
    pub(super) fn wake(&mut self, notifications: &Notifications) {
        let counted = std::mem::take(&mut self.interest_applied);
        counted.iter().for_each(|session| self.notify(*session, Notice::InterestApplied));
        let others: BTreeSet<_> = counted.iter().filter(|session| !notifications.0.contains_key(session)).collect();
        let mut together = Wakes::default();
        for session in notifications.0.keys().chain(others).filter_map(|session| self.sessions.get(session)) {
            session.wake(&mut together);
        }
    }

    /// The interest of a session was counted, and is part of the next snapshot.
    pub(super) fn note_interest(&mut self, session: SessionId) {
        self.interest_applied.push(session);
    }

    /// Notifies sessions of a type that the server refuses.
    pub(super) fn refuse_type(&self, sessions: &BTreeSet<SessionId>, kind: &Type, status: &Arc<ServerStatus>) {
        sessions.iter().for_each(|session| self.notify(*session, Notice::TypeRefused(kind.clone(), status.clone())));
    }

    /// Notifies one session that the server refuses the view.
    pub(super) fn refuse_view_to(&self, session: SessionId, status: &Arc<ServerStatus>) {
        self.notify(session, Notice::ViewRefused(status.clone()));
    }

    /// Notifies all sessions that the server refuses the view.
    pub(super) fn refuse_view(&self, status: &Arc<ServerStatus>) {
        self.sessions.values().for_each(|session| session.notify(Notice::ViewRefused(status.clone())));
    }

    fn notify(&self, session: SessionId, notice: Notice) {
        if let Some(handle) = self.sessions.get(&session) {
            handle.notify(notice);
        }
    }
}

#[cfg(test)]
mod tests;
