//! Connections that live on shards: their clients are served there, and a drain reaches and waits for all of them.

use std::collections::BTreeSet;

use tokio::sync::oneshot;

use super::*;

#[tokio::test]
async fn clients_of_all_shards_are_served_and_the_drain_waits_for_all_of_them() {
    for shards in [1, 2, 7] {
        let mut plane = Plane::start(&BOTH).await;
        let rest = format!("views: {{key: [cluster]}}\ndrain: {{spread: 1s}}\nshards: {shards}\n");
        let config = config(plane.address, ", variant: sotw", &rest);
        let (stop, stopped) = oneshot::channel::<()>();
        let relay = run(crate::bind(config).await.unwrap(), async move { drop(stopped.await) });
        let mut clients = Vec::new();
        for variant in BOTH.into_iter().cycle().take(8) {
            let client = Client::connect(relay.address, variant).await;
            client.ask(CDS, &[], Some("web"));
            clients.push(client);
        }
        // The view and its server are not on the shard of the first client: they outlive it.
        let stream = plane.stream().await;
        say(&stream, "1", &[("a", "1")], &[], &[]);
        for client in &mut clients {
            let sent = client.sent().await;
            assert_eq!(sent.set, ["a"]);
            client.ack(CDS, &[], &sent);
        }
        drop(clients.remove(0));
        say(&stream, "2", &[("a", "2")], &[], &[]);
        for client in &mut clients {
            assert_eq!(client.sent().await.set, ["a"]);
        }
        stop.send(()).unwrap();
        for mut client in clients {
            assert_eq!(client.ended().await, Code::Unavailable);
        }
        until("the relay has ended", async || relay.task.is_finished()).await;
    }
}

/// Other threads handle such requests, make such replies and end such sessions.
#[tokio::test]
async fn clients_of_thousands_of_names_are_sent_each_of_them_and_what_changes() {
    let _turn = super::HEAVY.lock().await;
    let names: Vec<_> = (0..3000).map(|number| format!("c{number}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    for variant in BOTH {
        let mut plane = Plane::start(&BOTH).await;
        let config =
            config(plane.address, ", variant: sotw", "views: {key: [cluster]}\ndrain: {spread: 1s}\nshards: 1\n");
        let (stop, stopped) = oneshot::channel::<()>();
        let relay = run(crate::bind(config).await.unwrap(), async move { drop(stopped.await) });
        let mut client = Client::connect(relay.address, variant).await;
        client.ask(CDS, &names, Some("web"));
        let mut stream = plane.stream().await;
        let (mut version, mut requested) = (0, 0);
        let mut has = |content: &str, requested: &[String]| {
            version += 1;
            let whole: Vec<_> = requested.iter().map(|name| (name.as_str(), content)).collect();
            said(Variant::Sotw, &version.to_string(), &whole, &[], &[])
        };
        let mut last = Vec::new();
        while requested < names.len() {
            let Request::Sotw(request) = stream.request().await else { panic!("SotW") };
            if request.resource_names.len() > requested {
                requested = request.resource_names.len();
                last = request.resource_names;
                stream.respond(&has("1", &last));
            }
        }
        let mut received = BTreeSet::new();
        while received.len() < names.len() {
            let sent = client.sent().await;
            client.ack(CDS, &names, &sent);
            received.extend(sent.set);
        }
        stream.respond(&has("2", &last));
        while !received.is_empty() {
            let sent = client.sent().await;
            client.ack(CDS, &names, &sent);
            received.retain(|name| !sent.set.contains(name));
        }
        drop(client);
        stop.send(()).unwrap();
        until("the relay has ended", async || relay.task.is_finished()).await;
    }
}
