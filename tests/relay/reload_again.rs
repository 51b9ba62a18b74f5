//! A configuration file that changes several times, and a relay that shuts down meanwhile.

use super::load_plane::{LoadClient, LoadPlane};
use super::loads::{AGGREGATE, opening};
use super::log_lines::Lines;
use super::reload::{World, text};
use super::*;

/// An error that comes back after the file was valid is reported again.
#[tokio::test]
async fn a_watched_file_that_goes_bad_twice_is_an_error_each_time_and_none_in_between() {
    let plane = Plane::start(&BOTH).await;
    let good = text(&[plane.address], "reload: {watch: true, spread: 0s}\n");
    let world = World::start("bad-twice", &good).await;
    let error = async || {
        let config: serde_json::Value = serde_json::from_str(&get(world.relay.admin, "/config").await).unwrap();
        config["error"].as_str().map(str::to_owned)
    };
    for round in 1..=2 {
        world.write(&format!("{good}limits: {{names: 7}}\n"));
        until("the fault is found", async || error().await.is_some_and(|error| error.contains("limits.names"))).await;
        assert_eq!(world.metric("weir_config_last_reload_successful").await, 0.0);
        world.write(&good);
        until("the file in use is found", async || error().await.is_none()).await;
        assert_eq!(world.metric("weir_config_last_reload_successful").await, 1.0);
        let count = |result: &str| format!("weir_config_reloads_total{{result=\"{result}\"}}");
        let counts = (world.metric(&count("failed")).await, world.metric(&count("taken")).await);
        assert_eq!(counts, (f64::from(round), f64::from(round)));
    }
}

/// However often the file changes, few configurations are active: a second change ends those before the last at once, without their spread.
#[tokio::test]
async fn a_second_reload_hastens_the_end_of_the_configuration_before_the_last_alone() {
    let mut plane = Plane::start(&BOTH).await;
    let address = plane.address;
    let limited = |names| text(&[address], &format!("reload: {{spread: 1h}}\nlimits: {{names_per_type: {names}}}\n"));
    let world = World::start("hastened", &limited(70)).await;
    let mut first = Client::connect(world.relay.address, Variant::Delta).await;
    first.ask(CDS, &[], Some("web"));
    let stream = plane.stream().await;
    say(&stream, "1", &TWO, &TWO, &[]);
    assert_eq!(first.sent().await.set, ["a", "b"]);
    world.change(&limited(71)).await;
    let mut second = Client::connect(world.relay.address, Variant::Delta).await;
    second.ask(CDS, &[], Some("other"));
    let of_second = plane.stream().await;
    say(&of_second, "1", &TWO, &TWO, &[]);
    assert_eq!(second.sent().await.set, ["a", "b"]);
    let news = [("a", "2"), ("b", "1")];
    say(&stream, "2", &news, &news, &[]);
    assert_eq!(first.sent().await.set, ["a"], "its time is not over");
    world.change(&limited(72)).await;
    assert_eq!(first.ended().await, Code::Unavailable);
    say(&of_second, "2", &news, &news, &[]);
    assert_eq!(second.sent().await.set, ["a"], "its time has just begun");
}

