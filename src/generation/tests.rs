use std::path::Path;
use std::time::Instant;

use super::*;
use crate::memory::{Budget, Memory, MemorySetting};

fn config(servers: &str) -> Config {
    config_of(servers, "key: [tenant]")
}

fn config_of(servers: &str, views: &str) -> Config {
    let text = format!(
        "listen: [{{address: '127.0.0.1:0'}}]\nviews: {{{views}}}\nupstream:\n  servers: [{servers}]\n\
         permissions: [{{name: a, identities: [{{network: 127.0.0.0/8}}], tenant: pay}}]\n"
    );
    Config::parse(Path::new("/nowhere/relay.yaml"), &text).unwrap_or_else(|error| panic!("{error}"))
}

const ONE: &str = "{uri: 'http://one:1'}";
const TWO: &str = "{uri: 'http://two:1'}";
const POLLED: &str = "{rest: 'http://three:1'}";

/// A server keeps its connections over a reload, wherever it stands in the list then.
#[tokio::test]
async fn servers_that_are_equal_go_on_and_others_are_opened() {
    let first = Sources::new(&config(&[ONE, TWO, POLLED].join(", ")), None);
    let second = Sources::new(&config(&[POLLED, TWO, "{uri: 'http://four:1'}"].join(", ")), Some(&first));
    let is_same = |one: &Sources, at: usize, other: &Sources, to: usize| {
        Arc::ptr_eq(&one.all[at].1.streams, &other.all[to].1.streams)
    };
    assert!(is_same(&first, 2, &second, 0) && is_same(&first, 1, &second, 1));
    assert!((0..3).all(|at| !is_same(&first, at, &second, 2)), "a server that was not there before");
    let third = Sources::new(&config(&[TWO, ONE].join(", ")), Some(&second));
    assert!(is_same(&first, 1, &third, 0), "in the second reload too");
    assert!(!is_same(&first, 0, &third, 1), "it was not in the one before");
    let other = TWO.replace('}', ", connect_timeout: 7s}");
    let changed = Sources::new(&config(&other), Some(&third));
    assert!(!is_same(&third, 0, &changed, 0), "a key of it is another");
    let loads: Vec<_> = first.loads().iter().map(Option::is_some).collect();
    assert_eq!(loads, [true, true, false], "a server that is polled takes no load reports");
}

/// A body that is not read keeps what bodies share, however often the configuration changes.
#[tokio::test]
async fn i10_encoded_replies_are_those_of_the_configuration_before_unless_it_had_another_identifier() {
    let first = Generation::first(&config(ONE));
    let second = Generation::after(&config(TWO), &first);
    let mut renamed = config(TWO);
    renamed.downstream.control_plane = "other".into();
    let third = Generation::after(&renamed, &second);
    assert!(second.service.has_messages_of(&first.service));
    assert!(!third.service.has_messages_of(&second.service));
}

#[tokio::test]
async fn only_servers_that_are_shown_a_client_are_audited() {
    let audited = |servers: &[&str], views: &str| {
        let config = config_of(&servers.join(", "), &format!("key: [tenant]{views}"));
        Sources::new(&config, None).audited(&config)
    };
    let files = "{files: [a.yaml]}";
    let (both, key) = (", node: member, audit: {interval: 1h}", ", audit: {interval: 1h}");
    assert_eq!(audited(&[ONE, files, POLLED], both), ["http://one:1", "http://three:1 (REST)"]);
    let off = both.replace("1h", "0s");
    for (server, views) in [(ONE, ""), (ONE, key), (ONE, ", node: member"), (ONE, off.as_str()), (files, both)] {
        assert_eq!(audited(&[server], views), [""; 0], "{server} {views}");
    }
}

#[tokio::test]
async fn files_that_are_equal_are_followed_once_and_others_no_more() {
    let files = |paths: &str| format!("{{files: [{paths}]}}");
    let (a, b) = (files("a.yaml"), files("b.yaml"));
    let first = Sources::new(&config(&[ONE, a.as_str(), b.as_str()].join(", ")), None);
    let paths = |sources: &Sources| -> Vec<_> {
        let all = sources.files.iter().map(|files| files.options().paths[0].file_name().unwrap().to_owned());
        all.collect()
    };
    assert_eq!(paths(&first), ["a.yaml", "b.yaml"]);
    let second = Sources::new(&config(&b), Some(&first));
    assert_eq!(paths(&second), ["b.yaml"]);
    let is_same = |one: &FilesSource, other: &FilesSource| std::ptr::eq(one.options(), other.options());
    assert!(is_same(&first.files[1], &second.files[0]));
    let third = Sources::new(&config(&[TWO, b.as_str(), a.as_str()].join(", ")), Some(&second));
    assert_eq!(paths(&third), ["b.yaml", "a.yaml"]);
    assert!(is_same(&first.files[1], &third.files[0]) && !is_same(&first.files[0], &third.files[1]));
}

