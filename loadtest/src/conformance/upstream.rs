//! Checks of the server under test as a client of its upstream, and of what its clients notice of upstream errors.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::ensure;
use tonic::Code;
use weir_core::proto::Request;

use super::{Check, DELTA, EITHER, NotHere, Scene, scripted};
use crate::content::{CDS, EDS, Item, LDS, RDS};
use crate::wire::{Client, SeenRequest, Variant};

pub(super) const CHECKS: &[Check] = &[
    scripted!("UP-1 UP-2", EITHER, "each upstream stream begins with a node of the clients' cluster", node_upstream),
    scripted!("UP-7", EITHER, "a wildcard alone goes upstream in its oldest form", legacy_form),
    scripted!("UP-19 UP-20", EITHER, "each upstream response is acknowledged once and soon", prompt_acks),
    scripted!("UP-21 XLAT-33", EITHER, "one client's refusal is neither upstream's nor another client's", one_refuses),
    scripted!("UP-22 UP-23 XLAT-34", EITHER, "a name twice is refused upstream, and the rest is used", duplicate),
    scripted!("UP-24", DELTA, "a response that is older than the question deletes nothing", older_than_the_question),
    scripted!("UP-32 XLAT-16", EITHER, "a lost upstream is nobody's business, and new clients are served", outage),
    scripted!("UP-11 UP-14", EITHER, "what was missed in an outage is told after it", missed),
    scripted!("XLAT-30 XLAT-31", EITHER, "who wants what is there costs upstream nothing", shared),
    scripted!("XLAT-36", EITHER, "a new gRPC client is sent away if nothing can be had for it", unserved),
];

async fn node_upstream(scene: Scene) -> anyhow::Result<()> {
    scene.world.set(&[Item::new(CDS, "a", "1"), Item::new(LDS, "l", "1")]);
    let mut client = scene.client().await?;
    client.want(CDS, &[]);
    client.takes(CDS).await?;
    client.want(LDS, &["l"]);
    client.takes(LDS).await?;
    let mut streams = BTreeSet::new();
    for heard in scene.world.heard() {
        let first = streams.insert(heard.stream);
        ensure!(!first || heard.request.node().is_some(), "a stream began without a node: {heard}");
        ensure!(!heard.request.type_url().is_empty(), "a request without a type: {heard}");
    }
    Ok(())
}

async fn legacy_form(scene: Scene) -> anyhow::Result<()> {
    scene.world.set(&[Item::new(LDS, "l", "1")]);
    let mut client = scene.client().await?;
    client.want(LDS, &["*"]);
    client.takes(LDS).await?.sets(&["l"])?;
    let wildcard = scene.world.heard().into_iter().find(|heard| heard.names().iter().any(|name| name == "*"));
    ensure!(wildcard.is_none(), "upstream was asked for a name of *: {}", wildcard.unwrap());
    Ok(())
}

/// Whether exactly one request answered each response, and none of them was a NACK.
fn acked_once(heard: &[SeenRequest], nonces: &[String]) -> bool {
    nonces.iter().all(|nonce| heard.iter().filter(|heard| heard.nonce() == nonce).count() == 1)
        && !heard.iter().any(|heard| nonces.iter().any(|nonce| nonce == heard.nonce()) && heard.is_refusal())
}

async fn prompt_acks(scene: Scene) -> anyhow::Result<()> {
    scene.world.set(&[Item::new(CDS, "a", "1")]);
    let mut client = scene.client().await?;
    client.want(CDS, &[]);
    client.sent(CDS).await?; // not ACKed
    let mut nonces = Vec::new();
    for text in ["2", "3", "4"] {
        nonces.extend(scene.world.say(CDS, &[Item::new(CDS, "a", text)], text));
    }
    let what = "one ACK for each response";
    let heard = scene.world.hears(what, SOON, |heard| acked_once(heard, &nonces)).await?;
    for heard in heard.iter().filter(|heard| nonces.iter().any(|nonce| nonce == heard.nonce())) {
        let right = scene.world.variant() == Some(Variant::Delta) || ["2", "3", "4"].contains(&heard.version());
        ensure!(right, "the ACK has another version: {heard}");
    }
    tokio::time::sleep(scene.quiet).await;
    ensure!(acked_once(&scene.world.heard(), &nonces), "a response was answered twice: {:?}", scene.world.heard());
    Ok(())
}

