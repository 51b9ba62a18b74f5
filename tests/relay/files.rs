//! File sources, alone and beside a control plane, with clients over real connections.

use std::fs;
use std::path::PathBuf;

use super::client::node;
use super::examples::assert_documented;
use super::load_plane::{LoadClient, LoadPlane};
use super::*;
use weir_core::proto::loads::LoadStatsRequest;
use weir_testkit::folder;
use weir_testkit::script::Way;
use weir_testkit::server::Server;

const HOUR: Duration = Duration::from_secs(3600);
const ENDPOINTS: &str = "envoy.config.endpoint.v3.ClusterLoadAssignment";

/// A folder of files with resources.
pub(super) struct Folder(folder::Folder);

impl Folder {
    pub(super) fn new() -> Self {
        Self(folder::Folder::new("relay-files"))
    }

    /// Moves a file with resources of a type into place.
    pub(super) fn put(&self, file: &str, url: &str, names: &[&str]) {
        let field = if url == EDS { "clusterName" } else { "name" };
        let resource = |name: &&str| format!("{{\"@type\": \"{url}\", \"{field}\": \"{name}\"}}");
        let resources: Vec<_> = names.iter().map(resource).collect();
        self.put_text(file, &format!("[{}]", resources.join(",\n")));
    }

    pub(super) fn put_text(&self, file: &str, text: &str) {
        self.put_bytes(file, text.as_bytes());
    }

    pub(super) fn put_bytes(&self, file: &str, bytes: &[u8]) {
        fs::write(self.file(".new"), bytes).unwrap();
        fs::rename(self.file(".new"), self.file(file)).unwrap();
    }

    fn remove(&self, file: &str) {
        fs::remove_file(self.file(file)).unwrap();
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.0.0.join(name)
    }

    pub(super) fn path(&self) -> String {
        self.0.0.display().to_string()
    }
}

/// Starts a relay in which time shows nothing: no set settles, and no silence lasts long enough to count.
pub(super) async fn relay_of(upstream: &str) -> Relay {
    let patient = |options: &mut ProtocolOptions| {
        let upstream = &mut options.upstream;
        (upstream.settle_fresh, upstream.settle_stated, upstream.resource_timer) = (HOUR, HOUR, HOUR);
    };
    relay_with_options(upstream, "", patient).await
}

pub(super) async fn relay_over(folder: &Folder) -> Relay {
    relay_of(&format!("{{files: '{}'}}", folder.path())).await
}

/// Reads responses until this many names were sent to the client or reported to it as absent. Returns both lists, sorted.
async fn hears(client: &mut Client, url: &str, limit: usize) -> (Vec<String>, Vec<String>) {
    let (mut set, mut removed) = (Vec::new(), Vec::new());
    while set.len() + removed.len() < limit {
        let sent = client.sent().await;
        client.ack(url, &[], &sent);
        set.extend(sent.set);
        removed.extend(sent.removed);
    }
    set.sort();
    removed.sort();
    (set, removed)
}

#[tokio::test]
async fn fs_4_a_first_client_has_the_whole_set_at_once_and_later_what_becomes_of_it() {
    let folder = Folder::new();
    folder.put("a.json", CDS, &["a", "b"]);
    folder.put("e.json", EDS, &["x"]);
    let relay = relay_over(&folder).await;
    let mut sotw = Client::connect(relay.address, Variant::Sotw).await;
    sotw.ask(CDS, &[], Some("web"));
    let sent = sotw.sent().await;
    assert_eq!(sent.set, ["a", "b"]);
    sotw.ack(CDS, &[], &sent);
    let mut delta = Client::connect(relay.address, Variant::Delta).await;
    delta.ask(CDS, &["*"], Some("web"));
    assert_eq!(delta.sent().await.set, ["a", "b"]);
    folder.put("a.json", CDS, &["a", "c"]);
    assert_eq!(hears(&mut delta, CDS, 2).await, (vec!["c".into()], vec!["b".into()]));
    loop {
        let sent = sotw.sent().await;
        sotw.ack(CDS, &[], &sent);
        if sent.set == ["a", "c"] {
            break;
        }
        assert_eq!(sent.set, ["a", "b", "c"], "make before break");
    }
    folder.remove("a.json");
    assert_eq!(hears(&mut delta, CDS, 2).await.1, ["a", "c"], "a deleted file is a real absence");
    assert_eq!(sotw.sent().await.set, [""; 0]);
    let mut late = Client::connect(relay.address, Variant::Sotw).await;
    late.ask(CDS, &[], Some("web"));
    assert_eq!(late.sent().await.set, [""; 0], "known to be empty");
    let mut other = Client::connect(relay.address, Variant::Sotw).await;
    other.ask(LDS, &[], Some("another view"));
    assert_eq!(other.sent().await.set, [""; 0], "a type of which there never was anything");
}

