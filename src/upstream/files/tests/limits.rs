//! Limits on files and their names, how often files are looked at, and what is reported.

use super::*;
use crate::memory::{Budget, Charge, Memory, MemorySetting, costs};

/// A memory with room for so many bytes of files, and what holds the rest of it.
fn memory_with(room: usize) -> (Arc<Memory>, Charge) {
    let memory = Memory::new(Budget::on(MemorySetting::Bytes(100 << 20), None), Arc::default(), Arc::default());
    let held = memory.common();
    held.set((95 << 20) - memory.used() - room);
    held.tell();
    (memory, held)
}

/// A file with a cluster whose body has so many bytes, and a few more.
fn put_large(folder: &Folder, file: &str, name: &str, bytes: usize) {
    let text = "x".repeat(bytes);
    let cluster = format!(
        "{{\"@type\": \"type.googleapis.com/{CLUSTER}\", \"name\": \"{name}\", \"alt_stat_name\": \"{text}\"}}"
    );
    fs::write(folder.at(file), format!("{{\"resources\": [{cluster}]}}")).unwrap();
}

fn loader_with(options: FilesOptions, parser: &Parser) -> Loader {
    Loader::new(Arc::new(options), parser.clone(), Watcher::new(mpsc::channel(1).0))
}

#[test]
fn a_folder_with_too_many_files_is_left_out_alone_until_it_has_fewer() {
    let folder = Folder::new();
    for name in ["one", "two"] {
        fs::create_dir(folder.at(name)).unwrap();
    }
    folder.put("one/a.json", &["a"]);
    folder.put("two/b.json", &["b"]);
    let both = options(vec![folder.at("one"), folder.at("two")]);
    let mut loader = loader(FilesOptions { files: 2, ..both });
    assert_eq!(look(&mut loader), ("a,b".into(), vec![]));
    folder.put("two/c.json", &["c"]);
    folder.put("one/d.json", &["d"]);
    for _ in 0..2 {
        assert_eq!(look(&mut loader), ("a,b,d".into(), vec!["two:".into()]), "what was known of it still counts");
    }
    fs::remove_file(folder.at("one/d.json")).unwrap();
    fs::remove_file(folder.at("two/b.json")).unwrap();
    until(&mut loader, "a,c");
    assert_eq!(look(&mut loader).1, [""; 0]);
}

#[test]
fn what_files_newly_have_and_has_no_room_is_an_error_of_its_file_and_is_served_when_there_is_room() {
    let folder = Folder::new();
    let memory = Memory::new(Budget::on(MemorySetting::Bytes(100 << 20), None), Arc::default(), Arc::default());
    let parser = parser();
    parser.bound_by(&memory);
    let mut loader = Loader::new(Arc::new(folder.options()), parser, Watcher::new(mpsc::channel(1).0));
    folder.put("a.json", &["a"]);
    folder.put("b.json", &["b"]);
    assert_eq!(look(&mut loader), ("a,b".into(), vec![]));
    let held = memory.common();
    held.set(200 << 20);
    held.tell();
    folder.put("a.json", &["a", "c"]);
    folder.put("b.json", &["d"]);
    until(&mut loader, "a");
    let lacking = "c: no room for its 3 bytes: ";
    assert!(reasons(&mut loader).contains(lacking), "{}", reasons(&mut loader));
    let faults = look(&mut loader).1;
    let files: Vec<_> = faults.iter().filter_map(|fault| fault.split(':').next()).collect();
    assert_eq!(files, ["a.json", "b.json"], "what is removed is removed all the same");
    let kind = TypeTable::new().resolve(CLUSTER);
    let SourceState::Ready(snapshot) = loader.look().loaded.state else { panic!("it is there") };
    assert_eq!(snapshot.resources(), 1);
    assert!(!snapshot.set(&kind).items().contains_key(&Name::from("c")));
    let lacks_room = ["a", "b", "c", "d"].map(|name| snapshot.set(&kind).lacks_room(&Name::from(name)));
    assert_eq!(lacks_room, [false, false, true, true], "b is absent, and c and d are not");
    held.set(0);
    held.tell();
    assert_eq!(look(&mut loader), ("a,c,d".into(), vec![]));
}

#[test]
fn two_loads_do_not_get_the_same_room() {
    let (memory, _held) = memory_with(6000 + costs::TABLE_ENTRY);
    let parser = parser();
    parser.bound_by(&memory);
    let (folder, other) = (Folder::new(), Folder::new());
    put_large(&folder, "a.json", "a", 5000);
    put_large(&other, "b.json", "b", 5000);
    let mut loaders = [&folder, &other].map(|folder| loader_with(folder.options(), &parser));
    assert_eq!(loaders.each_mut().map(|loader| look(loader).0), ["a", ""]);
    put_large(&folder, "a.json", "a", 10);
    until(&mut loaders[0], "a");
    until(&mut loaders[1], "b");
}

