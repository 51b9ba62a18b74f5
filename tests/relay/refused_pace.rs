//! What a type that the control plane refuses costs clients that have not requested it: nothing, or, for a type of the table, one opening of their
//! stream. Each run lasts five seconds; with
//! `WEIR_SECONDS=3600 cargo test --release --test relay a_refused_type_delays -- --ignored --nocapture` it lasts five minutes.

use std::time::Instant;

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::refused_types::{MADE_UP, ROUTES, Refusing, UNKNOWN, upstreams};
use super::*;

const CLIENTS: usize = 50;
const SECOND: Duration = Duration::from_secs(1);
/// How much later a change may arrive because of the refused type.
const LATER: Duration = Duration::from_millis(200);
/// The longest pause before the next opening, and a moment for the opening itself.
const OPENING: Duration = Duration::from_millis(1700);
/// How often to try: a busy machine may be late now and then, and a refused type that delays others does so each time.
const TRIES: usize = 6;

/// A client has this version of the clusters since this time.
struct News {
    client: usize,
    version: usize,
    at: Instant,
}

async fn listen(mut of: Client, client: usize, news: mpsc::UnboundedSender<News>) {
    let Client::Delta(requests, replies) = &mut of else { unreachable!("a delta client") };
    while let Ok(Some(reply)) = replies.message().await {
        let at = Instant::now();
        let (type_url, response_nonce) = (reply.type_url, reply.nonce);
        requests.send(DeltaDiscoveryRequest { type_url, response_nonce, ..Default::default() }).unwrap();
        let Some(body) = reply.resources.first().and_then(|resource| resource.resource.as_ref()) else { continue };
        let digits = body.value.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
        let version = str::from_utf8(&body.value[body.value.len() - digits..]).unwrap().parse().unwrap();
        news.send(News { client, version, at }).unwrap();
    }
}

/// Changes the clusters each second, while one client may request a refused type. Returns how long each change took to reach the last of the other
/// clients, and how many streams requested that type together with others.
async fn run_with(refused: Option<&str>, changes: usize) -> (Vec<Duration>, usize) {
    let plane = Refusing::start(&[MADE_UP, ROUTES], UNKNOWN).await;
    let relay = relay(plane.address, "").await;
    let (news, mut heard) = mpsc::unbounded_channel();
    let mut listening = JoinSet::new();
    for client in 0..CLIENTS {
        let of = Client::connect(relay.address, Variant::Delta).await;
        of.ask(CDS, &[], Some("web"));
        listening.spawn(listen(of, client, news.clone()));
    }
    let (mut all, mut sent, mut curious) = (Vec::new(), Vec::new(), None);
    has_version(1, &mut heard, &mut all).await;
    for change in 0..changes {
        let begun = Instant::now();
        sent.push(begun);
        plane.change(&(change + 2).to_string());
        if let Some(refused) = refused.filter(|_| change == 1) {
            let client = Client::connect(relay.address, Variant::Delta).await;
            client.ask(refused, &["x"], Some("web"));
            curious = Some(client);
        }
        tokio::time::sleep_until((begun + SECOND).into()).await;
    }
    has_version(changes + 1, &mut heard, &mut all).await;
    if let Some(refused) = refused {
        until("the type is refused", async || upstreams(&relay).await.contains("\"REFUSED\"")).await;
        return (latest(&sent, &all), plane.shared(refused));
    }
    drop(curious);
    (latest(&sent, &all), 0)
}

/// Waits until all clients have a version.
async fn has_version(version: usize, heard: &mut mpsc::UnboundedReceiver<News>, all: &mut Vec<News>) {
    let has_all = |all: &[News]| {
        (0..CLIENTS).all(|client| all.iter().any(|news| news.client == client && news.version >= version))
    };
    while !has_all(all) {
        let news = tokio::time::timeout(client::PATIENCE, heard.recv()).await.expect("a change does not come");
        all.push(news.unwrap());
        while let Ok(news) = heard.try_recv() {
            all.push(news);
        }
    }
}

/// Returns for each change how long it took to reach the last client.
fn latest(sent: &[Instant], all: &[News]) -> Vec<Duration> {
    let took = |(change, sent): (usize, &Instant)| {
        let first = |client| {
            let has = all.iter().filter(|news| news.client == client && news.version >= change + 2);
            has.map(|news| news.at).min().unwrap()
        };
        (0..CLIENTS).map(first).max().unwrap().saturating_duration_since(*sent)
    };
    sent.iter().enumerate().map(took).collect()
}

#[tokio::test]
#[ignore = "measures how long changes take"]
async fn night_a_refused_type_delays_no_change_but_for_one_opening_if_it_is_of_the_table() {
    let _alone = HEAVY.lock().await;
    let seconds: usize = std::env::var("WEIR_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(60);
    let changes = (seconds / 12).max(4);
    let mut failed = Vec::new();
    for _ in 0..TRIES {
        // Beside one another, so that the machine is the same for each.
        let ((without, _), (made_up, of_made_up), (of_table, of_routes)) =
            tokio::join!(run_with(None, changes), run_with(Some(MADE_UP), changes), run_with(Some(ROUTES), changes));
        let worst = |run: &[Duration]| run.iter().max().copied().unwrap();
        println!("{changes} changes to {CLIENTS} clients, the latest of each run:");
        for (name, run) in [("without", &without), ("a made-up type", &made_up), ("a type of the table", &of_table)] {
            println!("{name}: {:?}", worst(run));
        }
        assert_eq!((of_made_up, of_routes), (0, 1), "streams of others on which it was requested");
        // A change is sent to one run after the other, so on a slow machine the last one waits for the work of the others.
        let limit = 3 * worst(&without) + LATER;
        let late: Vec<_> = of_table.iter().filter(|took| **took > limit).collect();
        let is_one_opening = late.len() <= 2 && late.iter().all(|took| **took <= limit + OPENING);
        if worst(&made_up) <= limit && is_one_opening {
            return;
        }
        failed.push((without, made_up, of_table));
    }
    panic!("without, with a made-up type, with one of the table: {failed:?}");
}
