//! What a view holds back or seeks.

use super::View;
use crate::protocol::moment::Moment;
use crate::protocol::wait::WaitList;

impl View {
    /// Adds what the view holds back.
    pub fn add_waits(&self, now: Moment, list: &mut WaitList) {
        self.order.add_waits(self.limits.reference_hold, now, list);
        self.brakes.add_waits(&self.limits.brakes, now, list);
    }
}
