//! A source with its task, and the watcher over real folders.

use std::sync::atomic::AtomicBool;

use super::*;

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

/// As where other processes have taken all inotify instances that the user may have.
#[tokio::test]
async fn fs_2_where_the_system_reports_no_change_files_are_looked_at_now_and_then_until_it_does() {
    static HAS_ONE: AtomicBool = AtomicBool::new(false);
    static STARTED: AtomicU32 = AtomicU32::new(0);
    let folder = Folder::new();
    folder.put("a.json", &["a"]);
    let (changed, changes) = mpsc::channel(1);
    let watcher = Watcher::started_by(
        |on_event| match HAS_ONE.load(Ordering::Relaxed) {
            true => {
                STARTED.fetch_add(1, Ordering::Relaxed);
                notify::recommended_watcher(on_event)
            }
            false => Err(notify::Error::generic("no instance is left")),
        },
        changed,
    );
    let loader = Loader::new(Arc::new(folder.options()), parser(), watcher);
    let first = Loaded { state: SourceState::Loading, report: Arc::default(), served: Vec::new() };
    let (tell, mut loaded) = latest::channel(first);
    let task = tokio::spawn(follow(loader, changes, tell));
    let (mut looks, mut count) = (loaded.clone(), 0);
    tokio::time::timeout(PATIENCE, looks.changed()).await.expect("it is looked at").unwrap();
    let counted = async {
        while looks.changed().await.is_ok() {
            count += 1;
        }
    };
    assert!(tokio::time::timeout(Duration::from_millis(500), counted).await.is_err(), "it goes on");
    assert!(count <= 10, "{count} more looks in half a second");
    let shows = async |loaded: &mut latest::Receiver<Loaded>, names: &str| {
        let shown = loaded.wait_for(|loaded| clusters(&loaded.state) == names);
        tokio::time::timeout(PATIENCE, shown).await.expect("it is seen").unwrap();
    };
    folder.put("b.json", &["b"]);
    shows(&mut loaded, "a,b").await;
    HAS_ONE.store(true, Ordering::Relaxed);
    let starts = async {
        while STARTED.load(Ordering::Relaxed) == 0 {
            loaded.changed().await.unwrap();
        }
    };
    tokio::time::timeout(PATIENCE, starts).await.expect("it is tried again");
    folder.put("c.json", &["c"]);
    shows(&mut loaded, "a,b,c").await;
    assert_eq!(STARTED.load(Ordering::Relaxed), 1, "one is enough");
    task.abort();
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
