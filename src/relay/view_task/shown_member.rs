//! Which client the servers of a view are shown, and when the next one is: on each stream in its turn (`views.node: member`).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use weir_core::protocol::members::Members;
use weir_core::protocol::moment::Moment;
use weir_core::protocol::sources::{Sources, StreamId};
use weir_core::protocol::view::{Recovering, SessionId, View};
use weir_core::xds::MemberNode;

use crate::relay::links::Links;
use crate::relay::subscriber::Subscriber;

/// The clients of a view that may be shown. None is known where servers are shown the key.
pub(super) struct ShownMember {
    members: Members,
    /// When it is the turn of each stream that is to show another client. One that is not needed any more stays until it has passed.
    turns: BTreeMap<StreamId, Moment>,
    /// There is a client, or the shown one has not left.
    is_attended: bool,
    /// A server has answered for the shown client since a refusal. The answer counts as soon as no server refuses the view.
    is_answered: bool,
    /// When the last client was shown because a server had refused the one before.
    last_passed_over: Option<Moment>,
}

impl ShownMember {
    pub(super) fn none() -> Self {
        let (members, turns) = (Members::none(), BTreeMap::new());
        Self { members, turns, is_attended: true, is_answered: false, last_passed_over: None }
    }

    pub(super) fn members(&self) -> &Members {
        &self.members
    }

    /// A session has joined. One that polls comes and goes, so it is shown only if no client was before it, or if a server refuses the last one
    /// and it is another one.
    pub(super) fn join(&mut self, session: &mut dyn Subscriber, sources: &mut Sources, now: Moment) {
        let is_first = self.members.shown().is_none();
        let Some((node, since)) = session.take_node() else { return };
        if session.answers_replies() || self.takes_a_poller(&node, now) {
            self.members.join(session.id(), node, since, now);
        }
        if is_first {
            self.set(sources);
        }
    }

    fn takes_a_poller(&mut self, node: &MemberNode, now: Moment) -> bool {
        let is_first = self.members.shown().is_none();
        let is_taken = self.members.needs_a_client(node) && (is_first || !self.is_too_soon(now));
        if is_taken && !is_first {
            self.last_passed_over = Some(now);
        }
        is_taken
    }

    /// Whether a client was shown a moment ago because of a refusal.
    fn is_too_soon(&self, now: Moment) -> bool {
        self.last_passed_over.is_some_and(|last| now < last + PAUSE_OF_POLLED)
    }

    /// A client has stated another node. If it is shown, servers keep the one that they have.
    pub(super) fn replace(&mut self, session: SessionId, node: MemberNode) {
        self.members.replace(session, node);
    }

    pub(super) fn leave(&mut self, session: SessionId, now: Moment) {
        self.members.leave(session, now);
    }

    /// A server has refused the client that is shown. The next one is shown from now on, so that no answer of another server counts for the
    /// refused one. Once all are refused, a server whose stream has ended is shown another one at its retry. A polled one refuses at once what
    /// it is shown, and each client that is shown opens the streams to all servers again: so that happens now and then only.
    pub(super) fn pass_over(&mut self, may_be_credential: bool, is_polled: bool, sources: &mut Sources, now: Moment) {
        self.is_answered = false;
        match may_be_credential {
            true => self.members.refuse(now),
            false => self.members.pass_over(now),
        }
        let is_too_soon = is_polled && self.is_too_soon(now);
        if self.members.show_next() || !is_too_soon && self.members.show_refused() {
            self.last_passed_over = Some(now);
            self.set(sources);
        }
    }

    /// A server has answered for the client that is shown. The answer counts at once if no server refuses the view.
    pub(super) fn on_answer(&mut self, is_view_refused: bool) {
        self.is_answered = true;
        if !is_view_refused {
            self.accept_if_answered();
        }
    }

    /// No server refuses the view any more: an answer that came meanwhile for the client that is shown counts.
    pub(super) fn accept_if_answered(&mut self) {
        if std::mem::take(&mut self.is_answered) {
            self.members.accept();
        }
    }

