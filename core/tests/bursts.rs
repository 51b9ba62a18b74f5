//! Ten thousand bursts of a control plane that sends everything at once and in any order, to clients that read at any time. At no moment
//! may a client hold a route to a cluster that it does not hold, or that was never sent endpoints (ORD-1, ORD-4 to ORD-8, ORD-18).

mod support;

use std::time::Duration;

use support::envoy::{Answer, Envoy, Manner, nonce_of};
use support::random::{Random, number};
use support::routing::{Routing, endpoints};
use support::{Bench, CDS, EDS, RDS};
use weir_core::proto::Request;
use weir_core::protocol::options::ProtocolOptions;
use weir_core::protocol::session::{Client, Reply, Variant};
use weir_core::protocol::view::{Class, SessionId, Update};

const CLUSTERS: [&str; 8] = ["c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7"];

/// An Envoy that sends its answers at once, and its subscriptions to endpoints some time later.
struct Reader {
    id: SessionId,
    variant: Variant,
    envoy: Envoy,
    /// Requests that the relay has not received yet.
    on_its_way: Vec<Request>,
}

impl Reader {
    fn join(bench: &mut Bench, variant: Variant, wrappers: bool) -> Self {
        let id = bench.add(Client { wrappers, ..Client::plain(variant) });
        let envoy = Envoy::new(Manner { variant, acknowledges_first: false, starts_cold: true });
        bench.request(id, envoy.first());
        Self { id, variant, envoy, on_its_way: vec![] }
    }

    fn take(&mut self, bench: &mut Bench, reply: &Reply, answers: bool) {
        let answer = if answers { Answer::Ack } else { Answer::Silence };
        for request in self.envoy.take(reply, answer) {
            let is_answer = !nonce_of(&request).is_empty();
            if request.type_url() == EDS && !is_answer {
                self.on_its_way.push(request);
            } else if !is_answer || self.variant == Variant::Sotw {
                bench.request(self.id, request); // in delta it answers nothing
            }
        }
    }

    fn read_to_the_end(&mut self, bench: &mut Bench, server: &Routing, burst: usize) {
        for _ in 0..20 {
            while let Some(reply) = bench.poll(self.id) {
                self.take(bench, &reply, true);
                self.check(burst);
                self.arrive(bench);
                respond(server, bench);
            }
            bench.later(600);
        }
    }

    fn arrive(&mut self, bench: &mut Bench) {
        std::mem::take(&mut self.on_its_way).into_iter().for_each(|request| bench.request(self.id, request));
    }

    fn check(&self, burst: usize) {
        if let Some((route, cluster, lack)) = self.envoy.voids().next() {
            let (variant, lack) = (self.variant, lack.text());
            panic!("burst {burst}: {route} leads a {variant:?} client to {cluster}, {lack}");
        }
    }
}

/// Changes the configuration, and returns what a control plane sends of the difference.
fn next_burst(server: &mut Routing, random: &mut Random, bench: &mut Bench) -> Vec<Update> {
    let before = server.clone();
    for name in CLUSTERS {
        match random.below(4) {
            0 => drop(server.clusters.remove(name)),
            1 => drop(server.clusters.insert(name, random.below(1_000))),
            _ => {}
        }
    }
    server.reroute(CLUSTERS[0], random);
    let mut updates = server.cluster_updates(&before, bench);
    for (name, target) in server.rerouted_since(&before) {
        let (kind, resource) = (bench.kind(RDS), bench.resource(RDS, name, target));
        updates.push(Update::Upsert { kind, class: Class::Named, key: name.into(), resource });
    }
    for name in server.live() {
        // A new cluster always comes with endpoints; others sometimes change.
        if !before.clusters.contains_key(name) || random.below(3) == 0 {
            updates.push(endpoints(bench, name, &random.below(1_000).to_string()));
        }
    }
    random.shuffle(&mut updates);
    updates
}

/// Responds to the relay's requests.
fn respond(server: &Routing, bench: &mut Bench) {
    for requested in bench.asked_upstream() {
        let Some(name) = requested.strip_prefix('+').filter(|name| name.starts_with('c')) else { continue };
        match server.clusters.contains_key(name) {
            true => {
                let update = endpoints(bench, name, "first");
                bench.apply(vec![update]);
            }
            false => bench.remove(EDS, name),
        }
    }
}

#[test]
fn ord_1_no_burst_ever_leaves_a_client_with_a_route_into_the_void() {
    run(number("WEIR_BURSTS").unwrap_or(10_000) as usize);
}

fn run(bursts: usize) {
    let mut random = Random::of(number("WEIR_SEED").unwrap_or(4711));
    // Otherwise clients that are always behind would be sent a route without its endpoints after a total wait of two seconds.
    let (routing_hold, reference_hold) = (Duration::from_secs(3600), Duration::ZERO);
    let options = ProtocolOptions::default().with(|options| {
        options.session.routing_hold = routing_hold;
        options.hold_referenced(reference_hold);
    });
    let (mut bench, mut server) = (Bench::with(options), Routing::default());
    let mut readers: Vec<_> =
        [(Variant::Sotw, false), (Variant::Delta, false), (Variant::Sotw, true), (Variant::Delta, true)]
            .map(|(variant, wrappers)| Reader::join(&mut bench, variant, wrappers))
            .into();
    bench.whole(CDS, &[]);
    for update in next_burst(&mut server, &mut random, &mut bench) {
        bench.apply(vec![update]);
    }
    readers.iter_mut().for_each(|reader| reader.read_to_the_end(&mut bench, &server, 0));
    let mut replies = 0;
    for burst in 0..bursts {
        // All of it is queued before the relay reads it.
        for update in next_burst(&mut server, &mut random, &mut bench) {
            bench.view.apply(vec![update], bench.now);
        }
        bench.publish();
        respond(&server, &mut bench);
        for reader in &mut readers {
            // Some clients read everything, some a little, some nothing for a while.
            let limit = match random.below(4) {
                0 => 0,
                1 => random.within(1..4),
                _ => u64::MAX,
            };
            for _ in 0..limit.min(100) {
                let Some(reply) = bench.poll(reader.id) else { break };
                replies += 1;
                reader.take(&mut bench, &reply, random.below(5) != 0);
                reader.check(burst);
                if random.below(2) == 0 {
                    reader.arrive(&mut bench);
                }
                respond(&server, &mut bench);
            }
            reader.arrive(&mut bench);
            respond(&server, &mut bench);
        }
        bench.later(random.below(700));
    }
    assert!(replies > bursts * 3, "only {replies} replies to {bursts} bursts");
    for reader in &mut readers {
        reader.read_to_the_end(&mut bench, &server, bursts);
        assert_eq!(reader.envoy.routes, server.targets(), "in the end all is told");
        assert_eq!(reader.envoy.clusters.len(), server.clusters.len());
    }
}
