//! Ten thousand bursts of a control plane that sends everything at once and in any order, to clients that read at any time. At no moment
//! may a client hold a route to a cluster that it does not hold, or that was never sent endpoints (ORD-1, ORD-4 to ORD-8, ORD-18).

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use support::random::{Random, number};
use support::{Bench, CDS, EDS, RDS, text_of};
use weir_core::proto::Request;
use weir_core::proto::discovery::{DeltaDiscoveryRequest, DiscoveryRequest};
use weir_core::protocol::options::ProtocolOptions;
use weir_core::protocol::session::{Client, Reply, Variant};
use weir_core::protocol::view::{Class, Evidence, SessionId, Update};

const CLUSTERS: [&str; 8] = ["c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7"];
const ROUTES: [&str; 3] = ["r0", "r1", "r2"];

/// What a client was sent, applied as an Envoy would apply it.
struct Reader {
    id: SessionId,
    variant: Variant,
    clusters: BTreeSet<String>,
    /// Clusters that were sent endpoints since they were added.
    endowed: BTreeSet<String>,
    routes: BTreeMap<String, String>,
    started: bool,
    /// The ACK of clusters waits until they are warm.
    unacknowledged: Option<String>,
    /// Requests that the relay has not received yet.
    on_its_way: Vec<Request>,
}

#[derive(Default)]
struct World {
    clusters: BTreeMap<&'static str, u64>,
    routes: BTreeMap<&'static str, &'static str>,
}

impl Reader {
    fn join(bench: &mut Bench, variant: Variant, wrappers: bool) -> Self {
        let id = bench.add(Client { wrappers, ..Client::plain(variant) });
        let new = || Self {
            id,
            variant,
            clusters: [].into(),
            endowed: [].into(),
            routes: [].into(),
            started: false,
            unacknowledged: None,
            on_its_way: vec![],
        };
        new().ask(bench, CDS, &[], "");
        new()
    }

    /// Requests everything that is wanted; in delta an ACK or NACK carries no subscription.
    fn ask(&self, bench: &mut Bench, url: &str, names: &[&str], nonce: &str) {
        match self.variant {
            Variant::Sotw => bench.sotw(self.id, url, names, nonce),
            Variant::Delta if nonce.is_empty() => bench.delta(self.id, url, names, &[]),
            Variant::Delta => {}
        }
    }

    fn take(&mut self, bench: &mut Bench, reply: &Reply, answers: bool) {
        let nonce = if answers { reply.nonce.to_string() } else { String::new() };
        let names: Vec<String> = reply.resources.iter().map(|resource| resource.name.to_string()).collect();
        match text_of(reply).split_at(1).0 {
            "C" if reply.kind.name().ends_with("Cluster") => {
                let before = self.clusters.clone();
                if self.variant == Variant::Sotw {
                    self.clusters.clear();
                }
                self.clusters.extend(names);
                self.clusters.retain(|name| !reply.removed.iter().any(|removed| removed.as_str() == name));
                self.endowed.retain(|name| self.clusters.contains(name));
                self.unacknowledged = answers.then_some(nonce);
                let new: Vec<&str> = self.clusters.difference(&before).map(String::as_str).collect();
                let all: Vec<&str> = self.clusters.iter().map(String::as_str).collect();
                let gone: Vec<&str> = before.difference(&self.clusters).map(String::as_str).collect();
                let request = match self.variant {
                    Variant::Sotw => Request::Sotw(DiscoveryRequest {
                        type_url: EDS.into(),
                        resource_names: texts(&all),
                        ..Default::default()
                    }),
                    Variant::Delta => Request::Delta(DeltaDiscoveryRequest {
                        type_url: EDS.into(),
                        resource_names_subscribe: texts(&new),
                        resource_names_unsubscribe: texts(&gone),
                        ..Default::default()
                    }),
                };
                if !new.is_empty() || !gone.is_empty() {
                    self.on_its_way.push(request);
                }
            }
            "C" => {
                self.endowed.extend(names.into_iter().filter(|name| self.clusters.contains(name)));
                let all: Vec<&str> = self.clusters.iter().map(String::as_str).collect();
                if answers {
                    self.ask(bench, EDS, &all, &nonce);
                }
                // An Envoy requests routes when its clusters are warm.
                if !std::mem::replace(&mut self.started, true) {
                    self.ask(bench, RDS, &ROUTES, "");
                }
            }
            "R" => {
                for resource in &*reply.resources {
                    let body = resource.body.bytes();
                    let target = std::str::from_utf8(&body[body.len() - 2..]).unwrap().to_owned();
                    self.routes.insert(resource.name.to_string(), target);
                }
                if answers {
                    self.ask(bench, RDS, &ROUTES, &nonce);
                }
            }
            other => panic!("{other}"),
        }
        self.acknowledge(bench);
    }

    fn read_to_the_end(&mut self, bench: &mut Bench, world: &World, burst: usize) {
        for _ in 0..20 {
            while let Some(reply) = bench.poll(self.id) {
                self.take(bench, &reply, true);
                self.check(burst);
                self.arrive(bench);
                world.answer(bench);
            }
            bench.later(600);
        }
    }

    fn arrive(&mut self, bench: &mut Bench) {
        std::mem::take(&mut self.on_its_way).into_iter().for_each(|request| bench.request(self.id, request));
    }

    fn acknowledge(&mut self, bench: &mut Bench) {
        if self.clusters.iter().all(|name| self.endowed.contains(name))
            && let Some(nonce) = self.unacknowledged.take()
        {
            self.ask(bench, CDS, &[], &nonce);
        }
    }

