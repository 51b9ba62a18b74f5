//! The handle of one downstream session: shared by the task that reads its requests, the body that writes its replies, and the
//! task of its view.

mod report;
mod spans;
mod transit;

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::task::{Poll, ready};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio::time::Instant;

pub(crate) use self::transit::Obstruction;
use self::transit::Transit;
use super::client_log::{ClientLog, LogPace, StreamLine};
use super::clients::Clients;
use super::clock::Clock;
use super::command::Command;
use super::counters::ProcessCounters;
use super::deliveries::Deliveries;
use super::limit::Limit;
use super::nack_watch::NackWatch;
use super::published::Published;
use super::traces::{SessionTraces, SpanIds};
use crate::proto::Request;
use crate::protocol::moment::Moment;
use crate::protocol::session::{Ack, BadRequest, CloseReason, Estimate, Fetched, NackChange, Session, Step, Variant};
use crate::protocol::view::{Claim, Completeness, LeaseAccess as _, NameChanged, RefusedName, SessionId, Snapshot};
use crate::xds::{Authority, HeldVersions, Name, Peer, Type};

pub(crate) struct SessionHandle {
    pub(crate) id: SessionId,
    pub(crate) variant: Variant,
    /// The client, for logs and reports.
    pub(crate) node_id: String,
    user_agent: Box<str>,
    pub(crate) key: String,
    pub(crate) peer: Arc<Peer>,
    /// Guards the session. Each of the three locks it for a short time.
    session: Mutex<Session>,
    /// Notices of the view task. That task never waits for a session that makes a reply.
    inbox: Mutex<Vec<Notice>>,
    /// Wakes the body that waits for a reply.
    waker: AtomicWaker,
    published: Arc<Published>,
    /// Whether it is counted among the blocked sessions.
    waits: AtomicBool,
    /// Whether it is among the sessions for which something waits.
    has_waits: AtomicBool,
    transit: Transit,
    connected: Moment,
    /// Has this session until it leaves.
    clients: Arc<Clients<SessionHandle>>,
    commands: mpsc::Sender<Command>,
    /// Its claims wait for a place in the queue of the view task.
    awaits_place: AtomicBool,
    itself: Weak<Self>,
    clock: Clock,
    counters: Arc<ProcessCounters>,
    log: Arc<ClientLog>,
    nack_log: LogPace,
    /// Its client answers replies, as opposed to one that polls.
    pub(super) is_stream: bool,
    pub(super) traces: SessionTraces,
    /// Which versions the clients of the view NACK.
    nacks: Arc<NackWatch>,
}

/// A notice to a session, mostly of the view task.
#[derive(Debug)]
enum Notice {
    NamesChanged(Vec<NameChanged>),
    InterestApplied,
    NamesRefused(Vec<RefusedName>),
    ClaimsRefused(Vec<Claim>),
    ClaimRoom,
    StatedVersionsRefused,
}

/// Ends the session when dropped: for futures that may be dropped at any await.
pub(crate) struct SessionGuard(pub(crate) Arc<SessionHandle>);

impl Drop for SessionGuard {
    fn drop(&mut self) {
        let handle = self.0.clone();
        // Without a runtime the process is stopping, and there is no view left.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { handle.leave().await });
        }
    }
}

/// The client of a session, and its place in the relay.
pub(super) struct SessionParts {
    pub(crate) id: SessionId,
    pub(crate) variant: Variant,
    pub(crate) node_id: String,
    pub(crate) user_agent: Box<str>,
    pub(crate) key: String,
    pub(crate) is_stream: bool,
    pub(crate) peer: Arc<Peer>,
    pub(crate) published: Arc<Published>,
    pub(crate) owner: mpsc::Sender<Command>,
    pub(crate) clock: Clock,
    pub(crate) tally: Arc<ProcessCounters>,
    pub(crate) log: Arc<ClientLog>,
    pub(crate) nacks: Arc<NackWatch>,
    pub(crate) clients: Arc<Clients<SessionHandle>>,
}

