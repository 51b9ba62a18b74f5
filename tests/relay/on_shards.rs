//! Connections that live on shards: their clients are served there, and a drain reaches and waits for all of them.

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
