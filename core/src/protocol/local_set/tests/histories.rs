//! Random histories of a set and a view.

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::*;

/// What happens to a view that wants clusters by `*` and routes by name.
#[derive(Debug, Clone)]
enum Act {
    Hold(Vec<(bool, usize, usize)>),
    Ask(usize),
    Leave(usize),
    Star(bool),
    Return,
    Say(usize),
}

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => prop::collection::vec((any::<bool>(), 0..5usize, 0..3usize), 0..8).prop_map(Act::Hold),
        3 => (0..5usize).prop_map(Act::Ask),
        2 => (0..5usize).prop_map(Act::Leave),
        1 => any::<bool>().prop_map(Act::Star),
        1 => Just(Act::Return),
        3 => (0..3usize).prop_map(Act::Say),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1024, failure_persistence: None, rng_seed: RngSeed::Fixed(1), ..Default::default() })]
    #[test]
    fn in_the_end_a_view_has_exactly_what_it_wants_and_is_there(acts in prop::collection::vec(act(), 0..40)) {
        let mut bench = Bench::new(true);
        let (clusters, routes) = (bench.table.resolve(CDS), bench.table.resolve(RDS));
        let (mut wildcard, mut names) = (false, BTreeSet::new());
        bench.hold(&[], true);
        for act in acts {
            match act {
                Act::Hold(resources) => {
                    let kind = |kind| if kind { CDS } else { RDS };
                    let resources = resources.iter().map(|(of, name, body)| (kind(*of), NAMES[*name], NAMES[*body]));
                    bench.hold(&resources.collect::<Vec<_>>(), true);
                }
                Act::Ask(name) => {
                    names.insert(NAMES[name]);
                    bench.ask(RDS, &[NAMES[name]], &[]);
                }
                Act::Leave(name) if names.remove(NAMES[name]) => bench.ask(RDS, &[], &[NAMES[name]]),
                Act::Star(true) if !wildcard => {
                    wildcard = true;
                    bench.ask(CDS, &["*"], &[]);
                }
                Act::Star(false) if wildcard => {
                    wildcard = false;
                    bench.ask(CDS, &[], &["*"]);
                }
                Act::Return => {
                    bench.end();
                    bench.open();
                }
                Act::Say(limit) => (0..limit).for_each(|_| drop(bench.say(BEGIN))),
                Act::Leave(_) | Act::Star(_) => {}
            }
        }
        bench.said();
        let tables = bench.view.tables();
        if wildcard {
            let held: Vec<_> = bench.view.holds().here(&clusters, Class::Wildcard).collect();
            let set = bench.snapshot.set(&clusters);
            prop_assert_eq!(held.len(), set.items().len());
            for (name, entry) in held {
                let resource = entry.resource();
                prop_assert!(resource.zip(set.get(name)).is_some_and(|(held, there)| held.is_same(there)), "{}", name);
            }
            prop_assert_eq!(tables.completeness_of(&clusters, &Selector::Wildcard), Completeness::Complete);
        }
        for name in names {
            let (set, name) = (bench.snapshot.set(&routes), name.into());
            let entry = tables.entry(&routes, Class::Named, &name);
            prop_assert!(entry.is_some(), "nothing is known of {}", name);
            let held = entry.and_then(|entry| entry.resource());
            prop_assert_eq!(held.is_some(), set.get(&name).is_some());
            prop_assert!(held.zip(set.get(&name)).is_none_or(|(held, there)| held.is_same(there)), "{}", name);
        }
        prop_assert_eq!(bench.said(), [""; 0], "and it goes quiet");
    }
}