#[test]
fn a_load_finds_no_room_while_another_one_does() {
    let (memory, _held) = memory_with(6000 + costs::TABLE_ENTRY);
    let (folder, parser) = (Folder::new(), parser());
    parser.bound_by(&memory);
    folder.put("a.json", &["a"]);
    let mut loader = loader_with(folder.options(), &parser);
    std::thread::scope(|scope| {
        let turn = parser.room().unwrap();
        let (tell, seen) = std::sync::mpsc::channel();
        scope.spawn(move || tell.send(look(&mut loader).0).unwrap());
        let early = seen.recv_timeout(Duration::from_millis(200));
        drop(turn);
        assert!(early.is_err(), "{early:?}");
        assert_eq!(seen.recv_timeout(PATIENCE).unwrap(), "a");
    });
}

#[test]
fn what_another_source_serves_already_is_not_new() {
    let (memory, held) = memory_with(100 << 10);
    let (folder, other) = (Folder::new(), Folder::new());
    let parsers = [parser(), parser()]; // the second has other descriptors
    parsers.iter().for_each(|parser| parser.bound_by(&memory));
    put_large(&folder, "a.json", "a", 5000);
    let served = loader_with(folder.options(), &parsers[0]).look().loaded.served;
    held.set(200 << 20);
    held.tell();
    put_large(&other, "b.json", "b", 5000);
    for parser in &parsers {
        let both = options(vec![folder.0.clone(), other.0.clone()]);
        let mut loader = loader_with(both, parser).after(served.clone());
        for _ in 0..2 {
            let (seen, faults) = look(&mut loader);
            assert_eq!((seen.as_str(), faults.len()), ("a", 1), "the other one is");
        }
    }
}

#[test]
fn what_was_served_is_not_new_until_all_files_could_be_read() {
    let (memory, held) = memory_with(100 << 10);
    let (folder, parser) = (Folder::new(), parser());
    parser.bound_by(&memory);
    put_large(&folder, "a.json", "a", 5000);
    put_large(&folder, "b.json", "b", 5000);
    let served = loader_with(folder.options(), &parser).look().loaded.served;
    held.set(200 << 20);
    held.tell();
    fs::write(folder.at("b.json"), "{").unwrap();
    let mut loader = loader_with(folder.options(), &parser).after(served);
    assert_eq!(look(&mut loader).0, "a?");
    let mut next = loader_with(folder.options(), &parser).after(loader.look().loaded.served);
    assert_eq!(look(&mut next).0, "a?");
    put_large(&folder, "b.json", "b", 5000);
    for loader in [&mut loader, &mut next] {
        until(loader, "a,b");
        assert_eq!(loader.look().loaded.served.len(), 1, "nothing before it is needed any more");
    }
    fs::remove_file(folder.at("b.json")).unwrap();
    until(&mut next, "a");
    put_large(&folder, "b.json", "b", 5000);
    let (seen, faults) = look(&mut next);
    assert_eq!((seen.as_str(), faults.len()), ("a", 1), "it is new");
}

#[test]
fn a_resource_that_is_too_large_keeps_no_other_out_and_is_not_read_again_before_it_fits() {
    let (memory, held) = memory_with(6 << 20);
    let (folder, parser) = (Folder::new(), parser());
    parser.bound_by(&memory);
    put_large(&folder, "a.json", "a", 7 << 20);
    put_large(&folder, "b.json", "b", 5000);
    let mut loader = loader_with(FilesOptions { file_bytes: 10 << 20, ..folder.options() }, &parser);
    let loaded = |loader: &mut Loader| {
        let Loaded { state, report, .. } = loader.look().loaded;
        (clusters(&state), report.loaded)
    };
    let first = loaded(&mut loader);
    assert_eq!(first.0, "b");
    assert_eq!(loaded(&mut loader), first, "nothing was read");
    held.set(0);
    held.tell();
    assert_eq!(loaded(&mut loader).0, "a,b");
}

#[test]
fn a_file_whose_content_cannot_be_used_is_not_read_again_for_what_its_last_good_version_lacked() {
    let (memory, held) = memory_with(6000 + costs::TABLE_ENTRY);
    let (folder, parser) = (Folder::new(), parser());
    parser.bound_by(&memory);
    put_large(&folder, "a.json", "a", 9000);
    folder.put("c.json", &["c"]);
    let mut loader = loader_with(folder.options(), &parser);
    assert_eq!(look(&mut loader).0, "c");
    folder.put("a.json", &["c"]);
    held.set(0);
    held.tell();
    assert!(reasons(&mut loader).contains("Cluster c is in "));
    let loaded = |loader: &mut Loader| loader.look().loaded.report.loaded;
    let first = loaded(&mut loader);
    assert_eq!(loaded(&mut loader), first, "it was read again");
    put_large(&folder, "a.json", "a", 9000);
    until(&mut loader, "a,c");
}

