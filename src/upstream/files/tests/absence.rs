//! Missing files and folders, and when they count as deleted.

use std::sync::atomic::AtomicBool;

use super::*;
use crate::upstream::files::disk_wait::DiskWait;
use crate::upstream::files::loader::GAP;
use crate::upstream::files::walk::{SearchResult, Walk};

struct Unwatched;

impl walk::Watch for Unwatched {
    fn inside(&mut self, _: &Path) {}
    fn entry(&mut self, _: &Path) {}
}

#[test]
fn i3_a_file_that_is_unlinked_and_made_again_was_never_gone() {
    let folder = Folder::new();
    folder.put("a.json", &["a"]);
    folder.put("b.json", &["b"]);
    let mut loader = folder.loader();
    assert_eq!(look(&mut loader).0, "a,b");
    for clusters in [&["a"][..], &["a", "c"]] {
        fs::remove_file(folder.at("a.json")).unwrap();
        let seen = loader.look();
        assert!(seen.unsettled && super::clusters(&seen.loaded.state).starts_with("a,b"));
        std::thread::sleep(GAP); // even if the next look comes late
        folder.write("a.json", clusters);
        assert_eq!(look(&mut loader).0.replace(",c", ""), "a,b");
    }
    fs::remove_file(folder.at("a.json")).unwrap();
    assert_eq!(look(&mut loader).0, "a,b,c", "missing for the first time");
    until(&mut loader, "b");
    assert!(!loader.look().unsettled, "and that is it");
}

#[test]
fn i3_the_time_without_a_file_begins_again_after_it_was_not_known_whether_it_is_there() {
    let folder = Folder::new();
    fs::create_dir(folder.at("one")).unwrap();
    let missing_anew = |loader: &mut Loader, when: &str| {
        let seen = loader.look();
        assert!(seen.unsettled && clusters(&seen.loaded.state) == "a,b", "{when}");
    };
    for (hide, show) in [
        // The source is unreachable as a whole.
        (
            (|folder| fs::rename(folder.at("one"), folder.at("away")).unwrap()) as fn(&Folder),
            (|folder| fs::rename(folder.at("away"), folder.at("one")).unwrap()) as fn(&Folder),
        ),
        // A link leads nowhere.
        (
            |folder| symlink(folder.at("nowhere"), folder.at("one/a.json")).unwrap(),
            |folder| fs::remove_file(folder.at("one/a.json")).unwrap(),
        ),
    ] {
        folder.put("one/a.json", &["a"]);
        folder.put("one/b.json", &["b"]);
        let mut loader = loader(options(vec![folder.at("one")]));
        assert_eq!(look(&mut loader).0, "a,b");
        fs::remove_file(folder.at("one/a.json")).unwrap();
        missing_anew(&mut loader, "at first");
        hide(&folder);
        loader.look();
        std::thread::sleep(GAP);
        show(&folder);
        missing_anew(&mut loader, "again");
        until(&mut loader, "b");
    }
}

#[test]
fn fs_3_a_file_that_is_made_again_is_no_more_whole_than_one_that_is_written_in_place() {
    let folder = Folder::new();
    folder.put("a.json", &["a", "b"]);
    let mut loader = folder.loader();
    assert_eq!(look(&mut loader).0, "a,b");
    fs::hard_link(folder.at("a.json"), folder.at(".old")).unwrap(); // so that the inode is not used again
    fs::remove_file(folder.at("a.json")).unwrap();
    assert_eq!(look(&mut loader).0, "a,b");
    let before = Instant::now();
    folder.write("a.json", &["a"]);
    for _ in 0..2 {
        let seen = loader.look();
        let is_held = seen.unsettled && clusters(&seen.loaded.state) == "a,b";
        assert!(is_held || may_have_settled(before), "the rest of it may come yet");
    }
    until(&mut loader, "a");
}

#[test]
fn i3_what_moves_to_another_file_is_never_gone_and_in_nobodys_way() {
    let folder = Folder::new();
    folder.put("a.json", &["a"]);
    let mut loader = folder.loader();
    assert_eq!(look(&mut loader).0, "a");
    fs::rename(folder.at("a.json"), folder.at("b.json")).unwrap();
    assert_eq!(look(&mut loader), ("a".into(), vec![]));
    folder.put("a.json", &["a", "c"]);
    let both = vec!["a.json:2".to_owned(), "b.json:2".to_owned()];
    assert_eq!(look(&mut loader), ("a".into(), both), "it is back, and the other has it, too");
    fs::remove_file(folder.at("a.json")).unwrap();
    folder.put("b.json", &["a", "b"]);
    assert_eq!(look(&mut loader), ("a,b".into(), vec![]));
    fs::rename(folder.at("b.json"), folder.at("c.json")).unwrap();
    folder.put("c.json", &["b"]);
    until(&mut loader, "b");
    assert_eq!(look(&mut loader), ("b".into(), vec![]));
}

