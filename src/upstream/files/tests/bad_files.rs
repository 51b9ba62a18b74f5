//! Files that cannot be read or say what they must not: they count as they were.

use super::*;

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
