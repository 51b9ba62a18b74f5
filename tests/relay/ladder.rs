//! The state table (FB-11) over real connections: control planes that are unreachable in every way, and many clients that notice nothing.

use weir_core::proto::node::Node;

use super::evidence::servers;
use super::failover::{content_of, relay_over, standing};
use super::flock::Flock;
use super::*;
use weir_testkit::outage::{Nobody, Outage};
use weir_testkit::script::Way;
use weir_testkit::server::Server;

const EACH: usize = 50;

/// Starts a relay for these servers, with a timeout that is short and still longer than a busy machine takes to connect.
async fn relay_to(servers: &[SocketAddr], more: &str) -> Relay {
    let servers: Vec<_> = servers.iter().map(|at| format!("{{uri: 'http://{at}', connect_timeout: 3s}}")).collect();
    relay_over(&format!("{{servers: [{}]{more}}}", servers.join(", "))).await
}

fn active(server: SocketAddr) -> String {
    format!("\"state\": \"active\",\n        \"server\": \"http://{server}\"")
}

async fn new_client(relay: &Relay, name: &str) -> Client {
    let client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(EDS, &[name], Some("web"));
    client
}

/// Plays rows 2, 6, 8, 10, 3, 14, 21 and 12 of the table, with a first server that is unreachable in this way.
async fn episode(outage: Outage) {
    let (one, two) = (Server::start(Way::Gives("1")).await, Server::start(Way::Gives("1")).await);
    let (first, second) = (one.address, two.address);
    let relay = relay_to(&[first, second], "").await;
    let flock = Flock::gather(relay.address, EACH, EDS, &["a"]).await;
    let before = flock.heard();

    one.kill().await;
    let nobody = Nobody::at(first, outage).await;
    standing(&relay, "\"state\": \"cached\"").await;
    assert_eq!(two.seen().opened, 0, "everything is cached");

    let mut new = new_client(&relay, "b").await;
    assert_eq!(content_of(&mut new).await, ["b=1"], "from the second");
    standing(&relay, &active(second)).await;
    assert_eq!(two.seen().requested, ["a", "b"].map(String::from).into(), "FB-7: everything was asked for");
    let mut newer = new_client(&relay, "c").await;
    assert_eq!(content_of(&mut newer).await, ["c=1"]);

    // The first server is up again, and sends nothing yet.
    nobody.go().await;
    let one = Server::start_at(first, Way::Mute).await;
    one.sees("FB-12: what was added meanwhile", |seen| seen.requested.len() == 3).await;
    standing(&relay, &active(second)).await;
    assert_eq!(two.seen().open, 1);
    one.turn(Way::Gives("1"));
    standing(&relay, &active(first)).await;
    two.sees("the second is let go", |seen| seen.open == 0).await;

    assert_eq!(flock.heard(), before, "{outage:?}: FB-13, FB-24");
    one.turn(Way::GivesOnly(&[("a", "2"), ("b", "2"), ("c", "1")]));
    flock.hears_once_since(before).await;
    assert_eq!(content_of(&mut new).await, ["b=2"], "and nothing before");
    assert!(get(relay.admin, "/upstreams").await.contains("\"fallbacks\": 1,\n        \"returns\": 1"));
    let metrics = get(relay.admin, "/metrics").await;
    let has = |name: &str, labels: &str, value: u64| {
        let mut lines = metrics.lines().filter(|line| line.starts_with(&format!("{name}{{")) && line.contains(labels));
        let line = lines.next().unwrap_or_else(|| panic!("no {name} with {labels} in:\n{metrics}"));
        assert!(line.ends_with(&format!(" {value}")), "{value}: {line}");
    };
    has("weir_client_streams_open", "", 2 * EACH as u64 + 2);
    has("weir_ladder_active", &format!("server=\"http://{first}\""), 1);
    has("weir_ladder_active", &format!("server=\"http://{second}\""), 0);
    has("weir_ladder_switches_total", "direction=\"fallback\"", 1);
    has("weir_ladder_switches_total", "direction=\"return\"", 1);
    has("weir_upstream_streams", &format!("server=\"http://{first}\""), 1);
    has("weir_upstream_responses_total", &format!("server=\"http://{second}\""), 2);
}

#[tokio::test]
async fn fb_11_rows_8_10_14_21_12_fb_13_a_server_that_refuses_is_left_and_returned_to_unheard() {
    episode(Outage::Refuses).await;
}

#[tokio::test]
async fn fb_11_rows_8_10_14_21_12_fb_32_a_server_that_hangs_is_left_and_returned_to_unheard() {
    episode(Outage::Hangs).await;
}