#[tokio::test]
async fn xlat_15_a_name_that_is_in_no_file_is_absent_at_once_and_there_when_it_comes() {
    let folder = Folder::new();
    folder.put("e.json", EDS, &["x"]);
    let relay = relay_over(&folder).await;
    let mut delta = Client::connect(relay.address, Variant::Delta).await;
    delta.ask(EDS, &["x", "y"], Some("web"));
    assert_eq!(hears(&mut delta, EDS, 2).await, (vec!["x".into()], vec!["y".into()]));
    let mut sotw = Client::connect(relay.address, Variant::Sotw).await;
    sotw.ask(EDS, &["x", "y"], Some("web"));
    let sent = sotw.sent().await;
    assert_eq!(sent.set, ["x"]);
    sotw.ack(EDS, &["x", "y"], &sent);
    folder.put("f.json", EDS, &["y"]);
    assert_eq!(delta.sent().await.set, ["y"]);
    assert!(sotw.sent().await.set.contains(&"y".to_owned()));
    folder.remove("e.json");
    assert_eq!(delta.sent().await.removed, ["x"]);
}

#[tokio::test]
async fn a_folder_that_is_not_there_says_nothing_and_one_that_is_empty_says_so() {
    let folder = Folder::new();
    let relay = relay_of(&format!("{{files: '{}/later'}}", folder.path())).await;
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(EDS, &["x"], Some("web"));
    let report = report_with(&relay, "/files", "\"missing\"").await;
    assert!(report.contains("later: it does not exist"), "{report}");
    let report = report_with(&relay, "/upstreams", "\"state\": \"down\"").await;
    assert!(report.contains(&format!("\"server\": \"files {}/later\"", folder.path())), "{report}");
    client.hears_nothing(Duration::from_millis(200)).await;
    fs::create_dir(folder.file("later")).unwrap();
    assert_eq!(client.sent().await.removed, ["x"]);
    fs::remove_dir(folder.file("later")).unwrap();
    report_with(&relay, "/upstreams", "\"state\": \"down\"").await;
    fs::create_dir(folder.file("later")).unwrap();
    folder.put("later/x.json", EDS, &["x"]);
    assert_eq!(client.sent().await.set, ["x"]);
}

#[tokio::test]
async fn i3_of_several_paths_those_are_served_that_are_there_and_nothing_is_absent_for_want_of_the_others() {
    let folder = Folder::new();
    fs::create_dir(folder.file("one")).unwrap();
    folder.put("one/x.json", EDS, &["x"]);
    let relay = relay_of(&format!("{{files: ['{0}/one', '{0}/two.json']}}", folder.path())).await;
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(EDS, &["x", "y", "z"], Some("web"));
    assert_eq!(client.sent().await.set, ["x"]);
    let report = report_with(&relay, "/files", "two.json").await;
    assert!(report.contains("it does not exist") && report.contains("\"ready\""), "{report}");
    folder.put("two.json", EDS, &["y"]);
    assert_eq!(hears(&mut client, EDS, 2).await, (vec!["y".into()], vec!["z".into()]));
    report_with(&relay, "/files", "\"errors\": []").await;
    folder.remove("two.json");
    assert_eq!(client.sent().await.removed, ["y"], "a deleted file is a real absence");
    report_with(&relay, "/files", "it does not exist").await;
}