/// Nothing waits for the end of a configuration, while something may wait for the end of a relay.
#[tokio::test]
async fn streams_of_the_configuration_before_end_within_the_spread_of_reloads() {
    let mut plane = Plane::start(&BOTH).await;
    let address = plane.address;
    let slow = |names| {
        let text = text(&[address], &format!("reload: {{spread: 0s}}\nlimits: {{names_per_type: {names}}}\n"));
        text.replace("grace: 0s, spread: 0s", "grace: 0s, spread: 1h")
    };
    let world = World::start("own-spread", &slow(70)).await;
    let mut client = Client::connect(world.relay.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    let stream = plane.stream().await;
    say(&stream, "1", &TWO, &TWO, &[]);
    assert_eq!(client.sent().await.set, ["a", "b"]);
    world.change(&slow(71)).await;
    assert_eq!(client.ended().await, Code::Unavailable);
}

/// A relay that shuts down ends the streams of all active configurations, and then replaces none of them.
#[tokio::test]
async fn a_relay_that_drains_ends_the_streams_of_all_its_configurations_and_takes_no_other_one() {
    let (lines, _guard) = Lines::of_this_thread();
    let mut plane = Plane::start(&BOTH).await;
    let address = plane.address;
    let limited = |names| text(&[address], &format!("reload: {{spread: 1h}}\nlimits: {{names_per_type: {names}}}\n"));
    let mut world = World::start("ended", &limited(70).replace("grace: 0s", "grace: 1h")).await;
    let mut clients = Vec::new();
    for (names, cluster) in [(71, "web"), (72, "other")] {
        let mut client = Client::connect(world.relay.address, Variant::Delta).await;
        client.ask(CDS, &[], Some(cluster));
        let stream = plane.stream().await;
        say(&stream, "1", &TWO, &TWO, &[]);
        assert_eq!(client.sent().await.set, ["a", "b"]);
        if names == 71 {
            world.change(&limited(names).replace("grace: 0s", "grace: 1h")).await;
        }
        clients.push((client, stream));
    }
    // A connection without a stream stays open for the grace period, and so does the relay.
    drop(world.stop.take());
    for (client, _) in &mut clients {
        let (code, message) = client.end().await;
        assert_eq!((code, message.contains("shutting down")), (Code::Unavailable, true), "{message}");
    }
    let at_once = limited(71).replace("grace: 0s", "grace: 2h");
    for other in [limited(73), at_once, "no configuration".to_owned()] {
        world.write(&other);
        let refused = world.reloads.reload().await.unwrap_err().to_string();
        assert_eq!(refused, "the relay is shutting down", "{other}");
    }
    let logged = ["configuration not read again", "invalid configuration"].map(|line| lines.with(line).len());
    assert_eq!(logged, [3, 0], "no file is called invalid that was not read");
}

/// A configuration whose clients report loads is not over before they have gone, and a relay that shuts down ends their streams too.
#[tokio::test]
async fn who_reports_loads_is_a_client_of_the_configuration_before() {
    let (lines, _guard) = Lines::of_this_thread();
    let mut plane = LoadPlane::start().await;
    let address = plane.address;
    let limited = |names| {
        let rest = format!("{AGGREGATE}reload: {{spread: 1h}}\nlimits: {{names_per_type: {names}}}\n");
        text(&[address], &rest).replace("grace: 0s", "grace: 1h")
    };
    let mut world = World::start("reports", &limited(70)).await;
    let mut client = LoadClient::connect(world.relay.address).await;
    client.report(&opening("web")).await;
    let _stream = plane.stream().await;
    world.change(&limited(71)).await;
    tokio::time::sleep(Duration::from_secs(6)).await; // longer than the last reports of clients may take
    assert!(lines.with("load reports lost").is_empty(), "it is not over");
    drop(world.stop.take());
    let end = client.ended().await;
    assert_eq!((end.code(), end.message().contains("shutting down")), (Code::Unavailable, true), "{end:?}");
}

/// Settings that count at once also count for the next drain.
#[tokio::test]
async fn a_drain_takes_the_times_of_the_last_reload() {
    let plane = Plane::start(&BOTH).await;
    let mut world = World::start("delay", &text(&[plane.address], "")).await;
    let later = text(&[plane.address], "").replace("drain: {", "drain: {delay: 1h, ");
    assert_eq!(world.change(&later).await.changed, ["drain.delay"]);
    let open = Client::connect(world.relay.address, Variant::Delta).await;
    drop(world.stop.take());
    until("it drains", async || get(world.relay.admin, "/server_info").await.contains("\"draining\"")).await;
    assert!(Client::try_connect(world.relay.address, Variant::Delta).await.is_some(), "it accepts clients meanwhile");
    drop(open);
}

/// In both ways: together with a key that rebuilds everything, and alone.
#[tokio::test]
async fn permissions_of_the_file_count_alone_and_together_with_other_keys() {
    let mut plane = Plane::start(&BOTH).await;
    let rule = |cluster: &str, names: usize| {
        let rules = format!(
            "permissions: [{{name: a, identities: [{{network: 127.0.0.0/8}}], node: {{cluster: {cluster}}}}}]\n"
        );
        text(&[plane.address], &format!("reload: {{spread: 0s}}\nlimits: {{names_per_type: {names}}}\n{rules}"))
    };
    let texts = [rule("one", 70), rule("two", 70), rule("three", 71), rule("one", 71)];
    let world = World::start("permissions", &texts[0]).await;
    let connect = async |cluster: &str| {
        let client = Client::connect(world.relay.address, Variant::Delta).await;
        client.ask(CDS, &[], Some(cluster));
        client
    };
    let mut streams = Vec::new();
    let mut client = connect("one").await;
    let all = [&["permissions"][..], &["limits.names_per_type", "permissions"], &["permissions"]];
    for (at, changed) in all.into_iter().enumerate() {
        let stream = plane.stream().await;
        say(&stream, "1", &TWO, &TWO, &[]);
        assert_eq!(client.sent().await.set, ["a", "b"]);
        streams.push(stream);
        assert_eq!(world.change(&texts[at + 1]).await.changed, changed);
        assert_eq!(client.ended().await, Code::Unavailable);
        let (before, after) = (["one", "two", "three"][at], ["two", "three", "one"][at]);
        assert_eq!(connect(before).await.ended().await, Code::PermissionDenied, "{before}");
        client = connect(after).await;
        if after == "one" {
            assert_eq!(client.sent().await.set, ["a", "b"], "it is cached");
        }
    }
}

/// Their own rule is the same in both here, since streams whose rule has changed end soon anyway.
#[tokio::test]
async fn streams_that_were_silent_at_a_reload_are_not_judged_by_two_configurations() {
    let mut plane = Plane::start(&BOTH).await;
    let rule = |name: &str, network: &str, node: &str| {
        format!("- {{name: {name}, identities: [{{network: {network}}}], {node}free: [id]}}\n")
    };
    let own = rule("own", "127.0.0.0/8", "node: {cluster: own}, ");
    let before = text(&[plane.address], &format!("reload: {{spread: 1h}}\npermissions:\n{own}"));
    let after = before.replace("key: [cluster]", "key: [id]") + &rule("others", "10.0.0.0/8", "");
    let world = World::start("silent", &before).await;
    let mut silent = Vec::new();
    for variant in BOTH {
        silent.push(Client::connect(world.relay.address, variant).await);
    }
    assert_eq!(world.change(&after).await.changed, ["permissions", "views.key"]);
    for mut client in silent {
        client.ask(CDS, &[], Some("own"));
        let message = "the configuration of the relay has changed since this stream was opened; open another";
        assert_eq!(client.end().await, (Code::Unavailable, message.into()));
    }
    let rejected = "weir_client_streams_rejected_total{reason=\"configuration_changed\"}";
    assert_eq!(world.metric(rejected).await, 2.0);

    let mut back = Client::connect(world.relay.address, Variant::Delta).await;
    back.ask(CDS, &[], Some("own"));
    let stream = plane.stream().await;
    say(&stream, "1", &TWO, &TWO, &[]);
    assert_eq!(back.sent().await.set, ["a", "b"]);
}
