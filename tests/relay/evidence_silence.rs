//! Silence counts as absence only with a sign of life on the same connection: not on a broken network, with a hanging server, or with a server
//! whose gateway answers for it.

use super::evidence::servers;
use super::holder::{Holder, Wish};
use super::partition::Partition;
use super::pieces::Pieces;
use super::plane::{Answers, Habits};
use super::*;
use weir_testkit::script::Way;
use weir_testkit::server::Server;

const TIMER: Duration = Duration::from_millis(300);
/// Long after the time at which silence would have counted as absence.
const LONG_AFTER: Duration = Duration::from_millis(1500);
/// How soon a hanging server counts as unreachable, by default.
const HUNG: Duration = Duration::from_secs(30);

const A: Wish = Wish { url: EDS, names: &["a"], cluster: "web" };
const B: Wish = Wish { names: &["b"], ..A };

#[tokio::test]
async fn up_36_i3_nothing_is_absent_behind_a_partition_and_what_the_server_removes_goes_when_it_heals() {
    let plane = Pieces::start(&["a".to_owned()]).await;
    plane.reaches_all();
    let network = Partition::before(plane.address).await;
    let relay =
        relay_with_options(&servers(&[network.address], ""), "", |options| options.upstream.resource_timer = TIMER)
            .await;
    let first = Holder::new(relay.address, Variant::Delta, A).await;
    first.until("the server is there", |record| record.holds.contains("a")).await;

    network.cut();
    let stated = Holder::of(relay.address, Variant::Delta, B, &["b".to_owned()]).await;
    let requested = Holder::new(relay.address, Variant::Delta, B).await;
    tokio::time::sleep(LONG_AFTER).await;
    [&first, &stated, &requested].into_iter().for_each(Holder::has_lost_nothing);

    network.heal();
    stated.until("the server says that there is none", |record| record.lost == ["b"]).await;
    requested.until("the same", |record| record.absent.contains("b")).await;
    first.has_lost_nothing();
}

/// Shorter values of the server's `liveness: {interval, timeout}` would make this take less than half a minute.
#[tokio::test]
#[ignore = "takes half a minute, by the default times of liveness calls"]
async fn night_fb_32_up_36_a_server_that_hangs_is_left_for_the_next_and_nothing_of_it_is_absent() {
    let (one, two) = (Server::start(Way::Gives("1")).await, Server::start(Way::Gives("1")).await);
    let hangs = Partition::before(one.address).await;
    let relay = relay_with_options(&servers(&[hangs.address, two.address], ""), "", |_| {}).await;
    let views = ["web", "db"];
    let mut known = Vec::new();
    for cluster in views {
        let client = Holder::new(relay.address, Variant::Delta, Wish { cluster, ..A }).await;
        client.until("the first serves", |record| record.holds.contains("a")).await;
        known.push(client);
    }

    hangs.cut();
    let mut new = Vec::new();
    for cluster in views {
        new.push(Holder::new(relay.address, Variant::Delta, Wish { cluster, ..B }).await);
    }
    let start = tokio::time::Instant::now();
    for client in &new {
        let left = HUNG.saturating_sub(start.elapsed());
        client.within(left, "the second has it", |record| record.responses > 0).await;
        client.has_lost_nothing();
        assert!(client.record().holds.contains("b"));
    }
    for client in &known {
        client.has_lost_nothing();
        assert_eq!(client.record().responses, 1, "what is held is not told again");
    }
}

/// A gateway before a hanging control plane: it forwards discovery calls, which wait, and answers other calls with 404.
pub(super) async fn a_gateway_that_knows_discovery_alone() -> Plane {
    let answers = Answers::Http(404);
    Plane::with(plane::own_address(), Habits { answers, late_headers: true, ..Habits::default() }).await
}

#[tokio::test]
async fn up_36_what_a_gateway_says_by_plain_http_is_no_sign_of_life_of_the_server_behind_it() {
    let gateway = a_gateway_that_knows_discovery_alone().await;
    let relay =
        relay_with_options(&servers(&[gateway.address], ""), "", |options| options.upstream.resource_timer = TIMER)
            .await;
    let requested = Holder::new(relay.address, Variant::Delta, A).await;
    let stated = Holder::of(relay.address, Variant::Delta, A, &["a".to_owned()]).await;
    tokio::time::sleep(LONG_AFTER).await;
    [&requested, &stated].into_iter().for_each(Holder::has_lost_nothing);
}