/// A folder of files that is deleted when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("weir-generation-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path); // of an earlier run
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// Writes a file with a cluster whose body has so many bytes, and a few more.
    fn put(&self, cluster: &str, bytes: usize) {
        let kind = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
        let text = "x".repeat(bytes);
        let cluster_of = format!("{{\"@type\": \"{kind}\", \"name\": \"{cluster}\", \"alt_stat_name\": \"{text}\"}}");
        std::fs::write(self.0.join(format!("{cluster}.json")), format!("{{\"resources\": [{cluster_of}]}}")).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn files_in(folders: &[&Folder]) -> String {
    let paths: Vec<_> = folders.iter().map(|folder| format!("'{}'", folder.0.display())).collect();
    format!("{{files: [{}]}}", paths.join(", "))
}

fn memory() -> Arc<Memory> {
    Memory::new(Budget::on(MemorySetting::Bytes(100 << 20), None), Arc::default(), Arc::default())
}

/// Waits until files were looked at. Returns how many resources they have, and how many errors.
async fn looked_at(files: &FilesSource) -> (usize, usize) {
    let looked = async {
        while files.report().state == "loading" {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), looked).await.expect("they are looked at");
    let report = files.report();
    (report.resources, report.errors.len())
}

#[tokio::test]
async fn no_file_is_read_before_it_is_known_what_has_room() {
    let (folder, memory) = (Folder::new("early"), memory());
    folder.put("a", 10);
    let sources = Sources::new(&config(&files_in(&[&folder])), None);
    let early = tokio::time::timeout(Duration::from_millis(200), looked_at(&sources.files[0])).await;
    assert!(early.is_err(), "{early:?}");
    let held = memory.common();
    held.set(200 << 20);
    held.tell();
    sources.parser.bound_by(&memory);
    assert_eq!(looked_at(&sources.files[0]).await, (0, 1));
}

#[tokio::test]
async fn what_files_served_before_a_reload_is_served_after_it_whatever_there_is_room_for() {
    let (one, two, memory) = (Folder::new("before"), Folder::new("after"), memory());
    one.put("a", 5000);
    let first = Sources::new(&config(&files_in(&[&one])), None);
    first.parser.bound_by(&memory);
    assert_eq!(looked_at(&first.files[0]).await, (1, 0));
    let held = memory.common();
    held.set(200 << 20);
    held.tell();
    two.put("b", 5000);
    let second = Sources::new(&config(&files_in(&[&one, &two])), Some(&first));
    assert_eq!(looked_at(&second.files[0]).await, (1, 1), "only what is new has no room");
}

#[tokio::test]
async fn what_goes_on_is_no_reason_to_serve_its_names_from_another_source_without_room() {
    let (one, two) = (Folder::new("one"), Folder::new("two"));
    let (memory, plan) = (memory(), files_in(&[&one]));
    one.put("a", 10);
    two.put("a", 5000);
    let first = Sources::new(&config(&plan), None);
    first.parser.bound_by(&memory);
    assert_eq!(looked_at(&first.files[0]).await, (1, 0));
    let held = memory.common();
    held.set(200 << 20);
    held.tell();
    let mut both = config(&[plan, files_in(&[&two])].join(", "));
    let second = Sources::new(&both, Some(&first));
    assert_eq!(looked_at(&second.files[1]).await, (0, 1), "it is new");
    both.transcoder = Some(Transcoder::envoy());
    let third = Sources::new(&both, Some(&second));
    third.parser.bound_by(&memory);
    assert_eq!(looked_at(&third.files[0]).await, (1, 0), "with other descriptors nothing goes on");
}

#[tokio::test]
async fn of_sources_before_only_so_many_snapshots_are_known_however_often_files_are_followed_again() {
    let folder = Folder::new("known");
    folder.put("a", 10);
    let sources = Sources::new(&config(&files_in(&[&folder])), None);
    sources.parser.bound_by(&memory());
    assert_eq!(looked_at(&sources.files[0]).await, (1, 0));
    let served = sources.files[0].served();
    let kind = sources.parser.table.resolve("envoy.config.cluster.v3.Cluster");
    let filled = || {
        let items = served[0].set(&kind).items().clone();
        Arc::new(SourceSnapshot::default().next([(kind.clone(), items)].into(), false))
    };
    let first = filled();
    let mut known = vec![first.clone()];
    for _ in 0..100 {
        known = joined(vec![[vec![Arc::default()], known].concat()]);
    }
    assert!(known.len() == 1 && Arc::ptr_eq(&known[0], &first), "nothing was served since");
    for _ in 0..100 {
        let own = filled();
        let of_one = [vec![own.clone()], known].concat();
        known = joined(vec![of_one.clone(), of_one]);
        assert!(Arc::ptr_eq(&known[0], &own) && known.len() <= 2 + BEFORE);
    }
    assert_eq!(known.len(), 2 + BEFORE);
}

/// What is read by other descriptors is another source.
#[tokio::test]
async fn with_other_descriptors_every_source_is_opened_again() {
    let plain = || config(ONE);
    let with = |transcoder: &Arc<Transcoder>| {
        let mut config = plain();
        config.transcoder = Some(transcoder.clone());
        config
    };
    let [own, other] = [(); 2].map(|()| Transcoder::with_descriptor_sets(&[]).unwrap());
    let goes_on = |earlier: &Config, later: &Config| {
        let first = Sources::new(earlier, None);
        let second = Sources::new(later, Some(&first));
        let expected = later.transcoder.clone().unwrap_or_else(Transcoder::envoy);
        assert!(Arc::ptr_eq(&(second.descriptors)(), &expected));
        Arc::ptr_eq(&first.all[0].1.streams, &second.all[0].1.streams)
    };
    assert!(goes_on(&plain(), &plain()) && goes_on(&with(&own), &with(&own)));
    assert!(!goes_on(&plain(), &with(&own)) && !goes_on(&with(&own), &plain()));
    assert!(!goes_on(&with(&own), &with(&other)));
}

#[test]
fn certificates_of_a_server_are_shown_under_its_address_and_by_tenants() {
    let tls = "tls: {certificate: own.pem, key: own.key, ca: ca.pem}";
    let tenants =
        "tenants: [{names: [pay, 'bill*'], certificate: pay.pem, key: pay.key}, {names: ['*'], token_file: t}]";
    let servers = format!("{{uri: 'https://one:1', {tls}, {tenants}}}, {TWO}, {{uri: 'https://two', {tls}}}");
    let plan = config(&servers).upstream.servers;
    let all: Vec<_> = plan.iter().flat_map(server_certificates).collect();
    let name = |path: &std::path::PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
    let shown = all.iter().map(|of| {
        (
            of.server.as_str(),
            of.tenants.clone().unwrap_or_default(),
            of.own.as_ref().map(|own| name(&own.certificate)),
            of.ca.as_ref().map(name),
        )
    });
    let some = |text: &str| Some(text.to_owned());
    let expected = [
        ("https://one:1", vec![], some("own.pem"), some("ca.pem")),
        ("https://one:1", vec!["pay".to_owned(), "bill*".to_owned()], some("pay.pem"), None),
        ("https://two", vec![], some("own.pem"), some("ca.pem")),
    ];
    assert_eq!(shown.collect::<Vec<_>>(), expected);
}

/// Connections go on over a reload, with what they have read.
#[tokio::test]
async fn certificates_of_a_server_that_goes_on_are_shown_as_its_connections_use_them() {
    let servers = "{uri: 'https://one:1', tls: {certificate: own.pem, key: own.key}}";
    let first = Sources::new(&config(servers), None);
    let second = Sources::new(&config(servers), Some(&first));
    let known = |sources: &Sources| server_certificates(&sources.all[0].0).remove(0).known;
    let paths = ["own.pem", "own.key"].map(Path::new);
    known(&first).belong_together(paths, Default::default(), Instant::now());
    assert!(known(&second).last_together(paths, Instant::now()).is_some());
}
