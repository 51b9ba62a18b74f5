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
mod bad_files;
mod figures;
mod followed;
mod limits;
mod links;
mod stamps;
mod streams;

const CLUSTER: &str = "envoy.config.cluster.v3.Cluster";
/// Longer than anything takes, and shorter than the time after which files are looked at although no change was reported.
const PATIENCE: Duration = LOOKS.saturating_sub(Duration::from_secs(2));

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

/// Whether a file that was written after this time may count as complete by now. Its stamp may be a little earlier.
fn may_have_settled(before: Instant) -> bool {
    before.elapsed() > YOUNG / 2
}

fn reasons(loader: &mut Loader) -> String {
    loader.look().loaded.report.faults.iter().map(|fault| format!("{fault}\n")).collect()
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
