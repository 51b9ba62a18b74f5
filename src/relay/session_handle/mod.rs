//! The handle of one downstream session: shared by the task that reads its requests, the body that writes its replies, and the
//! task of its view.

mod apart;
mod charging;
mod fetching;
mod inbox;
mod interest;
mod locked;
mod place;
pub(super) mod report;
pub(super) mod tapping;
mod transit;
mod waiting;
mod waking;

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use weir_core::proto::Request;
use weir_core::protocol::moment::Moment;
use weir_core::protocol::session::{Ack, CloseReason, Estimate, NackChange, Session, Step, names_quoted_by};
use weir_core::protocol::view::Snapshot;
use weir_core::xds::{HeldVersions, Type};

pub(crate) use self::apart::{SessionThread, Unmade, step_apart, unread_names, until_session_is_free};
pub(super) use self::charging::SessionCharge;
pub(crate) use self::fetching::fetch_reply;
pub(crate) use self::interest::Applied;
use self::interest::{InterestForwarding, await_place};
use self::locked::{LockedSession, NotLocked};
pub(super) use self::place::{SessionPlace, ViewCommands};
pub(crate) use self::tapping::{glance_at_reply, is_tapped, tap_end, tap_reply, tap_request, tap_unchanged};
pub(crate) use self::transit::Blocker;
use self::transit::SendProgress;
#[cfg(test)]
pub(crate) use self::waiting::send_one_by_one;
pub(crate) use self::waiting::{SessionGuard, replies_go_one_by_one, reply_is_late, reply_waits, session_changed};
pub(super) use self::waking::{wake, wake_with};
use super::client_log::NackLine;
use super::clients::ClientFacts;
use super::clock::Clock;
use super::command::Command;
use super::deliveries::Deliveries;
use super::heavy::{HEAVY, beside_others};
use super::subscriber::Notice;
use super::tenants::TenantStream;
use super::traces::{OpenChange, SessionTraces};
use crate::log_pace::LogPace;
use crate::memory::Charge;

pub(crate) struct SessionHandle {
    client: ClientFacts,
    place: SessionPlace,
    session: LockedSession,
    /// Wakes the body that waits for a reply.
    waker: AtomicWaker,
    /// Whether the session is counted as blocked.
    is_blocked: AtomicBool,
    /// Whether the session is listed as having a wait.
    has_waits: AtomicBool,
    transit: SendProgress,
    /// Whether the session is tapped, or was.
    is_tapped: AtomicBool,
    /// The session's claims wait for a place in the queue of the view task.
    awaits_place: AtomicBool,
    itself: Weak<Self>,
    nack_pace: LogPace,
    traces: SessionTraces,
}

impl SessionHandle {
    pub(super) fn new(client: ClientFacts, place: SessionPlace, session: Session) -> Arc<Self> {
        let span = client.is_stream.then(|| place.counters.traces.sample()).flatten();
        let traces = SessionTraces::of_stream(span.map(|(_, ids)| ids));
        let handle = Arc::new_cyclic(|itself| Self {
            client,
            place,
            session: LockedSession::new(session),
            waker: AtomicWaker::new(),
            is_blocked: AtomicBool::new(false),
            has_waits: AtomicBool::new(false),
            transit: SendProgress::default(),
            is_tapped: AtomicBool::new(false),
            awaits_place: AtomicBool::new(false),
            itself: itself.clone(),
            nack_pace: LogPace::of_client(),
            traces,
        });
        let span = handle.traces.is_active().then(|| handle.traces.stream_ids()).flatten();
        handle.place.log.stream_opened(&handle.client, span);
        handle.place.clients.enter(handle.client.id, &handle);
        tapping::begin(&handle);
        handle
    }

    /// Applies a request to the session. The future then forwards interest changes to the view task. It waits while that task is behind, which
    /// delays the requests of this client alone. The future does not hold the request, and returns how many names are newly subscribed to.
    pub(crate) fn handle_request(&self, request: Request) -> impl Future<Output = usize> + Send {
        let names = request.entries().max(self.session.unread_names());
        self.forward(beside_others(names, || self.apply_request(request, None)))
    }