#[test]
fn what_has_moved_to_another_file_is_as_it_is_there_also_when_the_first_one_comes_back() {
    let folder = Folder::new();
    let write = |file: &str, content: &str| {
        let cluster = serde_json::json!({"@type": format!("t/{CLUSTER}"), "name": "x", "alt_stat_name": content});
        fs::write(folder.at(file), cluster.to_string()).unwrap();
    };
    write("b.json", "old");
    let mut loader = folder.loader();
    assert_eq!(body(&loader.look()), "old");
    fs::remove_file(folder.at("b.json")).unwrap();
    write("a.json", "new");
    assert_eq!(body(&loader.look()), "new");
    write("b.json", "old");
    let seen = loader.look();
    assert_eq!((body(&seen), seen.loaded.report.faults.len()), ("new".into(), 2));
}

/// The last three letters of the only cluster.
fn body(look: &LoadResult) -> String {
    let SourceState::Ready(snapshot) = &look.loaded.state else { panic!("not there") };
    let set = snapshot.set(&TypeTable::new().resolve(CLUSTER));
    let body = set.items().values().next().unwrap().body.bytes();
    String::from_utf8_lossy(&body[body.len() - 3..]).into_owned()
}

#[test]
fn i3_a_folder_that_is_replaced_in_two_steps_was_never_unreachable() {
    let folder = Folder::new();
    fs::create_dir_all(folder.at("one/deep")).unwrap();
    folder.put("one/deep/a.json", &["a"]);
    let mut loader = loader(options(vec![folder.at("one")]));
    assert_eq!(look(&mut loader).0, "a");
    for name in ["one", "one/deep"] {
        fs::rename(folder.at(name), folder.at("away")).unwrap();
        let seen = loader.look();
        assert!(seen.unsettled && clusters(&seen.loaded.state) == "a", "{name}");
        fs::rename(folder.at("away"), folder.at(name)).unwrap();
        assert_eq!(look(&mut loader).0, "a");
        assert!(!loader.look().unsettled);
    }
    fs::rename(folder.at("one"), folder.at("away")).unwrap();
    until(&mut loader, "missing");
}

#[test]
fn fs_2_what_a_list_of_a_folder_lacks_is_looked_for_by_itself() {
    let folder = Folder::new();
    folder.put("a.json", &["a"]);
    fs::create_dir(folder.at("b.json")).unwrap();
    symlink(folder.at("nowhere"), folder.at("c.json")).unwrap();
    let sought = |name: &str| {
        let mut walk = Walk::over(&[], 10, &Parser::takes, &mut Unwatched, &DiskWait::default());
        let path = folder.at(name);
        match walk.search(&path) {
            SearchResult::There => assert!(walk.files.contains_key(&path)),
            SearchResult::Unknown => assert!(walk.lost.iter().any(|fault| fault.file == path)),
            SearchResult::Elsewhere(_) => panic!("nobody has looked anywhere"),
            SearchResult::Nowhere => return "nowhere",
        }
        if walk.lost.is_empty() { "there" } else { "unknown" }
    };
    assert_eq!(
        ["a.json", "b.json", "c.json", "d.json", "a.json/e.json"].map(sought),
        ["there", "nowhere", "unknown", "nowhere", "nowhere"]
    );
}

#[test]
fn fs_3_a_bad_file_counts_as_it_was_also_by_another_path() {
    let folder = Folder::new();
    fs::create_dir_all(folder.at("in/real")).unwrap();
    folder.put("in/real/a.json", &["a"]);
    let mut loader = loader(options(vec![folder.at("in")]));
    assert_eq!(look(&mut loader).0, "a");
    fs::write(folder.at("in/real/a.json"), "{").unwrap();
    assert_eq!(look(&mut loader).0, "a");
    // A link now leads to the file, whose folder has moved.
    fs::rename(folder.at("in/real"), folder.at("real")).unwrap();
    symlink(folder.at("real"), folder.at("in/real")).unwrap();
    symlink(folder.at("real"), folder.at("in/link")).unwrap();
    assert_eq!(look(&mut loader).0, "a");
    fs::remove_file(folder.at("in/real")).unwrap();
    assert_eq!(look(&mut loader).0, "a");
    until(&mut loader, "a");
    let reported = reasons(&mut loader);
    assert!(reported.contains("in/link/a.json") && !reported.contains("in/real"), "{reported}");
}

