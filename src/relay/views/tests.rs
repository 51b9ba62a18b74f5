mod audits;
mod explained;
mod inheritance;
mod leaving;
mod life;
mod members;
mod refusals;
mod scripted;
mod unread;
mod waits;
mod wakes;

use std::net::Ipv4Addr;
use std::sync::Arc;

use prost::Message;
use weir_core::proto::discovery::DeltaDiscoveryRequest;
use weir_core::proto::node::Node;
use weir_core::protocol::options::ProtocolOptions;
use weir_core::protocol::session::{NackChange, Nacked, Variant};
use weir_core::protocol::sources::{AuthorityPlan, Plan};
use weir_core::protocol::upstream::ServerQuirks;
use weir_core::protocol::view::Class;
use weir_core::xds::{Access, ContentHash, KeyRule, Name, SetVersion};

use super::map::Entrance;
use super::split::Split;
use super::*;
use crate::memory::{Budget, GroupMembership, Memory};
use crate::relay::command::Command;
use crate::relay::inspection::Inspection;
use crate::relay::questions;

pub(in crate::relay) fn views() -> Views {
    views_of(1, 0)
}

/// Views whose only server has this name and never answers.
pub(crate) fn views_to(server: &'static str) -> Views {
    Views::new(options(), vec![Arc::new(wakes::Unreachable(server))])
}

/// Views of several servers with these names, each of which never answers. The first is the first choice.
pub(crate) fn views_to_all(servers: &[&'static str]) -> Views {
    views_to_lists(servers, &[])
}

/// The same, and authorities with one more server each, which follow in the plan.
pub(crate) fn views_to_lists(top: &[&'static str], authorities: &[(&str, &'static str)]) -> Views {
    let servers = top.iter().chain(authorities.iter().map(|(_, server)| server));
    let connectors: Vec<_> = servers.map(|name| Arc::new(wakes::Unreachable(name)) as SharedConnector).collect();
    let mut plan = Plan::single(Variant::Delta, ServerQuirks::default());
    plan.servers = vec![plan.servers[0].clone(); connectors.len()];
    plan.top.servers = (0..top.len()).collect();
    for (at, (authority, _)) in authorities.iter().enumerate() {
        let list = AuthorityPlan { servers: vec![top.len() + at], ..plan.top.clone() };
        plan.authorities.insert((*authority).to_owned(), list);
    }
    Views::new(ViewsOptions { plan, ..options() }, connectors)
}

pub(in crate::relay) fn views_of(max_views: usize, max_views_per_connection: usize) -> Views {
    let options = ViewsOptions { max_views, max_views_per_connection, ..options() };
    Views::new(options, Vec::new()) // no interest, so no server is connected to
}

fn options() -> ViewsOptions {
    ViewsOptions {
        header_hasher: None,
        rule: KeyRule::default(),
        shows_members: false,
        accept_missing_node: false,
        max_views: 1,
        max_views_per_connection: 0,
        max_views_per_identity: 2,
        max_views_per_tenant: 0,
        tenants: crate::relay::TenantLimits::default(),
        max_in_metrics: 1,
        table: TypeTable::new(),
        access: Access::default(),
        permissions: weir_core::xds::Permissions::default(),
        protocol: ProtocolOptions::default(),
        stated_versions_bytes: 1 << 20,
        memory: Budget::unlimited(),
        plan: Plan::single(Variant::Delta, ServerQuirks::default()),
        panics_at: None,
    }
}

fn first_request() -> Request {
    let node = Node { id: "one".into(), cluster: "web".into(), ..Node::default() };
    Request::Delta(DeltaDiscoveryRequest { node: Some(node.encode_to_vec().into()), ..Default::default() })
}

fn visit() -> ClientInfo {
    ClientInfo {
        headers: Default::default(),
        variant: Variant::Delta,
        only: None,
        is_stream: true,
        peer: Arc::new(Peer::at((Ipv4Addr::LOCALHOST, 1).into())),
        quota: Arc::default(),
    }
}

fn key(views: &Views) -> SharingKey {
    views.identify(&visit().peer, &Default::default(), first_request().node()).unwrap().key().clone()
}

impl Views {
    fn enter_new(&self, key: &SharingKey, first: &Request, by: &ClientInfo) -> Result<Entrance, AdmissionError> {
        open::enter_with(None, self, key, first, by)
    }

    /// The number of sessions of each view.
    async fn sessions(&self) -> Vec<usize> {
        questions::report(self).await.iter().map(|view| view.clients).collect()
    }

    /// Waits until the task of the only view has no session.
    async fn has_become_idle(&self) {
        while !self.map.are_idle() {
            questions::report(self).await;
            tokio::task::yield_now().await;
        }
    }

