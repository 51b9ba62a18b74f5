//! What the thread of the file does: which views it loads, which it writes, and which it removes.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use weir_core::protocol::moment::Moment;
use weir_core::protocol::view::{Class, SavedResource, SavedSet};
use weir_core::xds::SharingKey;

use super::world::{CDS, SECRETS, SERVER, Shown, World, shown};
use super::*;
use crate::relay::{Newest, SavedView, Views, views_to_all};
use crate::state::writer::Work;
use crate::state::{StateOptions, WhenOlder};

/// The work of one process on a file, without its thread.
struct Process {
    work: Work,
    newest: Arc<Newest<Views>>,
}

/// A folder for the file of one test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("weir-work-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn options(&self) -> StateOptions {
        StateOptions {
            path: self.0.join("state"),
            key: None,
            max_age: None,
            when_older: WhenOlder::Serve,
            serve_without_secrets: true,
            keep: 60 * MINUTE,
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Process {
    fn start(options: StateOptions) -> Self {
        Self::start_after(options, |_| ())
    }

    /// Starts a process in which `before` happens to the views before the file could be read.
    fn start_after(options: StateOptions, before: impl FnOnce(&Views)) -> Self {
        let newest = Arc::new(Newest::new(Arc::new(views_to_all(&[SERVER]))));
        let mut work = Work {
            path: options.path.clone(),
            key: None,
            options,
            views: Arc::downgrade(&newest),
            counters: Arc::default(),
            load: Arc::default(),
            open: None,
            was_loaded: false,
            unused: HashSet::new(),
            begun_without: HashSet::new(),
            given_up: Arc::default(),
            started: Instant::now(),
        };
        before(&newest.get());
        work.open();
        Self { work, newest }
    }

    fn views(&self) -> Arc<Views> {
        self.newest.get()
    }

    fn write(&mut self) {
        self.work.write(&self.newest.get());
    }

    /// Returns the names in the file, by cluster.
    fn file(&self) -> BTreeMap<String, Vec<String>> {
        let (database, _) = self.work.open.as_ref().expect("the file is not open");
        by_cluster(&shown(&Stored::read(database, None).expect("the file is damaged")))
    }

    /// Returns the names of a view that waits for its first client.
    fn names(&self, cluster: &str) -> Vec<String> {
        let view = self.views().to_save().into_iter().find(|view| view.key == key_of(cluster)).expect("no such view");
        let kind = self.views().types().resolve(CDS);
        let table = view.snapshot.resources(&kind, Class::Named).unwrap();
        let names: std::collections::BTreeSet<_> = table.present_names().map(ToString::to_string).collect();
        names.into_iter().collect()
    }
}

fn by_cluster(shown: &Shown) -> BTreeMap<String, Vec<String>> {
    let mut names: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (node, _, _, name) in shown.keys() {
        let node: weir_core::proto::node::Node = prost::Message::decode(node.clone()).unwrap();
        names.entry(node.cluster).or_default().push(name.clone());
    }
    names
}

fn of(views: &[(&str, &[&str])]) -> BTreeMap<String, Vec<String>> {
    views.iter().map(|(view, names)| ((*view).to_owned(), names.iter().map(ToString::to_string).collect())).collect()
}

fn key_of(cluster: &str) -> SharingKey {
    let node = weir_core::proto::node::Node { cluster: cluster.into(), ..Default::default() };
    weir_core::xds::KeyRule::default().key(&prost::Message::encode_to_vec(&node)).unwrap()
}

/// Gives these views a view with these names and a secret, as if it came from a file or an earlier configuration.
fn give(views: &Views, cluster: &str, names: &[&str]) {
    let mut world = World::of(1, 1);
    names.iter().for_each(|name| world.give(0, Class::Named, name, None));
    let mut sets = SavedSet::all_of(world.views[0].1.snapshot(), Moment::START);
    let kind = world.table.resolve(SECRETS);
    let resource = world.resource(&kind, &"certificate".into(), 1);
    let secret = SavedResource { key: "certificate".into(), resource, server: 0, rank: 0 };
    let (class, (settled, past)) = (Class::Named, Default::default());
    sets.push(SavedSet { kind, class, settled, past, has_expired: false, resources: vec![secret] });
    let (key, (brakes, lowest)) = (key_of(cluster), Default::default());
    views.restore(SavedView { key, sets, brakes, lowest, counts_for_readiness: true, age: None }, MINUTE).unwrap();
}

/// Writes a file with one view, by a process that then ends.
fn write_file(folder: &Folder) {
    let mut first = Process::start(folder.options());
    give(&first.views(), "web", &["a", "bb"]);
    first.write();
    assert_eq!((first.file(), first.work.counters.commits()), (of(&[("web", &["a", "bb"])]), 1));
}

/// A view has begun without what the file has of it, because the load took too long. The file has the only copy until a server has responded.
#[test]
fn i3_what_the_file_has_of_a_view_that_began_without_it_stays_as_long_as_no_server_has_spoken() {
    let folder = Folder::new("without");
    write_file(&folder);
    let mut next = Process::start_after(folder.options(), |views| give(views, "web", &["c"]));
    next.write();
    assert_eq!(next.file(), of(&[("web", &["a", "bb"])]));
    drop(next);
    assert_eq!(Process::start(folder.options()).names("web"), ["a", "bb"], "the next process has it");
}

#[test]
fn what_was_loaded_is_not_written_again_and_what_is_new_once() {
    let folder = Folder::new("once");
    write_file(&folder);
    let mut next = Process::start(folder.options());
    assert_eq!((next.names("web"), next.work.counters.loaded_resources()), (vec!["a".into(), "bb".into()], 2));
    next.write();
    assert_eq!(next.work.counters.commits(), 0);
    give(&next.views(), "batch", &["a"]);
    next.write();
    next.write();
    assert_eq!(next.work.counters.commits(), 1);
    assert_eq!(next.file(), of(&[("batch", &["a"]), ("web", &["a", "bb"])]));
}

/// A later process with other options may still use it.
#[test]
fn a_view_that_is_not_used_stays_in_the_file_for_as_long_as_views_wait() {
    for is_time_over in [false, true] {
        let folder = Folder::new("unused");
        write_file(&folder); // without secrets, which its clients have
        let mut next = Process::start(StateOptions { serve_without_secrets: false, ..folder.options() });
        assert_eq!((next.views().to_save().len(), next.work.counters.loaded_views()), (0, 0));
        if is_time_over {
            next.work.options.keep = Duration::ZERO;
            next.write();
            assert_eq!(next.file(), of(&[]));
        } else {
            next.write();
            assert_eq!(next.file(), of(&[("web", &["a", "bb"])]));
            // Its clients come. What they are served replaces the whole view in the file once a server has responded.
            give(&next.views(), "web", &["ccc"]);
            next.write();
            assert_eq!(next.file(), of(&[("web", &["a", "bb"])]), "no server has");
            next.work.begun_without.clear();
            next.write();
            assert_eq!(next.file(), of(&[("web", &["ccc"])]));
        }
    }
}

/// While a configuration replaces another, there may be two views with the same key.
#[test]
fn the_view_of_the_later_configuration_is_saved_and_what_only_the_earlier_has_too() {
    let folder = Folder::new("later");
    let mut process = Process::start(folder.options());
    give(&process.views(), "web", &["a"]);
    give(&process.views(), "batch", &["bb"]);
    process.write();
    let later = views_to_all(&[SERVER]).after(&process.views(), MINUTE);
    process.newest.replace(Arc::new(later));
    give(&process.views(), "web", &["a", "ccc"]);
    for _ in 0..2 {
        process.write();
        assert_eq!(process.file(), of(&[("batch", &["bb"]), ("web", &["a", "ccc"])]));
    }
    assert_eq!(process.work.counters.commits(), 2);
}

#[test]
fn a_file_that_could_not_be_written_is_opened_again_and_has_what_has_come_since() {
    let folder = Folder::new("again");
    let mut process = Process::start(folder.options());
    give(&process.views(), "web", &["a", "bb"]);
    process.write();
    process.work.open = None;
    give(&process.views(), "batch", &["ccc"]);
    process.write(); // the file is not open, so nothing happens
    process.work.open();
    assert_eq!(process.names("web"), ["a", "bb"], "what runs is newer than the file");
    assert_eq!((process.work.counters.loaded_views(), process.work.counters.loaded_resources()), (0, 0));
    for _ in 0..2 {
        process.write();
        assert_eq!(process.file(), of(&[("batch", &["ccc"]), ("web", &["a", "bb"])]));
    }
    assert_eq!(process.work.counters.commits(), 2);
}

/// Otherwise what is older than `state.max_age` would count as recent after a restart.
#[test]
fn a_file_that_is_opened_again_still_says_when_servers_were_heard() {
    let folder = Folder::new("heard");
    write_file(&folder);
    let mut process = Process::start(folder.options());
    let (_, contents) = process.work.open.as_mut().unwrap();
    contents.views.values_mut().flat_map(|view| &mut view.servers).for_each(|server| server.heard = 7);
    let later = views_to_all(&[SERVER]);
    give(&later, "web", &["a", "ccc"]);
    process.newest.replace(Arc::new(later));
    for _ in 0..2 {
        process.write();
        let (database, _) = process.work.open.as_ref().unwrap();
        let stored = Stored::read(database, None).unwrap();
        let heard: Vec<_> = stored.views[0].record.servers.iter().map(|server| server.heard).collect();
        assert_eq!(heard, [7]);
        process.work.open = None;
        process.work.open();
    }
}

/// While the file could not be written, one view has changed and another has ended. That no server has spoken since says nothing about which is newer.
#[test]
fn i3_a_file_that_is_opened_again_gets_what_has_changed_and_brings_nothing_back() {
    let folder = Folder::new("newer");
    write_file(&folder);
    let mut process = Process::start(folder.options());
    give(&process.views(), "ended", &["ccc"]);
    process.write();
    assert_eq!(process.file(), of(&[("ended", &["ccc"]), ("web", &["a", "bb"])]));
    process.work.open = None;
    let later = views_to_all(&[SERVER]);
    give(&later, "web", &["a", "ccc"]);
    process.newest.replace(Arc::new(later));
    process.work.open();
    assert_eq!(process.views().to_save().len(), 1, "a view that has ended waits for no client");
    process.write();
    assert_eq!(process.file(), of(&[("web", &["a", "ccc"])]));
}
