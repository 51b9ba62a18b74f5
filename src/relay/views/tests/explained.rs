//! What `explain` says of other views.

use serde_json::{Value, json};

use super::scripted::wants;
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
    let explained =
        async || -> Value { serde_json::to_value(questions::explain(&views, &query).await).unwrap()[0].take() };
    let reason = |page: &Value| {
        let reasons = page["reasons"].as_array().unwrap();
        reasons.iter().find(|reason| reason["code"] == "views_left_out").map(|reason| reason["text"].clone())
    };

    let page = explained().await;
    assert_eq!(page["other_views"], json!({"views": [], "count": 0, "left_out": 0}), "{page:#}");
    assert_eq!(reason(&page), None);
    let mut hung = None;
    for (place, task) in views.tasks().iter().enumerate() {
        if ask(task, |view| inspection::sessions(view).view).await.as_ref() == Some(&beside.client().key) {
            hung = Some(views.hang(place).await);
        }
    }
    assert!(hung.is_some(), "it is one of the views");
    let page = explained().await;
    assert_eq!(page["other_views"], json!({"views": [], "count": 0, "left_out": 1}), "{page:#}");
    assert_eq!(reason(&page), Some(json!("1 view did not answer in time")));
    drop(hung);
    let page = explained().await;
    assert_eq!(page["other_views"]["left_out"], json!(0), "it answers again: {page:#}");
}