    fn check(&self, burst: usize) {
        for (route, cluster) in &self.routes {
            let (held, endowed) = (self.clusters.contains(cluster), self.endowed.contains(cluster));
            let variant = self.variant;
            assert!(held, "burst {burst}: {route} leads a {variant:?} client to {cluster}, which it does not hold");
            assert!(endowed, "burst {burst}: {route} leads a {variant:?} client to {cluster}, which has no endpoints");
        }
    }
}

impl World {
    /// Changes the configuration, and returns what a control plane sends of the difference.
    fn next(&mut self, random: &mut Random, bench: &mut Bench) -> Vec<Update> {
        let before = (self.clusters.clone(), self.routes.clone());
        for name in CLUSTERS {
            match random.below(4) {
                0 => drop(self.clusters.remove(name)),
                1 => drop(self.clusters.insert(name, random.below(1_000))),
                _ => {}
            }
        }
        if self.clusters.is_empty() {
            self.clusters.insert(CLUSTERS[0], 0);
        }
        let live: Vec<&'static str> = self.clusters.keys().copied().collect();
        for route in ROUTES {
            let stays = self.routes.get(route).is_some_and(|to| live.contains(to) && random.below(2) == 0);
            if !stays {
                self.routes.insert(route, live[random.below(live.len() as u64) as usize]);
            }
        }
        let mut updates = Vec::new();
        let (clusters, routes) = (bench.kind(CDS), bench.kind(RDS));
        for (name, content) in self.clusters.clone() {
            if before.0.get(name) != Some(&content) {
                let resource = bench.resource(CDS, name, &content.to_string());
                updates.push(Update::Upsert {
                    kind: clusters.clone(),
                    class: Class::Wildcard,
                    key: name.into(),
                    resource,
                });
            }
        }
        for name in before.0.keys().filter(|name| !self.clusters.contains_key(*name)) {
            updates.push(Update::Absent {
                kind: clusters.clone(),
                class: Class::Wildcard,
                key: (*name).into(),
                evidence: Evidence::Reported,
            });
        }
        for (name, target) in self.routes.clone() {
            if before.1.get(name) != Some(&target) {
                let resource = bench.resource(RDS, name, target);
                updates.push(Update::Upsert { kind: routes.clone(), class: Class::Named, key: name.into(), resource });
            }
        }
        for name in live {
            // A new cluster always comes with endpoints; others sometimes change.
            if !before.0.contains_key(name) || random.below(3) == 0 {
                updates.push(endpoints(bench, name, &random.below(1_000).to_string()));
            }
        }
        random.shuffle(&mut updates);
        updates
    }

    /// Answers the relay's requests.
    fn answer(&self, bench: &mut Bench) {
        for requested in bench.asked_upstream() {
            let Some(name) = requested.strip_prefix('+').filter(|name| name.starts_with('c')) else { continue };
            match self.clusters.contains_key(name) {
                true => {
                    let update = endpoints(bench, name, "first");
                    bench.apply(vec![update]);
                }
                false => bench.remove(EDS, name),
            }
        }
    }
}

fn texts(names: &[&str]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

fn endpoints(bench: &mut Bench, name: &str, content: &str) -> Update {
    let resource = bench.resource(EDS, name, content);
    Update::Upsert { kind: bench.kind(EDS), class: Class::Named, key: name.into(), resource }
}

#[test]
fn ord_1_no_burst_ever_leaves_a_client_with_a_route_into_the_void() {
    run(number("WEIR_BURSTS").unwrap_or(10_000) as usize);
}

fn run(bursts: usize) {
    let mut random = Random::of(4711);
    // Otherwise clients that are always behind would be sent a route without its endpoints after a total wait of two seconds.
    let (routing_hold, reference_hold) = (Duration::from_secs(3600), Duration::ZERO);
    let options = ProtocolOptions::default().with(|options| {
        options.session.routing_hold = routing_hold;
        options.hold_referenced(reference_hold);
    });
    let (mut bench, mut world) = (Bench::with(options), World::default());
    let mut readers: Vec<_> =
        [(Variant::Sotw, false), (Variant::Delta, false), (Variant::Sotw, true), (Variant::Delta, true)]
            .map(|(variant, wrappers)| Reader::join(&mut bench, variant, wrappers))
            .into();
    bench.whole(CDS, &[]);
    for update in world.next(&mut random, &mut bench) {
        bench.apply(vec![update]);
    }
    readers.iter_mut().for_each(|reader| reader.read_to_the_end(&mut bench, &world, 0));
    let mut replies = 0;
    for burst in 0..bursts {
        // All of it is queued before the relay reads it.
        for update in world.next(&mut random, &mut bench) {
            bench.view.apply(vec![update], bench.now);
        }
        bench.publish();
        world.answer(&mut bench);
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
                world.answer(&mut bench);
            }
            reader.arrive(&mut bench);
            world.answer(&mut bench);
        }
        bench.later(random.below(700));
    }
    assert!(replies > bursts * 3, "only {replies} replies to {bursts} bursts");
    for reader in &mut readers {
        reader.read_to_the_end(&mut bench, &world, bursts);
        let targets: BTreeMap<_, _> =
            world.routes.iter().map(|(name, to)| ((*name).to_owned(), (*to).to_owned())).collect();
        assert_eq!(reader.routes, targets, "in the end all is told");
        assert_eq!(reader.clusters.len(), world.clusters.len());
    }
}
