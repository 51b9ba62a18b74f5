use std::collections::BTreeSet;

use super::*;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn named(name: &str) -> WaitSubject {
    WaitSubject { of: Some(Selector::Name(name.into())), ..WaitSubject::default() }
}

#[test]
fn each_kind_is_listed_once_under_a_name_of_its_own() {
    let names: BTreeSet<_> = WaitKind::ALL.iter().map(|kind| kind.name()).collect();
    assert_eq!(names.len(), WaitKind::ALL.len());
    for (at, kind) in WaitKind::ALL.into_iter().enumerate() {
        assert_eq!(kind as usize, at, "the sums of a list are in this order");
    }
}

#[test]
fn a_wait_is_beyond_its_bound_when_it_is_more_than_a_second_older_and_never_while_it_has_none() {
    let wait = |age, bound| Wait { kind: WaitKind::Name, age, bound, subject: WaitSubject::default() };
    assert!(!wait(seconds(16), Some(seconds(15))).is_beyond());
    assert!(wait(seconds(16) + Duration::from_micros(1), Some(seconds(15))).is_beyond());
    assert!(!wait(seconds(10_000), None).is_beyond());
}

#[test]
fn the_age_of_a_wait_follows_from_when_it_ends() {
    let (until, bound) = (Moment::START + seconds(100), seconds(15));
    let age = |at| age_of(until, bound, Moment::START + seconds(at));
    assert_eq!([age(80), age(85), age(90), age(100), age(103)], [0, 0, 5, 15, 18].map(seconds));
}

#[test]
fn a_list_counts_all_waits_by_kind_and_keeps_the_oldest_and_those_beyond_their_bounds() {
    let mut list = WaitList::keeping(2);
    for (name, age) in [("a", 3), ("b", 9), ("c", 1), ("d", 5), ("e", 4), ("f", 7)] {
        list.add(WaitKind::Name, seconds(age), Some(seconds(5)), || named(name));
    }
    list.add_younger(WaitKind::Name, 10);
    list.add(WaitKind::Change, seconds(2), None, || named("g"));
    let of_names = WaitSum { count: 16, oldest: seconds(9), beyond: 2 };
    let of_changes = WaitSum { count: 1, oldest: seconds(2), beyond: 0 };
    assert_eq!(list.sums().collect::<Vec<_>>(), [(WaitKind::Name, of_names), (WaitKind::Change, of_changes)]);
    let names = |waits: &[Wait]| waits.iter().map(|wait| wait.subject.clone()).collect::<Vec<_>>();
    assert_eq!(names(list.beyond()), [named("b"), named("f")]);
    assert_eq!(names(&list.into_oldest()), [named("b"), named("f")]);

    let mut sums_alone = WaitList::default();
    sums_alone.add(WaitKind::Name, seconds(3), Some(seconds(5)), || unreachable!("it is not kept"));
    assert_eq!(sums_alone.sums().count(), 1);
}