#[tokio::test]
async fn fs_3_a_bad_file_is_reported_with_its_line_and_changes_nothing() {
    let folder = Folder::new();
    folder.put("a.json", CDS, &["a"]);
    let relay = relay_over(&folder).await;
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &["*"], Some("web"));
    assert_eq!(client.sent().await.set, ["a"]);
    folder.put_text(
        "a.json",
        &format!("[{{\"@type\": \"{CDS}\", \"name\": \"a\"}},\n{{\"@type\": \"{CDS}\", \"nane\": 1}}]"),
    );
    let report = report_with(&relay, "/files", "nane").await;
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    let fault = &report[0]["errors"][0];
    assert!(fault["file"].as_str().unwrap().ends_with("a.json") && fault["line"] == 2, "{report}");
    folder.put("a.json", CDS, &["a", "b"]);
    assert_eq!(client.sent().await.set, ["b"], "nothing came before");
    let report = report_with(&relay, "/files", "\"errors\": []").await;
    assert_documented("curl -s 127.0.0.1:19000/files", &report);
}

#[tokio::test]
async fn xlat_16_after_a_restart_with_a_bad_file_nobody_loses_what_may_be_in_it() {
    let folder = Folder::new();
    folder.put("a.json", CDS, &["a"]);
    folder.put_text("b.json", "{");
    let relay = relay_over(&folder).await;
    let mut sotw = Client::connect(relay.address, Variant::Sotw).await;
    sotw.ask(CDS, &[], Some("web"));
    let mut delta = Client::connect(relay.address, Variant::Delta).await;
    delta.ask(CDS, &["*"], Some("web"));
    assert_eq!(delta.sent().await.set, ["a"]);
    let mut named = Client::connect(relay.address, Variant::Delta).await;
    named.ask(CDS, &["a", "b", "c"], Some("web"));
    assert_eq!(named.sent().await.set, ["a"]);
    folder.put("b.json", CDS, &["b"]);
    assert_eq!(sotw.sent().await.set, ["a", "b"], "no set without what the file may have had");
    assert_eq!(hears(&mut named, CDS, 2).await, (vec!["b".into()], vec!["c".into()]));
}

#[tokio::test]
async fn xlat_2_after_a_restart_the_versions_are_the_same() {
    let folder = Folder::new();
    folder.put("a.json", CDS, &["a", "b"]);
    let mut versions = Vec::new();
    for _ in 0..2 {
        let relay = relay_over(&folder).await;
        let mut client = Client::connect(relay.address, Variant::Sotw).await;
        client.ask(CDS, &[], Some("web"));
        versions.push(client.sent().await.version);
    }
    assert_eq!(versions[0], versions[1]);
}

/// What control planes have that files do not have: they are silent about all other names.
const OF_SERVERS: Way = Way::GivesOnly(&[("s1", "1"), ("s2", "1"), ("s3", "1")]);

