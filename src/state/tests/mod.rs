//! The file under many changes, loss of power and damage.

mod disk;
mod offline;
mod pace;
mod restored;
mod work;
mod world;

use std::time::Duration;

use redb::Database;
use weir_core::protocol::moment::Moment;
use weir_core::protocol::view::{Class, Update};

use self::disk::Disk;
use self::world::{SECRETS, SERVER, Shown, World, shown};
use super::file::{self, FileFault};
use super::load::{Stored, WallClock};
use super::portable::{self, SnapshotFault};
use super::save::Contents;
use super::sealing::SealingKey;
use crate::relay::views_to;

const MINUTE: Duration = Duration::from_secs(60);

fn opened(disk: &Disk, key: Option<&SealingKey>) -> Result<(Database, Contents, Shown), FileFault> {
    let database = file::open_on(disk.clone(), key.is_some())?;
    let stored = file::guarded(|| Stored::read(&database, key))?;
    let contents = stored.contents();
    Ok((database, contents, shown(&stored)))
}

fn key(byte: u8) -> SealingKey {
    SealingKey::parse(&[byte; 32]).unwrap()
}

#[test]
fn the_file_has_what_was_published_after_every_write() {
    for seed in 1..=20 {
        let key = (seed % 2 == 0).then(|| key(1));
        let mut world = World::of(seed, 3);
        let disk = Disk::default();
        let (database, mut contents, _) = opened(&disk, key.as_ref()).unwrap();
        for step in 0..60 {
            (0..=world.below(4)).for_each(|_| world.step());
            match step {
                30 => drop(world.views.remove(1)),
                40 => world.add_view(7),
                _ => {}
            }
            world.save(&mut contents, &database, key.as_ref()).unwrap();
            let stored = Stored::read(&database, key.as_ref()).unwrap();
            assert_eq!(shown(&stored), world.expected(key.is_some()), "seed {seed}, step {step}");
            let used: std::collections::HashSet<_> =
                stored.contents().bodies.into_iter().filter(|(_, count)| *count > 0).collect();
            assert_eq!(used, contents.bodies.clone().into_iter().collect(), "bodies: seed {seed}, step {step}");
        }
        assert_eq!(
            shown(&Stored::read(&database, key.as_ref()).unwrap()).keys().any(|(_, kind, ..)| kind == SECRETS),
            key.is_some()
        );
    }
}

#[test]
fn after_a_loss_of_power_the_file_has_the_last_write_or_the_one_that_was_under_way() {
    for seed in 1..=200 {
        let key = (seed % 3 == 0).then(|| key(1));
        let mut world = World::of(seed, 2);
        let mut disk = Disk::default();
        let (mut database, mut contents, _) = opened(&disk, key.as_ref()).unwrap();
        let mut last = Shown::new();
        for _ in 0..4 {
            let losing_power = world.below(6);
            for step in 0..=losing_power {
                (0..=world.below(5)).for_each(|_| world.step());
                if step == losing_power {
                    disk.fail_after(world.below(12));
                }
                match world.save(&mut contents, &database, key.as_ref()).map(drop) {
                    Ok(()) => last = world.expected(key.is_some()),
                    Err(_) => break,
                }
            }
            let under_way = world.expected(key.is_some());
            drop(database);
            let bytes = disk.after_power_loss(|length| world.below(2 * length + 1).saturating_sub(length / 2));
            disk = Disk::holding(bytes);
            let (reopened, loaded, found) =
                opened(&disk, key.as_ref()).unwrap_or_else(|fault| panic!("seed {seed}: {fault}"));
            assert!(found == last || found == under_way, "seed {seed}");
            (database, contents) = (reopened, loaded);
            // The next process does not use anything in the file, and starts over.
            contents.orphans = (0..contents.next_view).collect();
            world.save(&mut contents, &database, key.as_ref()).unwrap();
            last = world.expected(key.is_some());
            assert_eq!(shown(&Stored::read(&database, key.as_ref()).unwrap()), last, "seed {seed}");
        }
    }
}