#[tokio::test]
async fn fb_11_rows_8_10_14_21_12_fb_32_a_server_that_speaks_something_else_is_left_and_returned_to_unheard() {
    episode(Outage::Babbles).await;
}

#[tokio::test]
async fn fb_11_rows_8_10_14_21_12_fb_2_a_server_that_ends_streams_before_a_word_is_left_and_returned_to_unheard() {
    episode(Outage::EndsUnheard).await;
}

#[tokio::test]
async fn fb_11_rows_8_10_14_21_12_fb_32_a_server_that_rejects_with_whatever_status_is_left_and_returned_to_unheard() {
    for [one, two, three] in [[0, 7, 12], [13, 14, 16]].map(|statuses| statuses.map(Outage::Rejects)) {
        tokio::join!(episode(one), episode(two), episode(three));
    }
}

#[tokio::test]
async fn fb_11_rows_1_3_2_12_a_cold_start_goes_down_past_two_that_are_no_use_and_comes_up_one_by_one() {
    let (first, second) = (any_address().await, any_address().await);
    let third = Server::start(Way::Gives("3")).await;
    let (hangs, rejects) = (Nobody::at(first, Outage::Hangs).await, Nobody::at(second, Outage::Rejects(12)).await);
    let relay = relay_to(&[first, second, third.address], "").await;
    let mut client = new_client(&relay, "a").await;
    assert_eq!(content_of(&mut client).await, ["a=3"]);
    standing(&relay, &active(third.address)).await;
    rejects.go().await;
    let middle = Server::start_at(second, Way::Gives("2")).await;
    assert_eq!(content_of(&mut client).await, ["a=2"]);
    third.sees("let go", |seen| seen.open == 0).await;
    hangs.go().await;
    let _best = Server::start_at(first, Way::Gives("1")).await;
    assert_eq!(content_of(&mut client).await, ["a=1"]);
    middle.sees("let go", |seen| seen.open == 0).await;
    assert_eq!(third.seen().opened, 1);
}

#[tokio::test]
async fn fb_11_rows_5_9_19_fb_27_with_all_unreachable_the_cache_serves_until_any_answers() {
    let (one, two) = (Server::start(Way::Gives("1")).await, Server::start(Way::Gives("1")).await);
    let (first, second) = (one.address, two.address);
    let relay = relay_to(&[first, second], "").await;
    let flock = Flock::gather(relay.address, EACH, EDS, &["a"]).await;
    let before = flock.heard();
    one.kill().await;
    let mut b = new_client(&relay, "b").await;
    assert_eq!(content_of(&mut b).await, ["b=1"]);
    two.kill().await;
    standing(&relay, "\"state\": \"down\"").await;

    let mut waits = new_client(&relay, "c").await;
    for variant in BOTH {
        let mut late = Client::connect(relay.address, variant).await;
        late.ask(EDS, &["a"], Some("web"));
        assert_eq!(late.sent().await.set, ["a"], "cached names are served to new clients");
        // A gRPC client, which may have another server that it can try.
        let node = Node { cluster: "web".into(), user_agent_name: "gRPC Go".into(), ..Node::default() };
        let mut turned_away = Client::connect(relay.address, variant).await;
        turned_away.ask_as(&node, EDS, &["c"]);
        assert_eq!(turned_away.ended().await, Code::Unavailable, "XLAT-36 {variant:?}");
        let mut served = Client::connect(relay.address, variant).await;
        served.ask_as(&node, EDS, &["a"]);
        assert_eq!(served.sent().await.set, ["a"]);
    }

    let two = Server::start_at(second, Way::Gives("1")).await;
    assert_eq!(content_of(&mut waits).await, ["c=1"], "row 19: any server's answer ends it");
    standing(&relay, &active(second)).await;
    let _one = Server::start_at(first, Way::Gives("1")).await;
    standing(&relay, &active(first)).await;
    two.sees("row 12", |seen| seen.open == 0).await;
    assert_eq!(flock.heard(), before);
}

#[tokio::test]
async fn fb_11_row_6_fb_16_a_server_that_answers_once_and_dies_again_and_again_is_not_left() {
    let content = &[("a", "1")];
    let (one, two) = (Server::start(Way::EndsAfterOne(content)).await, Server::start(Way::Gives("2")).await);
    let relay = relay_to(&[one.address, two.address], "").await;
    let flock = Flock::gather(relay.address, EACH, EDS, &["a"]).await;
    let before = flock.heard();
    let mut uncached = new_client(&relay, "b").await;
    let opened = one.seen().opened;
    one.sees("it is tried again", |seen| seen.opened >= opened + 3).await;
    assert_eq!(two.seen().opened, 0);
    standing(&relay, "\"fallbacks\": 0").await;
    assert_eq!(flock.heard(), before);
    one.turn(Way::Gives("1"));
    assert_eq!(content_of(&mut uncached).await, ["b=1"], "re-subscribed");
}

