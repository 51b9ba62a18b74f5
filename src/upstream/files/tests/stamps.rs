//! When a file is read again: time stamps, and files that are being written.

use super::*;

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
    let before = Instant::now();
    fs::write(folder.at("a.json"), clusters_of(&["a"])).unwrap();
    let is_held = loader.look().unsettled && look(&mut loader).0 == "a,b";
    assert!(is_held || may_have_settled(before), "whoever writes may not have come to the end");
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
    let before = Instant::now();
    folder.write("a.json", &["a"]);
    assert!(matches!(loader.read(&path, stamp, Clocks::now()), known::Reading::Unsettled));
    assert!(
        matches!(loader.read(&folder.at("none.json"), stamp, Clocks::now()), known::Reading::Unsettled),
        "it went meanwhile"
    );
    let is_held = loader.look().unsettled && look(&mut loader).0 == "a,b";
    assert!(is_held || may_have_settled(before), "half of it may be missing");
    until(&mut loader, "a");

    folder.write("a.json", &["a", "b"]);
    until(&mut loader, "a,b");
    fs::write(&path, vec![b' '; 10_001]).unwrap();
    assert_eq!(look(&mut loader).1, ["a.json:"]);
    let before = Instant::now();
    folder.write("a.json", &["a"]);
    let is_held = loader.look().unsettled && look(&mut loader).0 == "a,b";
    assert!(is_held || may_have_settled(before), "half of it may be missing");
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
