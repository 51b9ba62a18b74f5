//! Which client the servers of a view are shown, and when the next one is: each server in its turn (`views.node: member`).

use std::collections::{BTreeMap, BTreeSet};

use weir_core::protocol::members::Members;
use weir_core::protocol::moment::Moment;
use weir_core::protocol::sources::Sources;
use weir_core::protocol::view::SessionId;
use weir_core::xds::MemberNode;

use crate::relay::links::Links;
use crate::relay::shared::Shared;
use crate::relay::subscriber::Subscriber;

/// The clients of a view that may be shown. None is known where servers are shown the key.
pub(super) struct ShownMember {
    members: Members,
    /// When it is the turn of each server that is to be shown another client. One that is not needed any more stays until it has passed.
    turns: BTreeMap<usize, Moment>,
}

impl ShownMember {
    pub(super) fn of(shared: &Shared) -> Self {
        Self { members: Members::none(shared.view_options.faults), turns: BTreeMap::new() }
    }

    pub(super) fn members(&self) -> &Members {
        &self.members
    }

    /// A session has joined. One that polls comes and goes, so it is shown only if no client was before it.
    pub(super) fn join(&mut self, session: &mut dyn Subscriber, sources: &mut Sources, now: Moment) {
        let is_first = self.members.shown().is_none();
        let Some((node, since)) = session.take_node() else { return };
        if is_first || session.answers_replies() {
            self.members.join(session.id(), node, since, now);
        }
        if is_first {
            self.set(sources);
        }
    }

    /// A client has stated another node. If it is shown, servers keep the one that they have.
    pub(super) fn replace(&mut self, session: SessionId, node: MemberNode) {
        self.members.replace(session, node);
    }

    pub(super) fn leave(&mut self, session: SessionId, now: Moment) {
        self.members.leave(session, now);
    }

    /// A server has refused the client that is shown.
    pub(super) fn pass_over(&mut self, now: Moment) {
        self.members.pass_over(now);
    }

    /// A server has answered for the client that is shown.
    pub(super) fn accept(&mut self) {
        self.members.accept();
    }

    /// Shows the next client to each server whose turn it is. Who that is, is decided then. A server without an open stream needs no turn.
    pub(super) fn follow(&mut self, sources: &mut Sources, links: &Links, now: Moment) {
        if self.members.shown().is_none() {
            return;
        }
        sources.shown_node().show_to_unopened();
        let open = without_hub(sources.shown_node().open_servers(), links);
        if open.is_empty() && self.members.show_next() {
            self.set(sources);
        }
        let behind = match self.members.is_due() {
            true => open,
            false => without_hub(sources.shown_node().left_behind(), links),
        };
        self.turns.retain(|server, turn| *turn > now || behind.contains(server));
        for server in behind {
            let turn = *self.turns.entry(server).or_insert_with(|| links.member_turn(server, now));
            if turn > now {
                continue;
            }
            if self.members.show_next() {
                self.set(sources);
            }
            sources.shown_node().show_to(server);
            self.turns.remove(&server);
        }
    }

    /// When the next turn comes.
    pub(super) fn next_deadline(&self) -> Option<Moment> {
        self.turns.values().min().copied()
    }

    /// Returns until when what each server takes away is doubted: one that was away a moment ago, and one that is shown a client which has
    /// left. What another opening of the same server has left held is forgotten in time by one that is not.
    pub(super) fn recovering(&self, sources: &mut Sources, now: Moment) -> BTreeMap<u16, Moment> {
        let mut servers = sources.recovering();
        let Some(until) = self.members.removals_wait_until() else { return servers };
        let open = sources.shown_node().open_servers();
        let outdated = sources.shown_node().outdated();
        for server in open {
            let until = if self.members.has_left() || outdated.contains(&server) { until } else { until.min(now) };
            if let Ok(server) = u16::try_from(server) {
                let latest = servers.entry(server).or_insert(until);
                *latest = until.max(*latest);
            }
        }
        servers
    }

    fn set(&self, sources: &mut Sources) {
        if let Some(node) = self.members.shown() {
            sources.shown_node().set(node.encoded());
        }
    }
}

/// The hub gives all views the same. It is shown the client that is there when it is opened.
fn without_hub(mut servers: BTreeSet<usize>, links: &Links) -> BTreeSet<usize> {
    servers.retain(|server| !links.is_hub(*server));
    servers
}
