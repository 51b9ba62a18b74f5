//! Bursts of a control plane that sends its changes in any order, each response some milliseconds after the last, to clients that answer late.
//! After every message it is checked that no client holds a route to a cluster that it does not hold, or that was sent no endpoints since it was
//! added (ORD-1, ORD-4, ORD-13).
//!
//! `WEIR_BURSTS=100000 cargo test --release --test order` runs more, and `WEIR_SEED=n` another history.

mod support;

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use support::envoy::{self, Answer, Envoy, Lack};
use support::random::{Random, number};
use support::routing::{ROUTES, Routing, endpoints};
use support::{Bench, CDS, EDS, RDS, route_configuration};
use weir_core::proto::Request;
use weir_core::protocol::options::ProtocolOptions;
use weir_core::protocol::session::{Client, Reply, Variant};
use weir_core::protocol::view::{Class, Evidence, Presence, Retain, Selector, SessionId, Update};
use weir_core::xds::Authority;

const CLUSTERS: [&str; 10] = ["c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8", "c9"];
/// The step of virtual time.
const TICK: u64 = 2;

/// How a client behaves.
#[derive(Debug, Clone, Copy)]
struct Manner {
    envoy: envoy::Manner,
    lag: u64,
    /// It reads one message in this many milliseconds.
    reads_every: u64,
    /// It sometimes rejects a route, and keeps its earlier one.
    refuses: bool,
}

/// An Envoy whose messages are under way for some time.
struct Reader {
    id: SessionId,
    manner: Manner,
    envoy: Envoy,
    /// Its requests, by the time at which the relay receives them.
    says: VecDeque<(u64, Request)>,
    next_read: u64,
}

#[derive(Default)]
struct ControlPlane {
    has: Routing,
    /// Clusters that were reported to have no endpoints. When they get some, that is reported too.
    bare: BTreeSet<&'static str>,
    /// Clusters whose endpoints the control plane removed before it died and did not send again: it reported that they have none.
    left_bare: BTreeSet<&'static str>,
    /// Responses in flight, by the time at which they arrive.
    out: VecDeque<(u64, Vec<Update>)>,
    /// Endpoints that were requested, by the time at which they are sent.
    requested: Vec<(u64, String)>,
}

impl Reader {
    fn join(bench: &mut Bench, manner: Manner) -> Self {
        let id = bench.add(Client::plain(manner.envoy.variant));
        let envoy = Envoy::new(manner.envoy);
        bench.request(id, envoy.first());
        Self { id, manner, envoy, says: [].into(), next_read: 0 }
    }

    fn take(&mut self, reply: &Reply, now: u64, random: &mut Random) {
        let is_routes = reply.kind.name().ends_with(".RouteConfiguration");
        let has_all = self.envoy.routes.len() == ROUTES.len();
        let is_refused = is_routes && self.manner.refuses && random.below(4) == 0 && has_all;
        let answer = if is_refused { Answer::Nack } else { Answer::Ack };
        let requests = self.envoy.take(reply, answer).into_iter();
        self.says.extend(requests.map(|request| (now + self.manner.lag, request)));
    }

    /// Returns a route of the client that refers to a missing cluster, if there is one.
    fn fault(&self, left_bare: &BTreeSet<&'static str>) -> Option<String> {
        if self.manner.refuses {
            // It keeps a route for longer than any relay keeps the clusters.
            return None;
        }
        let (route, cluster, lack) = self.envoy.voids().find(|(_, cluster, lack)| {
            let is_left_bare = *lack == Lack::Endpoints && left_bare.contains(*cluster);
            !is_left_bare && !self.envoy.early.contains(*cluster)
        })?;
        Some(format!("{route} refers to {cluster}, {}, with {:?}", lack.text(), self.manner))
    }
}

