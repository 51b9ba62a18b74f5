//! A session behind its lock, with the notices that come while a reply is made.

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use tokio::sync::Semaphore;
use weir_core::protocol::session::Session;

use super::inbox::{self, Inbox};
use crate::relay::heavy::HEAVY;
use crate::relay::subscriber::Notice;

/// Taking the lock mostly reads the inbox, so that the session knows what its view has sent.
pub(super) struct LockedSession {
    /// The reader of requests, the body of replies and the view task lock it, each for a short time.
    session: Mutex<Session>,
    /// Notices of the view task, which never waits for a session that makes a reply.
    inbox: Mutex<Inbox>,
    /// The permit for another thread to do heavy work with it, which has it locked meanwhile. Those who wait for it are served in order.
    apart: Semaphore,
}

/// Why a session was not locked.
pub(super) enum NotLocked {
    /// So many names are in its inbox.
    Unread(usize),
    /// Another thread has it locked, perhaps for heavy work that has begun just now.
    Taken,
}

impl LockedSession {
    pub(super) fn new(session: Session) -> Self {
        Self { session: Mutex::new(session), inbox: Mutex::default(), apart: Semaphore::new(1) }
    }

    /// Locks the session without reading its inbox, which may take long: for what does not depend on it.
    pub(super) fn lock_unread(&self) -> MutexGuard<'_, Session> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the session and reads its inbox.
    pub(super) fn lock(&self) -> MutexGuard<'_, Session> {
        let mut session = self.lock_unread();
        self.read_inbox(&mut session);
        session
    }

    /// Like [`Self::lock_unread`], unless another thread has it locked.
    pub(super) fn try_lock_unread(&self) -> Option<MutexGuard<'_, Session>> {
        match self.session.try_lock() {
            Ok(session) => Some(session),
            Err(TryLockError::Poisoned(session)) => Some(session.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Like [`Self::lock`], unless another thread has it locked.
    pub(super) fn try_lock(&self) -> Option<MutexGuard<'_, Session>> {
        let mut session = self.try_lock_unread()?;
        self.read_inbox(&mut session);
        Some(session)
    }

    /// Locks the session and reads its inbox, unless another thread has it locked, or `many` names or more are to be read.
    pub(super) fn lock_below(&self, many: usize) -> Result<MutexGuard<'_, Session>, NotLocked> {
        match self.unread_names() {
            unread if unread >= many => Err(NotLocked::Unread(unread)),
            _ => self.try_lock().ok_or(NotLocked::Taken),
        }
    }

    /// Locks the session without reading its inbox, once no other thread has it locked. The thread runs other tasks meanwhile.
    pub(super) async fn lock_when_free(&self) -> MutexGuard<'_, Session> {
        loop {
            if let Some(session) = self.try_lock_unread() {
                return session;
            }
            self.look_later().await;
        }
    }

    /// Returns how many names are in the inbox.
    pub(super) fn unread_names(&self) -> usize {
        self.inbox().names()
    }

    /// Waits until no other thread does heavy work with it, and begins such work.
    pub(super) async fn begin_apart(&self) {
        match self.apart.acquire().await {
            Ok(permit) => permit.forget(),
            Err(_) => std::future::pending().await, // it is never closed
        }
    }

    pub(super) fn end_apart(&self) {
        self.apart.add_permits(1);
    }

    /// Whether locking it may keep this thread until another one has done heavy work.
    pub(super) fn is_apart(&self) -> bool {
        self.apart.available_permits() == 0
    }

    /// Waits until it is not.
    pub(super) async fn until_free(&self) {
        while self.is_apart() {
            self.look_later().await;
        }
    }

    /// Waits a moment, after which another thread may be done with it. Boxed, since the tasks of idle streams would keep room for it.
    pub(super) async fn look_later(&self) {
        Box::pin(tokio::time::sleep(LOOK)).await;
    }

    /// Adds a notice, and reads the inbox unless the session is making a reply. Of what came during a reply it reads twice as many names as it adds,
    /// and at least [`HEAVY`]. So the inbox shrinks again, however long the client stalls, and nobody is kept by all of it at once.
    pub(super) fn notify(&self, notice: Notice) {
        let most = (2 * notice.names()).max(HEAVY);
        self.inbox().add(notice);
        // If it is locked, its next step reads the inbox first.
        if let Some(mut session) = self.try_lock_unread() {
            let first = self.inbox().take(most);
            inbox::read(first, &mut session);
        }
    }

    /// Returns the session to its last owner, who does not need notices any more.
    pub(super) fn last(&mut self) -> &mut Session {
        self.session.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    fn read_inbox(&self, session: &mut Session) {
        let all = self.inbox().take_all(); // the inbox is not locked while they are read
        inbox::read(all, session);
    }

    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How often those who wait look whether heavy work is done, which takes many times as long.
const LOOK: Duration = Duration::from_millis(1);
