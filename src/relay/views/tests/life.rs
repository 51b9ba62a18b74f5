//! Views from their first client to their end: what is left of an earlier stream, client or task, and what is not.

use std::task::Waker;

use tokio::sync::mpsc;
use tokio::time::Instant;
use weir_core::proto::Response;
use weir_core::proto::discovery::DeltaDiscoveryResponse;
use weir_core::protocol::session::{CloseReason, Step};

use super::scripted::{SERVER, views_at_server, wants};
use super::wakes::settle;
use super::*;
use crate::memory::GroupMembership;
use crate::relay::report::ClientQuery;

const EDS: &str = "envoy.config.endpoint.v3.ClusterLoadAssignment";
const RDS: &str = "envoy.config.route.v3.RouteConfiguration";
const HOUR: Duration = Duration::from_secs(3600);

/// What a stream was sent so far.
fn taken(requests: &mut mpsc::Receiver<Request>) -> Vec<(String, bool)> {
    let taken = std::iter::from_fn(|| requests.try_recv().ok());
    taken.map(|request| (request.type_url().replace("type.googleapis.com/", ""), request.node().is_some())).collect()
}

#[tokio::test]
async fn up_1_a_request_for_which_a_stream_had_no_room_is_not_the_first_one_of_the_next_stream() {
    let (views, mut server) = views_at_server(options());
    let client = open_session(&views, &first_request(), visit()).await.unwrap();
    client.handle_request(wants(EDS, "a")).await;
    let link = server.link().await;
    let mut requests = link.open(1).await;
    settle(&views).await;
    client.handle_request(wants(RDS, "b")).await;
    settle(&views).await;
    link.end("reset").await;
    settle(&views).await;
    assert_eq!(taken(&mut requests), [(EDS.to_owned(), true)], "there was room for one");
    let report = questions::report(&views).await.remove(0).streams.remove(0);
    assert_eq!((report.connected, report.last_error.as_deref()), (false, Some("reset")));

    let mut requests = link.open(9).await;
    settle(&views).await;
    let mut sent = taken(&mut requests);
    assert!(sent[0].1, "the first request of a stream has the node: {sent:?}");
    sent.sort();
    assert_eq!(sent.iter().map(|(kind, _)| kind.as_str()).collect::<Vec<_>>(), [EDS, RDS], "each once");
    assert!(questions::report(&views).await[0].streams[0].connected);
}

#[tokio::test]
async fn what_a_given_up_stream_reports_late_is_not_taken_for_news_of_the_one_that_follows() {
    let (views, mut server) = views_at_server(options());
    let mut links = Vec::new();
    for _ in 0..2 {
        let client = open_session(&views, &first_request(), visit()).await.unwrap();
        client.handle_request(wants(EDS, "a")).await;
        links.push(server.link().await);
        if links.len() == 1 {
            client.leave().await;
            settle(&views).await;
        }
    }
    let [earlier, later] = &links[..] else { unreachable!() };
    assert_eq!(earlier.0.id.stream, later.0.id.stream);
    let mut of_earlier = earlier.open(9).await;
    settle(&views).await;
    assert_eq!(taken(&mut of_earlier), []);
    assert!(!questions::report(&views).await[0].streams[0].connected);
    let mut of_later = later.open(9).await;
    settle(&views).await;
    earlier.end("late").await;
    settle(&views).await;
    assert_eq!(taken(&mut of_later), [(EDS.to_owned(), true)]);
    let of_server = questions::metrics(&views).await.1.remove(0).servers.remove(0);
    assert_eq!((of_server.connected, of_server.totals.opened, of_server.totals.ended), (1, 1, 0));
    assert!(questions::report(&views).await[0].streams[0].connected, "it was another one that has ended");
}

#[tokio::test]
async fn i8_a_view_that_begins_while_the_cache_is_full_has_no_room_for_the_names_of_its_first_client() {
    let mut options = options();
    options.protocol.view.cached_bytes = 0;
    let (views, _server) = views_at_server(options);
    let client = open_session(&views, &first_request(), visit()).await.unwrap();
    client.handle_request(wants(EDS, "a")).await; // before the task of the view has run once
    settle(&views).await;
    let reached = views.counters().limits.counts().find(|(key, _)| *key == "limits.cached_bytes");
    assert_eq!(reached, Some(("limits.cached_bytes", 1)));
}