impl ControlPlane {
    /// Changes the configuration, in responses by type that arrive in any order.
    fn burst(&mut self, random: &mut Random, bench: &mut Bench, now: u64) {
        let before = self.has.clone();
        for _ in 0..=random.below(3) {
            let name = CLUSTERS[random.place(CLUSTERS.len())];
            if random.below(3) == 0 {
                self.has.clusters.remove(name);
            } else {
                self.has.clusters.insert(name, random.below(1_000));
            }
        }
        self.has.reroute(CLUSTERS[0], random);
        let mut responses = Vec::new();
        if before.clusters != self.has.clusters {
            responses.push(match random.below(2) == 0 {
                true => vec![self.all_clusters(bench)],
                false => self.has.cluster_updates(&before, bench),
            });
        }
        for (name, target) in self.has.rerouted_since(&before) {
            responses.push(vec![route(bench, name, target)]);
        }
        let mut ends = Vec::new();
        for name in self.has.live() {
            let again = !before.clusters.contains_key(name) && (self.bare.remove(name) || random.below(2) == 0);
            if again || random.below(4) == 0 {
                ends.push(endpoints(bench, name, &random.below(1_000).to_string()));
            }
        }
        for name in self.has.lost_since(&before) {
            if random.below(2) == 0 {
                self.bare.insert(name);
                let (kind, class) = (bench.kind(EDS), Class::Named);
                ends.push(Update::Absent { kind, class, key: name.into(), evidence: Evidence::Reported });
            }
        }
        responses.push(ends);
        random.shuffle(&mut responses);
        let mut at = now;
        for response in responses {
            self.out.push_back((at, response));
            at += random.below(20);
        }
    }

    fn all_clusters(&self, bench: &mut Bench) -> Update {
        let resources = self.has.all_clusters(bench);
        Update::FullSet { kind: bench.kind(CDS), resources, retain: Retain::nothing() }
    }

    /// Brings the control plane back with a new configuration: it sends clusters first, and routes much later. Returns when it has sent
    /// everything.
    fn come_back(&mut self, random: &mut Random, bench: &mut Bench, now: u64) -> u64 {
        self.burst(random, bench, now);
        self.out.clear();
        self.out.push_back((now, vec![self.all_clusters(bench)]));
        let ends = self.has.clusters.keys().map(|name| endpoints(bench, name, &now.to_string())).collect();
        self.bare.retain(|name| !self.has.clusters.contains_key(name));
        let later = now + random.below(8_000);
        let all = self.has.routes.iter().map(|(name, to)| route(bench, name, to)).collect();
        self.out.push_back((now + random.below(later - now + 1), ends));
        self.out.push_back((later, all));
        later
    }

    /// Answers the relay's requests: those for endpoints at once or somewhat later.
    fn answer(&mut self, random: &mut Random, bench: &mut Bench, now: u64) {
        for requested in bench.asked_upstream() {
            let (sign, name) = requested.split_at(1);
            if let Some(target) = self.has.routes.get(name).filter(|_| sign == "+") {
                let update = route(bench, name, target);
                bench.apply(vec![update]);
            } else if name != "*" {
                self.requested.retain(|(_, other)| other != name);
                let delay = if random.below(2) == 0 { random.below(40) } else { 0 };
                self.requested.extend((sign == "+").then(|| (now + delay, name.to_owned())));
            }
        }
        for (_, name) in self.requested.extract_if(.., |(at, _)| *at <= now) {
            if self.has.clusters.contains_key(&*name) {
                let update = endpoints(bench, &name, "first");
                bench.apply(vec![update]);
            } else {
                bench.remove(EDS, &name);
            }
        }
    }
}

/// Whether the control plane reported that a cluster has no endpoints.
fn has_none(bench: &Bench, name: &str) -> bool {
    let entry = bench.view.tables().entry(&bench.kind(EDS), Class::Named, &name.into());
    entry.is_some_and(|entry| matches!(entry.presence, Presence::Absent(_)))
}

