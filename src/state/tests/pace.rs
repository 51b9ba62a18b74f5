//! The figures of docs/record/performance.md: `cargo test --release --lib state::tests::pace -- --ignored --nocapture`.

use std::time::Instant;

use weir_core::protocol::moment::Moment;
use weir_core::protocol::view::{Retain, Update};

use super::super::file;
use super::super::load::Stored;
use super::super::save::Contents;
use super::world::{CDS, World};

const RESOURCES: usize = 100_000;
const BYTES: usize = 1024;

#[test]
#[ignore = "means something only in a release build, and alone"]
fn figures_of_a_hundred_thousand_resources() {
    let path = std::env::temp_dir().join(format!("weir-pace-{}", std::process::id()));
    let mut world = World::of(1, 1);
    let kind = world.table.resolve(CDS);
    let names: Vec<_> = (0..RESOURCES).map(|number| format!("cluster-{number:06}")).collect();
    let resources = names.iter().map(|name| world.large(&kind, name, BYTES, 0)).collect();
    let view = &mut world.views[0].1;
    view.apply(vec![Update::FullSet { kind: kind.clone(), resources, retain: Retain::nothing() }], Moment::START);
    view.publish();
    let database = file::open(&path, false).unwrap();
    let mut contents = Contents::default();
    let begun = Instant::now();
    world.save(&mut contents, &database, None).unwrap();
    println!("written in {:?}, {} bytes", begun.elapsed(), std::fs::metadata(&path).unwrap().len());
    let (mut times, before) = (Vec::new(), written_bytes());
    for round in 1..=20 {
        for name in names.iter().step_by(RESOURCES / 50) {
            let resource = world.large(&kind, name, BYTES, round);
            let view = &mut world.views[0].1;
            let class = weir_core::protocol::view::Class::Wildcard;
            view.apply(
                vec![Update::Upsert { kind: kind.clone(), class, key: (**name).into(), resource }],
                Moment::START,
            );
        }
        world.views[0].1.publish();
        let begun = Instant::now();
        world.save(&mut contents, &database, None).unwrap();
        times.push(begun.elapsed());
    }
    times.sort();
    let written = written_bytes() - before;
    println!("50 changes of {BYTES} bytes: median {:?}, worst {:?}", times[10], times[19]);
    println!("write amplification {:.1}", written as f64 / (20 * 50 * BYTES) as f64);
    drop(database);
    let begun = Instant::now();
    let database = file::open(&path, false).unwrap();
    let opened = begun.elapsed();
    let stored = Stored::read(&database, None).unwrap();
    println!("opened and verified in {opened:?}, read in {:?}", begun.elapsed() - opened);
    assert_eq!(stored.views.len(), 1);
    println!("{} bytes in the end", std::fs::metadata(&path).unwrap().len());
    std::fs::remove_file(&path).unwrap();
}

/// What this process has written to disks.
fn written_bytes() -> u64 {
    let io = std::fs::read_to_string("/proc/self/io").unwrap();
    let line = io.lines().find_map(|line| line.strip_prefix("wchar: ")).unwrap();
    line.parse().unwrap()
}