#[test]
fn a_ttl_that_was_extended_is_saved_though_the_resource_is_the_same() {
    let mut world = World::of(1, 1);
    let (database, mut contents, _) = opened(&Disk::default(), None).unwrap();
    for _ in 0..3 {
        world.set_with_ttl("a", MINUTE);
        world.save(&mut contents, &database, None).unwrap();
        let stored = Stored::read(&database, None).unwrap();
        let expires: Vec<_> = stored.views[0].of_set(0).map(|stored| stored.record.expires).collect();
        assert_eq!(expires, [world.now + 60_000]);
        world.now += 30_000;
    }
}

#[test]
fn that_servers_respond_is_written_again_after_a_while_though_nothing_changes() {
    let mut world = World::of(1, 1);
    let (database, mut contents, _) = opened(&Disk::default(), None).unwrap();
    let heard = |world: &World, contents: &Contents| {
        let known = contents.views.values().next().unwrap();
        let heard = Stored::read(&database, None).unwrap().views[0].record.servers[0].heard;
        (heard, known.says_who_is_heard(&[0], world.now), known.says_who_is_heard(&[], world.now))
    };
    world.set_with_ttl("a", MINUTE);
    world.save(&mut contents, &database, None).unwrap();
    let first = world.now;
    world.now += 29_999;
    assert_eq!(heard(&world, &contents), (first, true, true));
    world.now += 1;
    assert_eq!(heard(&world, &contents), (first, false, true));
    world.save(&mut contents, &database, None).unwrap();
    assert_eq!(heard(&world, &contents), (first + 30_000, true, true));
}

#[test]
fn a_set_of_which_something_has_expired_since_it_was_saved_is_not_whole() {
    let mut world = World::of(1, 1);
    let (database, mut contents, _) = opened(&Disk::default(), None).unwrap();
    world.set_with_ttl("short", MINUTE);
    world.set_with_ttl("long", 3 * MINUTE);
    world.save(&mut contents, &database, None).unwrap();
    let stored = Stored::read(&database, None).unwrap();
    let views = views_to(SERVER);
    for (later, left, is_whole) in [(30, vec!["long", "short"], true), (90, vec!["long"], false), (200, vec![], false)]
    {
        let clock = WallClock { now: world.now + later * 1_000, is_plausible: true };
        let sets = stored.sets_of(&stored.views[0], &views, &clock).unwrap();
        let names: Vec<_> = sets[0].resources.iter().map(|saved| saved.key.as_str()).collect();
        assert_eq!((names, !sets[0].has_expired), (left, is_whole), "{later} s later");
    }
}

#[test]
fn a_damaged_file_is_unusable_or_whole_and_nothing_panics() {
    let mut world = World::of(3, 2);
    (0..80).for_each(|_| world.step());
    let disk = Disk::default();
    let (database, mut contents, _) = opened(&disk, None).unwrap();
    world.save(&mut contents, &database, None).unwrap();
    drop(database);
    let (good, expected) = (disk.bytes(), world.expected(false));
    assert_eq!(opened(&Disk::holding(good.clone()), None).unwrap().2, expected);
    let mut unusable = 0;
    let mut check = |bytes: Vec<u8>, what: &str| match opened(&Disk::holding(bytes), None) {
        Ok((_, _, found)) => assert!(found == expected || found.is_empty() && what == "nothing", "{what}"),
        Err(FileFault::Unusable(_)) => unusable += 1,
        Err(fault) => panic!("{what}: {fault}"),
    };
    let used = good.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    for length in (1..used).step_by(used / 400) {
        check(good[..length].to_vec(), &format!("{length} bytes"));
    }
    check(Vec::new(), "nothing");
    for _ in 0..600 {
        let bit = world.below(used * 8);
        let mut bytes = good.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        check(bytes, &format!("bit {bit}"));
    }
    for start in (0..used).step_by(used / 100) {
        let mut bytes = good.clone();
        let end = (start + 512).min(used);
        bytes[start..end].fill(0xff);
        check(bytes, &format!("a block at {start}"));
    }
    check(b"some text that another program has written".repeat(1000), "text");
    assert!(unusable > 300, "{unusable}");
}