async fn one_refuses(scene: Scene) -> anyhow::Result<()> {
    scene.world.set(&[Item::new(CDS, "a", "1")]);
    let (mut refuses, mut accepts) = (scene.client().await?, scene.client().await?);
    for client in [&mut refuses, &mut accepts] {
        client.want(CDS, &[]);
        client.takes(CDS).await?;
    }
    for text in ["2", "3"] {
        scene.world.set(&[Item::new(CDS, "a", text)]);
        let sent = refuses.sent(CDS).await?;
        refuses.nack(&sent);
        accepts.takes(CDS).await?.has(&Item::new(CDS, "a", text))?;
    }
    accepts.receives_nothing(scene.quiet, "another client's refusal is not its business").await?;
    let nack = scene.world.heard().into_iter().find(SeenRequest::is_refusal);
    ensure!(nack.is_none(), "upstream was told of a refusal: {}", nack.unwrap());
    Ok(())
}

async fn duplicate(scene: Scene) -> anyhow::Result<()> {
    let of = |name: &str, text: &str| Item::new(CDS, name, text);
    scene.world.set(&[of("a", "1"), of("b", "1")]);
    let mut client = scene.client().await?;
    client.want(CDS, &[]);
    client.until("a and b", |held| held.names(CDS) == ["a", "b"]).await?;
    let nonces = scene.world.say(CDS, &[of("a", "2"), of("b", "2"), of("b", "3")], "bad");
    let rejected = |heard: &[SeenRequest]| {
        nonces.iter().all(|nonce| heard.iter().any(|heard| heard.nonce() == nonce && heard.is_refusal()))
    };
    let heard = scene.world.hears("a NACK", SOON, rejected).await?;
    for heard in heard.iter().filter(|heard| heard.is_refusal()) {
        let status = match &heard.request {
            Request::Sotw(request) => request.error_detail.clone(),
            Request::Delta(request) => request.error_detail.clone(),
        };
        let status = status.unwrap_or_default();
        ensure!(status.code == Code::InvalidArgument as i32, "the NACK has code {}", status.code);
        ensure!(heard.version() != "bad", "the NACK has the version of what it refuses");
    }
    client.until("the new a", |held| held.has(&of("a", "2"))).await?;
    ensure!(client.held.has(&of("b", "1")), "b is not what it was: {}", client.held);
    client.receives_nothing(scene.quiet, "the good part was told").await
}

async fn older_than_the_question(scene: Scene) -> anyhow::Result<()> {
    let of = |name: &str| Item::new(LDS, name, "1");
    scene.world.set(&[of("a")]);
    let mut client = scene.client().await?;
    client.want(LDS, &["a"]);
    client.takes(LDS).await?.sets(&["a"])?;
    if scene.world.variant() == Some(Variant::Delta) {
        return Err(NotHere("a delta upstream says itself what there is not").into());
    }
    scene.world.hush();
    scene.world.set(&[of("b")]);
    client.want(LDS, &["a", "b"]);
    let requested = |heard: &[SeenRequest]| heard.iter().any(|heard| heard.names().iter().any(|name| name == "b"));
    scene.world.hears("b", scene.patience, requested).await?;
    scene.world.say(LDS, &[of("a")], "as it was asked before");
    let quiet = scene.quiet.min(scene.resource_timer / 2);
    client.receives_nothing(quiet, "nothing was said of b").await?;
    scene.world.serve();
    client.takes(LDS).await?.sets(&["b"])
}

const URLS: [&str; 4] = [CDS, EDS, LDS, RDS];