/// Returns a route configuration with one route to one cluster.
fn route(bench: &mut Bench, name: &str, cluster: &str) -> Update {
    let resource = bench.of_wrapper(RDS, route_configuration(name, &[cluster]));
    Update::Upsert { kind: bench.kind(RDS), class: Class::Named, key: name.into(), resource }
}

fn manners() -> Vec<Manner> {
    let mut all = Vec::new();
    for variant in [Variant::Sotw, Variant::Delta] {
        for (lag, acknowledges_first, reads_every, refuses) in [
            (0, false, 0, false),
            (0, true, 0, false),
            (30, true, 0, false),
            (60, false, 0, false),
            (200, true, 0, false),
            (20, true, 40, false),
            (10, false, 0, true),
        ] {
            let envoy = envoy::Manner { variant, acknowledges_first, starts_cold: false };
            all.push(Manner { envoy, lag, reads_every, refuses });
        }
    }
    all
}

/// Plays a number of bursts. Returns routes that led to missing clusters, and the number of messages. If a fault is planted (`tests/mutants`), the
/// first such route suffices.
fn play(bursts: usize, options: ProtocolOptions, seed: u64) -> (Vec<String>, usize) {
    let is_planted = std::env::var_os("WEIR_MUTANT").is_some();
    let mut random = Random::of(seed);
    let (mut bench, mut server, mut faults) = (Bench::with(options), ControlPlane::default(), Vec::new());
    let mut readers: Vec<_> = manners().into_iter().map(|manner| Reader::join(&mut bench, manner)).collect();
    bench.whole(CDS, &[]);
    let (mut now, mut left, mut next_burst, mut messages) = (0, bursts, 0, 0);
    let (mut quiet_until, mut away) = (None, None);
    while quiet_until.is_none_or(|until| now < until) {
        if left > 1 && away.is_none() && random.below(5_000) == 0 {
            // It dies before it has sent everything.
            tell(|| format!("{now:>7} upstream is away"));
            server.left_bare = server.has.clusters.keys().copied().filter(|name| has_none(&bench, name)).collect();
            server.out.clear();
            let (kind, of) = (bench.kind(CDS), Selector::Wildcard);
            bench.view.note_unsteady(BTreeSet::from([Authority::TopLevel]), bench.now);
            bench.apply(vec![Update::Interrupted { kind, of }]);
            away = Some((now + random.below(8_000), false));
        }
        match away {
            Some((until, false)) if now >= until => {
                tell(|| format!("{now:>7} upstream is back"));
                away = Some((server.come_back(&mut random, &mut bench, now), true));
            }
            Some((until, true)) if now > until => {
                bench.view.note_unsteady(BTreeSet::new(), bench.now);
                server.left_bare.clear();
                away = None;
            }
            _ => {}
        }
        if is_planted && !faults.is_empty() {
            return (faults, messages);
        }
        if left > 0 && now >= next_burst && away.is_none() {
            server.burst(&mut random, &mut bench, now);
            left -= 1;
            // Some bursts start while the last one is still being sent, and some long after it.
            next_burst = now + if random.below(3) == 0 { random.below(300) } else { 200 + random.below(6_000) };
            quiet_until = (left == 0).then_some(now + 30_000);
        }
        while server.out.front().is_some_and(|(at, _)| *at <= now) {
            let (_, updates) = server.out.pop_front().unwrap();
            tell(|| {
                format!("{now:>7} upstream says {}", updates.iter().map(text_of_fact).collect::<Vec<_>>().join(" "))
            });
            bench.apply(updates);
        }
        if now % 100 == 0 {
            // Endpoints change all the time, and delay nothing.
            let live: Vec<_> = server.has.clusters.keys().copied().filter(|name| !server.bare.contains(name)).collect();
            if let Some(name) = live.get(random.below(CLUSTERS.len() as u64) as usize) {
                let update = endpoints(&mut bench, name, &now.to_string());
                bench.apply(vec![update]);
            }
        }
        server.answer(&mut random, &mut bench, now);
        if left > 0 && random.below(4_000) == 0 {
            // A client disconnects in the meantime, and reconnects without state.
            let at = random.below(readers.len() as u64) as usize;
            let manner = readers[at].manner;
            bench.leave(readers[at].id);
            readers[at] = Reader::join(&mut bench, manner);
        }
        for reader in &mut readers {
            while reader.says.front().is_some_and(|(at, _)| *at <= now) {
                let (_, request) = reader.says.pop_front().unwrap();
                tell(|| format!("{now:>7} {} says {}", reader.id.0, text_of_request(&request)));
                bench.request(reader.id, request);
                server.answer(&mut random, &mut bench, now);
            }
            while reader.next_read <= now {
                let Some(reply) = bench.poll(reader.id) else { break };
                messages += 1;
                tell(|| format!("{now:>7} {} is told {}", reader.id.0, support::text_of(&reply)));
                reader.next_read = if reader.manner.reads_every > 0 { now + reader.manner.reads_every } else { 0 };
                reader.take(&reply, now, &mut random);
                faults.extend(
                    reader.fault(&server.left_bare).map(|fault| format!("burst {}, {now} ms: {fault}", bursts - left)),
                );
            }
        }
        bench.later(TICK);
        now += TICK;
    }
    for Reader { manner, envoy, .. } in readers.iter().filter(|reader| !reader.manner.refuses) {
        assert_eq!(envoy.routes, server.has.targets(), "in the end all is told to {manner:?}");
        assert!(envoy.clusters.iter().map(String::as_str).eq(server.has.live()), "{manner:?}");
    }
    (faults, messages)
}

