//! Reports the ladders of a view to the readiness of the relay.

use std::collections::BTreeSet;

use super::ViewTask;
use crate::protocol::ladder::LadderState;
use crate::relay::readiness::{Report, Reports};
use crate::xds::Authority;

impl ViewTask {
    /// Reports the state of the ladders if it has changed.
    pub(super) fn report_readiness(&mut self, down: &BTreeSet<Authority>) {
        let (mut responded, mut reports) = (false, Reports::new());
        for ladder in self.sources.ladders() {
            let authority = ladder.authority;
            if matches!(ladder.state, LadderState::Active(_)) && !self.readiness.answered.contains(authority) {
                self.readiness.answered.insert(authority.clone());
                responded = true;
            }
            let (answered, down) = (self.readiness.answered.contains(authority), down.contains(authority));
            if ladder.state != LadderState::Idle && (!answered || down) {
                let (state, error) = (ladder.state.name(), self.links.reason_of(&ladder));
                reports.insert(authority.clone(), Report { answered, down, state, error });
            }
        }
        self.readiness.update(responded, reports);
    }
}
