//! Shares of memory, and that all of it is given back.

use std::net::IpAddr;
use std::sync::atomic::AtomicUsize;

use super::*;

const MIB: usize = 1 << 20;

fn memory(mib: usize) -> Arc<Memory> {
    let setting = Budget::on(MemorySetting::Bytes(mib * MIB), None);
    let memory = Memory::new(setting, Arc::default(), Arc::default());
    memory.base.store(0, Ordering::Relaxed);
    memory
}

fn of(identity: &str) -> GroupMembership {
    GroupMembership { identity: Some(identity.into()), ..GroupMembership::default() }
}

fn at(address: [u8; 4]) -> GroupMembership {
    GroupMembership { address: Some(IpAddr::from(address)), ..GroupMembership::default() }
}

/// Charges an account for as long as it gets more, a MiB at a time.
fn fill(account: &Arc<Account>) -> Vec<Charge> {
    let mut charges = Vec::new();
    while account.admit(MIB).is_ok() {
        charges.push(account.charge(MIB));
    }
    charges
}

struct Stream(AtomicUsize);

impl GivesWay for Stream {
    fn give_way(&self, _: &str) -> bool {
        self.0.swap(1, Ordering::Relaxed) == 0
    }
}

#[test]
fn a_client_that_is_alone_gets_all_but_the_last_twentieth() {
    let memory = memory(1000);
    let account = memory.connect(of("a"));
    let charges = fill(&account);
    assert_eq!(charges.len(), 950);
    assert_eq!(account.admit(MIB).unwrap_err().above, None, "it is not above its part");
    drop((charges, account));
    assert!(memory.is_empty());
}

#[test]
fn a_fleet_that_is_alone_gets_it_too_however_many_connections_it_has() {
    let memory = memory(1000);
    let fleet: Vec<_> = (0..100).map(|_| memory.connect(of("fleet"))).collect();
    let mut charges = Vec::new();
    for account in fleet.iter().cycle() {
        match account.admit(MIB) {
            Ok(()) => charges.push(account.charge(MIB)),
            Err(_) => break,
        }
    }
    assert_eq!(charges.len(), 950);
}