#[tokio::test]
async fn fb_11_row_7_fb_18_by_reachability_a_server_is_left_with_everything_cached_and_authorities_decide_apart() {
    let (one, two) = (Server::start(Way::Gives("1")).await, Server::start(Way::Gives("1")).await);
    let (first, second) = (one.address, two.address);
    let by = "authorities: {x: {fallback_on_reachability_only: true}}";
    let relay = relay_to(&[first, second], &format!(", {by}")).await;
    let name = "xdstp://x/envoy.config.endpoint.v3.ClusterLoadAssignment/e";
    let flock = Flock::gather(relay.address, EACH, EDS, &["a", name]).await;
    let before = flock.heard();
    one.kill().await;
    standing(&relay, &active(second)).await;
    standing(&relay, "\"state\": \"cached\"").await;
    assert_eq!(two.seen().requested, [name.to_owned()].into(), "of the one authority alone");
    assert_eq!(get(relay.admin, "/upstreams").await.matches("\"fallbacks\": 1").count(), 1, "at each outage");
    let one = Server::start_at(first, Way::Gives("1")).await;
    two.sees("one answer of the first ends it", |seen| seen.open == 0).await;
    assert_eq!(flock.heard(), before);
    one.turn(Way::GivesOnly(&[("a", "2")]));
    flock.hears_once_since(before).await;
}

#[tokio::test]
async fn fb_33_one_answer_ends_the_fallback_of_each_authority_that_has_the_server_above_its_own() {
    let (one, two) = (Server::start(Way::Gives("1")).await, Server::start(Way::Gives("1")).await);
    let (first, second) = (one.address, two.address);
    let relay = relay_to(&[first, second], ", authorities: {x: {}}").await;
    let in_x = |name| format!("xdstp://x/envoy.config.endpoint.v3.ClusterLoadAssignment/{name}");
    let flock = Flock::gather(relay.address, EACH, EDS, &["a", &in_x("e")]).await;
    let before = flock.heard();
    one.kill().await;
    for name in ["b".to_owned(), in_x("f")] {
        let mut new = new_client(&relay, &name).await;
        assert_eq!(content_of(&mut new).await, [format!("{name}=1")]);
    }
    assert_eq!(get(relay.admin, "/upstreams").await.matches(&active(second)).count(), 2);
    let _one = Server::start_at(first, Way::GivesOnly(&[("a", "1")])).await; // without x
    two.sees("both have left it", |seen| seen.open == 0).await;
    assert_eq!(get(relay.admin, "/upstreams").await.matches(&active(first)).count(), 2);
    assert_eq!(flock.heard(), before);
}

#[tokio::test]
async fn fb_23_fb_28_a_fallback_server_that_answers_in_part_overwrites_what_it_says_and_nothing_else() {
    let (one, two) = (Server::start(Way::Gives("1")).await, Server::start(Way::Mute).await);
    let relay = relay_to(&[one.address, two.address], "").await;
    let flock = Flock::gather(relay.address, EACH, EDS, &["a"]).await;
    let before = flock.heard();
    one.kill().await;
    let mut new = new_client(&relay, "b").await;
    standing(&relay, "\"state\": \"trying\"").await;
    two.sees("asked for both", |seen| seen.requested.len() == 2).await;
    two.turn(Way::GivesOnly(&[("b", "2")]));
    assert_eq!(content_of(&mut new).await, ["b=2"]);
    assert_eq!(flock.heard(), before, "what it has not said stays");
    two.turn(Way::GivesOnly(&[("a", "2"), ("b", "2")]));
    flock.hears_once_since(before).await;
    two.turn(Way::GivesOnly(&[("a", "2"), ("b", "3")]));
    assert_eq!(content_of(&mut new).await, ["b=3"], "not the same again");
}

#[tokio::test]
async fn fb_11_row_17_fb_28_the_silence_of_a_server_that_has_answered_is_absence_and_no_reason_to_leave_it() {
    let (one, two) = (Server::start(Way::Mute).await, Server::start(Way::Gives("2")).await);
    let relay =
        relay_with_options(&servers(&[one.address, two.address], ""), "limits: {resource_timer: 300ms}\n", |_| {})
            .await;
    let mut client = new_client(&relay, "a").await;
    one.sees("asked", |seen| seen.requested.contains("a")).await;
    client.hears_nothing(Duration::from_secs(1)).await; // the server has never responded, and another one may have the name
    one.turn(Way::GivesOnly(&[("b", "1")]));
    let mut other = new_client(&relay, "b").await;
    assert_eq!(content_of(&mut other).await, ["b=1"]);
    assert_eq!(client.sent().await.removed, ["a"], "it had time enough");
    other.ask(EDS, &["c"], None);
    assert_eq!(other.sent().await.removed, ["c"]);
    assert_eq!(two.seen().opened, 0);
}

