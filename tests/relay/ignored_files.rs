//! Resource files that seem to be ignored, and how `/files`, `/upstreams` and `/resources` show that.

use std::fs;

use serde_json::Value;

use super::files::{Folder, relay_of, relay_over};
use super::log_lines::Lines;
use super::*;

#[tokio::test]
async fn files_of_other_names_are_no_errors_and_are_read_once_they_are_renamed() {
    let folder = Folder::new();
    folder.put("a.json", CDS, &["a"]);
    folder.put("b.text", CDS, &["b"]);
    folder.put(".c.json", CDS, &["c"]);
    fs::create_dir(folder.file(".d")).unwrap();
    folder.put(".d/d.json", CDS, &["d"]);
    let relay = relay_over(&folder).await;
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &["*"], Some("web"));
    assert_eq!(client.sent().await.set, ["a"]);
    let report: Value = serde_json::from_str(&get(relay.admin, "/files").await).unwrap();
    assert_eq!((&report[0]["resources"], &report[0]["errors"]), (&1.into(), &serde_json::json!([])));
    for (file, renamed, name) in [("b.text", "b.json", "b"), (".c.json", "c.json", "c"), (".d", "d", "d")] {
        fs::rename(folder.file(file), folder.file(renamed)).unwrap();
        assert_eq!(client.sent().await.set, [name]);
    }
}

#[tokio::test]
async fn a_name_in_two_files_is_an_error_of_the_second_until_one_of_them_lacks_it() {
    let folder = Folder::new();
    folder.put("a.json", CDS, &["x"]);
    let relay = relay_over(&folder).await;
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &["*"], Some("web"));
    assert_eq!(client.sent().await.set, ["x"]);
    folder.put("b.json", CDS, &["x", "y"]);
    let report: Value = serde_json::from_str(&report_with(&relay, "/files", ", too").await).unwrap();
    let reason = report[0]["errors"][0]["reason"].as_str().unwrap();
    assert!(reason.contains(" x is in ") && reason.ends_with(", too"), "{report:#}");
    folder.put("b.json", CDS, &["y"]);
    assert_eq!(client.sent().await.set, ["y"], "nothing came before");
    report_with(&relay, "/files", "\"errors\": []").await;
}

#[tokio::test]
async fn a_file_that_cannot_be_loaded_has_a_line_that_says_what_is_served_and_one_when_it_can() {
    let folder = Folder::new();
    folder.put("a.json", CDS, &["a"]);
    let relay = relay_over(&folder).await;
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &["*"], Some("web"));
    assert_eq!(client.sent().await.set, ["a"]);
    folder.put_text("a.json", "[{");
    Lines::of_file(&folder.file("a.json"), "cannot load resource file; serving its last good version").await;
    folder.put("a.json", CDS, &["a", "c"]);
    assert_eq!(client.sent().await.set, ["c"], "nothing came before");
    Lines::of_file(&folder.file("a.json"), "resource file is at fault no more").await;
    folder.put_text("b.json", "[{");
    Lines::of_file(&folder.file("b.json"), "cannot load resource file; no earlier version").await;
}

/// Returns the active server of a view's first ladder, and the server from which a resource came.
async fn servers_of(relay: &Relay, resource: &str) -> (Value, Value) {
    let page = async |path: &str| -> Value { serde_json::from_str(&get(relay.admin, path).await).unwrap() };
    let (mut views, mut found) = (page("/upstreams").await, page(&format!("/resources?name={resource}")).await);
    (views[0]["authorities"][0]["server"].take(), found["resources"][0]["server"].take())
}

#[tokio::test]
async fn files_behind_a_control_plane_change_nothing_until_it_is_away_and_then_nothing_that_only_it_has() {
    let folder = Folder::new();
    folder.put("a.json", CDS, &["a"]);
    let mut plane = Plane::start(&[Variant::Delta]).await;
    let server = format!("http://{}", plane.address);
    let (path, variant) = (folder.path(), ", variant: delta");
    let relay = relay_of(&format!("{{servers: [{{uri: '{server}'{variant}}}, {{files: '{path}'}}]}}")).await;
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &["*"], Some("web"));
    let stream = plane.stream().await;
    say(&stream, "1", &TWO, &TWO, &[]);
    let sent = client.sent().await;
    assert_eq!(sent.set, ["a", "b"]);
    client.ack(CDS, &[], &sent);

    // The files count only once the ladder uses them.
    folder.put("a.json", CDS, &["a", "in-file"]);
    folder.put("e.json", EDS, &["e"]);
    assert_eq!(servers_of(&relay, "a").await, (server.clone().into(), server.clone().into()));
    drop((plane.kill().await, stream));
    client.ask(EDS, &["e"], None); // not cached, so that the ladder tries the files
    let mut sent = Vec::new();
    while !["e", "in-file"].iter().all(|name| sent.iter().any(|sent| sent == name)) {
        let next = client.sent().await;
        assert_eq!(next.removed, [""; 0]);
        sent.extend(next.set);
    }
    let files = format!("files {path}");
    assert_eq!(servers_of(&relay, "b").await, (files.clone().into(), server.into()), "`on_missing: keep`");
    assert_eq!(servers_of(&relay, "a").await.1, files);
    report_with(&relay, "/files", "\"errors\": []").await;
}