#[test]
fn i3_without_any_of_its_paths_a_source_is_unreachable() {
    let folder = Folder::new();
    let mut loader = loader(options(vec![folder.at("one"), folder.at("two.json")]));
    assert_eq!(look(&mut loader).0, "missing");
    fs::create_dir(folder.at("one")).unwrap();
    folder.put("one/a.json", &["a"]);
    folder.put("two.json", &["b"]);
    assert_eq!(look(&mut loader).0, "a,b");
    fs::rename(folder.at("one"), folder.at("gone")).unwrap();
    fs::rename(folder.at("two.json"), folder.at("two.off")).unwrap();
    until(&mut loader, "missing");
    fs::create_dir(folder.at("one")).unwrap();
    fs::rename(folder.at("two.off"), folder.at("two.json")).unwrap();
    assert_eq!(look(&mut loader), ("a,b".into(), vec![]), "nothing was given up meanwhile");
    until(&mut loader, "b"); // an empty folder is reachable
}

#[test]
fn i3_a_path_that_was_never_there_leaves_open_what_there_is_not() {
    let folder = Folder::new();
    fs::create_dir(folder.at("one")).unwrap();
    folder.put("one/a.json", &["a"]);
    for late in ["two.json", "three"] {
        let mut loader = loader(options(vec![folder.at("one"), folder.at(late)]));
        for _ in 0..2 {
            assert_eq!(look(&mut loader), ("a?".into(), vec![format!("{late}:")]), "the rest is served");
            std::thread::sleep(GAP);
        }
        match late {
            "three" => fs::create_dir(folder.at(late)).unwrap(),
            _ => folder.put(late, &["b"]),
        }
        assert_eq!(look(&mut loader), (if late == "three" { "a" } else { "a,b" }.into(), vec![]));
    }
}

#[test]
fn fs_4_a_file_of_the_configuration_that_is_deleted_is_gone_and_a_folder_may_be_one_that_is_not_mounted() {
    let folder = Folder::new();
    fs::create_dir(folder.at("one")).unwrap();
    folder.put("one/a.json", &["a"]);
    fs::create_dir(folder.at("two")).unwrap();
    folder.put("two/b.json", &["b"]);
    fs::create_dir(folder.at("at")).unwrap();
    folder.put("at/c.json", &["c"]);
    let paths = ["one", "two", "at/c.json"].map(|name| folder.at(name));
    let mut loader = loader(options(paths.to_vec()));
    assert_eq!(look(&mut loader).0, "a,b,c");
    // If the folder is missing too, the state of the file is unknown.
    for (away, lost) in [("two", "two:"), ("at", "c.json:")] {
        fs::rename(folder.at(away), folder.at("away")).unwrap();
        for _ in 0..2 {
            let seen = look(&mut loader);
            assert_eq!(seen, ("a,b,c".into(), vec![lost.into()]));
            std::thread::sleep(GAP);
        }
        fs::rename(folder.at("away"), folder.at(away)).unwrap();
    }
    fs::remove_file(folder.at("at/c.json")).unwrap();
    assert_eq!(look(&mut loader), ("a,b,c".into(), vec![]), "it may be written anew");
    until(&mut loader, "a,b");
    assert_eq!(look(&mut loader).1, ["c.json:"], "it is in the configuration still");
    folder.put("at/c.json", &["d"]);
    assert_eq!(look(&mut loader), ("a,b,d".into(), vec![]));
}

#[test]
fn xlat_16_a_file_of_the_configuration_that_was_there_and_is_deleted_leaves_nothing_open() {
    let folder = Folder::new();
    fs::create_dir(folder.at("one")).unwrap();
    folder.put("one/a.json", &["a"]);
    fs::write(folder.at("two.json"), "{").unwrap();
    let mut loader = loader(options(vec![folder.at("one"), folder.at("two.json")]));
    assert_eq!(look(&mut loader).0, "a?");
    fs::remove_file(folder.at("two.json")).unwrap();
    assert_eq!(look(&mut loader).0, "a?");
    until(&mut loader, "a");
}

/// While files are replaced at full speed, listings of their folder lack some. On a file system in memory, every third listing does.
#[test]
fn i3_nothing_vanishes_while_a_thousand_files_are_replaced() {
    let memory = Path::new("/dev/shm");
    let folder = match memory.is_dir() {
        true => Folder(memory.join(format!("weir-files-{}-busy", std::process::id()))),
        false => Folder::new(),
    };
    fs::create_dir_all(&folder.0).unwrap();
    let names: Vec<_> = (0..2_000).map(|number| format!("c{number:04}")).collect();
    names.iter().for_each(|name| folder.put(&format!("{name}.json"), &[name]));
    let all = names.join(",");
    let mut loader = folder.loader();
    assert_eq!(look(&mut loader).0, all);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for name in names.iter().cycle() {
                if done.load(Ordering::Relaxed) {
                    return;
                }
                folder.put(&format!("{name}.json"), &[name]);
            }
        });
        for _ in 0..20 {
            let (seen, faults) = look(&mut loader);
            done.store(seen != all, Ordering::Relaxed);
            assert!(seen == all && faults.is_empty(), "{} and {faults:?}", seen.len());
        }
        done.store(true, Ordering::Relaxed);
    });
}
