//! A relay behind a relay: the upper relay knows exactly as much of a set as the lower one does.

use std::time::Instant;

use super::evidence::servers;
use super::holder::{ALL_CLUSTERS, Holder, Wish};
use super::pieces::Pieces;
use super::void::listener;
use super::*;

const HOUR: Duration = Duration::from_secs(3600);

fn thirty() -> Vec<String> {
    (0..30).map(|number| format!("c{number:02}")).collect()
}

/// Makes silence count as evidence soon.
fn hasty(options: &mut ProtocolOptions) {
    options.upstream.settle_stated = Duration::from_millis(100);
    options.upstream.resource_timer = Duration::from_millis(200);
    options.upstream.second_silence = Duration::from_millis(200);
}

/// Makes silence never count as evidence.
fn patient(options: &mut ProtocolOptions) {
    (options.upstream.settle_stated, options.upstream.second_silence) = (HOUR, HOUR);
}

/// Starts a patient relay for the control plane, whose sets arrive in one response or in several, and a hasty relay behind it.
async fn two_tiers(plane: SocketAddr, sets: &str, between: Variant) -> (Relay, Relay) {
    let each = format!(", initial_set: {sets}");
    let lower = relay_with_options(&servers(&[plane], &each), "", patient).await;
    let upper = relay_with_options(&servers(&[lower.address], protocol_of(between)), "", hasty).await;
    (lower, upper)
}

/// For single names no marker says that all were sent. The upper relay knows by a header that its server is a relay, whose silence is not evidence.
#[tokio::test]
async fn up_36_a_name_that_the_lower_relay_is_silent_about_stays_at_clients_of_the_upper() {
    const HELD: Wish = Wish { url: EDS, names: &["held"], cluster: "web" };
    for between in BOTH {
        let mut plane = Plane::start(&[Variant::Delta]).await;
        let (_lower, upper) = two_tiers(plane.address, "auto", between).await;
        let client = Holder::of(upper.address, Variant::Delta, HELD, &["held".to_owned()]).await;
        let _silent = plane.stream().await;
        tokio::time::sleep(Duration::from_secs(2)).await; // several times as long as the upper relay waits
        client.has_lost_nothing();
    }
}

#[tokio::test]
async fn xlat_12_what_a_slow_control_plane_has_not_said_to_the_lower_relay_is_not_gone_for_clients_of_the_upper() {
    for between in BOTH {
        let names = thirty();
        let plane = Pieces::start(&names).await;
        let (_lower, upper) = two_tiers(plane.address, "pieces", between).await;
        let clients = [
            Holder::of(upper.address, Variant::Delta, ALL_CLUSTERS, &names).await,
            Holder::of(upper.address, Variant::Sotw, ALL_CLUSTERS, &names).await,
        ];
        for said in [10, 20, 30] {
            plane.reaches(said);
            tokio::time::sleep(Duration::from_secs(1)).await; // several times as long as the upper relay waits
            clients.iter().for_each(Holder::has_lost_nothing);
        }
        if between == Variant::Delta {
            clients[0].until("each as it comes", |record| record.heard.len() == names.len()).await;
        }
    }
}

#[tokio::test]
async fn xlat_12_what_the_lower_relay_knows_to_be_all_is_all_for_clients_of_the_upper_at_once() {
    let mut plane = Plane::start(&[Variant::Delta]).await;
    let each = ", initial_set: one_response";
    let lower = relay_with_options(&servers(&[plane.address], each), "", patient).await;
    let upper = relay_with_options(&servers(&[lower.address], ""), "", patient).await;
    let held = ["a", "b", "gone"].map(str::to_owned);
    let delta = Holder::of(upper.address, Variant::Delta, ALL_CLUSTERS, &held).await;
    let sotw = Holder::of(upper.address, Variant::Sotw, ALL_CLUSTERS, &held).await;
    let stream = plane.stream().await;
    say(&stream, "1", &TWO, &TWO, &[]);
    for client in [&delta, &sotw] {
        client.until("what is not there goes", |record| record.holds.iter().eq(["a", "b"])).await;
    }
}

#[tokio::test]
async fn ord_1_through_two_tiers_what_is_removed_under_a_route_goes_after_the_sum_of_their_bounds_and_no_later() {
    const HOLD: Duration = Duration::from_secs(4); // longer than a pause of the machine
    let mut plane = Plane::start(&[Variant::Delta]).await;
    let held = |options: &mut ProtocolOptions| options.hold_referenced(HOLD);
    let lower = relay_with_options(&servers(&[plane.address], ""), "", held).await;
    let upper = relay_with_options(&servers(&[lower.address], ""), "", held).await;
    let mut client = Client::connect(upper.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    let mut stream = plane.stream().await;
    say(&stream, "1", &TWO, &TWO, &[]);
    let sent = client.sent().await;
    client.ack(CDS, &[], &sent);
    client.ask(LDS, &[], None);
    while stream.request().await.type_url() != LDS {}
    let (type_url, nonce) = (LDS.into(), "2".into());
    let resources = vec![listener("l", "a", "")];
    stream.respond(&Response::Delta(DeltaDiscoveryResponse { type_url, nonce, resources, ..Default::default() }));
    let sent = client.sent().await;
    client.ack(LDS, &[], &sent);
    // A relay needs the end of each set. It asks for all ends once, on another opening.
    stream = plane.stream().await;
    for _ in [CDS, LDS] {
        stream.answer_for_end().await;
    }
    let since = Instant::now();
    say(&stream, "3", &TWO[1..], &[], &["a"]);
    let sent = client.sent().await;
    assert_eq!(sent.removed, ["a"]);
    let passed = since.elapsed();
    assert!(2 * HOLD <= passed && passed < 3 * HOLD, "{passed:?}");
}
