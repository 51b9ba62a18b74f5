//! Removals from sets over real connections: clients that read learn of them, however many there are, and whatever other clients state.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use tokio::sync::watch;

use super::evidence::servers;
use super::*;

const MANY: usize = 50_000;
/// The bound is a second; there is more time here because tests share the machine.
const SOON: Duration = Duration::from_secs(4);
/// How often to try: a busy machine may be late, but a client that delays others does so each time.
const TRIES: usize = 3;

fn numbered(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("c{number:06}")).collect()
}

fn fill(stream: &Stream, names: &[String], content: &str) {
    let all: Vec<_> = names.iter().map(|name| (name.as_str(), content)).collect();
    say(stream, "1", &[], &all, &[]);
}

fn remove(stream: &Stream, version: usize, names: &[String]) {
    let gone: Vec<_> = names.iter().map(String::as_str).collect();
    say(stream, &version.to_string(), &[], &[], &gone);
}

/// Reads until the client has this many resources.
async fn holds(client: &mut Client, mut held: usize, expected: usize) {
    while held != expected {
        let sent = client.sent().await;
        client.ack(CDS, &[], &sent);
        held = match client {
            Client::Sotw(..) => sent.set.len(),
            Client::Delta(..) => held + sent.set.len() - sent.removed.len(),
        };
    }
}