#[tokio::test]
async fn what_a_view_has_counted_stays_when_it_goes() {
    let (views, mut server) = views_at_server(ViewsOptions { max_in_metrics: 0, ..options() });
    let client = open_session(&views, &first_request(), visit()).await.unwrap();
    client.handle_request(wants(EDS, "a")).await;
    let link = server.link().await;
    let _requests = link.open(9).await;
    let (type_url, nonce) = (format!("type.googleapis.com/{EDS}"), "1".into());
    link.say(Response::Delta(DeltaDiscoveryResponse { type_url, nonce, ..Default::default() })).await;
    settle(&views).await;
    client.leave().await;
    drop(client);
    views.has_become_idle().await;
    let task = Arc::downgrade(&views.map.published(&key(&views)).unwrap());
    views.retire(Duration::ZERO);
    let ended = async {
        while task.strong_count() > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), ended).await.expect("the task of the view goes on");
    let (count, merged) = questions::metrics(&views).await;
    let of_server = &merged[0].servers[0];
    assert_eq!((count, merged.len(), of_server.connected, of_server.streams), (0, 1, 0, 0));
    let of_process = views.incidents().upstream_totals()[SERVER];
    for totals in [of_server.totals, of_process] {
        assert_eq!((totals.opened, totals.responses), (1, 1));
    }
}

/// A body whose client does not read its reply keeps the handle.
#[tokio::test]
async fn a_removed_view_ends_with_its_snapshot_though_the_handle_of_a_session_that_has_left_stays() {
    let (views, _server) = views_at_server(options());
    let client = open_session(&views, &first_request(), visit()).await.unwrap();
    client.leave().await;
    views.has_become_idle().await;
    let view = Arc::downgrade(&views.map.published(&key(&views)).unwrap());
    let snapshot = Arc::downgrade(&client.newest());
    views.retire(Duration::ZERO);
    let ended = async {
        while view.strong_count() > 1 {
            tokio::task::yield_now().await; // the handle has one of them
        }
    };
    tokio::time::timeout(Duration::from_secs(20), ended).await.expect("the task of the view goes on");
    assert!(snapshot.upgrade().is_none(), "the handle keeps it");
}

/// The state file has the resources of a life up to a revision. Those of another life begin at the first again.
#[tokio::test]
async fn a_view_that_ends_and_begins_again_is_saved_as_another_life() {
    let views = views();
    let mut lives = Vec::new();
    for _ in 0..2 {
        let client = open_session(&views, &first_request(), visit()).await.unwrap();
        let saved = views.to_save();
        assert_eq!(saved.len(), 1);
        lives.push(saved[0].life);
        client.leave().await;
        views.has_become_idle().await;
        assert_eq!(views.to_save()[0].life, lives[lives.len() - 1], "it goes on without clients");
        views.retire(Duration::ZERO);
    }
    assert_ne!(lives[0], lives[1]);
}

#[tokio::test]
async fn a_view_whose_task_has_panicked_makes_room_and_counts_for_its_maker_no_more() {
    let (views, _server) = views_at_server(ViewsOptions { panics_at: Some("panic".into()), ..options() });
    let client = visit();
    for panics in 1..=2 {
        let handle = open_session(&views, &first_request(), client.clone()).await.unwrap();
        handle.handle_request(wants(EDS, "panic")).await;
        let ended = async {
            while !matches!(handle.poll(Waker::noop()), Step::End(CloseReason::ViewFailed)) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), ended).await.expect("its clients are not ended");
        assert_eq!((views.map.len(), views.incidents().view_panics()), (1, panics));
        if panics == 1 {
            views.retire(HOUR);
            assert_eq!((views.map.len(), client.quota.views().of_connection.count()), (0, 0));
        }
    }
    // Without that, the next client of its key makes another one.
    let _next = open_session(&views, &first_request(), client.clone()).await.unwrap();
    assert_eq!((views.sessions().await, client.quota.views().of_connection.count()), (vec![1], 1));
}

/// Makes a view one that was in use for an hour, and has no session and no interest left.
fn has_served(views: &Views, cluster: &str) {
    let key =
        views.identify(&visit().peer, &Default::default(), request_of(cluster, &[]).node()).unwrap().key().clone();
    let usage = views.map.usage(&key).unwrap();
    usage.note(true, true, Instant::now());
    usage.note(false, false, Instant::now() + HOUR);
}

fn has_view(views: &Views, cluster: &str) -> bool {
    let key =
        views.identify(&visit().peer, &Default::default(), request_of(cluster, &[]).node()).unwrap().key().clone();
    views.map.has(&key)
}