    /// Shows the next client on each stream whose turn it is. Who that is, is decided then, or was by a refusal. A stream that is not open
    /// needs no turn.
    pub(super) fn follow(&mut self, sources: &mut Sources, links: &Links, now: Moment) {
        if self.members.shown().is_none() {
            return;
        }
        sources.shown_node().show_to_unopened();
        let open = without_hub(sources.shown_node().open_streams(), links);
        if open.is_empty() && self.members.show_next() {
            self.set(sources);
        }
        let behind = match self.members.is_due() {
            true => open,
            false => without_hub(sources.shown_node().left_behind(), links),
        };
        self.turns.retain(|stream, turn| *turn > now || behind.contains(stream));
        for stream in behind {
            let turn = *self.turns.entry(stream).or_insert_with(|| links.member_turn(stream.server, now));
            if turn > now {
                continue;
            }
            if self.members.show_next() {
                self.set(sources);
            }
            sources.shown_node().show_on(stream);
            self.turns.remove(&stream);
        }
    }

    /// Returns the bytes that no client is charged with: what clients have in common, and the nodes that are kept for servers.
    pub(super) fn bytes(&self, sources: &mut Sources) -> usize {
        match self.members.shown() {
            Some(_) => self.members.shared_bytes() + self.members.shown_bytes() + sources.shown_node().bytes(),
            None => 0,
        }
    }

    /// When the next turn comes.
    pub(super) fn next_deadline(&self) -> Option<Moment> {
        self.turns.values().min().copied()
    }

    /// Returns until when the removals of servers are doubted: of one that was away a moment ago, and of one that is shown a client which has left.
    /// An open server that is not doubted has a time that is over, so that what was held of its earlier streams is forgotten in time.
    pub(super) fn recovering(&self, sources: &mut Sources, links: &Links, now: Moment) -> Recovering {
        let mut servers = sources.recovering();
        let Some(until) = self.members.removals_wait_until() else { return servers };
        let until = if self.is_attended { until } else { until.max(now + UNTIL_SOMEBODY_IS_THERE) };
        for stream in without_hub(sources.shown_node().open_streams(), links) {
            let is_doubted = self.members.has_left() || !sources.shown_node().is_on(stream);
            let until = if is_doubted { until } else { until.min(now) };
            if let Ok(server) = u16::try_from(stream.server) {
                let latest = servers.until.entry(server).or_insert(until);
                *latest = until.max(*latest);
            }
        }
        Recovering { is_unattended: !self.is_attended, ..servers }
    }

    /// Lets removals by servers wait for the next client while the shown one has left and no other is connected.
    pub(super) fn note_clients(
        &mut self,
        clients: usize,
        (view, sources): (&mut View, &mut Sources),
        links: &Links,
        now: Moment,
    ) {
        let is_attended = clients > 0 || !self.members.has_left();
        if std::mem::replace(&mut self.is_attended, is_attended) != is_attended {
            view.note_recovering(self.recovering(sources, links, now));
        }
    }

    fn set(&mut self, sources: &mut Sources) {
        self.is_answered = false;
        if let Some(node) = self.members.shown() {
            sources.shown_node().set(node.encoded());
        }
    }
}

/// How long a polled server that has refused all clients is shown the same one, and how long clients that poll are passed over after one of them.
const PAUSE_OF_POLLED: Duration = Duration::from_secs(30);
/// How long removals are doubted from each message of a server on while no client is connected.
const UNTIL_SOMEBODY_IS_THERE: Duration = Duration::from_secs(1);

