//! Random histories of collections: clients that subscribe to globs and single members and reconnect with what they hold, a control plane
//! whose collections grow and shrink and which answers in several responses, and streams that break.
//!
//! Invariants: a client loses only what upstream has removed since the client was sent it. When nothing changes any more, each client holds
//! exactly what its subscriptions contain.

mod support;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use support::random::number;
use support::{Bench, RDS, wrapper};
use weir_core::proto::discovery::{DeltaDiscoveryRequest, DeltaDiscoveryResponse, Resource};
use weir_core::proto::{Request, Response};
use weir_core::protocol::ladder::Rule;
use weir_core::protocol::moment::Moment;
use weir_core::protocol::options::ProtocolOptions;
use weir_core::protocol::session::{Step, Variant};
use weir_core::protocol::sources::{AuthorityPlan, Plan, StreamId};
use weir_core::protocol::view::SessionId;

const KIND: &str = "xdstp://x/envoy.config.route.v3.RouteConfiguration";
const CLIENTS: u64 = 3;
const STREAM: StreamId = StreamId { server: 0, at: 0 };

fn names() -> Vec<String> {
    ["one/a", "one/b", "one/c", "two/d", "two/e"].map(|id| format!("{KIND}/{id}")).into()
}

fn globs() -> [String; 2] {
    ["one", "two"].map(|folder| format!("{KIND}/{folder}/*"))
}

fn covers(wanted: &str, name: &str) -> bool {
    wanted == name || wanted.strip_suffix('*').is_some_and(|folder| name.starts_with(folder))
}

struct World {
    random: u64,
    tick: usize,
    bench: Bench,
    clients: BTreeMap<SessionId, Peer>,
    /// The resources that exist, each name with its content.
    truth: BTreeMap<String, u32>,
    /// What the relay subscribes to on the upstream stream.
    subscribed: BTreeSet<String>,
    /// Globs whose first response on this stream is pending.
    unanswered: BTreeSet<String>,
    /// What the relay was sent, and when each name was last absent, or was last reported absent to the relay.
    sent: BTreeMap<String, u32>,
    absent: BTreeMap<String, usize>,
}

/// A client of the relay, through all its streams.
struct Peer {
    wanted: BTreeSet<String>,
    /// The version and the content of what the client holds, and when it was sent.
    holds: BTreeMap<String, (String, usize)>,
}

