use std::path::Path;

use super::*;
use crate::app::App;

fn config(network: &str) -> Config {
    let text = format!(
        "shards: 0\nlisten: [{{address: '127.0.0.1:0'}}]\nviews: {{key: [cluster]}}\nupstream: {{servers: [{{uri: 'http://127.0.0.1:1'}}]}}\n\
         permissions: [{{name: a, identities: [{{network: {network}}}], free: [cluster]}}]\n"
    );
    Config::parse(Path::new("/nowhere/relay.yaml"), &text).unwrap_or_else(|error| panic!("{error}"))
}

/// A drain may begin after a reload has last looked for one, and before it has replaced anything.
#[tokio::test]
async fn a_configuration_that_comes_too_late_for_the_drain_leaves_the_permissions_as_they_were() {
    let (before, after) = (config("10.1.0.0/16"), config("10.2.0.0/16"));
    let permissions = before.views.permissions.clone();
    assert_ne!(permissions, after.views.permissions);
    let mut app = App::bind(before).await.unwrap();
    let reloads = app.reloads();
    reloads.end();
    assert_eq!(reloads.replace(&after).unwrap_err().to_string(), "the relay is shutting down");
    assert_eq!(reloads.0.serving.views.get().permissions().current(), permissions);
}

/// The later of two that end at the same time would put back what the earlier has taken out.
#[tokio::test]
async fn generations_are_let_go_of_one_after_another() {
    let mut app = App::bind(config("10.1.0.0/16")).await.unwrap();
    let reloads = app.reloads();
    let serving = reloads.0.serving.clone();
    let turn = serving.letting_go.lock().await;
    reloads.replace(&config("10.2.0.0/16")).unwrap();
    let earlier = Arc::new(Generation::first(&config("10.1.0.0/16")));
    let mut left = tokio::spawn(leave(serving.clone(), earlier, Duration::ZERO));
    assert!(tokio::time::timeout(Duration::from_millis(200), &mut left).await.is_err(), "it is the turn of another");
    assert!(serving.views.get().before().is_some());
    drop(turn);
    left.await.unwrap();
    let ends = async {
        while serving.views.get().before().is_some() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), ends).await.expect("no generation is let go of");
}