#[tokio::test]
async fn fb_11_row_22_fb_20_what_one_view_has_found_unreachable_another_does_not_wait_for() {
    let first = any_address().await;
    let _hangs = Nobody::at(first, Outage::Hangs).await;
    let second = Server::start(Way::Gives("2")).await;
    let patience = Duration::from_secs(5);
    let at = second.address;
    let start = tokio::time::Instant::now(); // the relay connects before it has a client
    let relay =
        relay_over(&format!("{{servers: [{{uri: 'http://{first}', connect_timeout: 5s}}, {{uri: 'http://{at}'}}]}}"))
            .await;
    let mut client = new_client(&relay, "a").await;
    assert_eq!(content_of(&mut client).await, ["a=2"]);
    assert!(start.elapsed() >= patience);
    let start = tokio::time::Instant::now();
    let mut other = Client::connect(relay.address, Variant::Delta).await;
    other.ask(EDS, &["a"], Some("db"));
    assert_eq!(content_of(&mut other).await, ["a=2"]);
    assert!(start.elapsed() < patience, "it has waited for itself");
    assert_eq!(second.seen().open, 2, "a stream for each view");
}

#[tokio::test]
async fn fb_26_what_a_fallback_server_lacks_is_kept_or_deleted() {
    let mut cases = tokio::task::JoinSet::new();
    for gone in [false, true] {
        for (up, down) in BOTH.into_iter().flat_map(|up| BOTH.map(|down| (up, down))) {
            cases.spawn(a_smaller_set(gone, up, down));
        }
    }
    while let Some(done) = cases.join_next().await {
        done.unwrap();
    }
}

async fn a_smaller_set(gone: bool, up: Variant, down: Variant) {
    let one = Server::start(Way::GivesOnly(&[("a", "1"), ("b", "1")])).await;
    let two = Server::start(Way::GivesOnly(&[("b", "1"), ("c", "1"), ("n", "1")])).await;
    let protocol = protocol_of(up);
    let servers = [one.address, two.address].map(|at| format!("{{uri: 'http://{at}'{protocol}}}")).join(", ");
    let setting = if gone { "delete" } else { "keep" };
    let relay = relay_over(&format!("{{servers: [{servers}], fallback: {{on_missing: {setting}}}}}")).await;
    let mut client = Client::connect(relay.address, down).await;
    client.ask(CDS, &["*"], Some("web"));
    let sent = client.sent().await;
    assert_eq!(sent.set, ["a", "b"]);
    client.ack(CDS, &["*"], &sent);
    one.kill().await;
    let _new = new_client(&relay, "n").await; // no server has it, which moves the ladder
    let case = format!("{setting}, {up:?} upstream, {down:?} downstream");
    let mut holds = sent.set;
    while !holds.contains(&"c".to_owned()) || holds.contains(&"a".to_owned()) == gone {
        let sent = client.sent().await;
        match down {
            Variant::Sotw => holds = sent.set.clone(),
            Variant::Delta => {
                holds.extend(sent.set.iter().cloned());
                holds.retain(|name| !sent.removed.contains(name));
            }
        }
        client.ack(CDS, &["*"], &sent);
        assert!(gone || holds.contains(&"a".to_owned()), "{case}: {sent:?}");
    }
    assert!(holds.contains(&"b".to_owned()), "{case}: {holds:?}");
    if !gone {
        // Longer than the set of a delta server needs to count as complete for clients with more resources.
        client.hears_nothing(Duration::from_secs(if up == Variant::Delta { 6 } else { 1 })).await;
    }
}

#[tokio::test]
async fn fb_11_row_16_boot_11_with_nothing_wanted_any_more_connections_are_closed_and_opened_again_when_needed() {
    let (one, two) = (Server::start(Way::Gives("1")).await, Server::start(Way::Gives("2")).await);
    let relay =
        relay_with_options(&servers(&[one.address, two.address], ""), "limits: {linger: 200ms}\n", |_| {}).await;
    assert_eq!((one.seen().opened, two.seen().opened), (0, 0), "nothing is opened before it is needed");
    for opened in 1..=2 {
        let mut client = new_client(&relay, "a").await;
        assert_eq!(content_of(&mut client).await, ["a=1"]);
        assert_eq!(one.seen().opened, opened);
        drop(client);
        one.sees("closed", |seen| seen.open == 0).await;
        standing(&relay, "\"state\": \"idle\"").await;
    }
    assert_eq!(two.seen().opened, 0);
}