    /// Lets one of the tasks of these views hang, with its thread, until what is returned is dropped.
    pub(crate) async fn hang(&self, place: usize) -> std::sync::mpsc::Sender<()> {
        let ((until_dropped, dropped), (begun, begins)) = (std::sync::mpsc::channel(), tokio::sync::oneshot::channel());
        let hang = move |_: &Inspection<'_>| {
            let _ = begun.send(());
            let _ = dropped.recv();
        };
        assert!(self.tasks()[place].send(Command::Inspect(Box::new(hang))).await.is_ok());
        begins.await.unwrap();
        until_dropped
    }

    /// Enters the view of a key, whose active server is from here on this one.
    pub(in crate::relay) fn enter_at(&self, key: &SharingKey, server: usize) -> impl Sized + use<> {
        let entrance = self.enter_new(key, &first_request(), &visit()).unwrap();
        self.map.set_active(key, server);
        self.shared.active_server_changes.send_replace(());
        entrance
    }
}

#[tokio::test]
async fn key_19_a_view_that_a_client_has_looked_up_is_not_retired_before_the_client_has_joined_it() {
    let (views, first) = (views(), first_request());
    let identity = views.identify(&visit().peer, &Default::default(), first.node()).unwrap();
    let entrance = views.enter_new(identity.key(), &first, &visit()).unwrap();
    views.has_become_idle().await;
    views.retire(Duration::ZERO);
    let handle = open::join(&views, entrance, None, identity, &first, &visit()).await.unwrap();
    assert_eq!(views.sessions().await, [1], "the view is still in the map");
    let other = open_session(&views, &first, visit()).await.unwrap();
    assert_eq!(views.sessions().await, [2], "both are in the same");

    handle.leave().await;
    other.leave().await;
    views.has_become_idle().await;
    views.retire(Duration::ZERO);
    assert_eq!(views.sessions().await, [0; 0], "nobody uses it");
}

#[tokio::test]
async fn key_19_a_view_makes_room_when_its_first_client_goes_before_it_has_joined() {
    let (views, first) = (views(), first_request());
    let identity = views.identify(&visit().peer, &Default::default(), first.node()).unwrap();
    let entrance = views.enter_new(identity.key(), &first, &visit()).unwrap();
    views.has_become_idle().await;
    drop(entrance);
    views.retire(Duration::ZERO);
    assert_eq!(views.sessions().await, [0; 0]);
}

fn request_of(cluster: &str, features: &[&str]) -> Request {
    let client_features = features.iter().map(ToString::to_string).collect();
    let node = Node { cluster: cluster.into(), client_features, ..Node::default() };
    Request::Delta(DeltaDiscoveryRequest { node: Some(node.encode_to_vec().into()), ..Default::default() })
}

impl Views {
    fn try_enter(&self, cluster: &str, features: &[&str], by: &ClientInfo) -> Result<Entrance, AdmissionError> {
        let first = request_of(cluster, features);
        self.enter_new(self.identify(&by.peer, &Default::default(), first.node()).unwrap().key(), &first, by)
    }
}

#[tokio::test]
async fn all_views_have_one_limit_for_news_of_nacks_and_what_is_left_comes_later() {
    let (views, client) = (views_of(2, 0), visit());
    let _entered = ["a", "b"].map(|cluster| views.try_enter(cluster, &[], &client).unwrap());
    let (kind, now) = (TypeTable::new().resolve(CLUSTER), std::time::Instant::now());
    for watch in views.nack_watches() {
        let version = SetVersion::of("a", ContentHash::of_body("t", b"1"));
        let began = Some(Nacked { version, reason: "no".into() });
        watch.apply(vec![NackChange { kind: kind.clone(), ended: None, began }], now);
    }
    let later = now + Duration::from_secs(10);
    let taken = || views.take_nack_news(later, 1).iter().map(|(_, news)| news.len()).sum::<usize>();
    assert_eq!([taken(), taken(), taken()], [1, 1, 0]);
}

#[tokio::test]
async fn a_view_too_many_is_refused_with_the_field_that_splits_and_unused_ones_make_room() {
    let (views, one, two) = (views_of(3, 2), visit(), visit());
    let first = views.try_enter("a", &[], &one).unwrap();
    let _second = views.try_enter("b", &[], &one).unwrap();
    let split = |values| Some(Split { field: "cluster".into(), values });
    let refused = views.try_enter("c", &[], &one).err();
    assert_eq!(refused, Some(AdmissionError::TooManyViewsOfConnection { limit: 2, split: split(2) }));
    let _again = views.try_enter("b", &[], &one).unwrap();
    let _third = views.try_enter("c", &[], &two).unwrap();
    let refused = views.try_enter("d", &[], &two).err();
    assert_eq!(refused, Some(AdmissionError::TooManyViews { limit: 3, split: split(3) }));

    drop(first);
    let _next = views.try_enter("d", &[], &one).unwrap();
    assert_eq!(views.map.len(), 3, "it has the place of the first");
    assert_eq!(views.values_by_field()[0], ("cluster".into(), 3));
    let made = || [&one, &two].map(|client| client.quota.views().of_connection.count());
    assert_eq!(made(), [2, 1]);
    drop(views);
    assert_eq!(made(), [0, 0], "the views of a configuration go together");
}

