//! A session behind its lock, with the notices that come while a reply is made.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use weir_core::protocol::session::Session;

use crate::relay::subscriber::Notice;

/// Taking the lock mostly reads the inbox, so that the session knows what its view has sent.
pub(super) struct LockedSession {
    /// The reader of requests, the body of replies and the view task lock it, each for a short time.
    session: Mutex<Session>,
    /// Notices of the view task, which never waits for a session that makes a reply.
    inbox: Mutex<Vec<Notice>>,
    /// Another thread does heavy work with it, and has it locked.
    is_apart: AtomicBool,
}

impl LockedSession {
    pub(super) fn new(session: Session) -> Self {
        Self { session: Mutex::new(session), inbox: Mutex::default(), is_apart: AtomicBool::new(false) }
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

    /// Locks the session and reads its inbox, unless reading it takes long. `Err`: it has so many names, at least `many`.
    pub(super) fn lock_below(&self, many: usize) -> Result<MutexGuard<'_, Session>, usize> {
        let unread = self.unread_names();
        if unread < many { Ok(self.lock()) } else { Err(unread) }
    }

    /// Returns how many names are in the inbox.
    pub(super) fn unread_names(&self) -> usize {
        self.inbox().iter().map(Notice::names).sum()
    }

    /// Begins heavy work of another thread, unless there is some already. Returns whether it is begun.
    pub(super) fn begin_apart(&self) -> bool {
        self.is_apart.compare_exchange(false, true, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    pub(super) fn end_apart(&self) {
        self.is_apart.store(false, Ordering::Release);
    }

    /// Whether locking it would keep this thread until another one has done heavy work.
    pub(super) fn is_apart(&self) -> bool {
        self.is_apart.load(Ordering::Acquire)
    }

    /// Waits until it is not. Boxed, since the tasks of idle streams would keep room for it.
    pub(super) async fn until_free(&self) {
        while self.is_apart() {
            Box::pin(tokio::time::sleep(LOOK)).await;
        }
    }

    /// Adds a notice, and reads the inbox unless the session is making a reply. So the inbox holds only what happens during one reply,
    /// however long the client stalls.
    pub(super) fn notify(&self, notice: Notice) {
        self.inbox().push(notice);
        match self.session.try_lock() {
            Ok(mut session) => self.read_inbox(&mut session),
            Err(TryLockError::Poisoned(session)) => self.read_inbox(&mut session.into_inner()),
            Err(TryLockError::WouldBlock) => {} // the task that locks it next reads the inbox first
        }
    }

    /// Returns the session to its last owner, who does not need notices any more.
    pub(super) fn last(&mut self) -> &mut Session {
        self.session.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    fn read_inbox(&self, session: &mut Session) {
        let notices = std::mem::take(&mut *self.inbox()); // not in the loop, which would keep the inbox locked
        for notice in notices {
            match notice {
                Notice::NamesChanged(changes) => changes.iter().for_each(|change| session.on_name_changed(change)),
                Notice::InterestApplied => session.on_interest_applied(),
                Notice::NamesRefused(names) => session.on_names_refused(&names),
                Notice::ClaimsRefused(claims) => session.on_claims_refused(claims),
                Notice::ClaimRoom => session.on_claim_room(),
                Notice::ReplyLate(by) => session.on_late_reply(by),
                Notice::StatedVersionsRefused => session.end_if_refused(),
                Notice::ViewRefused(status) => session.on_view_refused(&status),
                Notice::TypeRefused(kind, status) => session.on_type_refused(&kind, &status),
            }
        }
    }

    fn inbox(&self) -> MutexGuard<'_, Vec<Notice>> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How often those who wait look whether heavy work is done, which takes many times as long.
const LOOK: Duration = Duration::from_millis(1);