#[tokio::test]
#[ignore = "keeps the processors busy: 50,000 removals"]
async fn night_xlat_4_fifty_thousand_removals_reach_every_client_that_reads() {
    let _turn = super::HEAVY.lock().await;
    for responses in [1, 50] {
        let mut plane = Plane::start(&[Variant::Delta]).await;
        let relay = relay(plane.address, "").await;
        let names = numbered(MANY + 100);
        let mut clients = Vec::new();
        for variant in [Variant::Delta, Variant::Sotw] {
            let client = Client::connect(relay.address, variant).await;
            client.ask(CDS, &[], Some("web"));
            clients.push(client);
        }
        let stream = plane.stream().await;
        fill(&stream, &names, "1");
        for client in &mut clients {
            holds(client, 0, names.len()).await;
        }
        let rest = async {
            for (number, gone) in names[..MANY].chunks(MANY / responses).enumerate() {
                remove(&stream, number + 2, gone);
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let [delta, sotw] = &mut clients[..] else { unreachable!() };
        tokio::join!(rest, holds(delta, names.len(), 100), holds(sotw, names.len(), 100));
    }
}

/// Serves delta with these clusters, and reports all other names as absent.
async fn serve(
    mut stream: Stream,
    clusters: Arc<Mutex<BTreeSet<String>>>,
    mut changes: watch::Receiver<Option<String>>,
) {
    loop {
        let request = tokio::select! {
            request = stream.requests.recv() => request,
            changed = changes.changed() => {
                if changed.is_err() {
                    return; // the test is over
                }
                let gone = changes.borrow().clone();
                say(&stream, "2", &[], &[], &gone.iter().map(String::as_str).collect::<Vec<_>>());
                continue;
            }
        };
        let Some(Request::Delta(request)) = request else { return };
        let has = clusters.lock().unwrap().clone();
        let asked = request.resource_names_subscribe.iter().chain(request.initial_resource_versions.keys());
        let absent: Vec<_> = asked.filter(|name| *name != "*" && !has.contains(*name)).map(String::as_str).collect();
        let is_first = request.response_nonce.is_empty();
        let all: Vec<_> = has.iter().filter(|_| is_first).map(|name| (name.as_str(), "1")).collect();
        if !all.is_empty() || !absent.is_empty() {
            say(&stream, "1", &[], &all, &absent);
        }
    }
}

/// Returns how long the slower of two removals took while a client stated this many names.
async fn slowest_beside(count: usize) -> Duration {
    let mut plane = Plane::start(&[Variant::Delta]).await;
    let relay = relay(plane.address, "").await;
    let clusters = Arc::new(Mutex::new(BTreeSet::from(["a", "b", "c"].map(str::to_owned))));
    let (say_gone, gone) = watch::channel(None);
    let of_server = clusters.clone();
    let server = tokio::spawn(async move {
        while let Some(stream) = plane.streams.recv().await {
            let mut changes = gone.clone();
            changes.mark_unchanged();
            tokio::spawn(serve(stream, of_server.clone(), changes));
        }
    });
    let mut reader = Client::connect(relay.address, Variant::Delta).await;
    reader.ask(CDS, &["*"], Some("web"));
    holds(&mut reader, 0, 3).await;
    let mut stating = Client::connect(relay.address, Variant::Delta).await;
    let Client::Delta(requests, _) = &stating else { unreachable!() };
    requests
        .send(DeltaDiscoveryRequest {
            node: client::node("web"),
            type_url: CDS.into(),
            resource_names_subscribe: vec!["*".into()],
            initial_resource_versions: numbered(count).into_iter().map(|name| (name, "x".to_owned())).collect(),
            ..Default::default()
        })
        .unwrap();
    let told = tokio::spawn(async move {
        let mut told = 0;
        while told < count {
            let sent = stating.sent().await;
            stating.ack(CDS, &[], &sent);
            told += sent.removed.iter().filter(|name| name.starts_with("c0") || name.starts_with("c1")).count();
        }
    });
    let mut slowest = Duration::ZERO;
    for name in ["a", "b"] {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let since = Instant::now();
        clusters.lock().unwrap().remove(name);
        say_gone.send_replace(Some(name.to_owned()));
        while !reader.sent().await.removed.contains(&name.to_owned()) {}
        println!("{count} stated: {name} was gone after {:?}", since.elapsed());
        slowest = slowest.max(since.elapsed());
    }
    told.await.expect("all that it stated is answered");
    reader.hears_nothing(Duration::from_millis(300)).await;
    server.abort();
    slowest
}

#[tokio::test]
#[ignore = "measures how long removals take beside 100,000 names"]
async fn night_i8_names_that_a_client_states_and_nobody_has_delay_no_removal_for_others() {
    let _turn = super::HEAVY.lock().await;
    for count in [5_000, 100_000] {
        let mut late = Vec::new();
        while late.len() < TRIES {
            match slowest_beside(count).await {
                slowest if slowest < SOON => break,
                slowest => late.push(slowest),
            }
        }
        assert!(late.len() < TRIES, "{count}: each time one took too long, as long as {late:?}");
    }
}

#[tokio::test]
async fn i8_a_client_that_reads_nothing_is_ended_alone_and_pins_no_history() {
    let _turn = super::HEAVY.lock().await;
    const HISTORY: usize = 1_000_000;
    let mut plane = Plane::start(&[Variant::Delta]).await;
    let upstream = servers(&[plane.address], "");
    let relay = relay_with_options(&upstream, "", |options| {
        options.view.history_bytes = HISTORY;
    });
    let relay = relay.await;
    let names = numbered(MANY);
    let mut stalled = Client::connect(relay.address, Variant::Delta).await;
    stalled.ask(CDS, &["*"], Some("web"));
    let mut readers =
        [Client::connect(relay.address, Variant::Delta).await, Client::connect(relay.address, Variant::Sotw).await];
    readers[0].ask(CDS, &["*"], Some("web"));
    readers[1].ask(CDS, &[], Some("web"));
    let stream = plane.stream().await;
    fill(&stream, &names, &"x".repeat(300)); // more than the window of a connection
    for client in &mut readers {
        holds(client, 0, MANY).await;
    }
    let mut held = MANY;
    for (number, gone) in names[..40_000].chunks(2_000).enumerate() {
        remove(&stream, number + 2, gone);
        for client in &mut readers {
            holds(client, held, held - gone.len()).await;
        }
        held -= gone.len();
    }
    until("the history is within its bytes", async || {
        let text = get(relay.admin, "/metrics").await;
        let line = text.lines().find(|line| line.starts_with("weir_removal_history_bytes"));
        let bytes: f64 = line.and_then(|line| line.rsplit(' ').next()).unwrap().parse().unwrap();
        (1.0..=HISTORY as f64).contains(&bytes)
    })
    .await;
    let ending = async {
        while stalled.next_forever().await?.is_some() {}
        Ok(())
    };
    let end: Result<(), tonic::Status> = tokio::time::timeout(client::PATIENCE, ending).await.expect("it is ended");
    let end = end.unwrap_err();
    assert!(end.message().contains("removal history expired"), "{end}");
    remove(&stream, 100, &names[40_000..40_001]);
    for client in &mut readers {
        holds(client, held, held - 1).await;
    }
}