#[test]
fn a_resource_without_room_is_its_files_all_the_same_when_another_file_has_it() {
    let (memory, _held) = memory_with(6000 + costs::TABLE_ENTRY);
    let (folder, parser) = (Folder::new(), parser());
    parser.bound_by(&memory);
    put_large(&folder, "a.json", "a", 9000);
    let mut loader = loader_with(folder.options(), &parser);
    assert_eq!(look(&mut loader).0, "");
    put_large(&folder, "b.json", "a", 10);
    for _ in 0..2 {
        assert_eq!(look(&mut loader).0, "", "no version of the second file can be used");
        assert!(reasons(&mut loader).contains("Cluster a is in "), "{}", reasons(&mut loader));
    }
    fs::remove_file(folder.at("a.json")).unwrap();
    until(&mut loader, "a");
}

#[tokio::test]
async fn no_file_is_read_before_it_is_known_what_has_room() {
    let (folder, (memory, _held)) = (Folder::new(), memory_with(0));
    folder.put("a.json", &["a"]);
    let parser = parser().until_bound();
    let source = FilesSource::start(folder.options(), parser.clone());
    let mut loaded = source.subscribe();
    let early = loaded.wait_for(|loaded| !matches!(loaded.state, SourceState::Loading));
    assert!(tokio::time::timeout(Duration::from_millis(200), early).await.is_err());
    parser.bound_by(&memory);
    let read = loaded.wait_for(|loaded| !matches!(loaded.state, SourceState::Loading));
    let read = tokio::time::timeout(PATIENCE, read).await.expect("it is read").unwrap().clone();
    assert_eq!((clusters(&read.state).as_str(), read.report.faults.len()), ("", 1), "there is no room for it");
}

#[test]
fn type_10_a_name_beside_a_resource_counts_before_the_one_in_it() {
    let folder = Folder::new();
    let write = |name: &str| {
        let text = format!("{name}resource:\n  '@type': type.googleapis.com/{CLUSTER}\n  name: inside\n");
        fs::write(folder.at("a.yaml"), text).unwrap();
    };
    let mut loader = folder.loader();
    for (beside, name) in [("name: beside\n", "beside"), ("version: '1'\n", "inside")] {
        write(beside);
        until(&mut loader, name);
    }
}

#[test]
fn a_configured_file_of_another_format_is_reported_and_leaves_open_what_there_is_not() {
    let folder = Folder::new();
    folder.put("a.json", &["a"]);
    fs::write(folder.at("b.txt"), clusters_of(&["b"])).unwrap();
    let mut loader = loader(options(vec![folder.at("a.json"), folder.at("b.txt")]));
    assert_eq!(look(&mut loader), ("a?".into(), vec!["b.txt:".into()]));
    assert!(reasons(&mut loader).contains("its name does not end in a format that is known"));
}

#[test]
fn where_changes_are_not_reported_files_are_looked_at_every_second() {
    assert!(settle_time(false, false) <= Duration::from_secs(1));
    assert!(settle_time(false, true) > settle_time(false, false), "where they are, there is no need to");
    assert!(settle_time(true, false) < settle_time(false, false), "something is unsettled");
}

#[tokio::test]
async fn changes_that_do_not_end_are_looked_at_after_a_while() {
    let (changed, mut changes) = mpsc::channel(1);
    let writer = tokio::spawn(async move {
        while changed.send(()).await.is_ok() {
            tokio::task::yield_now().await;
        }
    });
    assert!(tokio::time::timeout(PATIENCE, quiet(&mut changes)).await.is_ok());
    drop(changes);
    writer.await.unwrap();
}

#[test]
fn the_report_has_what_is_served_now_and_when_it_last_changed() {
    let folder = Folder::new();
    folder.put("a.json", &["a", "b"]);
    folder.put("c.json", &["c"]);
    let mut loader = folder.loader();
    let report = |loader: &mut Loader| loader.look().loaded.report;
    let first = report(&mut loader);
    assert_eq!((first.files, first.resources), (2, 3));
    assert_eq!(report(&mut loader).loaded, first.loaded, "nothing has changed");
    fs::write(folder.at("c.json"), "{").unwrap();
    let faulty = report(&mut loader);
    assert_eq!((faulty.files, faulty.resources, faulty.faults.len()), (2, 3, 1));
    assert_eq!(faulty.loaded, first.loaded, "it is served as before");
    folder.put("c.json", &["c", "d", "e"]);
    let second = report(&mut loader);
    assert_eq!((second.files, second.resources, second.faults.len()), (2, 5, 0));
    assert!(second.loaded.unwrap().0 > first.loaded.unwrap().0);
    fs::remove_file(folder.at("a.json")).unwrap();
    until(&mut loader, "c,d,e");
    let third = report(&mut loader);
    assert_eq!((third.files, third.resources), (1, 3));
    assert!(third.loaded.unwrap().0 > second.loaded.unwrap().0);
}