/// Prints events, one line each, with `WEIR_TRACE=1`.
fn tell(what: impl FnOnce() -> String) {
    if std::env::var_os("WEIR_TRACE").is_some() {
        println!("{}", what());
    }
}

fn text_of_fact(update: &Update) -> String {
    let letter = |kind: &weir_core::xds::Type| kind.name().rsplit('.').next().unwrap().to_owned();
    match update {
        Update::Upsert { kind, key, .. } => format!("+{} {key}", letter(kind)),
        Update::Absent { kind, key, .. } => format!("-{} {key}", letter(kind)),
        Update::FullSet { resources, .. } => {
            format!("={:?}", resources.iter().map(|resource| resource.name.as_str()).collect::<Vec<_>>())
        }
        other => format!("{other:?}"),
    }
}

fn text_of_request(request: &Request) -> String {
    let (url, nonce, error, names) = match request {
        Request::Sotw(of) => (&of.type_url, &of.response_nonce, &of.error_detail, &of.resource_names),
        Request::Delta(of) => (&of.type_url, &of.response_nonce, &of.error_detail, &of.resource_names_subscribe),
    };
    let what = if error.is_some() { "no to" } else { "to" };
    format!("{} {what} {nonce} {names:?}", url.rsplit('.').next().unwrap())
}

#[test]
fn ord_1_whatever_order_things_come_in_no_client_holds_a_route_into_the_void() {
    let bursts = number("WEIR_BURSTS").unwrap_or(30) as usize;
    let (faults, messages) = play(bursts, ProtocolOptions::default(), number("WEIR_SEED").unwrap_or(4711));
    println!("{bursts} bursts, {messages} messages");
    assert!(messages > 10 * bursts, "only {messages} messages to {bursts} bursts");
    assert!(
        faults.is_empty(),
        "{} times in {messages} messages, first {:?}",
        faults.len(),
        &faults[..faults.len().min(8)]
    );
}

#[test]
fn without_the_hold_changes_go_out_as_they_come() {
    let (faults, _) = play(40, ProtocolOptions::default().with(|options| options.hold_referenced(Duration::ZERO)), 1);
    assert!(!faults.is_empty());
}
