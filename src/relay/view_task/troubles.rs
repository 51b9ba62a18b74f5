//! What of a view's state is wrong.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;
use weir_core::protocol::ladder::LadderState;
use weir_core::protocol::sources::{LadderSummary, Sources};
use weir_core::protocol::upstream::ServerStatus;
use weir_core::protocol::view::{Revision, View};
use weir_core::xds::{Authority, Name};

use crate::relay::links::Links;
use crate::relay::published::Published;
use crate::relay::troubles::{AwayServer, ServedInstead, TroubleReporter, ViewTroubles};

/// Keeps what is shown of a view's troubles up to date.
pub(super) struct Troubles {
    reporter: TroubleReporter,
    dangling: DanglingLook,
}

/// The clusters that are missing, as they were at the last look. A look goes through all of them, so there is one in a while at most.
#[derive(Default)]
struct DanglingLook {
    /// When that was, and of which state.
    last: Option<(Instant, Revision)>,
    count: usize,
    first: Vec<Name>,
    /// When the next look is due.
    due: Option<Instant>,
}

impl Troubles {
    pub(super) fn reported_by(reporter: TroubleReporter) -> Self {
        Self { reporter, dangling: DanglingLook::default() }
    }

    /// Returns when to report again even if nothing happens.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.dangling.due
    }

    pub(super) fn report(
        &mut self,
        clients: usize,
        (view, sources): (&View, &Sources),
        down: &BTreeSet<Authority>,
        (links, published): (&Links, &Published),
    ) {
        self.dangling.look(view, Instant::now());
        let apart = published.types_apart();
        let said = |status: &ServerStatus| (status.code, status.to_string());
        let refused = apart.iter().filter_map(|(kind, status)| Some((kind.clone(), said(status.as_ref()?))));
        self.reporter.report(
            clients,
            ViewTroubles {
                away: away(sources, down, links),
                refused: published.refusal().map(|status| said(&status)),
                refused_types: refused.collect(),
                dangling: self.dangling.first.clone(),
                dangling_count: self.dangling.count,
            },
        );
    }
}

impl DanglingLook {
    fn look(&mut self, view: &View, now: Instant) {
        let revision = view.revision();
        let is_due = match self.last {
            None => true,
            Some((_, of)) if of == revision && self.due.is_none() => return,
            Some((at, _)) => now >= at + EVERY,
        };
        if !is_due {
            self.due = self.last.map(|(at, _)| at + EVERY);
            return;
        }
        let mut dangling = view.holds().dangling().map(|(name, _)| name);
        self.first = dangling.by_ref().take(NAMED).cloned().collect();
        self.count = self.first.len() + dangling.count();
        (self.last, self.due) = (Some((now, revision)), None);
    }
}

/// Returns the servers that should be active, or were, and are not.
fn away(sources: &Sources, down: &BTreeSet<Authority>, links: &Links) -> Vec<AwayServer> {
    let mut away = Vec::<AwayServer>::new();
    for ladder in sources.ladders() {
        let (lost, instead) = lost_rungs(&ladder, down.contains(ladder.authority));
        let lost = ladder.servers.iter().take(lost).filter(|server| !links.is_hub(**server));
        for server in lost {
            let error = links.why_away(*server).to_owned();
            let server = links.server(*server);
            match away.iter_mut().find(|known| known.server == server) {
                Some(known) => known.instead = known.instead.max(instead),
                None => away.push(AwayServer { server, error, instead }),
            }
        }
    }
    away
}

/// Returns how many servers of a list are away, from the first one on, and what there is instead of them.
fn lost_rungs(ladder: &LadderSummary<'_>, is_down: bool) -> (usize, ServedInstead) {
    match ladder.state {
        LadderState::Idle => (0, ServedInstead::Nothing),
        LadderState::Active(at) if is_down => (at + 1, ServedInstead::Cache),
        LadderState::Active(at) => (at, ServedInstead::Fallback),
        LadderState::Trying(at) => (at + usize::from(is_down), ServedInstead::Nothing),
        LadderState::Cached(at) => (at + 1, ServedInstead::Cache),
        LadderState::Down => (ladder.servers.len(), ServedInstead::Nothing),
    }
}

/// The least time between two looks for missing clusters.
const EVERY: Duration = Duration::from_secs(1);
const NAMED: usize = 100;

#[cfg(test)]
mod tests {
    use weir_core::protocol::moment::Moment;

    use super::*;

    #[test]
    fn servers_before_the_active_one_are_away_and_what_there_is_instead_follows_from_the_ladder() {
        let of = |state, is_down| {
            let authority = &Authority::TopLevel;
            let (since, switches, server) = (Moment::START, Default::default(), None);
            lost_rungs(&LadderSummary { authority, state, since, switches, server, servers: &[3, 1, 2] }, is_down)
        };
        assert_eq!(of(LadderState::Idle, false).0, 0);
        assert_eq!(of(LadderState::Trying(0), false).0, 0, "it has begun");
        assert_eq!(of(LadderState::Active(0), false).0, 0);
        assert_eq!(of(LadderState::Active(2), false), (2, ServedInstead::Fallback));
        assert_eq!(of(LadderState::Trying(1), false), (1, ServedInstead::Nothing));
        assert_eq!(of(LadderState::Trying(0), true), (1, ServedInstead::Nothing));
        assert_eq!(of(LadderState::Cached(0), true), (1, ServedInstead::Cache));
        assert_eq!(of(LadderState::Down, true), (3, ServedInstead::Nothing));
        assert!(ServedInstead::Nothing > ServedInstead::Cache && ServedInstead::Cache > ServedInstead::Fallback);
    }
}