#[test]
fn a_flood_leaves_room_for_others_at_each_level() {
    type Level = (&'static str, Box<dyn Fn(usize) -> GroupMembership>);
    let levels: [Level; 4] = [
        (
            "its tenant",
            Box::new(|at| GroupMembership { tenant: Some(format!("t{at}").into()), ..of(&format!("{at}")) }),
        ),
        ("its identity", Box::new(|at| of(&format!("{at}")))),
        ("its addresses", Box::new(|block| at([10, 0, block as u8, 1]))),
        ("its connection", Box::new(|_| of("same"))),
    ];
    for (level, belonging) in levels {
        let memory = memory(1000);
        let honest: Vec<_> = (1..=9).map(|number| memory.connect(belonging(number))).collect();
        let held: Vec<_> = honest.iter().map(|account| account.charge(10 * MIB)).collect();
        let flood = memory.connect(belonging(0));
        let taken = fill(&flood);
        let refused = flood.admit(MIB).unwrap_err();
        assert_eq!(refused.above.map(|standing| standing.level), Some(level));
        assert_eq!(taken.len(), 610, "{level}: 70 %, with what the others have");
        assert!(refused.to_string().contains(&format!("by {level}, of which the equal part is 100 MiB")), "{refused}");
        for account in &honest {
            assert!(account.admit(20 * MIB).is_ok(), "{level}");
        }
        drop((taken, held, honest, flood));
        assert!(memory.is_empty(), "{level}");
    }
}

#[test]
fn of_two_groups_the_greater_one_gets_more_the_less_it_is_above_its_half() {
    let memory = memory(1000);
    let (small, large) = (memory.connect(of("small")), memory.connect(of("large")));
    let _small = small.charge(5 * MIB);
    let taken = fill(&large);
    assert!((780..820).contains(&taken.len()), "{}", taken.len());
    assert!(fill(&small).len() > 100, "the other one has room");
}

#[test]
fn both_of_two_fleets_get_new_clients_in_while_they_are_below_their_parts() {
    let memory = memory(1000);
    let of_small: Vec<_> = (0..100).map(|_| memory.connect(of("small"))).collect();
    let of_large: Vec<_> = (0..10_000).map(|_| memory.connect(of("large"))).collect();
    let mut held: Vec<_> = of_small.iter().map(|account| account.charge(47 * MIB / 10)).collect();
    held.extend(of_large.iter().map(|account| account.charge(47 * MIB / 1000)));
    of_small.iter().chain(&of_large).for_each(|account| account.tell());
    assert!((939..=941).contains(&(memory.used() / MIB)), "{}", memory.used() / MIB);
    for identity in ["small", "large"] {
        assert_eq!(memory.connect(of(identity)).admit(32 << 10), Ok(()), "{identity}");
    }
}

#[test]
fn a_share_and_a_relays_views_make_the_part_larger() {
    let memory = memory(1000);
    let _others: Vec<_> = (0..8).map(|number| memory.connect(of(&format!("{number}")))).collect();
    let double = memory.connect(GroupMembership { share: 2, ..of("double") });
    assert_eq!(double.group.standing(Quantity::Bytes, 300 * MIB, 1000 * MIB).part / MIB, 200);
    let relay = memory.connect(of("relay"));
    let views: Vec<_> = (0..9).map(|_| relay.charge_view(0, true)).collect();
    let standing = relay.group.standing(Quantity::Bytes, 300 * MIB, 1000 * MIB);
    assert_eq!(standing.part / MIB, 500, "ten of twenty parts");
    assert!(!standing.is_above());
    drop(views);
    assert!(relay.group.standing(Quantity::Bytes, 300 * MIB, 1000 * MIB).is_above());
}

#[test]
fn above_the_limit_the_newest_streams_of_who_has_most_end_and_no_others() {
    let memory = memory(1000);
    let honest: Vec<_> = (0..9).map(|number| memory.connect(of(&format!("{number}")))).collect();
    let flood = memory.connect(of("flood"));
    let streams: Vec<_> = (0..3).map(|_| Arc::new(Stream(AtomicUsize::new(0)))).collect();
    let place = |account: &Arc<Account>, stream: &Arc<Stream>| {
        let stream: std::sync::Weak<dyn GivesWay> = Arc::downgrade(stream) as _;
        account.enter_stream(stream)
    };
    let other = Arc::new(Stream(AtomicUsize::new(0)));
    let _places: Vec<_> = streams.iter().map(|stream| place(&flood, stream)).collect();
    let _other = place(&honest[0], &other);
    let held = flood.charge(940 * MIB);
    assert_eq!(memory.give_way(5), 0, "there is room");
    let more = honest[1].charge(20 * MIB);
    assert_eq!(memory.give_way(2), 2);
    let ended = || streams.iter().map(|stream| stream.0.load(Ordering::Relaxed)).collect::<Vec<_>>();
    assert_eq!(ended(), [0, 1, 1], "the newest first");
    held.set(150 * MIB);
    more.set(805 * MIB);
    assert_eq!(memory.give_way(5), 0, "what is above twice its part has no stream, and the flood is no longer");
    assert_eq!(other.0.load(Ordering::Relaxed), 0);
    assert_eq!(memory.book().given_way, 2);
}

#[test]
fn whoever_is_below_its_part_and_has_no_room_makes_others_give_way() {
    let memory = memory(1000);
    let (flood, honest) = (memory.connect(of("flood")), memory.connect(of("honest")));
    let _others: Vec<_> = (0..8).map(|number| memory.connect(of(&format!("{number}")))).collect();
    let stream = Arc::new(Stream(AtomicUsize::new(0)));
    let weak: std::sync::Weak<dyn GivesWay> = Arc::downgrade(&stream) as _;
    let _place = flood.enter_stream(weak);
    let _held = flood.charge(945 * MIB);
    assert!(flood.admit(10 * MIB).is_err() && memory.give_way(5) == 0, "the flood itself makes nobody give way");
    assert!(honest.admit(10 * MIB).is_err());
    assert_eq!((memory.give_way(5), stream.0.load(Ordering::Relaxed)), (1, 1));
    assert_eq!(memory.give_way(5), 0, "once for each that had no room");
}

#[test]
fn with_all_views_made_the_newest_stream_of_who_made_most_ends_for_who_made_few() {
    let memory = memory(1000);
    let (flood, honest) = (memory.connect(of("flood")), memory.connect(of("honest")));
    let stream = Arc::new(Stream(AtomicUsize::new(0)));
    let weak: std::sync::Weak<dyn GivesWay> = Arc::downgrade(&stream) as _;
    let _place = flood.enter_stream(weak);
    let _views: Vec<_> = (0..50).map(|_| flood.charge_view(1, false)).collect();
    flood.want_view(50);
    assert_eq!((memory.give_way(5), stream.0.load(Ordering::Relaxed)), (0, 0));
    (0..100).for_each(|_| honest.want_view(50));
    assert_eq!((memory.give_way(5), stream.0.load(Ordering::Relaxed)), (1, 1), "however often it is asked for");
    assert_eq!(memory.give_way(5), 0);
}

#[test]
fn i8_a_stream_that_frees_nothing_is_passed_over_for_an_older_one() {
    let memory = memory(1000);
    let (flood, honest) = (memory.connect(of("flood")), memory.connect(of("honest")));
    let streams = [0, 1].map(|ended| Arc::new(Stream(AtomicUsize::new(ended))));
    let _places = streams.each_ref().map(|stream| {
        let weak: std::sync::Weak<dyn GivesWay> = Arc::downgrade(stream) as _;
        flood.enter_stream(weak)
    });
    let _views: Vec<_> = (0..50).map(|_| flood.charge_view(1, false)).collect();
    let look = || {
        honest.want_view(50);
        (memory.give_way(5), memory.book().given_way)
    };
    assert_eq!((look(), streams[0].0.load(Ordering::Relaxed)), ((1, 1), 1), "the older one ends");
    assert_eq!(look(), (0, 1), "no stream is left that frees anything");
    streams[1].0.store(0, Ordering::Relaxed);
    assert_eq!(look(), (1, 2), "now the newer one does");
}

#[test]
fn small_charges_write_nothing_that_other_connections_read() {
    let memory = memory(1000);
    let account = memory.connect(of("a"));
    let session = account.charge(0);
    let told = || memory.clients.held(Quantity::Bytes);
    (0..30).for_each(|names| session.set(names * 120));
    assert_eq!(told(), 0, "below 4 KiB");
    session.set(1 << 20);
    assert_eq!(told(), 1 << 20);
    (0..500).for_each(|names| session.set((1 << 20) + names * 120));
    assert_eq!(told(), 1 << 20, "below 64 KiB");
    session.set((1 << 20) + (64 << 10));
    assert_eq!(told(), (1 << 20) + (64 << 10));
    session.set((1 << 20) + (10 << 10));
    session.tell();
    assert_eq!(told(), (1 << 20) + (10 << 10));
}

#[test]
fn clients_share_what_resources_leave() {
    let memory = memory(1000);
    let resources = memory.common();
    resources.set(600 * MIB);
    resources.tell();
    let (greedy, other) = (memory.connect(of("greedy")), memory.connect(of("other")));
    let taken = fill(&greedy).len();
    assert!((200..300).contains(&taken), "{taken}: half of 400 are its part");
    let held = greedy.charge(taken * MIB);
    held.tell();
    let refused = greedy.admit(MIB).unwrap_err().to_string();
    assert!(refused.contains("of which the equal part is 200 MiB"), "{refused}");
    assert!(fill(&other).len() > 40, "there is room for others");
}

#[test]
fn nobody_ends_for_what_control_planes_have_sent() {
    let memory = memory(1000);
    let greedy = memory.connect(of("greedy"));
    let small: Vec<_> = ["a", "b", "c", "d"].map(|identity| memory.connect(of(identity)).charge(MIB)).into();
    let much = greedy.charge(80 * MIB);
    small.iter().chain([&much]).for_each(Charge::tell);
    let stream = Arc::new(Stream(AtomicUsize::new(0)));
    let weak: std::sync::Weak<dyn GivesWay> = Arc::downgrade(&(stream.clone() as Arc<dyn GivesWay>));
    let _place = greedy.enter_stream(weak);
    let resources = memory.common();
    for (mib, ends) in [(960, 0), (880, 1)] {
        resources.set(mib * MIB);
        resources.tell();
        assert!(memory.is_full());
        assert_eq!(memory.give_way(1), ends, "{mib}");
    }
}

#[test]
fn what_control_planes_send_has_room_up_to_the_last_twentieth_and_is_worth_a_second_try_when_there_is_some_again() {
    let memory = memory(1000);
    let held = memory.common();
    let in_use = |mib: usize| {
        held.set(mib * MIB);
        held.tell();
        memory.excess().map(|(excess, spare, _)| {
            assert_eq!(spare / MIB, 50);
            excess / MIB as i64
        })
    };
    assert_eq!(in_use(690), None, "no need to look");
    assert_eq!([in_use(900), in_use(950), in_use(990)], [Some(-50), Some(0), Some(40)]);
    let why = memory.excess().unwrap().2;
    assert_eq!(why, "990 of 1000 MiB are in use (limits.memory)");
    for (mib, small, large) in [(890, true, true), (920, true, false), (955, false, false)] {
        in_use(mib);
        let fits = [10, 400].map(|mib| memory.has_room_for_resources(mib * MIB));
        assert_eq!(fits, [small, large], "{mib}");
        assert_eq!([10, 400].map(|mib| memory.has_room_for(mib * MIB)), [small, false], "{mib}");
    }
    memory.set_budget(Budget::on(MemorySetting::Percent(75), None));
    assert!(memory.excess().is_none() && memory.has_room_for_resources(1 << 40), "no budget is known");
}

#[test]
fn a_handshake_is_charged_to_nobody_and_until_it_ends() {
    let memory = memory(100);
    let fleet = memory.connect(of("fleet"));
    let before = memory.used();
    let some: Vec<_> = (0..10).map(|_| memory.handshake()).collect();
    assert_eq!(memory.used() - before, 10 * (costs::HANDSHAKE + costs::SOCKET));
    drop(some);
    assert_eq!(memory.used(), before);
    drop(fleet);
    assert!(memory.is_empty());
}

#[test]
fn what_files_newly_have_has_room_as_far_as_it_fits_beside_what_is_in_use() {
    let memory = memory(1000);
    let held = memory.common();
    held.set(900 * MIB);
    held.tell();
    assert!(memory.excess_of(50 * MIB, 0).is_none());
    let (excess, why) = memory.excess_of(80 * MIB, 0).unwrap();
    assert_eq!((excess / MIB, why.as_str()), (30, "900 of 1000 MiB are in use (limits.memory)"));
    held.set(990 * MIB);
    held.tell();
    let (excess, why) = memory.excess_of(80 * MIB, 70 * MIB).unwrap();
    assert_eq!(
        (excess / MIB, why.as_str()),
        (50, "920 of 1000 MiB are in use (limits.memory)"),
        "most is charged already"
    );
    assert_eq!(memory.excess_of(MIB, 0).unwrap().0, MIB, "what is there already is not theirs");
    memory.set_budget(Budget::on(MemorySetting::Percent(75), None));
    assert!(memory.excess_of(1 << 40, 0).is_none(), "no budget is known");
}

#[test]
fn without_a_known_limit_and_after_a_larger_one_nothing_is_refused() {
    let unknown = Memory::new(Budget::on(MemorySetting::Percent(75), None), Arc::default(), Arc::default());
    assert!(unknown.connect(of("a")).admit(1 << 50).is_ok());
    let memory = memory(100);
    let account = memory.connect(of("a"));
    let _held = fill(&account);
    memory.set_budget(Budget::on(MemorySetting::Bytes(50 * MIB), None));
    assert!(account.admit(1).is_err() && memory.is_full());
    memory.set_budget(Budget::on(MemorySetting::Bytes(200 * MIB), None));
    assert!(account.admit(MIB).is_ok() && !memory.is_full());
}

#[test]
fn what_the_kernel_keeps_is_in_use_and_not_in_the_book_that_is_compared() {
    let memory = memory(100);
    let account = memory.connect(of("a"));
    let charge = account.charge_with_kernel(10 * MIB, 4 * MIB);
    assert_eq!((memory.used() / MIB, memory.book().charged / MIB), (14, 10));
    drop(charge);
    assert_eq!((memory.used(), memory.book().charged), (0, 0));
}

/// Random joins, leaves, charges and views of many threads: in the end everything is given back.
#[test]
fn whatever_comes_and_goes_all_accounts_end_at_zero() {
    let memory = memory(100_000);
    let worker = |seed: u64| {
        let (memory, mut random) = (memory.clone(), seed);
        move || {
            let mut number = |below: u64| {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                random % below
            };
            let (mut accounts, mut charges, mut views) = (Vec::new(), Vec::new(), Vec::new());
            for _ in 0..20_000 {
                match number(8) {
                    0 => {
                        let tenant = (number(3) > 0).then(|| format!("t{}", number(3)).into());
                        let identity = (number(3) > 0).then(|| format!("i{}", number(5)).into());
                        let address = Some(IpAddr::from([10, 0, number(3) as u8, 1]));
                        let share = number(4) as usize;
                        accounts.push(memory.connect(GroupMembership { tenant, identity, address, share }));
                    }
                    1 if !accounts.is_empty() => drop(accounts.swap_remove(number(accounts.len() as u64) as usize)),
                    2 if !charges.is_empty() => drop(charges.swap_remove(number(charges.len() as u64) as usize)),
                    3 if !views.is_empty() => drop(views.swap_remove(number(views.len() as u64) as usize)),
                    of if !accounts.is_empty() => {
                        let account: &Arc<Account> = &accounts[number(accounts.len() as u64) as usize];
                        match of {
                            4 => views.push(account.charge_view(number(100_000) as usize, number(2) == 0)),
                            5 => {
                                charges.push(account.charge_with_kernel(number(100_000) as usize, number(10) as usize))
                            }
                            6 => {
                                charges.iter().take(3).for_each(|charge: &Charge| charge.set(number(200_000) as usize))
                            }
                            _ => account.tell(),
                        }
                    }
                    _ => {}
                }
            }
        }
    };
    std::thread::scope(|scope| {
        [1, 2, 3, 4].map(|seed| scope.spawn(worker(seed))).into_iter().for_each(|thread| thread.join().unwrap())
    });
    assert!(memory.is_empty());
    assert_eq!((memory.used(), memory.kernel.load(Ordering::Relaxed)), (0, 0));
}

#[test]
fn another_share_counts_for_who_is_there_and_a_connection_with_little_does_not_end_for_its_group() {
    let memory = memory(1000);
    let first = memory.connect(GroupMembership { share: 1, ..of("a") });
    let _other = memory.connect(of("b"));
    let part = || first.group.standing(Quantity::Bytes, 900 * MIB, 1000 * MIB).part / MIB;
    assert_eq!(part(), 500);
    let second = memory.connect(GroupMembership { share: 3, ..of("a") });
    assert_eq!(part(), 375, "three of four parts, half of that");
    drop(second);
    assert_eq!(part(), 750);

    let flood: Vec<_> = (0..2).map(|_| memory.connect(of("c"))).collect();
    let stream = Arc::new(Stream(AtomicUsize::new(0)));
    let weak: std::sync::Weak<dyn GivesWay> = Arc::downgrade(&stream) as _;
    let _place = flood[0].enter_stream(weak);
    let _held = (flood[0].charge(MIB), flood[1].charge(960 * MIB));
    assert!(memory.is_full());
    assert_eq!((memory.give_way(5), stream.0.load(Ordering::Relaxed)), (0, 0), "the other one has no stream");
}
