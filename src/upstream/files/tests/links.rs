//! Links to files and folders, and folders that are known by several paths.

use super::*;

/// Points a link to another target.
fn turn(link: &Path, target: impl AsRef<Path>) {
    let new = link.with_extension("new");
    symlink(target, &new).unwrap();
    fs::rename(new, link).unwrap();
}

#[test]
fn links_that_lead_round_in_circles_come_to_an_end() {
    let folder = Folder::new();
    fs::create_dir(folder.at("in")).unwrap();
    folder.put("in/a.json", &["a"]);
    symlink(folder.at(""), folder.at("in/out")).unwrap();
    symlink(folder.at("in"), folder.at("again")).unwrap();
    assert_eq!(look(&mut folder.loader()), ("a".into(), vec![]));
}

#[test]
fn a_folder_that_several_links_lead_to_is_looked_into_by_the_first_of_them() {
    let (folder, elsewhere) = (Folder::new(), Folder::new());
    fs::write(elsewhere.at("x.json"), "{").unwrap();
    for name in (0..20).map(|number| format!("{:02}", number * 7 % 20)) {
        symlink(elsewhere.at(""), folder.at(&name)).unwrap();
    }
    let reported = reasons(&mut folder.loader());
    assert!(reported.contains("/00/x.json:1"), "{reported}");
}

#[tokio::test]
async fn fs_2_the_links_of_a_mounted_configmap_are_followed() {
    let folder = Folder::new();
    let mount = |number: u32, clusters: &[&str]| {
        let real = format!("..2026_{number}");
        fs::create_dir(folder.at(&real)).unwrap();
        folder.write(&format!("{real}/a.json"), clusters);
        symlink(&real, folder.at("..data_tmp")).unwrap();
        fs::rename(folder.at("..data_tmp"), folder.at("..data")).unwrap();
    };
    mount(1, &["a", "b"]);
    symlink("..data/a.json", folder.at("a.json")).unwrap();
    let mut whole = Followed::new(folder.options());
    let mut single = Followed::new(options(vec![folder.at("a.json")]));
    for (number, name) in [(2, "c"), (3, "d"), (4, "e")] {
        mount(number, &[name]);
        fs::remove_dir_all(folder.at(&format!("..2026_{}", number - 1))).unwrap();
        whole.shows(name).await;
        single.shows(name).await;
    }
    // The link stays, and the file behind it changes. That file is in none of the configured folders.
    let elsewhere = Folder::new();
    elsewhere.put("f.json", &["f"]);
    symlink(elsewhere.at("f.json"), folder.at("f.json")).unwrap();
    whole.shows("e,f").await;
    elsewhere.write("f.json", &["g"]);
    whole.shows("e,g").await;
}

#[tokio::test]
async fn fs_2_a_folder_is_followed_by_whatever_path_it_was_come_by_last() {
    let folder = Folder::new();
    fs::create_dir_all(folder.at("releases/42/resources")).unwrap();
    folder.put("releases/42/resources/plain.json", &["a"]);
    symlink("releases/42", folder.at("current")).unwrap();
    let mut followed = Followed::new(options(vec![folder.at("current/resources")]));
    followed.shows("a").await;
    // A link in the folder leads through the folder's other name. Once the link is removed, it is no longer watched.
    fs::create_dir(folder.at("elsewhere")).unwrap();
    folder.put("elsewhere/file.json", &["l"]);
    symlink(folder.at("elsewhere/file.json"), folder.at("releases/42/resources/.way")).unwrap();
    symlink(folder.at("releases/42/resources/.way"), folder.at("current/resources/link.json")).unwrap();
    followed.shows("a,l").await;
    for name in ["b", "c"] {
        folder.put("current/resources/plain.json", &[name]);
        followed.shows(&format!("{name},l")).await;
    }
    fs::remove_file(folder.at("current/resources/link.json")).unwrap();
    followed.shows("c").await;
    for name in ["d", "e"] {
        folder.put("current/resources/plain.json", &[name]);
        followed.shows(name).await;
    }
    // The folder is moved: the same folder has another path.
    fs::rename(folder.at("releases/42"), folder.at("releases/43")).unwrap();
    turn(&folder.at("current"), "releases/43");
    folder.put("current/resources/more.json", &["m"]);
    followed.shows("e,m").await;
    for name in ["f", "g"] {
        folder.put("current/resources/plain.json", &[name]);
        followed.shows(&format!("{name},m")).await;
    }
}

#[tokio::test]
async fn fs_2_the_way_to_a_folder_that_a_link_leads_to_is_followed() {
    let (folder, git) = (Folder::new(), Folder::new());
    for (number, name) in [(1, "a"), (2, "b")] {
        fs::create_dir_all(git.at(&format!("{number}/sub"))).unwrap();
        git.put(&format!("{number}/sub/x.json"), &[name]);
    }
    symlink("1", git.at("current")).unwrap();
    symlink(git.at("current/sub"), folder.at("sub")).unwrap();
    let mut followed = Followed::new(folder.options());
    followed.shows("a").await;
    turn(&git.at("current"), "2");
    followed.shows("b").await;
    git.put("2/sub/y.json", &["c"]);
    followed.shows("b,c").await;
    // Its target may be created later.
    symlink(git.at("later"), folder.at("later")).unwrap();
    git.put("2/sub/y.json", &["d"]);
    followed.shows("b,d").await;
    fs::create_dir(git.at("later")).unwrap();
    git.put("later/z.json", &["e"]);
    followed.shows("b,d,e").await;
}
