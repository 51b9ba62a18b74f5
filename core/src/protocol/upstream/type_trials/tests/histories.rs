//! Random histories of a server and a client that makes up types.

use super::*;

/// Random numbers that follow from one seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// The clients of one view, of which one makes up another type each second, and a server that was not well for a while. The server refuses some
/// types of the table and all made-up ones. It may take no second stream of a node, and end the second or the first then.
#[test]
fn i8_whatever_one_client_makes_up_what_the_server_takes_of_the_table_is_soon_on_the_stream() {
    for ends_second_streams in [false, true] {
        (0..500).for_each(|number| one_adversary(number, ends_second_streams));
    }
}

fn one_adversary(number: u64, ends_second_streams: bool) {
    const ENDPOINTS: &str = "envoy.config.endpoint.v3.ClusterLoadAssignment";
    const SECRETS: &str = "envoy.extensions.transport_sockets.tls.v3.Secret";
    const OF_TABLE: [&str; 5] = [CLUSTERS, ENDPOINTS, LISTENERS, ROUTES, SECRETS];
    let mut random = Random(number);
    let wanted: Vec<&str> = OF_TABLE.into_iter().filter(|_| random.below(4) > 0).collect();
    let good: BTreeSet<&str> = wanted.iter().copied().filter(|_| random.below(3) > 0).collect();
    let takes_second_streams = random.below(3) > 0;
    let (mut bad_openings, mut made, mut ended, mut seconds) = (random.below(30), 0, 0, 0);
    let mut world = World::new(&wanted);
    let (first, each) = (random.below(100), 1 + random.below(3));
    (0..first).for_each(|at| world.want(&format!("own.Early{at}")));
    while !good.is_empty() {
        for _ in 0..each {
            made += 1;
            world.want(&made_up(made));
        }
        let on = owned(world.request());
        let is_refused = on.iter().any(|name| !good.contains(name.as_str()));
        if bad_openings > 0 {
            bad_openings -= 1;
            world.end([UNKNOWN, UNAUTHENTICATED, UNKNOWN, UNAVAILABLE][random.below(4) as usize]);
        } else if is_refused {
            if random.below(2) == 0 {
                on.iter().filter(|name| good.contains(name.as_str())).for_each(|name| world.answer(name));
            }
            ended += 1;
            world.end(UNKNOWN);
        } else {
            on.iter().for_each(|name| world.answer(name));
            if good.iter().all(|name| on.iter().any(|other| other == name)) {
                break;
            }
            let kinds = world.due();
            if !kinds.is_empty() && !takes_second_streams && ends_second_streams {
                world.tried(if kinds.len() == 1 { TrialEnd::Lost } else { TrialEnd::EndedForAny });
            } else if !kinds.is_empty() && !takes_second_streams {
                ended += 1;
                world.end(UNKNOWN);
            } else if kinds.iter().all(|name| good.contains(name.as_str())) {
                world.tried(TrialEnd::Taken((0..kinds.len()).collect()));
            } else {
                world.tried(if kinds.len() == 1 { refused() } else { TrialEnd::EndedForAny });
            }
        }
        if bad_openings == 0 {
            seconds += 1;
        }
        assert!(!good.iter().any(|name| world.is_refused(name)), "history {number}: {good:?} of {wanted:?}");
        assert!(
            ended <= 24 && seconds <= 90,
            "history {number}: {ended} openings, {seconds} s, {good:?} of {wanted:?}"
        );
        world.pass(Duration::from_secs(1));
    }
}
