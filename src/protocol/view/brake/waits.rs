//! What brakes hold, for how long, and for how long at most.

use super::{BrakeRules, Brakes};
use crate::protocol::moment::Moment;
use crate::protocol::wait::{WaitKind, WaitList, WaitSubject};

impl Brakes {
    /// Adds everything that is held. Its clock stands from the end of an opening until the server has stated its set on the next.
    pub(crate) fn add_waits(&self, rules: &BrakeRules, now: Moment, list: &mut WaitList) {
        for ((kind, _), hold) in self.holds() {
            for (name, held) in hold.items() {
                let (since, lasting) = hold.clock_of(held, rules);
                let age = hold.clock.read(now).saturating_sub(since);
                let bound = hold.clock.runs().then_some(lasting);
                list.add(WaitKind::Brake, age, bound, || WaitSubject::name(kind, name));
            }
        }
    }
}