/// The hub gives all views the same. It is shown the client that is there when it is opened.
fn without_hub(mut streams: BTreeSet<StreamId>, links: &Links) -> BTreeSet<StreamId> {
    streams.retain(|stream| !links.is_hub(stream.server));
    streams
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use bytes::Bytes;
    use prost::Message;
    use tokio::task::JoinHandle;
    use weir_core::proto::node::Node;
    use weir_core::protocol::ladder::Rule;
    use weir_core::protocol::members::MemberPace;
    use weir_core::protocol::options::ProtocolOptions;
    use weir_core::protocol::session::Variant;
    use weir_core::protocol::sources::{AuthorityPlan, Plan};
    use weir_core::protocol::upstream::{Epoch, ServerQuirks};
    use weir_core::protocol::view::{InterestChange, Selector};
    use weir_core::xds::{KeyRule, TypeTable};

    use super::*;
    use crate::memory::Budget;
    use crate::relay::key_headers::KeyHeaders;
    use crate::relay::link::{Connector, Link, SharedConnector};
    use crate::relay::shared::Shared;

    const SERVER: StreamId = StreamId { server: 0, at: 0 };
    const HUB: StreamId = StreamId { server: 1, at: 0 };
    const OF_HUB: &str = "xdstp://x/envoy.config.endpoint.v3.ClusterLoadAssignment/c";
    const SECOND: StreamId = StreamId { server: 0, at: 1 };
    const OTHER: StreamId = StreamId { server: 2, at: 0 };
    const OF_OTHER: &str = "xdstp://y/envoy.config.endpoint.v3.ClusterLoadAssignment/c";
    const KIND: &str = "envoy.config.endpoint.v3.ClusterLoadAssignment";

    struct Somewhere {
        is_hub: bool,
        pace: Mutex<MemberPace>,
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

        fn member_turn(&self, now: Moment) -> Moment {
            self.pace.lock().unwrap().turn(now)
        }

        fn is_hub(&self) -> bool {
            self.is_hub
        }
    }

    /// A view with the clients `a`, which is shown, and `b`. Each authority of new-style names has a server of its own, one of which is the hub.
    struct World {
        sources: Sources,
        view: View,
        links: Links,
        shown: ShownMember,
        now: Moment,
    }

    impl World {
        /// The server is asked for these names.
        fn wanting(names: &[&str]) -> Self {
            let (table, memory, now) = (Arc::new(TypeTable::new()), Budget::unlimited(), Moment::START);
            let mut plan = Plan::single(Variant::Delta, ServerQuirks::default());
            plan.servers = vec![plan.servers[0].clone(); 3];
            for (authority, server) in [("x", HUB.server), ("y", OTHER.server)] {
                let of = AuthorityPlan { servers: vec![server], rule: Rule::Reachability };
                plan.authorities.insert(authority.into(), of);
            }
            let connector = |is_hub| Arc::new(Somewhere { is_hub, pace: Mutex::default() }) as SharedConnector;
            let connectors = [false, true, false].map(connector);
            let protocol = ProtocolOptions::default();
            let shared =
                Shared::new(KeyRule::default(), TypeTable::new(), protocol, plan.clone(), connectors.into(), 1, memory);
            let mut sources = Sources::new(Arc::new(plan), Bytes::new(), table.clone(), Arc::default());
            let mut view = View::new(table.clone(), Arc::default());
            for name in names {
                let named = || Selector::Name((*name).into());
                let (kind, selector) = (table.resolve(KIND), if *name == "*" { Selector::Wildcard } else { named() });
                view.change_interest(SessionId(1), InterestChange { kind, selector, on: true }, now);
            }
            view.on_time(now);
            for change in view.take_upstream_changes() {
                sources.want(change, &view, now);
            }
            sources.close_unused(&view, now);
            let links = Links::none(&shared, "view".into(), None, KeyHeaders::default());
            let mut shown = ShownMember::none();
            for (session, id) in [(1, "a"), (2, "b")] {
                shown.members.join(SessionId(session), member(id), now, now);
            }
            shown.set(&mut sources);
            Self { sources, view, links, shown, now }
        }

        fn open(&mut self, stream: StreamId) -> Epoch {
            self.sources.opened(stream).expect("the stream is wanted")
        }

        /// Returns whether what each open server takes away now is doubted.
        fn doubts(&mut self) -> BTreeMap<u16, bool> {
            let recovering = self.shown.recovering(&mut self.sources, &self.links, self.now);
            recovering.until.into_iter().map(|(server, until)| (server, until > self.now)).collect()
        }

        /// Lets time pass, and streams be opened again that are due. Returns those.
        fn pass(&mut self, milliseconds: u64) -> BTreeSet<StreamId> {
            self.now = self.now + Duration::from_millis(milliseconds);
            self.shown.follow(&mut self.sources, &self.links, self.now);
            self.sources.on_time(&self.view, self.now);
            let reopened = self.sources.take_reopened();
            for stream in &reopened {
                self.open(*stream);
            }
            reopened
        }
    }

    fn member(id: &str) -> MemberNode {
        let encoded = Node { id: id.into(), ..Node::default() }.encode_to_vec();
        KeyRule::default().key(&encoded).unwrap().member_node(&encoded).unwrap()
    }

    #[tokio::test]
    async fn what_is_taken_away_is_doubted_until_the_stream_shows_the_next_client_and_of_the_hub_never() {
        let mut world = World::wanting(&["c", OF_HUB]);
        world.open(SERVER);
        world.open(HUB);
        assert_eq!(world.doubts(), [].into(), "no client has left");
        world.shown.leave(SessionId(1), world.now);
        assert_eq!(world.doubts(), [(0, true)].into());
        assert_eq!(world.pass(0), [SERVER].into());
        assert_eq!(world.doubts(), [(0, false)].into(), "the next one is shown");
    }

    #[tokio::test]
    async fn an_answer_while_the_view_is_refused_counts_later_if_it_came_after_the_refusal_of_the_shown_client() {
        for answers_first in [true, false] {
            let World { mut shown, mut sources, now, .. } = World::wanting(&["c"]);
            shown.leave(SessionId(2), now);
            if answers_first {
                shown.on_answer(true);
            }
            shown.pass_over(true, false, &mut sources, now);
            if !answers_first {
                shown.on_answer(true);
            }
            assert!(shown.members.are_all_refused());
            shown.accept_if_answered();
            assert_eq!(shown.members.are_all_refused(), answers_first);
        }
    }

    /// Otherwise an answer for the refused one, which the other server may take, would keep the others from the server that refuses it.
    #[tokio::test]
    async fn once_a_client_is_refused_no_answer_on_another_stream_counts_for_it() {
        let mut world = World::wanting(&["c", OF_OTHER]);
        world.open(SERVER);
        world.open(OTHER);
        assert!(world.sources.shown_node().is_on(OTHER));
        world.shown.pass_over(false, false, &mut world.sources, world.now);
        assert_eq!(world.shown.members.shown(), Some(&member("b")));
        assert!(!world.sources.shown_node().is_on(OTHER), "it has the refused one until its turn");
    }

    /// The server may take another client by now, also while another server is open.
    #[tokio::test]
    async fn a_server_that_has_refused_all_is_shown_another_client_at_each_retry_whatever_else_is_open() {
        let mut world = World::wanting(&["c", OF_OTHER]);
        world.open(OTHER);
        for id in ["a", "b", "a", "b"] {
            let epoch = world.open(SERVER);
            assert!(world.sources.shown_node().is_on(SERVER));
            assert_eq!(world.shown.members.shown(), Some(&member(id)));
            world.sources.ended(SERVER, Some(epoch), true, &world.view, world.now);
            world.shown.pass_over(false, false, &mut world.sources, world.now);
            assert_eq!(world.pass(1_000), [OTHER].into());
        }
    }

    /// A polled server refuses polls and stays open. The other stream would otherwise be opened again as fast as it refuses, and get nowhere.
    #[tokio::test]
    async fn a_polled_server_that_refuses_all_is_shown_another_client_now_and_then_and_other_streams_go_on() {
        let (mut world, both) = (World::wanting(&["c", OF_OTHER]), BTreeSet::from([SERVER, OTHER]));
        world.open(SERVER);
        world.open(OTHER);
        let refuse = |world: &mut World| world.shown.pass_over(false, true, &mut world.sources, world.now);
        refuse(&mut world);
        assert_eq!(world.pass(0), both, "b was not refused yet");
        for next in ["a", "b"] {
            for _ in 0..29 {
                assert!(world.pass(1_000).is_empty());
                refuse(&mut world);
                assert!(world.shown.members.are_all_refused());
            }
            assert!(world.pass(1_000).is_empty());
            refuse(&mut world);
            assert_eq!(world.shown.members.shown(), Some(&member(next)));
            assert_eq!(world.pass(0), both);
        }
    }

    #[tokio::test]
    async fn clients_that_poll_are_shown_now_and_then_while_a_server_refuses_each_of_them() {
        let mut world = World::wanting(&["c"]);
        for session in [1, 2] {
            world.shown.leave(SessionId(session), world.now);
        }
        assert!(!world.shown.takes_a_poller(&member("c"), world.now), "a was not refused");
        world.shown.pass_over(false, true, &mut world.sources, world.now);
        assert!(world.shown.takes_a_poller(&member("c"), world.now));
        for _ in 0..3 {
            world.now = world.now + PAUSE_OF_POLLED - Duration::from_millis(1);
            assert!(!world.shown.takes_a_poller(&member("d"), world.now));
            world.now = world.now + Duration::from_millis(1);
            assert!(world.shown.takes_a_poller(&member("d"), world.now));
        }
    }

    #[tokio::test]
    async fn the_node_of_a_client_that_has_left_is_charged_while_servers_are_shown_it() {
        let mut world = World::wanting(&["c"]);
        world.open(SERVER);
        for session in [1, 2] {
            world.shown.leave(SessionId(session), world.now);
        }
        let shown = member("a");
        assert!(world.shown.bytes(&mut world.sources) >= shown.own_bytes() + shown.encoded().len());
    }

    #[tokio::test]
    async fn a_stream_that_waits_for_its_turn_is_doubted_for_ten_seconds() {
        let mut world = World::wanting(&["c"]);
        world.open(SERVER);
        world.shown.leave(SessionId(1), world.now);
        assert!(world.shown.members.show_next());
        world.shown.set(&mut world.sources);
        world.now = world.now + Duration::from_millis(9_999);
        assert_eq!(world.doubts(), [(0, true)].into(), "it shows the one that has left");
        world.now = world.now + Duration::from_millis(1);
        assert_eq!(world.doubts(), [(0, false)].into());
    }

    #[tokio::test]
    async fn what_is_taken_away_without_a_client_is_doubted_however_late() {
        let mut world = World::wanting(&["c"]);
        world.open(SERVER);
        for session in [1, 2] {
            world.shown.leave(SessionId(session), world.now);
        }
        world.now = world.now + Duration::from_secs(60);
        for (clients, is_doubted) in [(0, true), (1, false)] {
            let World { sources, view, links, shown, now } = &mut world;
            shown.note_clients(clients, (view, sources), links, *now);
            assert_eq!(world.doubts(), [(0, is_doubted)].into(), "{clients} that poll");
        }
    }

    /// The pace is that of openings, and a view may have two streams to a server.
    #[tokio::test]
    async fn each_stream_has_its_own_turn() {
        let mut world = World::wanting(&["*", "c"]);
        world.open(SERVER);
        world.open(SECOND);
        world.shown.leave(SessionId(1), world.now);
        assert_eq!(world.pass(0).len(), 1);
        assert_eq!(world.doubts(), [(0, true)].into(), "the other one still shows the client that has left");
        assert_eq!(world.pass(99).len(), 0);
        assert_eq!(world.pass(1).len(), 1);
        assert_eq!(world.doubts(), [(0, false)].into());
        assert_eq!(world.pass(1_000).len(), 0);
    }

    #[tokio::test]
    async fn a_stream_that_has_ended_shows_the_next_client_without_a_turn_beside_one_that_waits() {
        let mut world = World::wanting(&["*", "c"]);
        world.open(SERVER);
        let waiting = world.open(SECOND);
        world.shown.leave(SessionId(1), world.now);
        assert_eq!(world.pass(0), [SERVER].into());
        world.sources.ended(SECOND, Some(waiting), true, &world.view, world.now);
        world.pass(0);
        world.open(SECOND);
        assert!(world.sources.shown_node().is_on(SECOND));
    }
}
