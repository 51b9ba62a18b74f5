//! What is recorded at an origin is the same when it is replayed.

use std::sync::Arc;
use std::time::Duration;

use weir_loadtest::checks::{Check, Truth};
use weir_loadtest::fleet::{Behaviour, Client, Fleet, FleetOptions, Group, NodeTemplate, Shared};
use weir_loadtest::kind::Kind;
use weir_loadtest::observe::Unobserved;
use weir_loadtest::origin::{Counts, Origin};
use weir_loadtest::recording::{Reader, Recorded, Replay, Writer, record};
use weir_loadtest::subscription::Names;
use weir_testkit::folder::Folder;

const COUNTS: Counts = Counts { clusters: 5, routes: 2, listeners: 2, size: 0 };

async fn is_the_same_again(behaviour: Behaviour) {
    let folder = Folder::new("recording");
    let path = folder.0.join("recorded");
    let origin = Origin::start("127.0.0.1:0".parse().unwrap(), COUNTS, None).await.unwrap();
    let shared = Shared { names: Arc::new(Names::default()), truth: None, checks: Arc::default() };
    let client = Client::new(1, behaviour, None, NodeTemplate::default().encode(1), &[], shared);
    let recording = record(
        (origin.address.into(), None),
        client,
        behaviour.variant(None),
        Duration::from_secs(8),
        Writer::create(&path).unwrap(),
    );
    let changes = async {
        while origin.open_streams() == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        origin.touch(Kind::Endpoints, 3);
        origin.update(|layout| layout.replace(1));
    };
    let (responses, ()) = tokio::join!(recording, changes);
    assert!(responses.unwrap() >= 4);

    // A client at the replay ends with what the origin has: the recording has all of its last versions.
    let replay = Replay::start("127.0.0.1:0".parse().unwrap(), path.clone(), 0.0).await.unwrap();
    let options = FleetOptions {
        targets: vec![replay.address.into()],
        tls: None,
        groups: vec![Group::new(behaviour, 3)],
        checks: Check::ALL.into_iter().filter(|check| *check != Check::Completeness).collect(),
        connect_rate: None,
    };
    let fleet = Fleet::start(options, Some(Truth::new(origin.shared())), Arc::new(Unobserved)).unwrap();
    let converged = fleet.settle(Duration::from_secs(60)).await;
    let counters = fleet.stop().await;
    let violations = counters.kept_violations();
    assert!(converged && violations.is_empty(), "{violations:?}");
}

#[tokio::test]
async fn a_recording_in_delta_is_the_same_again() {
    is_the_same_again(Behaviour::EnvoyAdsDelta).await;
}

#[tokio::test]
async fn a_recording_in_sotw_is_the_same_again() {
    is_the_same_again(Behaviour::EnvoyAdsSotw).await;
}

#[test]
fn a_recording_that_breaks_off_is_an_error_and_not_its_end() {
    let folder = Folder::new("recording");
    let path = folder.0.join("recorded");
    let mut writer = Writer::create(&path).unwrap();
    let recorded = Recorded { nanos: 5, is_request: false, is_delta: true, message: vec![1; 300].into() };
    writer.write(&recorded).unwrap();
    writer.finish().unwrap();
    let mut reader = Reader::open(&path).unwrap();
    assert_eq!(reader.read().unwrap(), Some(recorded));
    assert_eq!(reader.read().unwrap(), None);
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    assert!(Reader::open(&path).unwrap().read().is_err());
    std::fs::write(&path, "something else").unwrap();
    assert!(Reader::open(&path).is_err());
}
