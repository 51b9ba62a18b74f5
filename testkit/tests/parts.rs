//! The parts of the kit besides the control plane: servers of load reports and polls, the program, folders, waiting.

use std::process::Command;
use std::time::Duration;

use serde_json::json;
use tokio::net::TcpStream;
use weir_core::proto::loads::{LoadStatsRequest, LoadStatsResponse};
use weir_testkit::client::exchange;
use weir_testkit::folder::Folder;
use weir_testkit::load_plane::{LoadClient, LoadPlane};
use weir_testkit::program::Program;
use weir_testkit::rest_plane::{Behaviour, RestPlane};
use weir_testkit::wait::{PATIENCE, until};

#[tokio::test]
async fn a_server_of_load_reports_passes_them_to_the_test_and_its_orders_to_the_client() {
    let mut plane = LoadPlane::start().await;
    let mut client = LoadClient::connect(plane.address).await;
    let mut stream = plane.stream().await;
    client.report(&LoadStatsRequest::default()).await;
    assert_eq!(stream.report().await, LoadStatsRequest::default());
    let order = LoadStatsResponse { clusters: vec!["a".into()], ..Default::default() };
    stream.order(&order).await;
    assert_eq!(client.order().await, order);
    stream.end(14).await;
    assert_eq!(client.ended().await.code(), tonic::Code::Unavailable);
}

#[tokio::test]
async fn a_server_that_is_polled_answers_each_path_as_it_is_told() {
    let plane = RestPlane::start().await;
    let poll = async |path: &str, version: &str| {
        let body = json!({"versionInfo": version, "resourceNames": ["a"]}).to_string();
        let head = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n");
        let rest = format!("content-length: {}\r\nconnection: close\r\n\r\n{body}", body.len());
        exchange(TcpStream::connect(plane.address).await.unwrap(), &(head + &rest)).await
    };
    plane.script.has("/clusters", "1", vec![json!({"name": "a"}), json!({"name": "b"})]);
    let (status, body) = poll("/clusters", "").await;
    assert_eq!((status, body), (200, json!({"versionInfo": "1", "resources": [{"name": "a"}]}).to_string()));
    assert_eq!(poll("/clusters", "1").await.0, 304);
    plane.script.behave("/clusters", Behaviour::Status(503));
    assert_eq!(poll("/clusters", "1").await.0, 503);
    assert_eq!(poll("/others", "").await.0, 404);
    let statuses: Vec<_> = plane.script.polls_of("/clusters").iter().map(|poll| poll.status).collect();
    assert_eq!(statuses, [200, 304, 503]);
}

#[cfg(unix)]
#[test]
fn a_program_is_known_by_the_addresses_that_it_logs_and_ends_with_its_guard() {
    let script = "echo 'INFO weir started listen=\"127.0.0.1:1 127.0.0.1:2\" admin=127.0.0.1:3' >&2; exec sleep 600";
    let mut shell = Command::new("sh");
    shell.args(["-c", script]);
    let program = Program::start_by(shell, "testkit-program.yaml", "listen: []\n", PATIENCE);
    assert_eq!((program.address.as_str(), program.admin.as_str()), ("127.0.0.1:1", "127.0.0.1:3"));
    assert!(program.says("weir started", PATIENCE).contains("INFO"));
    let id = program.child.id().to_string();
    let is_there = || Command::new("kill").args(["-0", &id]).output().unwrap().status.success();
    assert!(is_there());
    drop(program);
    assert!(!is_there());
}

#[test]
fn a_folder_is_deleted_with_its_files() {
    for folder in [Folder::new("testkit"), Folder::with_short_path("testkit")] {
        folder.write("file", "text");
        let path = folder.0.clone();
        assert_eq!(std::fs::read_to_string(folder.file("file")).unwrap(), "text");
        drop(folder);
        assert!(!path.exists());
    }
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "never: it rains")]
async fn a_wait_ends_with_what_it_was_for() {
    until("it rains", async || false).await;
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_when_its_condition_holds() {
    let begun = tokio::time::Instant::now();
    until("a second has passed", async || begun.elapsed() >= Duration::from_secs(1)).await;
    assert!(begun.elapsed() < Duration::from_secs(2));
}
