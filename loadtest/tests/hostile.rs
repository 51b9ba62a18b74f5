//! Every hostile behaviour runs to its end in a small form, and is reported. What it does to the relay is not judged here.

use std::path::Path;
use std::process::Command;

use clap::{Parser, ValueEnum};
use tokio::task::JoinSet;
use weir::app::App;
use weir::config::Config;
use weir_loadtest::hostile::{Behaviour, Options, Outcome, run};
use weir_loadtest::reserved::Reserved;

#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    options: Options,
}

/// How often a behaviour is played at most, until it has done something: on a busy machine its second may be over before that.
const TRIES: usize = 3;

async fn outcome(behaviour: Behaviour) -> Outcome {
    let mut outcome = outcome_of_one_try(behaviour).await;
    for _ in 1..TRIES {
        if !is_played(&outcome) {
            println!("played again: {outcome:?}");
            outcome = outcome_of_one_try(behaviour).await;
        }
    }
    outcome
}

fn is_played(outcome: &Outcome) -> bool {
    let is_silent = matches!(
        outcome.behaviour,
        Behaviour::IdleConnections | Behaviour::HalfOpen | Behaviour::SilentStreams | Behaviour::ProbeConnections
    );
    let done = &outcome.done;
    let has_done = done.connections > 0 && (is_silent || done.bytes > 0 && done.messages > 0);
    has_done && outcome.before.health.is_some()
}

/// Plays a behaviour against a relay of its own.
async fn outcome_of_one_try(behaviour: Behaviour) -> Outcome {
    let reserved = Reserved::new().unwrap();
    let origin = reserved.address;
    let config = format!(
        "listen: [{{address: '127.0.0.1:0'}}]\nadmin: {{address: '127.0.0.1:0'}}\n\
         upstream: {{servers: [{{uri: 'http://{origin}'}}], backoff: {{initial: 100ms}}}}\nviews: {{key: [cluster]}}\nshards: 0\n"
    );
    let relay = App::bind(Config::parse(Path::new("test.yaml"), &config).unwrap()).await.unwrap();
    let (target, admin) = (relay.addresses()[0].to_string(), relay.admin_address().unwrap().to_string());
    let relay = tokio::spawn(relay.run());
    let (origin, pid, name) = (origin.to_string(), std::process::id().to_string(), behaviour.name());
    let of = ["--target", &target, "--admin", &admin, "--origin", &origin, "--pid", &pid, "--behaviour", &name];
    let options = Arguments::parse_from(["hostile", "--small", "--recovery", "1s"].into_iter().chain(of)).options;
    let mut report = run(&options, |_| ()).await.unwrap_or_else(|error| panic!("{error:#}"));
    relay.abort();
    assert_eq!(report.outcomes.len(), 1);
    assert!(report.to_string().contains(&name), "{report}");
    report.outcomes.remove(0)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "plays behaviours for half a minute, and each has a second to do something"]
async fn night_every_behaviour_is_played_and_reported() {
    let mut waiting = Behaviour::value_variants().iter();
    let mut playing = JoinSet::new();
    let mut outcomes = Vec::new();
    loop {
        while playing.len() < 3
            && let Some(behaviour) = waiting.next()
        {
            playing.spawn(outcome(*behaviour));
        }
        let Some(outcome) = playing.join_next().await else { break };
        outcomes.push(outcome.unwrap());
    }
    assert_eq!(outcomes.len(), Behaviour::value_variants().len());
    // On a busy machine a second may be over before a change has come.
    let is_compared = |outcome: &Outcome| outcome.before.direct.is_some() && outcome.before.received.is_some();
    assert!(outcomes.iter().any(is_compared), "no change was compared: {outcomes:?}");
    for outcome in outcomes {
        assert!(is_played(&outcome), "{outcome:?}");
        assert!(outcome.memory.is_some_and(|memory| memory.peak >= memory.after), "{outcome:?}");
    }
}

#[test]
fn behaviours_have_help_and_unknown_ones_are_errors() {
    let hostile = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir-loadtest"));
        command.arg("hostile").args(arguments).output().unwrap()
    };
    let list = String::from_utf8(hostile(&["--list"]).stdout).unwrap();
    assert_eq!(list.lines().count(), Behaviour::value_variants().len());
    assert!(list.lines().all(|line| line.split_whitespace().count() > 3), "{list}");
    assert_eq!(hostile(&["--weir", "weir", "--behaviour", "kindness"]).status.code(), Some(2));
    assert_eq!(hostile(&["--target", "127.0.0.1:1"]).status.code(), Some(2), "it needs --origin");
    assert_eq!(hostile(&["--weir", "/there/is/no/relay", "--small"]).status.code(), Some(2));
}
