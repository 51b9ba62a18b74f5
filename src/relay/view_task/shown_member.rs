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
    pub(super) fn recovering(&self, sources: &mut Sources, links: &Links, now: Moment) -> BTreeMap<u16, Moment> {
        let mut servers = sources.recovering();
        let Some(until) = self.members.removals_wait_until() else { return servers };
        let open = without_hub(sources.shown_node().open_servers(), links);
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use bytes::Bytes;
    use prost::Message;
    use tokio::task::JoinHandle;
    use weir_core::proto::node::Node;
    use weir_core::protocol::ladder::Rule;
    use weir_core::protocol::options::ProtocolOptions;
    use weir_core::protocol::session::Variant;
    use weir_core::protocol::sources::{AuthorityPlan, Plan, StreamId};
    use weir_core::protocol::upstream::ServerQuirks;
    use weir_core::protocol::view::{InterestChange, Selector, View};
    use weir_core::xds::{KeyRule, TypeTable};

    use super::*;
    use crate::memory::Budget;
    use crate::relay::key_headers::KeyHeaders;
    use crate::relay::link::{Connector, Link, SharedConnector};

    const SERVER: StreamId = StreamId { server: 0, at: 0 };
    const HUB: StreamId = StreamId { server: 1, at: 0 };
    const KIND: &str = "envoy.config.endpoint.v3.ClusterLoadAssignment";

    struct Somewhere {
        is_hub: bool,
    }

    impl Connector for Somewhere {
        fn start(&self, _: Link) -> JoinHandle<()> {
            tokio::spawn(std::future::pending())
        }

        fn describe(&self) -> String {
            "server".into()
        }

        fn variant(&self) -> Option<Variant> {
            None
        }

        fn is_hub(&self) -> bool {
            self.is_hub
        }
    }

    /// A view with the clients `a`, which is shown, and `b`. A name of a server is wanted, and one of the hub.
    struct World {
        sources: Sources,
        view: View,
        links: Links,
        shown: ShownMember,
        now: Moment,
    }

    impl World {
        fn new() -> Self {
            let (table, memory, now) = (Arc::new(TypeTable::new()), Budget::unlimited(), Moment::START);
            let mut plan = Plan::single(Variant::Delta, ServerQuirks::default());
            plan.servers = vec![plan.servers[0].clone(); 2];
            plan.authorities.insert("x".into(), AuthorityPlan { servers: vec![HUB.server], rule: Rule::Reachability });
            let connectors = [false, true].map(|is_hub| Arc::new(Somewhere { is_hub }) as SharedConnector);
            let protocol = ProtocolOptions::default();
            let shared =
                Shared::new(KeyRule::default(), TypeTable::new(), protocol, plan.clone(), connectors.into(), 1, memory);
            let mut sources = Sources::new(Arc::new(plan), Bytes::new(), table.clone(), Arc::default());
            let mut view = View::new(table.clone(), Arc::default());
            for name in ["c", "xdstp://x/envoy.config.endpoint.v3.ClusterLoadAssignment/c"] {
                let (kind, selector) = (table.resolve(KIND), Selector::Name(name.into()));
                view.change_interest(SessionId(1), InterestChange { kind, selector, on: true }, now);
            }
            view.on_time(now);
            for change in view.take_upstream_changes() {
                sources.want(change, &view, now);
            }
            sources.close_unused(&view, now);
            let links = Links::none(&shared, "view".into(), None, KeyHeaders::default());
            let mut shown = ShownMember::of(&shared);
            for (session, id) in [(1, "a"), (2, "b")] {
                shown.members.join(SessionId(session), member(id), now, now);
            }
            shown.set(&mut sources);
            Self { sources, view, links, shown, now }
        }

        fn open(&mut self, stream: StreamId) {
            assert!(self.sources.opened(stream).is_some(), "the stream is wanted");
        }

        /// Returns whether what each open server takes away now is doubted.
        fn doubts(&mut self) -> BTreeMap<u16, bool> {
            let recovering = self.shown.recovering(&mut self.sources, &self.links, self.now);
            recovering.into_iter().map(|(server, until)| (server, until > self.now)).collect()
        }

        /// Lets a second pass, and streams be opened again that are due. Returns those.
        fn pass(&mut self) -> BTreeSet<StreamId> {
            self.now = self.now + Duration::from_secs(1);
            self.shown.follow(&mut self.sources, &self.links, self.now);
            self.sources.on_time(&self.view, self.now);
            let reopened = self.sources.take_reopened();
            reopened.iter().for_each(|stream| self.open(*stream));
            reopened
        }
    }

    fn member(id: &str) -> MemberNode {
        let encoded = Node { id: id.into(), ..Node::default() }.encode_to_vec();
        KeyRule::default().key(&encoded).unwrap().member_node(&encoded).unwrap()
    }

    #[tokio::test]
    async fn what_is_taken_away_is_doubted_until_the_stream_shows_the_next_client_and_of_the_hub_never() {
        let mut world = World::new();
        world.open(SERVER);
        world.open(HUB);
        assert_eq!(world.doubts(), [].into(), "no client has left");
        world.shown.leave(SessionId(1), world.now);
        assert_eq!(world.doubts(), [(0, true)].into());
        assert_eq!(world.pass(), [SERVER].into());
        assert_eq!(world.doubts(), [(0, false)].into(), "the next one is shown");
    }

    #[tokio::test]
    async fn a_stream_that_waits_for_its_turn_is_doubted_for_ten_seconds() {
        let mut world = World::new();
        world.open(SERVER);
        world.shown.leave(SessionId(1), world.now);
        assert!(world.shown.members.show_next());
        world.shown.set(&mut world.sources);
        world.now = world.now + Duration::from_millis(9_999);
        assert_eq!(world.doubts(), [(0, true)].into(), "it shows the one that has left");
        world.now = world.now + Duration::from_millis(1);
        assert_eq!(world.doubts(), [(0, false)].into());
    }
}