#[tokio::test]
async fn fs_6_as_the_last_rung_files_serve_what_they_have_and_say_nothing_of_the_rest() {
    let folder = Folder::new();
    folder.put("e.json", EDS, &["s1", "file"]);
    folder.put("c.json", CDS, &["a"]);
    let server = Server::start(OF_SERVERS).await;
    let address = server.address;
    let relay = relay_of(&format!("{{servers: [{{uri: 'http://{address}'}}, {{files: '{}'}}]}}", folder.path())).await;
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(EDS, &["s1", "s2"], Some("web"));
    assert_eq!(hears(&mut client, EDS, 2).await.0, ["s1", "s2"]);
    server.kill().await;
    report_with(&relay, "/upstreams", "\"state\": \"cached\"").await;
    // The client wants a new name, so that the ladder tries the files.
    client.ask(EDS, &["file", "nowhere"], None);
    let mut sent = Vec::new();
    while !sent.contains(&"file".to_owned()) {
        let next = client.sent().await;
        assert_eq!(next.removed, [""; 0]);
        sent.extend(next.set);
    }
    let described = format!("\"server\": \"files {}\"", folder.path());
    report_with(&relay, "/upstreams", &described).await;
    // Names that were removed from the files, or never were in them, are unknown.
    folder.put("e.json", EDS, &["other"]);
    report_with(&relay, "/files", "\"resources\": 2").await;
    let mut late = Client::connect(relay.address, Variant::Delta).await;
    late.ask(EDS, &["s2", "file", "other", "nowhere"], Some("web"));
    assert_eq!(hears(&mut late, EDS, 3).await, (vec!["file".into(), "other".into(), "s2".into()], vec![]));
    late.ask(EDS, &["file"], None);
    assert_eq!(hears(&mut late, EDS, 1).await, (vec!["file".into()], vec![]), "nothing of the name that is nowhere");
    // A wildcard returns the resources of the files. Whether these are all is unknown.
    let mut all = Client::connect(relay.address, Variant::Delta).await;
    all.ask(CDS, &["*"], Some("web"));
    assert_eq!(all.sent().await.set, ["a"]);
    let mut whole = Client::connect(relay.address, Variant::Sotw).await;
    whole.ask(CDS, &[], Some("web"));
    whole.ask(EDS, &["file"], None);
    assert_eq!(whole.sent().await.set, ["file"], "a set of clusters would come before");

    let _back = Server::start_at(address, OF_SERVERS).await;
    report_with(&relay, "/upstreams", &format!("\"state\": \"active\",\n        \"server\": \"http://{address}\""))
        .await;
    client.ask(EDS, &["s3"], None);
    loop {
        let sent = client.sent().await;
        assert_eq!(sent.removed, [""; 0]);
        if sent.set.contains(&"s3".to_owned()) {
            break; // the active source sends names again that both sources have
        }
    }
}

#[tokio::test]
async fn files_that_are_not_there_leave_the_ladder_to_the_next() {
    let folder = Folder::new();
    let server = Server::start(OF_SERVERS).await;
    let address = server.address;
    let relay =
        relay_of(&format!("{{servers: [{{files: '{}/none'}}, {{uri: 'http://{address}'}}]}}", folder.path())).await;
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(EDS, &["s1"], Some("web"));
    assert_eq!(client.sent().await.set, ["s1"]);
}

#[tokio::test]
async fn xlat_38_files_may_be_those_of_one_authority_and_name_6_in_any_spelling() {
    let folder = Folder::new();
    folder.put("e.json", EDS, &[&format!("xdstp://x/{ENDPOINTS}/e?a=1&b=2"), &format!("xdstp://y/{ENDPOINTS}/e")]);
    let plane = Plane::start(&BOTH).await;
    let relay = relay_of(&format!(
        "{{servers: [{{uri: 'http://{}'}}], authorities: {{x: {{servers: [{{files: '{}'}}]}}}}}}",
        plane.address,
        folder.path()
    ))
    .await;
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    let (here, none) = (format!("xdstp://x/{ENDPOINTS}/%65?b=2&a=1"), format!("xdstp://x/{ENDPOINTS}/none"));
    client.ask(EDS, &[&here, &none, &format!("xdstp://y/{ENDPOINTS}/e"), "old"], Some("web"));
    assert_eq!(hears(&mut client, EDS, 2).await, (vec![here.clone()], vec![none]));
    client.ask(EDS, &[&here], None);
    assert_eq!(hears(&mut client, EDS, 1).await, (vec![here], vec![]), "nothing of what another server has to say");
}

