//! Bounds for work that has to end by itself: a session that never stops fails its test, and takes no memory.

use std::sync::Arc;

use weir_core::protocol::moment::Moment;
use weir_core::protocol::session::{Session, Step};
use weir_core::protocol::view::{LeaseAccess, Leases, Snapshot};

/// Polls sessions, and counts the replies in a row. Too many show that a session never becomes idle.
#[derive(Debug, Default)]
pub struct Bounded {
    replies: u32,
}

impl Bounded {
    pub fn poll(&mut self, session: &mut Session, newest: &Arc<Snapshot>, leases: &mut Leases, now: Moment) -> Step {
        let step = session.poll(newest, &mut Turns { leases, left: TURNS }, now);
        self.replies = if matches!(step, Step::Reply(_)) { self.replies + 1 } else { 0 };
        assert!(self.replies <= REPLIES, "{REPLIES} replies, and no end: {step:?}");
        step
    }
}

/// Leases for one poll, which uses them in each of its turns.
struct Turns<'a> {
    leases: &'a mut Leases,
    left: u32,
}

impl LeaseAccess for Turns<'_> {
    fn access<T>(&mut self, with: impl FnOnce(&mut Leases) -> T) -> T {
        self.left = self.left.checked_sub(1).expect("a poll that goes round and round");
        with(self.leases)
    }
}

const TURNS: u32 = 100;
const REPLIES: u32 = 100_000;