#[tokio::test]
async fn key_19_of_several_unused_views_the_one_that_served_for_the_shortest_time_makes_room() {
    let views = views_of(5, 2);
    let (one, two) = (visit(), visit());
    let in_use = views.try_enter("in use", &[], &visit()).unwrap();
    for (client, cluster) in [(&one, "a"), (&two, "b"), (&one, "c"), (&two, "d")] {
        drop(views.try_enter(cluster, &[], client).unwrap());
    }
    settle(&views).await;
    ["a", "b", "c"].iter().for_each(|cluster| has_served(&views, cluster));
    drop(views.try_enter("e", &[], &visit()).unwrap());
    let left = |views: &Views| ["in use", "a", "b", "c", "d", "e"].map(|cluster| has_view(views, cluster));
    assert_eq!(left(&views), [true, true, true, true, false, true]);
    // The limit of a connection is a matter of its own views, though others served for less time.
    settle(&views).await;
    has_served(&views, "e");
    let usage = |cluster| {
        let key =
            views.identify(&visit().peer, &Default::default(), request_of(cluster, &[]).node()).unwrap().key().clone();
        views.map.usage(&key).unwrap()
    };
    usage("a").note(true, true, Instant::now());
    usage("a").note(false, false, Instant::now() + 2 * HOUR);
    usage("b").note(true, true, Instant::now());
    usage("b").note(false, false, Instant::now());
    drop(views.try_enter("f", &[], &one).unwrap());
    assert_eq!(left(&views), [true, true, true, false, false, true]);
    assert_eq!([&one, &two].map(|client| client.quota.views().of_connection.count()), [2, 1]);
    drop(in_use);
}

#[tokio::test]
async fn client_streams_are_read_page_by_page_and_those_of_a_node_up_to_a_limit() {
    let views = views();
    let mut clients = Vec::new();
    for id in ["one", "two", "one", "one"] {
        let node = Node { id: id.into(), cluster: "web".into(), ..Node::default() };
        let node = Some(node.encode_to_vec().into());
        let first = Request::Delta(DeltaDiscoveryRequest { node, ..Default::default() });
        clients.push(open_session(&views, &first, visit()).await.unwrap());
    }
    let page = async |node: Option<&str>, after| {
        let query = ClientQuery { node: node.map(str::to_owned), limit: 2, after, ..ClientQuery::default() };
        let page = questions::clients(&views, &query).await;
        assert_eq!(page.open, 4);
        (page.clients.iter().map(|client| client.session).collect::<Vec<_>>(), page.next)
    };
    assert_eq!(page(None, 0).await, (vec![1, 2], Some(2)));
    assert_eq!(page(None, 2).await, (vec![3, 4], Some(4)));
    assert_eq!(page(None, 4).await, (vec![], None));
    assert_eq!(page(Some("one"), 0).await, (vec![1, 3], Some(3)));
    assert_eq!(page(Some("one"), 3).await, (vec![4], None));
    let of_node = async |node, limit| questions::sessions_of(&views, node, limit).await;
    assert_eq!([of_node("one", 2).await, of_node("one", 9).await], [vec![1, 3], vec![1, 3, 4]]);
    assert_eq!(of_node("on", 9).await, [0; 0], "the id, and not a part of it");
}

#[tokio::test]
async fn i8_with_all_views_made_those_that_gave_way_are_for_clients_with_few() {
    let views = views_of(2, 0);
    let connect = |identity: &str| {
        let of = GroupMembership { identity: Some(identity.into()), ..GroupMembership::default() };
        Arc::new(ViewQuota::default().charged_to(views.memory().connect(of), false))
    };
    let (greedy, honest) = (connect("greedy"), connect("honest"));
    let open = async |quota: &Arc<ViewQuota>, cluster: &str| {
        let node = Node { cluster: cluster.into(), ..Node::default() };
        let first = DeltaDiscoveryRequest { node: Some(node.encode_to_vec().into()), ..Default::default() };
        open_session(&views, &Request::Delta(first), ClientInfo { quota: quota.clone(), ..visit() }).await
    };
    let streams = [open(&greedy, "a").await.unwrap(), open(&greedy, "b").await.unwrap()];
    assert!(matches!(open(&honest, "c").await, Err(AdmissionError::TooManyViews { limit: 2, .. })));
    for stream in streams {
        stream.leave().await;
    }
    while !views.has_no_clients() {
        tokio::task::yield_now().await;
    }
    assert!(matches!(open(&greedy, "a").await, Err(AdmissionError::TooManyViews { .. })), "it has more than its part");
    let _honest = open(&honest, "c").await.unwrap();
    let _again = open(&greedy, "b").await.or(open(&greedy, "a").await).unwrap();
}