#[test]
fn a_file_belongs_to_its_key_and_to_one_process() {
    let folder = std::env::temp_dir().join(format!("weir-state-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder); // of an earlier run
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("state");
    let mut world = World::of(5, 1);
    (0..40).for_each(|_| world.step());
    let database = file::open(&path, true).unwrap();
    world.save(&mut Contents::default(), &database, Some(&key(1))).unwrap();
    assert!(matches!(file::open(&path, true), Err(FileFault::InUse)));
    assert!(
        !std::fs::read(&path).unwrap().windows(4).any(|bytes| bytes == b"v1xy" || bytes == b"v0xy" || bytes == b"v2xy")
    );
    drop(database);
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    let other = file::open(&path, true).unwrap();
    assert!(matches!(Stored::read(&other, Some(&key(2))), Err(FileFault::Unusable(_))));
    drop(other);
    assert!(matches!(file::open(&path, false), Err(FileFault::Unusable(reason)) if reason.contains("encrypted")));
    let link = folder.join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    assert!(matches!(file::open(&link, true), Err(FileFault::Disk(_))), "a link is not followed");
    let kept: Vec<_> = (0..5)
        .map(|_| {
            std::fs::write(&path, "x").unwrap();
            file::set_aside(&path).unwrap()
        })
        .collect();
    assert_eq!(kept.iter().filter(|path| path.exists()).count(), 3, "a few are kept");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_snapshot_has_everything_and_becomes_a_state_file_of_any_key() {
    let mut world = World::of(11, 3);
    (0..120).for_each(|_| world.step());
    let kind = world.table.resolve(SECRETS);
    let resource = world.large(&kind, "a", 1024, u64::from_le_bytes(*b"a secret"));
    let secret = Update::Upsert { kind, class: Class::Named, key: "a".into(), resource };
    let view = &mut world.views[0].1;
    view.apply(vec![secret], Moment::START + Duration::from_millis(world.now));
    view.publish();
    let has_secret = |bytes: &[u8]| bytes.windows(8).any(|bytes| bytes == b"a secret");
    let (database, mut contents, _) = opened(&Disk::default(), Some(&key(1))).unwrap();
    world.save(&mut contents, &database, Some(&key(1))).unwrap();
    let stored = Stored::read(&database, Some(&key(1))).unwrap();
    assert!(shown(&stored).keys().any(|(_, kind, ..)| kind == SECRETS));
    for with_secrets in [false, true] {
        let mut snapshot = Vec::new();
        portable::write(&stored, with_secrets, &mut snapshot).unwrap();
        assert_eq!(has_secret(&snapshot), with_secrets);
        for key in [None, Some(key(2))] {
            let disk = Disk::default();
            let (database, ..) = opened(&disk, key.as_ref()).unwrap();
            portable::read(&mut &*snapshot, &database, key.as_ref()).unwrap();
            assert!(!has_secret(&disk.bytes()), "a secret is in the file in clear");
            let read = Stored::read(&database, key.as_ref()).unwrap();
            assert_eq!(shown(&read), world.expected(with_secrets && key.is_some()));
            assert!(read.views.iter().all(|view| view.record.lacks_secrets != (with_secrets && key.is_some())));
        }
        let refused = |bytes: &[u8]| {
            let (database, ..) = opened(&Disk::default(), None).unwrap();
            let fault = portable::read(&mut &*bytes, &database, None).unwrap_err();
            assert!(matches!(fault, SnapshotFault::Damaged | SnapshotFault::Foreign), "{fault}");
        };
        for at in (0..snapshot.len()).step_by(snapshot.len() / 60) {
            refused(&snapshot[..at]);
            let mut bad = snapshot.clone();
            bad[at] ^= 4;
            refused(&bad);
        }
    }
}

#[test]
#[ignore = "writes a seed of the fuzz target"]
fn write_the_seed_of_snapshots() {
    let mut world = World::of(1, 1);
    (0..20).for_each(|_| world.step());
    let (database, mut contents, _) = opened(&Disk::default(), None).unwrap();
    world.save(&mut contents, &database, None).unwrap();
    let mut snapshot = Vec::new();
    portable::write(&Stored::read(&database, None).unwrap(), true, &mut snapshot).unwrap();
    let content = &snapshot[16..snapshot.len() - 12];
    assert_eq!(portable::with_frame(content), snapshot);
    std::fs::create_dir_all("fuzz/corpus/snapshots").unwrap();
    std::fs::write("fuzz/corpus/snapshots/seed", content).unwrap();
}
