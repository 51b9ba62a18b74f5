//! The commands that read and write state files while no relay has them open.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::world::{SECRETS, SERVER, Shown, World, shown};
use super::*;
use crate::state::offline::{describe, export, import};

/// A folder with a state file that is encrypted, and two keys.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> (Self, World) {
        let folder = Self(std::env::temp_dir().join(format!("weir-offline-{name}-{}", std::process::id())));
        let _ = std::fs::remove_dir_all(&folder.0);
        std::fs::create_dir_all(&folder.0).unwrap();
        [1, 2].iter().for_each(|byte| std::fs::write(folder.at(&format!("key-{byte}")), [*byte; 32]).unwrap());
        let mut world = World::of(11, 3);
        (0..120).for_each(|_| world.step());
        let database = file::open(&folder.at("state"), true).unwrap();
        world.save(&mut Contents::default(), &database, Some(&key(1))).unwrap();
        (folder, world)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn key(&self, byte: u8) -> PathBuf {
        self.at(&format!("key-{byte}"))
    }

    fn names(&self) -> Vec<String> {
        let entries =
            std::fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = entries.collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn contents(path: &Path, key: Option<&SealingKey>) -> Shown {
    shown(&Stored::read(&file::open(path, key.is_some()).unwrap(), key).unwrap())
}

#[test]
fn a_copy_of_a_state_file_becomes_one_under_another_key_and_only_where_there_is_none() {
    let (folder, world) = Folder::new("copy");
    let (state, copy, other) = (folder.at("state"), folder.at("copy"), folder.at("other"));
    for (with_secrets, name) in [(false, "without"), (true, "with")] {
        let copy = folder.at(name);
        export(&state, Some(&folder.key(1)), with_secrets, &copy).unwrap();
        assert_eq!(std::fs::metadata(&copy).unwrap().permissions().mode() & 0o777, 0o600, "nothing in it is encrypted");
    }
    export(&state, Some(&folder.key(1)), true, &copy).unwrap();
    let before = std::fs::read(&copy).unwrap();
    assert!(export(&state, Some(&folder.key(1)), false, &copy).is_err(), "no file is written over");
    assert_eq!(std::fs::read(&copy).unwrap(), before);

    import(&other, Some(&folder.key(2)), &copy).unwrap();
    assert_eq!(contents(&other, Some(&key(2))), world.expected(true));
    assert!(contents(&other, Some(&key(2))).keys().any(|(_, kind, ..)| kind == SECRETS));
    let error = import(&other, Some(&folder.key(2)), &folder.at("without")).unwrap_err().to_string();
    assert!(error.contains("exists"), "{error}");
    assert_eq!(contents(&other, Some(&key(2))), world.expected(true), "it is as it was");
    import(&folder.at("clear"), None, &folder.at("without")).unwrap();
    assert_eq!(contents(&folder.at("clear"), None), world.expected(false));
}

#[test]
fn a_copy_that_is_damaged_leaves_no_file_and_a_file_that_is_not_there_is_not_made() {
    let (folder, _) = Folder::new("damaged");
    let (state, copy) = (folder.at("state"), folder.at("copy"));
    export(&state, Some(&folder.key(1)), true, &copy).unwrap();
    let mut bytes = std::fs::read(&copy).unwrap();
    bytes.truncate(bytes.len() - 1);
    std::fs::write(&copy, bytes).unwrap();
    let before = folder.names();
    assert!(import(&folder.at("new"), Some(&folder.key(1)), &copy).is_err());
    assert!(import(&folder.at("new"), Some(&folder.key(1)), &folder.at("none")).is_err());
    for error in
        [describe(&folder.at("none"), None).err(), export(&folder.at("none"), None, true, &folder.at("x")).err()]
    {
        assert!(error.unwrap().to_string().contains("no state file at "));
    }
    assert!(
        describe(&state, Some(&folder.key(2))).is_err() && describe(&state, None).is_err(),
        "another key, and none"
    );
    assert_eq!(folder.names(), before);
}

#[test]
fn a_state_file_is_described_with_its_views_servers_sets_and_names() {
    let (folder, mut world) = Folder::new("described");
    world.views.truncate(1);
    world.add_view(7);
    let database = file::open(&folder.at("clear"), false).unwrap();
    world.responding = vec![];
    world.save(&mut Contents::default(), &database, None).unwrap();
    drop(database);
    let described = describe(&folder.at("clear"), None).unwrap();
    let views = described.as_array().unwrap();
    let clusters: Vec<_> = views.iter().map(|view| view["cluster"].as_str().unwrap()).collect();
    assert_eq!(clusters, ["cluster 0", "cluster 7"]);
    assert_eq!(views[0]["servers"], serde_json::json!([{"server": SERVER, "heard": null}]), "it was never heard");
    assert_eq!([0, 1].map(|at| views[at]["lacks_secrets"] == true), [true, false], "the second has none");
    assert!(views.iter().all(|view| view["shared"] == false && view["servers"] == views[0]["servers"]));
    assert!(views[0]["written"].as_str().unwrap().starts_with("1970-01-01T0"), "{}", views[0]["written"]);
    let mut names = std::collections::BTreeSet::new();
    for set in views[0]["sets"].as_array().unwrap() {
        let of_set: Vec<_> = set["names"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
        assert!(of_set.is_sorted(), "{of_set:?}");
        let key = |name: &&str| (set["type"].as_str().unwrap().to_owned(), set["wildcard"] == true, name.to_string());
        names.extend(of_set.iter().map(key));
    }
    let expected = world.expected(false).into_keys().map(|(_, kind, is_wildcard, name)| (kind, is_wildcard, name));
    assert_eq!(names, expected.collect());
}
