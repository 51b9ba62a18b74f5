//! The loader alone, look by look, and the watcher over real folders.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::SystemTime;

use weir_core::xds::{Name, TypeTable};

use super::known::Clocks;
use super::*;
use crate::file_access::{Stamp, YOUNG};

mod absence;
mod limits;
mod links;
mod streams;

const CLUSTER: &str = "envoy.config.cluster.v3.Cluster";
/// Longer than anything takes.
const PATIENCE: Duration = Duration::from_secs(20);

/// A folder that is deleted when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("weir-files-{}-{number}", std::process::id()));
        let _ = fs::remove_dir_all(&path); // of an earlier run
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn write(&self, name: &str, clusters: &[&str]) {
        fs::write(self.at(name), clusters_of(clusters)).unwrap();
    }

    /// Replaces the file atomically, as writers should.
    fn put(&self, name: &str, clusters: &[&str]) {
        self.write(".new", clusters);
        fs::rename(self.at(".new"), self.at(name)).unwrap();
    }

    fn options(&self) -> FilesOptions {
        options(vec![self.0.clone()])
    }

    fn loader(&self) -> Loader {
        loader(self.options())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn clusters_of(names: &[&str]) -> String {
    let resource = |name: &&str| format!("{{\"@type\": \"type.googleapis.com/{CLUSTER}\", \"name\": \"{name}\"}}");
    let resources: Vec<_> = names.iter().map(resource).collect();
    format!("{{\"resources\": [\n{}\n]}}", resources.join(",\n"))
}

fn options(paths: Vec<PathBuf>) -> FilesOptions {
    FilesOptions { paths, files: 100_000, file_bytes: 10_000 }
}

fn parser() -> Parser {
    Parser::new(TypeTable::new(), None)
}

fn loader(options: FilesOptions) -> Loader {
    Loader::new(Arc::new(options), parser(), Watcher::new(mpsc::channel(1).0))
}

/// The names of all clusters, in one line, with a question mark if some may be missing.
fn clusters(state: &SourceState) -> String {
    match state {
        SourceState::Loading => "loading".into(),
        SourceState::Missing(_) => "missing".into(),
        SourceState::Ready(snapshot) => {
            let set = snapshot.set(&TypeTable::new().resolve(CLUSTER));
            let names: Vec<_> = set.items().keys().map(Name::to_string).collect();
            format!("{}{}", names.join(","), if snapshot.is_complete() { "" } else { "?" })
        }
    }
}

/// Looks once. Returns the clusters, and then the errors: each file with its line.
fn look(loader: &mut Loader) -> (String, Vec<String>) {
    let look = loader.look();
    let fault = |fault: &FileError| {
        let name = fault.file.file_name().unwrap().to_string_lossy();
        format!("{name}:{}", fault.line.map_or(String::new(), |line| line.to_string()))
    };
    (clusters(&look.loaded.state), look.loaded.report.faults.iter().map(fault).collect())
}

/// Looks until the condition holds, as the loader's task does.
fn until(loader: &mut Loader, wanted: &str) {
    let start = Instant::now();
    loop {
        let (seen, _) = look(loader);
        if seen == wanted {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "{wanted} is not seen but {seen}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn reasons(loader: &mut Loader) -> String {
    loader.look().loaded.report.faults.iter().map(|fault| format!("{fault}\n")).collect()
}

#[test]
fn fs_1_every_format_is_read_and_other_files_are_let_be() {
    let folder = Folder::new();
    let any = format!("type.googleapis.com/{CLUSTER}");
    fs::write(folder.at("a.yaml"), format!("resources:\n- '@type': {any}\n  name: a\n")).unwrap();
    fs::write(folder.at("b.yml"), format!("'@type': {any}\nname: b\n")).unwrap();
    fs::write(folder.at("c.json"), clusters_of(&["c"])).unwrap();
    let text = format!("resources {{ [{any}] {{ name: \"d\" }} }}\n");
    fs::write(folder.at("d.pb_text"), &text).unwrap();
    fs::write(folder.at("e.textproto"), text.replace("\"d\"", "\"e\"")).unwrap();
    let body = weir_core::proto::Any { type_url: any, value: bytes::Bytes::from_static(b"\x0a\x01f") };
    let response = weir_core::proto::discovery::DiscoveryResponse { resources: vec![body], ..Default::default() };
    fs::write(folder.at("f.pb"), prost::Message::encode_to_vec(&response)).unwrap();
    for other in ["README.md", ".hidden.yaml", "c.json~", "resources"] {
        fs::write(folder.at(other), "no resources").unwrap();
    }
    fs::create_dir(folder.at(".git")).unwrap();
    folder.write(".git/x.json", &["x"]);
    fs::create_dir_all(folder.at("deep/er")).unwrap();
    folder.write("deep/er/g.json", &["g"]);
    assert_eq!(look(&mut folder.loader()), ("a,b,c,d,e,f,g".into(), vec![]));
}

#[test]
fn fs_3_a_bad_file_counts_as_it_was_and_is_reported_with_line_and_reason() {
    let folder = Folder::new();
    folder.put("a.json", &["a"]);
    folder.put("b.json", &["b"]);
    let mut loader = folder.loader();
    assert_eq!(look(&mut loader).0, "a,b");
    fs::write(folder.at("a.json"), clusters_of(&["c"]).replace("\"name\"", "\"nane\"")).unwrap();
    folder.put("b.json", &["d"]);
    assert_eq!(look(&mut loader), ("a,d".into(), vec!["a.json:2".into()]));
    assert!(reasons(&mut loader).contains("nane"), "{}", reasons(&mut loader));
    fs::write(folder.at("a.json"), &clusters_of(&["a", "c"])[..60]).unwrap();
    assert_eq!(look(&mut loader).0, "a,d", "half of it is written");
    fs::write(folder.at("a.json"), clusters_of(&["a", "c"])).unwrap();
    assert_eq!(look(&mut loader), ("a,c,d".into(), vec![]));
    fs::write(folder.at("a.json"), "").unwrap();
    assert_eq!(look(&mut loader).0, "a,c,d", "an empty file is one that was cut off");
    fs::remove_file(folder.at("a.json")).unwrap();
    until(&mut loader, "d");
    assert_eq!(look(&mut loader).1, [""; 0], "a file that is gone is no bad one");
}

#[test]
fn what_cannot_be_looked_at_counts_as_it_was() {
    let folder = Folder::new();
    folder.put("ring.json", &["a"]);
    folder.put("nowhere.json", &["b"]);
    folder.put("huge.json", &["c"]);
    folder.put("pipe.json", &["d"]);
    let mut loader = folder.loader();
    assert_eq!(look(&mut loader).0, "a,b,c,d");
    for (name, target) in [("ring.json", "ring.json"), ("nowhere.json", "no such file")] {
        fs::remove_file(folder.at(name)).unwrap();
        symlink(folder.at(target), folder.at(name)).unwrap();
    }
    fs::write(folder.at("huge.json"), vec![b' '; 10_001]).unwrap();
    fs::remove_file(folder.at("pipe.json")).unwrap();
    crate::file_access::tests::make_pipe(&folder.at("pipe.json"));
    let (held, faults) = look(&mut loader);
    assert_eq!((held.as_str(), faults.len()), ("a,b,c,d", 4), "{faults:?}");
    let reasons = reasons(&mut loader);
    assert!(reasons.contains("huge.json: it is larger than 10000 bytes"), "{reasons}");
    assert!(reasons.contains("pipe.json: it is no file"), "{reasons}");
    for (name, cluster) in [("ring.json", "a"), ("nowhere.json", "b"), ("huge.json", "c"), ("pipe.json", "d")] {
        folder.put(name, &[cluster]);
    }
    assert_eq!(look(&mut loader), ("a,b,c,d".into(), vec![]), "with what they had before, they are good again");
}

#[test]
fn fs_3_a_file_that_may_not_be_read_counts_as_it_was() {
    let folder = Folder::new();
    folder.put("a.json", &["a"]);
    let mut loader = folder.loader();
    assert_eq!(look(&mut loader).0, "a");
    let allow = |mode| fs::set_permissions(folder.at("a.json"), fs::Permissions::from_mode(mode)).unwrap();
    folder.put("a.json", &["b"]);
    allow(0o000);
    if fs::File::open(folder.at("a.json")).is_ok() {
        return eprintln!("skipped: whoever runs this may read everything"); // for example root
    }
    assert_eq!(look(&mut loader), ("a".into(), vec!["a.json:".into()]));
    let reported = reasons(&mut loader);
    assert!(reported.contains("denied"), "{reported}");
    let fresh = look(&mut folder.loader());
    assert_eq!(fresh, ("?".into(), vec!["a.json:".into()]), "nor is anything known of it at first");
    allow(0o600);
    until(&mut loader, "b");
    assert_eq!(look(&mut loader).1, [""; 0]);
    // The same holds for a folder that cannot be read.
    let allow = |mode| fs::set_permissions(&folder.0, fs::Permissions::from_mode(mode)).unwrap();
    allow(0o000);
    let (seen, faults) = look(&mut loader);
    allow(0o700);
    assert_eq!((seen.as_str(), faults.len()), ("b", 1));
    assert_eq!(look(&mut loader), ("b".into(), vec![]));
}

#[test]
fn more_files_than_there_may_be_are_an_error_and_not_read_in_part() {
    let folder = Folder::new();
    folder.put("a.json", &["a"]);
    folder.put("b.json", &["b"]);
    let mut loader = loader(FilesOptions { files: 2, ..folder.options() });
    assert_eq!(look(&mut loader), ("a,b".into(), vec![]));
    folder.put("c.json", &["c"]);
    assert_eq!(look(&mut loader).0, "a,b");
    assert!(reasons(&mut loader).contains("there are more than 2 files in it, which is the limit"));
}

#[test]
fn a_name_in_two_files_is_an_error_that_names_both_and_neither_is_taken_over() {
    let folder = Folder::new();
    folder.put("a.json", &["a", "x"]);
    folder.put("b.json", &["b"]);
    let mut loader = folder.loader();
    assert_eq!(look(&mut loader).0, "a,b,x");
    // It is moving, and is in the new place already.
    folder.put("b.json", &["x", "c"]);
    let both = vec!["a.json:3".to_owned(), "b.json:2".to_owned()];
    assert_eq!(look(&mut loader), ("a,b,x".into(), both.clone()));
    let reported = reasons(&mut loader);
    let named = |file: &str, other: &str| {
        reported.contains(&format!("{CLUSTER} x is in {}, too", folder.at(other).display())) && reported.contains(file)
    };
    assert!(named("a.json", "b.json") && named("b.json", "a.json"), "{reported}");
    // Both files change and still define it.
    folder.put("a.json", &["x", "new"]);
    assert_eq!(look(&mut loader).0, "a,b,x");
    folder.put("a.json", &["new"]);
    assert_eq!(look(&mut loader), ("c,new,x".into(), vec![]), "the other file is taken over, too, as it is");
    // Restoring an older version may cause another conflict.
    folder.put("c.json", &["c"]);
    folder.put("b.json", &["new"]);
    let (held, faults) = look(&mut loader);
    assert_eq!(held, "c,new,x");
    assert_eq!(faults.len(), 3, "{faults:?}");
    fs::remove_file(folder.at("a.json")).unwrap();
    assert_eq!(look(&mut loader), ("c,new".into(), vec![]), "it is no rival any more, and was not lost either");
    until(&mut loader, "c,new");
    folder.put("c.json", &["c", "c"]);
    assert_eq!(look(&mut loader), ("c,new".into(), vec!["c.json:3".into()]));
}

#[test]
fn xlat_16_what_was_never_read_well_leaves_open_what_there_is_not() {
    let folder = Folder::new();
    folder.put("a.json", &["a"]);
    fs::write(folder.at("b.json"), "{").unwrap();
    let mut loader = folder.loader();
    assert_eq!(look(&mut loader).0, "a?");
    folder.put("b.json", &["b"]);
    assert_eq!(look(&mut loader).0, "a,b");
    fs::write(folder.at("c.json"), "{").unwrap();
    assert_eq!(look(&mut loader).0, "a,b", "a file that was never there before takes nothing away");
    let twice = Folder::new();
    twice.put("a.json", &["a", "x"]);
    twice.put("b.json", &["b", "x"]);
    let mut loader = twice.loader();
    assert_eq!(look(&mut loader).0, "?");
    twice.put("b.json", &["b"]);
    assert_eq!(look(&mut loader).0, "a,b,x");
}

#[test]
fn a_file_that_is_written_twice_within_a_moment_is_read_twice() {
    let folder = Folder::new();
    let mut loader = folder.loader();
    // All have one size, and often come within one tick of the file system's clock.
    for number in 0..200 {
        let content = format!("c{number:03}");
        let cluster = serde_json::json!({"@type": format!("t/{CLUSTER}"), "name": "a", "alt_stat_name": content});
        fs::write(folder.at("a.json"), cluster.to_string()).unwrap();
        let SourceState::Ready(snapshot) = loader.look().loaded.state else { panic!("not there") };
        let set = snapshot.set(&TypeTable::new().resolve(CLUSTER));
        let body = set.items().values().next().unwrap().body.bytes();
        assert!(body.windows(4).any(|part| part == content.as_bytes()), "{content}");
    }
}

#[test]
fn fs_2_what_is_written_in_place_and_lacks_something_is_looked_at_once_more() {
    let folder = Folder::new();
    let mut loader = folder.loader();
    folder.put("a.json", &["a", "b"]);
    assert_eq!(look(&mut loader).0, "a,b");
    fs::write(folder.at("a.json"), clusters_of(&["a"])).unwrap();
    assert!(loader.look().unsettled, "whoever writes may not have come to the end");
    assert_eq!(look(&mut loader).0, "a,b");
    until(&mut loader, "a");
    fs::write(folder.at("a.json"), clusters_of(&["a", "c"])).unwrap();
    assert_eq!(look(&mut loader).0, "a,c", "what comes is taken at once");
}

#[test]
fn fs_3_half_a_file_is_no_more_taken_over_when_writing_was_seen_or_it_was_no_good_on_the_way() {
    let folder = Folder::new();
    folder.put("a.json", &["a", "b"]);
    let path = folder.at("a.json");
    let mut loader = folder.loader();
    assert_eq!(look(&mut loader).0, "a,b");
    let mut stamp = Stamp::of(&fs::metadata(&path).unwrap());
    stamp.size = 1;
    // The file is written between the look at its stamp and the reading.
    folder.write("a.json", &["a"]);
    assert!(matches!(loader.read(&path, stamp, Clocks::now()), known::Reading::Unsettled));
    assert!(
        matches!(loader.read(&folder.at("none.json"), stamp, Clocks::now()), known::Reading::Unsettled),
        "it went meanwhile"
    );
    assert!(loader.look().unsettled, "half of it may be missing");
    assert_eq!(look(&mut loader).0, "a,b");
    until(&mut loader, "a");

    folder.write("a.json", &["a", "b"]);
    until(&mut loader, "a,b");
    fs::write(&path, vec![b' '; 10_001]).unwrap();
    assert_eq!(look(&mut loader).1, ["a.json:"]);
    folder.write("a.json", &["a"]);
    assert!(loader.look().unsettled, "half of it may be missing");
    assert_eq!(look(&mut loader).0, "a,b");
    until(&mut loader, "a");
}

/// The clock of the disk may be ahead, or the machine's clock was set back.
#[test]
fn fs_3_a_file_that_loses_something_is_taken_over_although_its_stamp_is_ahead_of_the_clock() {
    let folder = Folder::new();
    folder.put("a.json", &["a", "b"]);
    let path = folder.at("a.json");
    let mut loader = folder.loader();
    assert_eq!(look(&mut loader).0, "a,b");
    folder.write("a.json", &["a"]);
    let (start, behind) = (Instant::now(), SystemTime::now() - Duration::from_secs(3600));
    let mut read = |after| {
        let stamp = Stamp::of(&fs::metadata(&path).unwrap());
        loader.read(&path, stamp, Clocks { wall: behind + after, steady: start + after })
    };
    let tick = Duration::from_millis(1);
    for after in [Duration::ZERO, YOUNG - tick] {
        assert!(matches!(read(after), known::Reading::Unsettled), "half of it may be missing");
    }
    folder.write("a.json", &["c"]);
    for after in [YOUNG, 2 * YOUNG - tick] {
        assert!(matches!(read(after), known::Reading::Unsettled), "it is written again");
    }
    assert!(matches!(read(2 * YOUNG), known::Reading::Changed));
}

#[test]
fn fs_2_what_a_look_leaves_open_is_settled_within_a_second_of_the_change() {
    let next = settle_time(true, true);
    // A write in place counts from the change, a missing file from the first look.
    for (begin, needed) in [(Duration::ZERO, YOUNG), (QUIET, loader::GAP)] {
        let mut look = QUIET;
        while look < begin + needed {
            look += next;
        }
        assert!(look < Duration::from_secs(1), "{needed:?} takes {look:?}");
    }
}

#[test]
fn fs_5_a_collection_has_its_name_beside_it_and_may_be_empty() {
    let folder = Folder::new();
    let kind = "envoy.config.endpoint.v3.LbEndpointCollection";
    let text =
        format!("name: xdstp://x/{kind}/%65?b=1&a=2\nversion: '7'\nresource:\n  '@type': type.googleapis.com/{kind}\n");
    fs::write(folder.at("c.yaml"), text).unwrap();
    fs::write(folder.at("nameless.yaml"), format!("'@type': type.googleapis.com/{kind}\n")).unwrap();
    let mut loader = folder.loader();
    let SourceState::Ready(snapshot) = loader.look().loaded.state else { panic!("not there") };
    let set = snapshot.set(&TypeTable::new().resolve(kind));
    let names: Vec<_> = set.items().keys().map(Name::to_string).collect();
    assert_eq!(names, [format!("xdstp://x/{kind}/e?a=2&b=1")]);
    assert!(reasons(&mut loader).contains("nameless.yaml:1: "), "{}", reasons(&mut loader));
}

/// A source with its task.
struct Followed {
    source: FilesSource,
    loaded: latest::Receiver<Loaded>,
}

impl Followed {
    fn new(options: FilesOptions) -> Self {
        let source = FilesSource::start(options, parser());
        Self { loaded: source.subscribe(), source }
    }

    async fn shows(&mut self, wanted: &str) {
        let shows = self.loaded.wait_for(|loaded| clusters(&loaded.state) == wanted);
        let shown = tokio::time::timeout(PATIENCE, shows).await.map(|_| ());
        assert!(shown.is_ok(), "{wanted} is not shown but {}", clusters(&self.loaded.borrow().state));
    }
}

#[tokio::test]
async fn fs_2_files_are_followed_however_they_change() {
    let folder = Folder::new();
    folder.put("a.json", &["a"]);
    let mut followed = Followed::new(folder.options());
    followed.shows("a").await;
    folder.put("b.json", &["b"]);
    followed.shows("a,b").await;
    folder.put("a.json", &["c"]);
    followed.shows("b,c").await;
    folder.write("b.json", &["d"]);
    followed.shows("c,d").await;
    fs::rename(folder.at("b.json"), folder.at("b.off")).unwrap();
    followed.shows("c").await;
    fs::create_dir_all(folder.at("deep/er")).unwrap();
    folder.write("deep/er/x.json", &["x"]);
    followed.shows("c,x").await;
    folder.write("deep/er/x.json", &["y"]);
    followed.shows("c,y").await;
    fs::remove_dir_all(folder.at("deep")).unwrap();
    followed.shows("c").await;
    fs::create_dir(folder.at("deep")).unwrap();
    folder.write("deep/z.json", &["z"]);
    followed.shows("c,z").await;
    folder.write("deep/z.json", &["zz"]);
    followed.shows("c,zz").await;
    fs::remove_file(folder.at("a.json")).unwrap();
    followed.shows("zz").await;
    assert!(followed.source.report().age_seconds.is_some());
}

#[tokio::test]
async fn fs_2_a_folder_that_comes_goes_and_comes_again_is_followed() {
    let folder = Folder::new();
    let mut followed = Followed::new(options(vec![folder.at("not/yet")]));
    followed.shows("missing").await;
    fs::create_dir_all(folder.at("not/yet")).unwrap();
    folder.write("not/yet/a.json", &["a"]);
    followed.shows("a").await;
    fs::remove_dir_all(folder.at("not")).unwrap();
    followed.shows("missing").await;
    assert!(followed.source.report().reason.unwrap().ends_with("not/yet: it does not exist"));
    fs::create_dir_all(folder.at("next")).unwrap();
    folder.write("next/b.json", &["b"]);
    symlink(folder.at(""), folder.at("not")).unwrap();
    symlink(folder.at("next"), folder.at("yet")).unwrap();
    followed.shows("b").await;
    fs::remove_file(folder.at("yet")).unwrap();
    fs::create_dir_all(folder.at("third")).unwrap();
    folder.write("third/c.json", &["c"]);
    symlink(folder.at("third"), folder.at("yet")).unwrap();
    followed.shows("c").await;
}

#[tokio::test]
async fn fs_2_a_thousand_changes_are_few_looks() {
    let folder = Folder::new();
    let mut followed = Followed::new(folder.options());
    followed.shows("").await;
    let mut seen = followed.loaded.clone();
    let count = tokio::spawn(async move {
        let (mut looks, mut limit) = (0, BTreeSet::new());
        loop {
            let shown = clusters(&seen.borrow_and_update().state);
            // Without the number of the round.
            let files: BTreeSet<_> = shown.split(',').map(|name| name.get(..4).unwrap_or(name).to_owned()).collect();
            assert!(files.is_superset(&limit), "{:?} went on the way", limit.difference(&files));
            if shown.ends_with("end") {
                return looks;
            }
            limit = files.into_iter().filter(|name| !name.is_empty()).collect();
            seen.changed().await.unwrap();
            looks += 1;
        }
    });
    let names: Vec<_> = (0..500).map(|number| format!("c{number:03}")).collect();
    let write = {
        let (path, names) = (folder.0.clone(), names.clone());
        move || {
            let folder = std::mem::ManuallyDrop::new(Folder(path));
            for round in ["a", "b"] {
                for name in &names {
                    folder.put(&format!("{name}.json"), &[&format!("{name}{round}")]);
                }
            }
            folder.put("end.json", &["end"]);
        }
    };
    tokio::task::spawn_blocking(write).await.unwrap();
    let all: BTreeSet<_> = names.iter().map(|name| format!("{name}b")).chain(["end".to_owned()]).collect();
    followed.shows(&all.into_iter().collect::<Vec<_>>().join(",")).await;
    let looks = tokio::time::timeout(PATIENCE, count).await.unwrap().unwrap();
    assert!(looks < 100, "{looks} looks");
}

/// `cargo test --release --lib -- --ignored --nocapture figures_of_loading`: how long the first look takes. For comparison: reading the same bytes
/// from the disk, and parsing them in the plainest way.
#[test]
#[ignore = "it measures, and proves nothing"]
fn figures_of_loading() {
    use prost::Message;

    let body = |number: u32| {
        let json = serde_json::json!({
            "@type": format!("type.googleapis.com/{CLUSTER}"), "name": format!("cluster-{number:06}"), "type": "EDS",
            "connectTimeout": "0.250s", "lbPolicy": "ROUND_ROBIN", "edsClusterConfig": {"edsConfig": {"ads": {}}},
            "circuitBreakers": {"thresholds": [{"maxConnections": 1024, "maxRequests": 4096}]},
            "metadata": {"filterMetadata": {"example": {"team": "payments", "tier": "one", "number": number}}},
        });
        (json.clone(), transcoded(&json))
    };
    for (files, each) in [(100, 1_000), (10_000, 10)] {
        let (json, binary) = (Folder::new(), Folder::new());
        for file in 0..files {
            let bodies: Vec<_> = (0..each).map(|number| body(file * each + number)).collect();
            let list: Vec<_> = bodies.iter().map(|(json, _)| json).collect();
            fs::write(json.at(&format!("{file}.json")), serde_json::to_vec(&list).unwrap()).unwrap();
            let any = |value: &bytes::Bytes| weir_core::proto::Any {
                type_url: format!("type.googleapis.com/{CLUSTER}"),
                value: value.clone(),
            };
            let resources = bodies.iter().map(|(_, bytes)| any(bytes)).collect();
            let response = weir_core::proto::discovery::DiscoveryResponse { resources, ..Default::default() };
            fs::write(binary.at(&format!("{file}.pb")), response.encode_to_vec()).unwrap();
        }
        for (name, folder) in [("json", &json), ("pb", &binary)] {
            let all = || fs::read_dir(&folder.0).unwrap().map(|entry| fs::read(entry.unwrap().path()).unwrap());
            let start = Instant::now();
            let bytes: usize = all().map(|bytes| bytes.len()).sum();
            let reading = start.elapsed();
            let start = Instant::now();
            let count: usize = all()
                .map(|bytes| match name {
                    "json" => serde_json::from_slice::<Vec<serde_json::Value>>(&bytes).unwrap().len(),
                    _ => weir_core::proto::discovery::DiscoveryResponse::decode(&*bytes).unwrap().resources.len(),
                })
                .sum();
            let plainly = start.elapsed();
            let mut loader = loader(FilesOptions { file_bytes: 64 << 20, ..folder.options() });
            let start = Instant::now();
            let SourceState::Ready(snapshot) = loader.look().loaded.state else { panic!("not there") };
            let loading = start.elapsed();
            assert_eq!(snapshot.resources(), count);
            std::thread::sleep(Duration::from_secs(4)); // until time stamps can be trusted
            loader.look();
            let start = Instant::now();
            loader.look();
            let nothing = start.elapsed();
            let mut changed = fs::read(folder.at(&format!("0.{name}"))).unwrap();
            let at = changed.windows(8).position(|bytes| bytes == b"payments").unwrap();
            changed[at] = b'P';
            fs::write(folder.at(".new"), changed).unwrap();
            fs::rename(folder.at(".new"), folder.at(&format!("0.{name}"))).unwrap();
            let start = Instant::now();
            loader.look();
            let one = start.elapsed();
            println!(
                "{count} resources in {files} .{name} files of {bytes} bytes: read {reading:?}, parsed plainly {plainly:?}, \
                 loaded {loading:?}; looked at again {nothing:?}, with one file new {one:?}"
            );
        }
    }
}

fn transcoded(json: &serde_json::Value) -> bytes::Bytes {
    use crate::transcode::{Strictness, Transcoder};
    let mut json = json.clone();
    json.as_object_mut().unwrap().remove("@type");
    Transcoder::envoy().from_json(CLUSTER, &json, Strictness::Strict).unwrap()
}