impl World {
    fn new(seed: u64) -> Self {
        // This control plane may be slow to answer for a name, but reports absence in the end.
        let (linger, second_silence) = (Duration::from_secs(2), Duration::from_secs(10_000));
        let options = ProtocolOptions::default().with(|options| {
            options.view.linger = linger;
            options.upstream.second_silence = second_silence;
        });
        let mut plan = Plan::single(Variant::Delta, Default::default());
        plan.authorities.insert("x".into(), AuthorityPlan { servers: vec![0], rule: Rule::default() });
        let mut bench = Bench::of_servers(plan, options);
        bench.now = Moment::START + Duration::from_secs(1);
        Self {
            random: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15),
            tick: 1,
            bench,
            clients: BTreeMap::new(),
            truth: BTreeMap::new(),
            subscribed: BTreeSet::new(),
            unanswered: BTreeSet::new(),
            sent: BTreeMap::new(),
            absent: BTreeMap::new(),
        }
    }

    fn live(&mut self) -> Result<(), String> {
        for _ in 0..CLIENTS {
            self.arrive(BTreeSet::new(), BTreeMap::new());
        }
        for _ in 0..300 {
            match self.below(8) {
                0 | 1 => self.change_truth(),
                2 | 3 => self.change_wish(),
                4 => self.answer(false),
                5 => self.come_back(),
                6 if self.below(6) == 0 => self.lose_upstream(),
                _ => {}
            }
            let elapsed = [50, 200, 1_000, 6_000][self.below(4)];
            self.pass(elapsed)?;
        }
        for _ in 0..150 {
            self.answer(true);
            self.pass(5_000)?; // in total longer than the pause before a stream that was often reopened is reopened again
        }
        self.judge_peace()
    }

    fn below(&mut self, end: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random % end as u64) as usize
    }

    fn change_truth(&mut self) {
        let name = names()[self.below(5)].clone();
        match self.below(2) {
            0 => drop(self.truth.remove(&name)),
            _ => *self.truth.entry(name).or_default() += 1,
        }
    }

    fn client(&mut self) -> SessionId {
        let at = self.below(self.clients.len());
        *self.clients.keys().nth(at).unwrap()
    }

    fn change_wish(&mut self) {
        let id = self.client();
        let all: Vec<String> = globs().into_iter().chain(globs()).chain(names()).collect();
        let what = all[self.below(all.len())].clone();
        let peer = self.clients.get_mut(&id).unwrap();
        let on = peer.wanted.insert(what.clone());
        if !on {
            peer.wanted.remove(&what);
            let wanted = peer.wanted.clone();
            peer.holds.retain(|name, _| wanted.iter().any(|wanted| covers(wanted, name)));
        }
        let (on, off) = if on { (vec![what], vec![]) } else { (vec![], vec![what]) };
        self.request(
            id,
            DeltaDiscoveryRequest {
                type_url: RDS.into(),
                resource_names_subscribe: on,
                resource_names_unsubscribe: off,
                ..Default::default()
            },
        );
    }

    /// Reconnects one client or all, with the same subscriptions and mostly with what they held.
    fn come_back(&mut self) {
        let one = self.client();
        let all = self.below(3) == 0;
        let mut away = Vec::new();
        for (id, peer) in self.clients.extract_if(.., |id, _| all || *id == one).collect::<Vec<_>>() {
            let mut session = self.bench.sessions.remove(&id).unwrap();
            session.close();
            for change in session.take_interest() {
                self.bench.view.change_interest(id, change, self.bench.now);
            }
            away.push(peer);
        }
        if self.below(2) == 0 {
            self.later(Duration::from_secs(10)); // longer than any interest lingers
        }
        for peer in away {
            let forgetful = self.below(4) == 0;
            self.arrive(peer.wanted, if forgetful { BTreeMap::new() } else { peer.holds });
        }
    }

    fn arrive(&mut self, wanted: BTreeSet<String>, holds: BTreeMap<String, (String, usize)>) {
        let id = self.bench.client(Variant::Delta);
        let session = self.bench.sessions.remove(&id).unwrap();
        self.bench.sessions.insert(id, session.with_authorities(Arc::new(["x".to_owned()].into())));
        let versions = holds.iter().map(|(name, (version, _))| (name.clone(), version.clone())).collect();
        let request = DeltaDiscoveryRequest {
            type_url: RDS.into(),
            resource_names_subscribe: wanted.iter().cloned().collect(),
            initial_resource_versions: versions,
            ..Default::default()
        };
        let any = !wanted.is_empty();
        self.clients.insert(id, Peer { wanted, holds });
        if any {
            self.request(id, request);
        }
    }

    fn request(&mut self, id: SessionId, request: DeltaDiscoveryRequest) {
        self.bench.request(id, Request::Delta(request));
        self.note_reopened();
    }

    fn later(&mut self, time: Duration) {
        self.bench.later(time);
        self.note_reopened();
    }

    /// Ends the stream that the relay opens again.
    fn note_reopened(&mut self) {
        if !self.bench.asked_again().is_empty() {
            self.bench.up.clear();
        }
    }

    fn pass(&mut self, milliseconds: usize) -> Result<(), String> {
        self.tick += 1;
        self.later(Duration::from_millis(milliseconds as u64));
        self.carry();
        for name in names() {
            if !self.truth.contains_key(&name) {
                self.absent.insert(name, self.tick);
            }
        }
        let ids: Vec<_> = self.clients.keys().copied().collect();
        ids.into_iter().try_for_each(|id| self.listen(id))
    }

    /// Reads the relay's requests.
    fn carry(&mut self) {
        let now = self.bench.now;
        let Some(stream) = self.bench.sources.stream(STREAM) else { return };
        if let Entry::Vacant(up) = self.bench.up.entry(STREAM) {
            up.insert(stream.opened());
            (self.subscribed, self.unanswered) = (BTreeSet::new(), BTreeSet::new());
        }
        while let Some(Request::Delta(request)) = stream.next_request(now) {
            let first = self.subscribed.is_empty();
            if first {
                // For a collection that was interrupted the relay states versions that no server has given.
                let content = |version: String| version.parse().unwrap_or(u32::MAX);
                let stated = request.initial_resource_versions.into_iter();
                self.sent = stated.map(|(name, version)| (name, content(version))).collect();
            }
            for name in request.resource_names_unsubscribe {
                self.subscribed.remove(&name);
                self.unanswered.remove(&name);
            }
            for name in request.resource_names_subscribe {
                // Every requested name is answered, except what the relay has just stated for a collection.
                if !first || !name.ends_with('*') {
                    let again = self.sent.iter_mut().filter(|(sent, _)| covers(&name, sent));
                    again.for_each(|(_, content)| *content = u32::MAX);
                }
                self.unanswered.insert(name.clone());
                self.subscribed.insert(name);
            }
        }
        stream.written(now);
    }

    /// Sends what has changed, all of it or a part.
    fn answer(&mut self, all: bool) {
        if !self.bench.up.contains_key(&STREAM) {
            return;
        }
        // The first response of a collection has all of it: a set that is quiet for long counts as complete.
        let all = all || self.unanswered.iter().any(|name| name.ends_with('*'));
        self.sent.retain(|name, _| self.subscribed.iter().any(|wanted| covers(wanted, name)));
        let mut response = DeltaDiscoveryResponse { type_url: RDS.into(), nonce: "n".into(), ..Default::default() };
        for name in names() {
            let wanted = self.subscribed.iter().any(|wanted| covers(wanted, &name));
            if !wanted || (!all && self.below(3) == 0) {
                continue;
            }
            match (self.truth.get(&name).copied(), self.sent.get(&name)) {
                (Some(content), sent) if sent != Some(&content) => {
                    response.resources.push(Resource { version: content.to_string(), ..resource(&name, content) });
                    self.sent.insert(name.clone(), content);
                    self.unanswered.remove(&name);
                }
                (None, sent) if sent.is_some() || self.unanswered.contains(&name) => {
                    response.removed_resources.push(name.clone());
                    self.absent.insert(name.clone(), self.tick);
                    self.sent.remove(&name);
                    self.unanswered.remove(&name);
                }
                _ => {}
            }
        }
        for glob in globs() {
            let empty = !self.truth.keys().chain(self.sent.keys()).any(|name| covers(&glob, name));
            if self.unanswered.contains(&glob) && empty {
                response.removed_resources.push(glob.clone());
            }
            self.unanswered.remove(&glob);
        }
        if response.resources.is_empty() && response.removed_resources.is_empty() {
            return;
        }
        self.bench.say(STREAM.server, Response::Delta(response));
        self.note_reopened();
    }

    fn lose_upstream(&mut self) {
        let Some(epoch) = self.bench.up.remove(&STREAM) else { return };
        self.bench.end_one(STREAM, Some(epoch), true);
        self.later(Duration::ZERO);
    }

    fn listen(&mut self, id: SessionId) -> Result<(), String> {
        let peer = self.clients.get_mut(&id).unwrap();
        loop {
            match self.bench.step(id) {
                Step::Reply(reply) => {
                    for resource in &*reply.resources {
                        let name = resource.name.to_string();
                        if !peer.wanted.iter().any(|wanted| covers(wanted, &name)) {
                            return Err(format!("{id:?} was sent {name}, which it did not ask for"));
                        }
                        peer.holds.insert(name, (resource.full.to_string(), self.tick));
                    }
                    for name in reply.removed.iter().map(ToString::to_string) {
                        let Some((_, sent)) = peer.holds.remove(&name) else { continue };
                        if self.absent.get(&name).is_none_or(|absent| *absent < sent) {
                            return Err(format!("{name} was taken from {id:?}, and upstream has it"));
                        }
                    }
                }
                Step::Idle(_) => return Ok(()),
                Step::End(end) => return Err(format!("the stream of {id:?} ended: {end:?}")),
            }
        }
    }

    fn judge_peace(&mut self) -> Result<(), String> {
        for (id, peer) in &self.clients {
            let held: BTreeMap<_, _> =
                peer.holds.iter().map(|(name, (version, _))| (name.clone(), version.clone())).collect();
            let mut right = BTreeMap::new();
            for (name, content) in &self.truth {
                if peer.wanted.iter().any(|wanted| covers(wanted, name)) {
                    let (kind, wrapper) = (self.bench.kind(RDS), resource(name, *content));
                    let made = weir_core::xds::Resource::from_wrapper(0, wrapper, &kind, &self.bench.store).unwrap();
                    right.insert(name.clone(), made.full.to_string());
                }
            }
            if held != right {
                return Err(format!("{id:?} wants {:?}, holds {held:#?} and should hold {right:#?}", peer.wanted));
            }
        }
        Ok(())
    }
}

fn resource(name: &str, content: u32) -> Resource {
    wrapper(RDS, name, &content.to_string())
}

fn run(seed: u64) -> Result<(), String> {
    World::new(seed).live().map_err(|why| format!("WEIR_SEED={seed} WEIR_HISTORIES=1: {why}"))
}

#[test]
fn coll_14_to_coll_20_clients_of_collections_come_to_hold_what_is_in_them() {
    let (first, histories) = (number("WEIR_SEED").unwrap_or(1), number("WEIR_HISTORIES").unwrap_or(100));
    for seed in first..first + histories {
        run(seed).unwrap();
    }
}