impl SessionHandle {
    pub(super) fn new(place: SessionParts, session: Session) -> Arc<Self> {
        let SessionParts { id, variant, node_id, user_agent, key, is_stream, peer, .. } = place;
        let SessionParts { published, owner, clock, tally, log, nacks, clients, .. } = place;
        let session = Mutex::new(session);
        let span = is_stream.then(|| tally.traces.sample()).flatten();
        let traces = SessionTraces::of_stream(span.map(|(_, ids)| ids));
        let handle = Arc::new_cyclic(|itself| Self {
            id,
            variant,
            node_id,
            user_agent,
            key,
            peer,
            session,
            inbox: Mutex::default(),
            waker: AtomicWaker::new(),
            published,
            waits: AtomicBool::new(false),
            has_waits: AtomicBool::new(false),
            transit: Transit::default(),
            connected: clock.now(),
            clients,
            commands: owner,
            awaits_place: AtomicBool::new(false),
            itself: itself.clone(),
            clock,
            counters: tally,
            log,
            nack_log: LogPace::of_client(),
            is_stream,
            traces,
            nacks,
        });
        handle.log.stream_opened(handle.line());
        handle.clients.enter(handle.id, &handle);
        handle
    }

    fn line(&self) -> StreamLine<'_> {
        let Self { id, node_id, peer, key, variant, .. } = self;
        let span = self.traces.is_active().then(|| self.traces.stream_ids()).flatten();
        StreamLine { session: id.0, node: node_id, peer, view: key, variant: variant.name(), span }
    }

    /// Applies a request to the session. The future forwards interest changes to the view task, and waits while that task is behind,
    /// which delays the requests of this client alone. It does not keep the request, and returns how many names are newly subscribed to.
    pub(crate) fn handle_request(&self, request: Request) -> impl Future<Output = usize> + Send {
        self.handle_request_stating(request, None)
    }

    /// Like [`Self::handle_request`], for a request whose stated versions were taken out of it.
    pub(crate) fn handle_request_stating(
        &self,
        request: Request,
        stated: Option<HeldVersions>,
    ) -> impl Future<Output = usize> + Send {
        let (has_news, at_rest) = self.apply_request(request, stated);
        async move {
            let new_names = if has_news { self.forward_news().await } else { 0 };
            if !at_rest {
                self.waker.wake();
            }
            new_names
        }
    }

    /// Reserves room before it takes the changes: a stream that ends while this waits has not taken any, so none is lost. A change
    /// that was taken and not sent would leave its name subscribed upstream for ever.
    async fn forward_news(&self) -> usize {
        let Ok(room) = self.commands.reserve().await else { return 0 }; // the view task has ended: the next poll ends the stream
        let interest = self.lock().take_interest();
        if interest.is_empty() {
            return 0; // it was taken while this waited
        }
        let new_names = interest.iter().filter(|change| change.on).count();
        room.send(Command::Interest(self.id, interest));
        new_names
    }

    /// Returns whether the view needs an update, and whether no reply can follow from the request.
    fn apply_request(&self, request: Request, stated: Option<HeldVersions>) -> (bool, bool) {
        let kind = if request.is_nack() { request.type_url().to_owned() } else { String::new() };
        // Before the session is locked: the reason may be long.
        let quoted =
            request.is_nack().then(|| (Session::quoted_names(&request, QUOTED_BYTES), self.published.newest()));
        let mut session = self.lock();
        let answer = session.on_request_stating(request, stated, self.clock.now());
        let follows = (session.has_news_for_view(), session.is_at_rest());
        self.counters.names_refused(session.take_rejected_names());
        if let (Some(Ack::Nack { nonce, .. }), Some((quoted, state))) = (answer, &quoted) {
            session.suspect(&kind, nonce, quoted, state);
        }
        self.note_nacks(session.take_nack_changes());
        let answered = session.take_answered();
        answered.iter().for_each(|answered| self.counters.deliveries.answered(answered));
        let span = self.trace_answer(answer, answered.as_ref());
        let Some(Ack::Nack { nonce, stale }) = answer else { return follows };
        let rejected = session.report().nacks().find(|(_, verdict)| verdict.nonce == nonce);
        self.counters.nack(rejected.map(|(of, _)| of));
        let reason = rejected.map(|(_, verdict)| verdict.message.clone());
        drop(session);
        self.log_nack(&kind, (nonce, stale), reason, span);
        follows
    }

    fn note_nacks(&self, changes: Vec<NackChange>) {
        if !changes.is_empty() {
            self.nacks.apply(changes, std::time::Instant::now());
        }
    }

    /// Logs a NACK, unless this client or all together have sent many. No lock is held.
    fn log_nack(&self, type_url: &str, (nonce, stale): (u64, bool), error: Option<Arc<str>>, span: Option<SpanIds>) {
        let error = error.as_deref();
        let now = std::time::Instant::now();
        let Some(unlogged) = self.nack_log.line(now) else { return };
        let Some(of_others) = self.log.repeated.line(now) else { return };
        let (session, node, view) = (self.id.0, &*self.node_id, &*self.key);
        let (trace_id, span_id) = span.map(SpanIds::texts).unzip();
        tracing::warn!(
            session,
            node,
            view,
            type_url,
            nonce,
            stale,
            error,
            unlogged,
            of_others,
            trace_id,
            span_id,
            "client NACKed a response"
        );
    }

    /// Returns the next step. The caller's waker is woken when polling again may be worthwhile.
    pub(crate) fn poll(&self, waker: &std::task::Waker) -> Step {
        // no reply is that long
        self.poll_below(usize::MAX, waker).unwrap_or(Step::Idle(None))
    }

    /// Like [`Self::poll`], but a reply of about `limit` bytes or more is not made, and what it would be is returned.
    pub(crate) fn poll_below(&self, limit: usize, waker: &std::task::Waker) -> Result<Step, Estimate> {
        self.waker.register(waker);
        if self.commands.is_closed() {
            return Ok(Step::End(CloseReason::ViewFailed));
        }
        // Reads the snapshot before the inbox: every change in the snapshot is in the inbox by then. In the other order, a change in
        // between would be missed.
        let newest = self.published.newest();
        let mut session = self.lock();
        let estimate = if limit < usize::MAX { session.report().estimate(&newest) } else { Estimate::default() };
        let now = self.clock.now();
        if estimate.bytes >= limit {
            self.transit.set(Some(Obstruction::Turn), now);
            return Err(estimate);
        }
        let step = session.poll(&newest, &mut &*self.published, now);
        if self.traces.is_active() {
            self.trace_step(&step, &session, &newest, now);
        }
        self.transit.set(matches!(step, Step::Reply(_)).then_some(Obstruction::Unread), now);
        if let Step::End(CloseReason::BadRequest(fault)) = &step {
            self.count_limit(fault);
        }
        self.count_waiting(session.report().is_blocked());
        self.note_waits(session.report().has_waits());
        self.forward_claims(&mut session);
        Ok(step)
    }

    /// Returns about what the client would be sent if it came back with nothing.
    pub(crate) fn subscribed_bytes(&self) -> usize {
        let newest = self.published.newest();
        self.lock().report().subscribed_bytes(&newest)
    }

    fn count_limit(&self, fault: &BadRequest) {
        match fault {
            BadRequest::TooManyTypes(_) => self.counters.limits.reached(Limit::TypesPerStream),
            BadRequest::TooManyNames(_) => self.counters.limits.reached(Limit::NamesPerType),
            BadRequest::TooManyNamesOnStream(_) => self.counters.limits.reached(Limit::NamesPerStream),
            BadRequest::TooManyStatedVersions(_) => self.counters.limits.reached(Limit::StatedVersionsBytes),
            _ => {}
        }
    }

    /// Sends claims to the view task. If there is no room, they are sent once there is.
    fn forward_claims(&self, session: &mut Session) {
        let claims = session.take_claims();
        if claims.is_empty() {
            return;
        }
        let claims = Command::Claims(self.id, claims);
        if let Err(TrySendError::Full(Command::Claims(_, claims))) = self.commands.try_send(claims) {
            session.return_claims(claims);
            self.await_place();
        }
    }

    /// A task of its own waits: a body whose client does not read would keep the place that it is given.
    fn await_place(&self) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return }; // the process is stopping
        if self.awaits_place.swap(true, Ordering::AcqRel) {
            return;
        }
        let (itself, commands) = (self.itself.clone(), self.commands.clone());
        runtime.spawn(async move {
            let place = commands.reserve_owned().await;
            let (Some(handle), Ok(place)) = (itself.upgrade(), place) else { return };
            handle.awaits_place.store(false, Ordering::Release);
            let mut session = handle.lock();
            let claims = session.take_claims();
            if !claims.is_empty() {
                place.send(Command::Claims(handle.id, claims)); // before the session can leave
            }
        });
    }

    /// Whether a client is current if it states this version for everything.
    pub(crate) fn is_current(&self, version: &str) -> bool {
        let newest = self.published.newest();
        self.lock().is_current(&newest, version, self.clock.now())
    }

    /// Returns how complete each collection is whose members the client was all sent.
    pub(super) fn sent_completeness(&self) -> BTreeMap<(Type, Name), Completeness> {
        let newest = self.published.newest();
        self.lock().report().sent_completeness(&newest)
    }

    /// Returns authorities without a reachable server.
    pub(super) fn outages(&self) -> Arc<BTreeSet<Authority>> {
        self.published.newest().down.clone()
    }

    /// Returns one reply to the request once everything in it is known, and at the latest when `patience` is over.
    pub(crate) async fn fetch(&self, patience: Duration) -> Fetched {
        let last = Instant::now() + patience;
        let mut sleep = std::pin::pin!(tokio::time::sleep_until(last));
        std::future::poll_fn(|cx| {
            loop {
                self.waker.register(cx.waker());
                if self.commands.is_closed() {
                    return Poll::Ready(Fetched::End(CloseReason::ViewFailed));
                }
                let at_last = Instant::now() >= last;
                let now = self.clock.now();
                let newest = self.published.newest();
                let mut session = self.lock();
                let fetched = session.fetch(&newest, &mut &*self.published, now, at_last);
                self.forward_claims(&mut session);
                match fetched {
                    Fetched::Waiting(until) => {
                        let until = until.map_or(last, |until| self.clock.instant(until).min(last));
                        sleep.as_mut().reset(until);
                        ready!(sleep.as_mut().poll(cx));
                    }
                    fetched => return Poll::Ready(fetched),
                }
            }
        })
        .await
    }

    /// Returns the time limit of a fetch, unless its transport sets another.
    pub(crate) fn fetch_timeout(&self) -> Duration {
        self.lock().options().fetch_timeout
    }

    /// Waits until there is something to send beyond what the client has received.
    pub(crate) async fn changed(&self) {
        let mut sleep = std::pin::pin!(tokio::time::sleep(Duration::ZERO));
        std::future::poll_fn(|cx| {
            loop {
                match self.poll(cx.waker()) {
                    Step::Reply(_) | Step::End(_) => return Poll::Ready(()),
                    Step::Idle(None) => return Poll::Pending,
                    Step::Idle(Some(moment)) => {
                        sleep.as_mut().reset(self.clock.instant(moment));
                        ready!(sleep.as_mut().poll(cx));
                    }
                }
            }
        })
        .await;
    }

    /// Returns the newest snapshot of the view.
    pub(crate) fn newest(&self) -> Arc<Snapshot> {
        self.published.newest()
    }

    pub(crate) fn clock(&self) -> Clock {
        self.clock
    }

    /// Ends the session when its stream has ended. Its subscriptions end with it.
    pub(crate) async fn leave(&self) {
        let interest = {
            let mut session = self.lock();
            self.count_given_up(&session);
            session.close();
            // Nobody may take a lease for a long time, and this one keeps a snapshot.
            (&*self.published).access(|leases| leases.sweep(self.clock.now()));
            self.note_nacks(session.take_nack_changes());
            session.take_interest()
        };
        let _ = self.commands.send(Command::Leave(self.id, interest)).await;
        self.clients.leave(self.id);
        self.log.stream_ended(self.line());
        self.end_traces();
    }

    fn count_given_up(&self, session: &Session) {
        session.report().unanswered().for_each(|(kind, since)| self.counters.deliveries.given_up(kind, since));
    }

    /// Returns what counts deliveries.
    pub(crate) fn deliveries(&self) -> &Deliveries {
        &self.counters.deliveries
    }

    fn count_waiting(&self, waits: bool) {
        match (self.waits.swap(waits, Ordering::Relaxed), waits) {
            (false, true) => drop(self.published.waiting.fetch_add(1, Ordering::Relaxed)),
            (true, false) => drop(self.published.waiting.fetch_sub(1, Ordering::Relaxed)),
            _ => {}
        }
    }

    fn note_waits(&self, has_waits: bool) {
        if self.has_waits.swap(has_waits, Ordering::Relaxed) != has_waits {
            self.clients.note_waiting(self.id, has_waits);
        }
    }

    pub(super) fn on_names_changed(&self, marks: &[NameChanged]) {
        if !marks.is_empty() {
            self.notify(Notice::NamesChanged(marks.to_vec()));
        }
    }

    pub(super) fn on_names_refused(&self, names: Vec<RefusedName>) {
        self.notify(Notice::NamesRefused(names));
        self.waker.wake();
    }

    pub(super) fn on_claims_refused(&self, claims: Vec<Claim>) {
        self.notify(Notice::ClaimsRefused(claims));
    }

    /// Wakes the session, so that it claims again what had no room.
    pub(super) fn on_claim_room(&self) {
        self.notify(Notice::ClaimRoom);
        self.waker.wake();
    }

    /// Ends the session if the versions that its client stated are refused. Their memory is free when the reply in hand is made.
    pub(crate) fn on_stated_versions_refused(&self) {
        self.notify(Notice::StatedVersionsRefused);
        self.waker.wake();
    }

    pub(super) fn on_interest_applied(&self) {
        self.notify(Notice::InterestApplied);
        self.waker.wake();
    }

    /// Adds a notice, and reads the inbox unless the session is making a reply. So the inbox holds only what happens during one reply,
    /// however long the client stalls.
    fn notify(&self, notice: Notice) {
        self.inbox().push(notice);
        match self.session.try_lock() {
            Ok(mut session) => self.read_inbox(&mut session),
            Err(TryLockError::Poisoned(session)) => self.read_inbox(&mut session.into_inner()),
            Err(TryLockError::WouldBlock) => {} // the task that locks it next reads the inbox first
        }
    }

    fn read_inbox(&self, session: &mut Session) {
        for notice in std::mem::take(&mut *self.inbox()) {
            match notice {
                Notice::NamesChanged(marks) => marks.iter().for_each(|mark| session.on_name_changed(mark)),
                Notice::InterestApplied => session.on_interest_applied(),
                Notice::NamesRefused(names) => session.on_names_refused(&names),
                Notice::ClaimsRefused(claims) => session.on_claims_refused(claims),
                Notice::ClaimRoom => session.on_claim_room(),
                Notice::StatedVersionsRefused => session.end_if_refused(),
            }
        }
    }

    fn inbox(&self) -> MutexGuard<'_, Vec<Notice>> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn wake(&self) {
        self.waker.wake();
    }

    /// Locks the session and reads its inbox.
    fn lock(&self) -> MutexGuard<'_, Session> {
        let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        self.read_inbox(&mut session);
        session
    }
}

impl Drop for SessionHandle {
    fn drop(&mut self) {
        self.count_waiting(false);
        self.end_traces(); // mostly done already
        self.clients.leave(self.id);
        let session = self.session.get_mut().unwrap_or_else(PoisonError::into_inner);
        let unanswered: Vec<_> = session.report().unanswered().map(|(kind, since)| (kind.clone(), since)).collect();
        session.close(); // mostly done already
        let changes = session.take_nack_changes();
        unanswered.iter().for_each(|(kind, since)| self.counters.deliveries.given_up(kind, *since));
        self.note_nacks(changes);
    }
}

/// How much of a reason is searched for names.
const QUOTED_BYTES: usize = 4096;

#[cfg(test)]
mod tests;