/// Sets one resource of each type, and returns a client that has them.
async fn everything(scene: &Scene) -> anyhow::Result<Client> {
    scene.world.set(&URLS.map(|url| Item::new(url, "a", "1")));
    asks_for_everything(scene).await
}

async fn asks_for_everything(scene: &Scene) -> anyhow::Result<Client> {
    let mut client = scene.client().await?;
    for url in URLS {
        client.want(url, if [CDS, LDS].contains(&url) { &[] } else { &["a"] });
    }
    client.until("one of each", |held| URLS.iter().all(|url| held.has(&Item::new(url, "a", "1")))).await?;
    Ok(client)
}

async fn outage(scene: Scene) -> anyhow::Result<()> {
    let mut client = everything(&scene).await?;
    client.until_quiet(scene.quiet).await?;
    scene.world.go_down();
    client.receives_nothing(scene.quiet, "only upstream is gone").await?;
    let mut late = asks_for_everything(&scene).await?;
    late.want(EDS, &["a", "unheard of"]);
    let all = late.until_quiet(scene.resource_timer + scene.quiet).await?;
    let removed = all.iter().flat_map(|sent| &sent.removed).count();
    ensure!(removed == 0 && late.held.names(EDS) == ["a"], "upstream is gone, and it was sent {all:?}");
    let before = scene.world.heard().len();
    scene.world.serve();
    let requested = |heard: &[SeenRequest]| URLS.iter().all(|url| heard[before..].iter().any(|heard| heard.is_of(url)));
    scene.world.hears("everything asked for again", scene.beyond_the_timer(), requested).await?;
    client.receives_nothing(scene.quiet, "upstream is back with what it had").await
}

async fn missed(scene: Scene) -> anyhow::Result<()> {
    scene.world.set(&["a", "b"].map(|name| Item::new(CDS, name, "1")));
    scene.world.set(&["a", "b"].map(|name| Item::new(EDS, name, "1")));
    let mut client = scene.client().await?;
    client.want(CDS, &[]);
    client.want(EDS, &["a", "b"]);
    client.until("all", |held| [CDS, EDS].iter().all(|url| held.names(url) == ["a", "b"])).await?;
    scene.world.go_down();
    client.receives_nothing(scene.quiet, "only upstream is gone").await?;
    scene.world.remove(CDS, &["b"]);
    scene.world.set(&[Item::new(CDS, "a", "2"), Item::new(CDS, "c", "2"), Item::new(EDS, "a", "2")]);
    scene.world.serve();
    let (cluster, endpoints) = (Item::new(CDS, "a", "2"), Item::new(EDS, "a", "2"));
    let what = "what upstream has now";
    client.until(what, |held| held.names(CDS) == ["a", "c"] && held.has(&cluster) && held.has(&endpoints)).await?;
    Ok(())
}

async fn shared(scene: Scene) -> anyhow::Result<()> {
    let _first = everything(&scene).await?;
    tokio::time::sleep(scene.quiet).await; // the last ACKs are in flight
    let before = scene.world.heard().len();
    for _ in 0..20 {
        asks_for_everything(&scene).await?; // and disconnects
    }
    tokio::time::sleep(scene.quiet).await;
    let more: Vec<_> = scene.world.heard().split_off(before).iter().map(SeenRequest::to_string).collect();
    ensure!(more.is_empty(), "all is there already, and upstream heard {more:?}");
    Ok(())
}

async fn unserved(scene: Scene) -> anyhow::Result<()> {
    scene.world.go_down();
    let mut opening = scene.opening();
    opening.node = opening.node.map(|node| weir_core::proto::node::Node { user_agent_name: "gRPC Go".into(), ..node });
    let mut client = opening.connect().await?;
    client.want(LDS, &["l"]);
    let code = client.ended().await?;
    ensure!(code == Code::Unavailable, "ended with {code:?}");
    Ok(())
}

/// A limit far above what a reply takes on a busy machine, and far below any timer.
const SOON: Duration = Duration::from_secs(3);