    /// Forwards what follows from a request to the view task, as [`Self::handle_request`] does.
    pub(crate) fn forward(&self, applied: Applied) -> impl Future<Output = usize> + Send {
        let Applied { has_news, at_rest, node, .. } = applied;
        async move {
            if let Some(node) = node
                && let Some(commands) = self.place.commands.sender()
            {
                let _ = commands.send(Command::Node(self.client.id, node)).await; // the next poll ends the stream
            }
            let new_names = if has_news { self.interest().send().await } else { 0 };
            if !at_rest {
                self.waker.wake();
            }
            new_names
        }
    }

    fn interest(&self) -> InterestForwarding<'_> {
        InterestForwarding { session: &self.session, id: self.client.id, commands: self.place.commands.sender() }
    }

    /// Applies a request, whose stated versions were taken out of it.
    pub(crate) fn apply_request(&self, request: Request, stated: Option<HeldVersions>) -> Applied {
        let kind = if request.is_nack() { request.type_url().to_owned() } else { String::new() };
        // Before the session is locked: the reason may be long.
        let quoted =
            request.is_nack().then(|| (names_quoted_by(&request, QUOTED_BYTES), self.place.published.newest()));
        let mut session = apart::lock(self);
        let now = self.place.clock.now();
        let answer = session.on_request_stating(request, stated, now);
        let node = session.take_changed_node().inspect(|node| self.place.charge.set_node(node));
        let (has_news, at_rest) = (session.has_news_for_view(), session.is_at_rest());
        let follows = Applied { has_news, at_rest, has_ended: session.report().has_ended(), node };
        self.place.counters.names_refused(session.take_rejected_names());
        self.place.charge.note(&session);
        if let (Some(Ack::Nack { nonce, .. }), Some((quoted, state))) = (answer, &quoted) {
            session.suspect(&kind, nonce, quoted, state);
        }
        self.note_nacks(session.take_nack_changes());
        let answered = session.take_answered();
        answered.iter().for_each(|answered| self.place.counters.deliveries.answered(answered));
        let span = match (answer, &answered) {
            (Some(Ack::Ack { nonce, .. } | Ack::Nack { nonce, .. }), Some(of)) if self.traces.is_active() => {
                self.traces.on_answer(&of.kind, nonce, of.is_ack)
            }
            _ => None,
        };
        let Some(Ack::Nack { nonce, stale }) = answer else { return follows };
        let rejected = session.report().nacks().find(|(_, verdict)| verdict.nonce == nonce);
        self.place.counters.nack(rejected.map(|(of, _)| of));
        let error = rejected.map(|(_, verdict)| verdict.message.clone());
        drop(session);
        let nack = NackLine { type_url: kind, nonce, stale, error, span };
        self.place.log.nacked(&self.client, &nack, &self.nack_pace);
        follows
    }

    fn note_nacks(&self, changes: Vec<NackChange>) {
        if !changes.is_empty() {
            self.place.nacks.apply(changes, std::time::Instant::now());
        }
    }

    /// Returns the next step. The caller's waker is woken when polling again may be worthwhile.
    pub(crate) fn poll(&self, waker: &std::task::Waker) -> Step {
        self.waker.register(waker);
        let names = self.look(|session| session.report().pending_names());
        beside_others(names, || self.step())
    }

    /// Like [`Self::poll`], but does not make a reply of about `limit` bytes or more, nor one that another thread should make.
    pub(crate) fn poll_below(&self, limit: usize, waker: &std::task::Waker) -> Result<Step, Unmade> {
        self.waker.register(waker);
        self.step_below(limit, HEAVY)
    }

    /// Returns the next step.
    fn step(&self) -> Step {
        self.step_below(usize::MAX, usize::MAX).unwrap_or(Step::Idle(None)) // no reply is that long
    }

    fn step_below(&self, limit: usize, many: usize) -> Result<Step, Unmade> {
        if self.place.commands.is_closed() {
            return Ok(Step::End(CloseReason::ViewFailed));
        }
        // Reads the snapshot before the inbox: every change in the snapshot is in the inbox by then. In the other order, a change in
        // between would be missed.
        let newest = self.place.published.newest();
        let now = self.place.clock.now();
        waiting::reply_is_taken(self, now);
        let mut session = match many {
            usize::MAX => self.session.lock(),
            _ => match self.session.lock_below(many) {
                Ok(session) => session,
                Err(NotLocked::Unread(names)) => return Err(self.many_names(names, now)),
                Err(NotLocked::Taken) => return Err(Unmade::Busy),
            },
        };
        let estimate = if limit < usize::MAX { session.report().estimate(&newest) } else { Estimate::default() };
        if estimate.bytes >= limit {
            self.transit.set(Some(Blocker::Turn), now);
            return Err(Unmade::Large(estimate));
        }
        let names = session.report().pending_names();
        if names >= many {
            return Err(self.many_names(names, now));
        }
        let step = session.poll(&newest, &mut &*self.place.published, now);
        if self.traces.is_active() {
            self.trace_step(&step, &session, &newest, now);
        }
        let made = if let Step::Reply(reply) = &step { Some(reply) } else { None };
        made.iter().for_each(|reply| self.deliveries().made(reply));
        self.transit.set(made.map(|_| Blocker::Unread), now);
        self.transit.set_one_by_one(made.is_some_and(|reply| reply.awaits_endpoints));
        if let Step::End(CloseReason::BadRequest(fault)) = &step {
            self.place.counters.bad_request(fault);
        }
        self.place.charge.note(&session);
        self.count_blocked(session.report().is_blocked());
        self.note_waits(session.report().has_waits());
        self.forward_claims(&mut session);
        Ok(step)
    }

    fn many_names(&self, names: usize, now: Moment) -> Unmade {
        self.transit.set(Some(Blocker::Turn), now);
        Unmade::ManyNames(names)
    }

    /// Traces the result of a poll.
    fn trace_step(&self, step: &Step, session: &Session, newest: &Snapshot, now: Moment) {
        match step {
            Step::Reply(reply) => self.traces.on_reply(&reply.kind, reply.nonce, reply.revision),
            // Most streams have ended their span of the start long ago.
            Step::Idle(_)
                if self.traces.stream_ids().is_some() && session.report().has_sent_all_requested(newest, now) =>
            {
                self.traces.end_start(true, &self.client, &self.place.counters.traces);
            }
            Step::Idle(_) | Step::End(_) => {}
        }
    }

    /// Returns about how many bytes the client would be sent if it reconnected without resources.
    pub(crate) fn subscribed_bytes(&self) -> usize {
        let newest = self.place.published.newest();
        self.session.lock_unread().report().subscribed_bytes(&newest)
    }

    /// Returns for how many names of a type the view has something.
    pub(crate) fn names_of_view(&self, kind: &Type) -> usize {
        self.newest().present(kind)
    }

    /// Sends claims to the view task. If there is no room, they are sent once there is.
    fn forward_claims(&self, session: &mut Session) {
        let claims = session.take_claims();
        if claims.is_empty() {
            return;
        }
        let Some(commands) = self.place.commands.sender() else { return };
        let claims = Command::Claims(self.client.id, claims);
        if let Err(TrySendError::Full(Command::Claims(_, claims))) = commands.try_send(claims) {
            session.return_claims(claims);
            await_place(self);
        }
    }

    /// Whether a client that states this version for everything is up to date.
    pub(crate) fn is_current(&self, version: &str) -> bool {
        let newest = self.place.published.newest();
        self.look(|session| session.report().is_current(&newest, version, self.place.clock.now()))
    }

    /// Returns the time limit of a fetch, unless its transport sets another.
    pub(crate) fn fetch_timeout(&self) -> Duration {
        self.session.lock().options().fetch_timeout
    }

    /// Returns its place among the streams of its tenant, if views have tenants.
    pub(crate) fn tenant(&self) -> Option<&TenantStream> {
        self.place.charge.tenant()
    }

    pub(crate) fn client(&self) -> &ClientFacts {
        &self.client
    }

    /// Reads the session. A caller that also needs a snapshot reads the snapshot first, unless the answer must not be newer than the snapshot.
    pub(super) fn look<T>(&self, question: impl FnOnce(&Session) -> T) -> T {
        let names = if self.session.is_apart() { HEAVY } else { self.session.unread_names() }; // while it is apart, this thread waits
        beside_others(names, || question(&self.session.lock()))
    }

    /// Returns what delays the next reply, and since when.
    pub(super) fn obstruction(&self) -> Option<(Blocker, Moment)> {
        self.transit.get()
    }

    /// Returns the way to the view task; `None` if the session has left.
    pub(super) fn view_task(&self) -> Option<mpsc::Sender<Command>> {
        self.place.commands.sender()
    }

    /// Returns the newest snapshot of the view.
    pub(crate) fn newest(&self) -> Arc<Snapshot> {
        self.place.published.newest()
    }

    pub(crate) fn clock(&self) -> Clock {
        self.place.clock
    }

    /// Ends the session when its stream has ended. Its subscriptions end with it.
    pub(crate) async fn leave(&self) {
        apart::leave(self).await;
    }

    /// Releases the names: the view has removed the session.
    pub(super) fn release_names(&self) {
        self.place.charge.release_names();
    }

    /// Charges bytes to the client's connection, until the result is dropped.
    pub(crate) fn charge(&self, bytes: usize) -> Option<Charge> {
        self.place.charge.beside(bytes)
    }

    /// Returns what counts deliveries.
    pub(crate) fn deliveries(&self) -> &Deliveries {
        &self.place.counters.deliveries
    }

    fn count_blocked(&self, is_blocked: bool) {
        if self.is_blocked.swap(is_blocked, Ordering::Relaxed) != is_blocked {
            self.place.published.count_blocked(is_blocked);
        }
    }

    fn note_waits(&self, has_waits: bool) {
        if self.has_waits.swap(has_waits, Ordering::Relaxed) != has_waits {
            self.place.clients.note_waiting(self.client.id, has_waits);
        }
    }

    /// Ends the session because the versions that its client stated are refused. Their memory is freed now, or by whoever reads the
    /// inbox next.
    pub(crate) fn on_stated_versions_refused(&self) {
        self.notify(Notice::StatedVersionsRefused);
    }

    /// Takes a notice. Wakes the session, except if the notice gives it nothing to send or the view task wakes it later.
    pub(super) fn notify(&self, notice: Notice) {
        if matches!(&notice, Notice::NamesChanged(changes) if changes.is_empty()) {
            return; // a session of `*` has a cursor instead
        }
        let wakes = !matches!(
            notice,
            Notice::NamesChanged(_) | Notice::InterestApplied | Notice::ClaimsRefused(_) | Notice::ReplyLate(_)
        );
        self.session.notify(notice);
        if wakes {
            self.waker.wake();
        }
    }

    pub(super) fn on_traced_change(&self, change: &Arc<OpenChange>) {
        self.traces.concern(change);
    }
}

impl Drop for SessionHandle {
    fn drop(&mut self) {
        self.count_blocked(false);
        self.traces.end(&self.client, &self.place.counters.traces); // mostly done already
        self.place.clients.leave(self.client.id);
        let session = self.session.last();
        let unanswered: Vec<_> = session.report().unanswered().map(|(kind, since)| (kind.clone(), since)).collect();
        session.close(); // mostly done already
        let changes = session.take_nack_changes();
        unanswered.iter().for_each(|(kind, since)| self.place.counters.deliveries.given_up(kind, *since));
        self.note_nacks(changes);
    }
}

/// How much of a reason is searched for names.
const QUOTED_BYTES: usize = 4096;

#[cfg(test)]
mod tests;