#[tokio::test]
async fn connections_of_one_identity_share_its_views_and_later_ones_inherit_those_that_are_left() {
    let views = views_of(10, 0);
    let client = |identity| ClientInfo { quota: views.quota(identity).into(), ..visit() };
    let (one, two, other) = (client(Some("a")), client(Some("a")), client(Some("b")));
    let first = views.try_enter("1", &[], &one).unwrap();
    let _second = views.try_enter("2", &[], &two).unwrap();
    let split = Some(Split { field: "cluster".into(), values: 2 });
    let too_many = Some(AdmissionError::TooManyViewsOfIdentity { limit: 2, split });
    assert!([&one, &two].iter().all(|client| views.try_enter("3", &[], client).err() == too_many));
    let _of_other = views.try_enter("3", &[], &other).unwrap();
    let _joined = views.try_enter("3", &[], &one).unwrap();
    let of_nobody: Vec<_> = ["4", "5", "6"].map(|name| views.try_enter(name, &[], &client(None)).unwrap()).into();
    assert_eq!((of_nobody.len(), views.map.len()), (3, 6), "whoever has no identity has no such limit");

    drop((one, two));
    let late = client(Some("a"));
    assert_eq!(views.try_enter("7", &[], &late).err(), too_many, "both views are left");
    drop(first);
    let _next = views.try_enter("7", &[], &late).unwrap();
    assert!(
        !views.map.has(views.identify(&late.peer, &Default::default(), request_of("1", &[]).node()).unwrap().key())
    );
    assert_eq!(
        (late.quota.views().of_identity.unwrap().count(), views.map.len()),
        (2, 6),
        "it has the place of the first"
    );
}

#[tokio::test]
async fn views_of_relays_do_not_count_as_a_split_fleet() {
    let (views, by) = (views_of(1000, 0), visit());
    let of_relays = (0..60).map(|number| views.try_enter(&number.to_string(), &["weir.relay"], &by).unwrap());
    let _kept: Vec<_> = of_relays.collect();
    assert_eq!((views.map.len(), views.map.of_clients()), (60, 0));
    let _other = views.try_enter("other", &[], &by).unwrap();
    assert_eq!(views.map.of_clients(), 1);
}

/// A flood that has more than its part of the views takes none from others, who take its unused ones.
#[tokio::test]
async fn i8_an_unused_view_goes_to_who_has_few_and_never_to_who_has_more_than_its_maker() {
    let memory = Memory::new(Budget::unlimited(), Arc::default(), Arc::default());
    let client = || {
        let account = memory.connect(GroupMembership::default());
        ClientInfo { quota: Arc::new(ViewQuota::default().charged_to(account, false)), ..visit() }
    };
    let (views, flood) = (views_of(8, 0), client());
    {
        // While no other client wants a view, the next one gets an unused view.
        let views = views_of(2, 0);
        let [flood, other] = [client(), client()];
        let _first = views.try_enter("1", &[], &flood).unwrap();
        drop(views.try_enter("2", &[], &other).unwrap());
        assert!(views.try_enter("3", &[], &flood).is_ok());
    }
    let mut of_flood: Vec<_> =
        (0..6).map(|number| views.try_enter(&format!("flood-{number}"), &[], &flood).unwrap()).collect();
    let (one, two) = (client(), client());
    drop(views.try_enter("one", &[], &one).unwrap());
    let _two = views.try_enter("two", &[], &two).unwrap();
    let is_there = |name: &str| {
        let identity = views.identify(&flood.peer, &Default::default(), request_of(name, &[]).node()).unwrap();
        views.map.has(identity.key())
    };

    let three = client();
    let mut of_three: Vec<_> = Vec::new();
    if let Ok(entrance) = views.try_enter("of-three", &[], &three) {
        of_three.push(entrance); // in the place of the unused one
    }
    assert!(views.try_enter("more", &[], &client()).is_err(), "it is wanted from now on");
    drop(of_three);
    drop(views.try_enter("one", &[], &one).unwrap());
    assert!(matches!(views.try_enter("flood-6", &[], &flood), Err(AdmissionError::TooManyViews { .. })));
    assert!(is_there("one"), "nobody uses it, and it is not for the flood");
    drop(views.try_enter("three", &[], &two).unwrap());
    assert!(!is_there("one"), "who has few takes it");

    of_flood.pop();
    let _four = views.try_enter("four", &[], &two).unwrap();
    assert!(!is_there("flood-5") && is_there("three"), "the flood's goes before that of somebody with few");
    of_flood.pop();
    assert!(views.try_enter("flood-7", &[], &flood).is_err(), "it was given up for others");
    let _five = views.try_enter("five", &[], &one).unwrap();
    assert!(!is_there("flood-4"), "who takes it");
}
