//! What `explain` says of other views, and what it takes in a large one.

use std::task::Waker;
use std::time::Instant;

use serde_json::{Value, json};
use weir_core::proto::discovery::{DeltaDiscoveryResponse, Resource};
use weir_core::proto::{Any, Response};
use weir_core::protocol::session::Step;

use super::scripted::{views_at_server, wants};
use super::*;
use crate::relay::command::ask;
use crate::relay::inspection;
use crate::relay::report::ExplainQuery;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_view_that_does_not_answer_in_time_is_counted_beside_those_that_have_a_resource() {
    let options = ViewsOptions { max_views: 2, ..options() };
    let views = Views::new(options, vec![Arc::new(wakes::Unreachable("http://server"))]);
    let node = Node { cluster: "other".into(), ..Node::default() };
    let of_other = DeltaDiscoveryRequest { node: Some(node.encode_to_vec().into()), ..Default::default() };
    let asking = open_session(&views, &first_request(), visit()).await.unwrap();
    let beside = open_session(&views, &Request::Delta(of_other), visit()).await.unwrap();
    asking.handle_request(wants(CLUSTER, "a")).await;
    let kind = views.types().resolve(CLUSTER);
    let query = ExplainQuery { sessions: vec![asking.client().id.0], kind, name: Name::from("a") };
    // On a busy machine, views that do not hang may not answer in time either.
    let explained = async |left_out: usize| -> Value {
        let begun = Instant::now();
        loop {
            let mut pages = serde_json::to_value(questions::explain(&views, &query).await).unwrap();
            let page = pages.get_mut(0).map(Value::take).unwrap_or_default();
            if page["other_views"]["left_out"] == json!(left_out) {
                return page;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "{page:#}");
        }
    };
    let reason = |page: &Value| {
        let reasons = page["reasons"].as_array().unwrap();
        reasons.iter().find(|reason| reason["code"] == "views_left_out").map(|reason| reason["text"].clone())
    };

    let page = explained(0).await;
    assert_eq!(page["other_views"], json!({"views": [], "count": 0, "left_out": 0}), "{page:#}");
    assert_eq!(reason(&page), None);
    let mut hung = None;
    for (place, task) in views.tasks().iter().enumerate() {
        if ask(task, |view| inspection::sessions(view).view).await.as_ref() == Some(&beside.client().key) {
            hung = Some(views.hang(place).await);
        }
    }
    assert!(hung.is_some(), "it is one of the views");
    let page = explained(1).await;
    assert_eq!(page["other_views"], json!({"views": [], "count": 0, "left_out": 1}), "{page:#}");
    assert_eq!(reason(&page), Some(json!("1 view did not answer in time")));
    drop(hung);
    explained(0).await; // it answers again
}

/// A delta response with these clusters.
pub(super) fn clusters(numbers: std::ops::Range<usize>) -> Response {
    let type_url = format!("type.googleapis.com/{CLUSTER}");
    let resource = |number| {
        let name = format!("cluster-{number:06}");
        let value = [&[0x0a, u8::try_from(name.len()).unwrap()], name.as_bytes()].concat();
        let resource = Some(Any { type_url: type_url.clone(), value: value.into() });
        Resource { name, version: "1".into(), resource, ..Default::default() }
    };
    let (resources, nonce) = (numbers.map(resource).collect(), "1".into());
    Response::Delta(DeltaDiscoveryResponse { type_url: type_url.clone(), nonce, resources, ..Default::default() })
}

/// Prints figures for docs/record/performance.md: one question of a client that has accepted 100,000 clusters.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "means something only in a release build, and alone"]
async fn figures_of_explain() {
    const NAMES: usize = 100_000;
    const AT_A_TIME: usize = 5_000;
    const ROUNDS: usize = 21;
    let (views, mut server) = views_at_server(options());
    let client = open_session(&views, &first_request(), visit()).await.unwrap();
    client.handle_request(wants(CLUSTER, "*")).await;
    let link = server.link().await;
    let _requests = link.open(100).await;
    for first in (0..NAMES).step_by(AT_A_TIME) {
        link.say(clusters(first..first + AT_A_TIME)).await;
    }
    let explained = async |name: &str| -> Value {
        let kind = views.types().resolve(CLUSTER);
        let query = ExplainQuery { sessions: vec![client.client().id.0], kind, name: name.into() };
        serde_json::to_value(questions::explain(&views, &query).await).unwrap()[0].take()
    };
    let began = Instant::now();
    loop {
        while let Step::Reply(reply) = client.poll(Waker::noop()) {
            let (type_url, response_nonce) = (format!("type.googleapis.com/{CLUSTER}"), reply.nonce.to_string());
            let ack = DeltaDiscoveryRequest { type_url, response_nonce, ..Default::default() };
            client.handle_request(Request::Delta(ack)).await;
        }
        let page = explained("*").await;
        if page["set"]["cached"] == NAMES && page["verdict"] == "acked" {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{page:#}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for (what, name) in [
        ("a name that is there", "cluster-050000"),
        ("a name with a typo", "cluster-05000x"),
        ("a name like no other", "nowhere"),
        ("the set", "*"),
    ] {
        let (mut times, mut verdict) = (Vec::new(), Value::Null);
        for _ in 0..ROUNDS {
            let began = Instant::now();
            let mut page = explained(name).await;
            times.push(began.elapsed());
            verdict = page["verdict"].take();
        }
        times.sort();
        println!("{what}, {verdict}: {:?} ({:?} to {:?})", times[ROUNDS / 2], times[0], times[ROUNDS - 1]);
    }
}
