//! What a view task reports: what the brakes of its view hold, and the state of its ladders for the readiness of the relay.

use std::collections::{BTreeMap, BTreeSet};

use super::ViewTask;
use crate::protocol::ladder::LadderState;
use crate::protocol::moment::Moment;
use crate::protocol::view::{BrakeEvent, NotReleased};
use crate::relay::brakes::BrakeNews;
use crate::relay::readiness::{Report, Reports};
use crate::relay::report::{ReleaseQuery, Released};
use crate::xds::{Authority, Type};

impl ViewTask {
    /// Reports what has changed since the last call.
    pub(super) fn report_brakes(&mut self) {
        let changes = self.view.holds().brake_changes();
        if changes == self.brakes.changes {
            return;
        }
        self.brakes.changes = changes;
        let mut held: BTreeMap<String, usize> = BTreeMap::new();
        for brake in self.view.holds().brakes(0) {
            *held.entry(brake.kind.name().to_owned()).or_default() += brake.held;
        }
        let events = self.view.take_brake_events();
        let news = events.into_iter().map(|event| self.brake_news(event)).collect();
        self.brakes.update(held, news);
    }

    /// Notes what is held, for the state file and for the views of another configuration.
    pub(super) fn note_brakes(&mut self, now: Moment) {
        if let Some(state) = self.view.take_brake_state(now) {
            self.published.note_brakes(self.view.holds().is_braked().then_some(state));
        }
    }

    fn brake_news(&self, event: BrakeEvent) -> BrakeNews {
        let (kind, server, reason, removals, generation) = match event {
            BrakeEvent::Engaged { kind, server, generation, held, .. } => (kind, server, None, held, generation),
            BrakeEvent::Released { kind, server, reason, count, .. } => (kind, server, Some(reason), count, 0),
        };
        let (server, type_name) = (self.inspection().server_name(server), kind.name().to_owned());
        BrakeNews { server, type_name, reason, removals, generation }
    }

    pub(super) fn release_brakes(&mut self, query: &ReleaseQuery) -> Released {
        if query.view.as_ref().is_some_and(|view| *view != self.view_id) {
            return Released::default();
        }
        let server = match &query.server {
            None => None,
            Some(name) => match (0..self.connectors.len()).find(|at| self.connectors[*at].describe() == *name) {
                Some(at) => Some(u16::try_from(at).unwrap_or(u16::MAX)),
                None => return Released::default(),
            },
        };
        let is_meant = |kind: &Type| query.kind.as_ref().is_none_or(|meant| meant == kind);
        let sets = self.view.holds().brakes(0).into_iter().filter(|brake| is_meant(&brake.kind));
        let sets: Vec<_> = sets.map(|brake| (brake.kind, brake.of)).collect();
        let now = self.clock.now();
        let mut released = Released::default();
        for (kind, of) in sets {
            match self.view.release_brakes(Some((&kind, &of)), server, query.generation, now) {
                Ok(count) => released.removals += count,
                Err(NotReleased::Later) => released.later = 1,
                Err(NotReleased::NothingHeld) => {}
            }
        }
        released.views = usize::from(released.removals > 0);
        released
    }

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
