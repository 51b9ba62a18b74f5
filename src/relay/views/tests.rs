use std::net::Ipv4Addr;

use prost::Message;

use super::*;
use crate::proto::discovery::DeltaDiscoveryRequest;
use crate::proto::node::Node;
use crate::protocol::session::Variant;
use crate::protocol::upstream::ServerQuirks;

fn views() -> Views {
    let options = ViewsOptions {
        rule: KeyRule::default(),
        accept_missing_node: false,
        max_views: 1,
        max_in_metrics: 1,
        table: TypeTable::new(),
        access: Access::default(),
        limits: Limits::default(),
        stated_versions_bytes: 1 << 20,
        plan: Plan::single(Variant::Delta, ServerQuirks::default()),
    };
    Views::new(options, Vec::new()) // no interest, so no server is connected to
}

fn first_request() -> Request {
    let node = Node { id: "one".into(), cluster: "web".into(), ..Node::default() };
    Request::Delta(DeltaDiscoveryRequest { node: Some(node.encode_to_vec().into()), ..Default::default() })
}

fn visit() -> ClientInfo {
    ClientInfo { variant: Variant::Delta, only: None, peer: (Ipv4Addr::LOCALHOST, 1).into() }
}

impl Views {
    /// The number of sessions of each view.
    async fn sessions(&self) -> Vec<usize> {
        self.report().await.iter().map(|(unit, _)| unit.clients).collect()
    }

    /// Waits until the task of the only view has no session.
    async fn has_become_idle(&self) {
        let is_idle = || {
            let units = self.views.lock().unwrap();
            units.values().all(|unit| unit.usage.is_idle())
        };
        while !is_idle() {
            self.report().await;
            tokio::task::yield_now().await;
        }
    }

    fn retire(&self) {
        retire(&mut self.views.lock().unwrap(), Duration::ZERO);
    }
}

#[tokio::test]
async fn key_19_a_view_that_a_client_has_looked_up_is_not_retired_before_the_client_has_joined_it() {
    let (views, first) = (views(), first_request());
    let identity = views.identify(first.node()).unwrap();
    let entrance = views.enter(identity.key()).unwrap();
    views.has_become_idle().await;
    views.retire();
    let handle = views.join(entrance, identity, &first, &visit()).await.unwrap();
    assert_eq!(views.sessions().await, [1], "the view is still in the map");
    let other = views.open_session(&first, visit()).await.unwrap();
    assert_eq!(views.sessions().await, [2], "both are in the same");

    handle.leave().await;
    other.leave().await;
    views.has_become_idle().await;
    views.retire();
    assert_eq!(views.sessions().await, [0; 0], "nobody uses it");
}

#[tokio::test]
async fn key_19_a_view_makes_room_when_its_first_client_goes_before_it_has_joined() {
    let (views, first) = (views(), first_request());
    let identity = views.identify(first.node()).unwrap();
    let entrance = views.enter(identity.key()).unwrap();
    views.has_become_idle().await;
    drop(entrance);
    views.retire();
    assert_eq!(views.sessions().await, [0; 0]);
}