#[tokio::test]
async fn many_views_are_served_out_of_files_that_are_read_once() {
    let folder = Folder::new();
    folder.put("a.json", CDS, &["a"]);
    let relay = relay_over(&folder).await;
    let mut clients = Vec::new();
    for view in 0..20 {
        let mut client = Client::connect(relay.address, Variant::Sotw).await;
        client.ask(CDS, &[], Some(&format!("view {view}")));
        let sent = client.sent().await;
        client.ack(CDS, &[], &sent);
        clients.push(client);
    }
    folder.put("b.json", CDS, &["b"]);
    for client in &mut clients {
        assert_eq!(client.sent().await.set, ["a", "b"]);
    }
    let report: serde_json::Value = serde_json::from_str(&get(relay.admin, "/files").await).unwrap();
    assert_eq!(report.as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn lrs_11_clients_of_files_keep_their_stream_of_loads_and_are_asked_for_none() {
    let folder = Folder::new();
    folder.put("e.json", EDS, &["x"]);
    let nobody = LoadPlane::start().await;
    let address = nobody.kill().await;
    let relay = relay_of(&format!("{{servers: [{{uri: 'http://{address}'}}, {{files: '{}'}}]}}", folder.path())).await;
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(EDS, &["x"], Some("web"));
    assert_eq!(client.sent().await.set, ["x"]);
    let mut loads = LoadClient::connect(relay.address).await;
    let first = LoadStatsRequest { node: node("web"), ..Default::default() };
    loads.report(&first).await;
    // When a client half-closes, the relay ends its stream. The client is sent nothing before that.
    loads.reports = None;
    assert_eq!(loads.ended().await.code(), Code::Ok);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "keeps the processors busy, and measures how long others wait"]
async fn night_a_hundred_thousand_resources_are_loaded_while_others_are_served() {
    let _turn = super::HEAVY.lock().await;
    let folder = Folder::new();
    let others = Folder::new();
    others.put("e.json", EDS, &[&format!("xdstp://x/{ENDPOINTS}/e")]);
    for file in 0..100 {
        let names: Vec<_> = (0..1_000).map(|number| format!("c{file}-{number}")).collect();
        folder.put(&format!("{file}.json"), CDS, &names.iter().map(String::as_str).collect::<Vec<_>>());
    }
    let upstream =
        format!("{{files: '{}', authorities: {{x: {{servers: [{{files: '{}'}}]}}}}}}", folder.path(), others.path());
    let relay = relay_of(&upstream).await;
    let mut all = Client::connect(relay.address, Variant::Delta).await;
    all.ask(CDS, &["*"], Some("web"));
    // Another view is sent each change of its own files, while the files of the first view are read and sent.
    let mut other = Client::connect(relay.address, Variant::Delta).await;
    let name = format!("xdstp://x/{ENDPOINTS}/e");
    other.ask(EDS, &[&name], Some("other"));
    assert_eq!(hears(&mut other, EDS, 1).await.0, [name.as_str()]);
    other.ask(EDS, &[&name], None);
    let mut waits = Vec::new();
    let sent = async {
        let mut count = 0;
        while count < 100_000 {
            count += all.sent().await.set.len();
        }
    };
    tokio::pin!(sent);
    let began = tokio::time::Instant::now();
    loop {
        let start = tokio::time::Instant::now();
        tokio::select! {
            () = &mut sent => break,
            said = other.sent() => assert!(said.set.len() + said.removed.len() == 1),
        }
        waits.push(start.elapsed());
        other.ask(EDS, &[&name], None);
    }
    waits.sort_unstable_by(|one, other| other.cmp(one));
    waits.truncate(2);
    let whole = began.elapsed();
    println!("others waited {waits:?} at most, of {whole:?}");
    let late = waits.iter().filter(|wait| **wait >= Duration::from_secs(1).max(whole / 8)).count();
    assert!(late <= 1, "the machine may have paused once: {waits:?} of {whole:?}");
    let longest = Duration::from_secs(3).max(whole / 2);
    assert!(waits.iter().all(|wait| *wait < longest), "others waited {waits:?} of {whole:?}");
}
