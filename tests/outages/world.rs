//! Three servers, one view, clients that come and go; and what must hold at every moment.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use weir::proto::discovery::Resource;
use weir::proto::{Any, Request, Response};
use weir::protocol::faults::Faults;
use weir::protocol::ladder::{Patience, Rule, Standing};
use weir::protocol::limits::Limits;
use weir::protocol::moment::Moment;
use weir::protocol::session::Variant;
use weir::protocol::sources::{AuthorityPlan, Plan, ServerPlan, Sources, StreamId};
use weir::protocol::unit::{Class, InterestChange, Known, SessionId, Unit, Wanted};
use weir::protocol::upstream::{Backoff, Epoch};
use weir::xds::{BodyStore, TypeTable};

use super::server::{Health, Server, Subscriptions};

pub const CDS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
pub const EDS: &str = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";
const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
const TICK: Duration = Duration::from_millis(250);
const SERVERS: usize = 3;

pub struct World {
    random: u64,
    now: Moment,
    unit: Unit,
    sources: Sources,
    store: BodyStore,
    table: Arc<TypeTable>,
    servers: Vec<Server>,
    links: BTreeMap<StreamId, Link>,
    wanted: BTreeSet<(&'static str, &'static str)>,
    hold_down: Duration,
    last: Standing,
    returned: Option<Moment>,
    /// Rows of the state table that were seen.
    pub rows: BTreeSet<u8>,
}

/// What the edge would keep for a stream.
#[derive(Default)]
struct Link {
    up: Option<(Epoch, Subscriptions)>,
    answered: bool,
    backoff: Backoff,
    next_attempt: Moment,
    /// Ends at the next tick, after its first response.
    doomed: bool,
}

pub fn resource(url: &str, name: &str, content: char) -> Resource {
    let value = [&[0x0a, 1], name.as_bytes(), &[0xc2, 0x3e, 1, content as u8]].concat();
    Resource {
        name: name.into(),
        resource: Some(Any { type_url: url.into(), value: value.into() }),
        ..Default::default()
    }
}

impl World {
    pub fn new(seed: u64, faults: Faults) -> Self {
        let mut random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let rule = if below(&mut random, 2) == 0 { Rule::Uncached } else { Rule::Reachability };
        let hold_down = Duration::from_secs(10 * below(&mut random, 3));
        let server = || ServerPlan { variant: Variant::Delta, rules: Arc::default() };
        let plan = Plan {
            servers: (0..SERVERS).map(|_| server()).collect(),
            top: AuthorityPlan { servers: (0..SERVERS).collect(), rule },
            patience: Patience { minimum: Duration::ZERO, hold_down },
            holds_missing: below(&mut random, 2) == 0,
            ..Plan::single(Variant::Delta, Default::default())
        };
        let (table, limits) = (
            Arc::new(TypeTable::new()),
            Arc::new(Limits { faults, linger: Duration::from_secs(2), ..Limits::default() }),
        );
        let servers = (0..SERVERS).map(|at| {
            let own = char::from(b'0' + at as u8);
            let pairs = NAMES.iter().flat_map(|name| [(CDS, *name), (EDS, *name)]);
            let content = pairs.filter(|_| below(&mut random, 6) != 0).map(|pair| (pair, own)).collect();
            Server { health: Health::Fine, content }
        });
        let servers = servers.collect();
        Self {
            now: Moment::START + Duration::from_secs(1),
            unit: Unit::new(table.clone(), limits.clone()),
            sources: Sources::new(Arc::new(plan), Bytes::from_static(b"node"), table.clone(), limits),
            store: BodyStore::default(),
            table,
            servers,
            links: BTreeMap::new(),
            wanted: BTreeSet::new(),
            hold_down,
            last: Standing::Idle,
            returned: None,
            rows: BTreeSet::new(),
            random,
        }
    }

    /// A minute of troubles, then peace.
    pub fn live(&mut self) -> Result<(), String> {
        for _ in 0..240 {
            self.trouble();
            self.clients();
            self.tick()?;
        }
        self.servers.iter_mut().for_each(|server| server.health = Health::Fine);
        self.want((CDS, "*"), true);
        self.want((EDS, "a"), true);
        for _ in 0..800 {
            self.tick()?; // longer than any backoff has grown in a minute, and than sets need to settle
        }
        self.judge_peace()
    }

    fn trouble(&mut self) {
        if below(&mut self.random, 12) == 0 {
            let server = below(&mut self.random, SERVERS as u64) as usize;
            let states =
                [Health::Fine, Health::Fine, Health::Refuses, Health::Hangs, Health::Rejects, Health::AnswersOnce];
            self.servers[server].health = states[below(&mut self.random, states.len() as u64) as usize];
            if self.servers[server].health != Health::Fine {
                let ids: Vec<_> = self.links.keys().copied().filter(|id| id.server == server).collect();
                ids.into_iter().for_each(|id| self.end(id));
            }
        }
        if below(&mut self.random, 30) == 0 {
            // The active server gives something up, or gets it.
            let (url, name) = (EDS, NAMES[below(&mut self.random, 6) as usize]);
            if let Standing::Active(server) = self.last
                && self.servers[server].content.remove(&(url, name)).is_some()
            {
                self.push_removal(server, url, name);
            }
        }
    }

    fn push_removal(&mut self, server: usize, url: &'static str, name: &'static str) {
        let id = StreamId { server, at: 0 };
        let link = self.links.get(&id).and_then(|link| link.up.as_ref());
        if link.is_some_and(|(_, subscriptions)| subscriptions.has(url, name)) {
            let removed_resources = vec![name.to_owned()];
            let (type_url, nonce) = (url.to_owned(), "n".to_owned());
            let response = weir::proto::discovery::DeltaDiscoveryResponse {
                removed_resources,
                type_url,
                nonce,
                ..Default::default()
            };
            self.rows.insert(18);
            self.hear(id, Response::Delta(response));
        }
    }

    fn clients(&mut self) {
        if below(&mut self.random, 6) == 0 {
            let pick = below(&mut self.random, 7) as usize;
            let what = if pick == 6 { (CDS, "*") } else { (EDS, NAMES[pick]) };
            let on = !self.wanted.contains(&what);
            if on || below(&mut self.random, 3) == 0 {
                self.want(what, on);
            }
        }
        if matches!(self.last, Standing::Trying(_)) && below(&mut self.random, 3) == 0 {
            // Those who wait for something give up, and what is left is cached.
            let waiting = self.wanted.iter().copied().filter(|what| self.known(*what).is_unknown());
            for what in waiting.collect::<Vec<_>>() {
                self.want(what, false);
            }
        }
        if below(&mut self.random, 150) == 0 {
            for what in self.wanted.clone() {
                self.want(what, false);
            }
            self.now = self.now + Duration::from_secs(40); // longer than anything lingers
        }
    }

    fn want(&mut self, (url, name): (&'static str, &'static str), on: bool) {
        let changed = if on { self.wanted.insert((url, name)) } else { self.wanted.remove(&(url, name)) };
        if !changed {
            return;
        }
        let wanted = if name == "*" { Wanted::Star } else { Wanted::Name(name.into()) };
        let change = InterestChange { kind: self.table.resolve(url), wanted, on };
        self.unit.change_interest(SessionId(1), change, self.now);
        if matches!(self.last, Standing::Active(_)) {
            self.rows.insert(if on { 14 } else { 15 });
        }
        self.settle();
    }

    fn tick(&mut self) -> Result<(), String> {
        let held: Vec<_> = self.wanted.iter().copied().filter(|what| !self.known(*what).is_unknown()).collect();
        self.now = self.now + TICK;
        self.settle();
        let ids: Vec<_> = self.links.keys().copied().collect();
        for id in ids {
            self.carry(id);
        }
        self.settle();
        self.judge(&held)
    }

    /// Lets one stream try to connect, send what it has to say, and hear the answers.
    fn carry(&mut self, id: StreamId) {
        let health = self.servers[id.server].health;
        let Some(link) = self.links.get_mut(&id) else { return };
        if link.doomed {
            self.end(id);
            return;
        }
        if link.up.is_none() {
            if self.now < link.next_attempt {
                return;
            }
            let Some(stream) = self.sources.stream(id) else { return };
            if matches!(health, Health::Refuses | Health::Rejects) {
                self.end(id);
                return;
            }
            let epoch = stream.opened();
            if health != Health::Hangs {
                stream.on_sign_of_life(epoch);
            }
            self.rows.insert(21);
            link.up = Some((epoch, Subscriptions::default()));
            link.answered = false;
        }
        if health == Health::Hangs {
            return;
        }
        let mut answers = Vec::new();
        while let Some(Request::Delta(request)) =
            self.sources.stream(id).and_then(|stream| stream.next_request(self.now))
        {
            let Some((_, subscriptions)) = self.links.get_mut(&id).and_then(|link| link.up.as_mut()) else { return };
            answers.extend(self.servers[id.server].answer(&request, subscriptions));
        }
        if let Some(stream) = self.sources.stream(id) {
            stream.written(self.now);
        }
        for response in answers {
            self.hear(id, response);
            if let Some(link) = self.links.get_mut(&id) {
                link.answered = true;
                link.backoff.reset();
                link.doomed = health == Health::AnswersOnce;
            }
        }
    }

    fn hear(&mut self, id: StreamId, response: Response) {
        let Some((epoch, _)) = self.links.get(&id).and_then(|link| link.up.as_ref()) else { return };
        let batches = self.sources.on_response(id, *epoch, response, &mut self.store, &self.unit, self.now);
        for batch in batches {
            self.unit.apply_from(batch.source, batch.facts, self.now);
        }
        self.settle();
    }

    fn end(&mut self, id: StreamId) {
        let before = self.last;
        let Some(link) = self.links.get_mut(&id) else { return };
        let (epoch, answered) = (link.up.take().map(|(epoch, _)| epoch), link.answered);
        (link.answered, link.doomed) = (false, false);
        link.next_attempt = self.now + link.backoff.next(0.5);
        let batches = self.sources.ended(id, epoch, answered, &self.unit, self.now);
        for batch in batches {
            self.unit.apply_from(batch.source, batch.facts, self.now);
        }
        self.settle();
        match (before, self.last) {
            (Standing::Active(_), Standing::Active(_)) if answered => drop(self.rows.insert(6)),
            (before, now) if before == now => drop(self.rows.insert(20)),
            _ => {}
        }
    }

    fn settle(&mut self) {
        let gone =
            |world: &Self| world.wanted.iter().filter(|what| matches!(world.known(**what), Known::Gone(_))).count();
        let before = gone(self);
        for batch in self.sources.on_time(&self.unit, self.now) {
            self.unit.apply_from(batch.source, batch.facts, self.now);
        }
        self.unit.on_time(self.now);
        for change in self.unit.take_upstream_changes() {
            self.sources.want(change, &self.unit, self.now);
        }
        self.sources.rest(&self.unit, self.now);
        self.unit.publish();
        if gone(self) > before {
            self.rows.insert(17);
        }
        let closed = self.sources.take_closed();
        let there: Vec<_> = self.sources.streams().map(|(id, _)| id).collect();
        let is_there = |id: &StreamId| there.contains(id) && !closed.contains(&id.server);
        if !self.links.keys().all(is_there) {
            self.rows.insert(13); // whatever they still had to say is nobody's
        }
        self.links.retain(|id, _| is_there(id));
        for id in there {
            self.links.entry(id).or_default();
        }
        self.note_move();
    }

    fn note_move(&mut self) {
        let now = self.sources.ladders().next().map_or(Standing::Idle, |ladder| ladder.standing);
        let row = match (self.last, now) {
            (before, now) if before == now => None,
            (_, Standing::Idle) => Some(16),
            (Standing::Idle, _) => Some(1),
            (Standing::Trying(a), Standing::Active(b)) if a == b => Some(2),
            (Standing::Trying(_), Standing::Trying(_)) => Some(3),
            (Standing::Trying(_), Standing::Held(_)) => Some(4),
            (Standing::Trying(_), Standing::Down) => Some(5),
            (Standing::Active(_), Standing::Trying(_)) => Some(7),
            (Standing::Active(_), Standing::Held(_)) => Some(8),
            (Standing::Active(_), Standing::Down) => Some(9),
            (Standing::Held(_), Standing::Trying(_) | Standing::Down) => Some(10),
            (Standing::Held(a), Standing::Active(b)) if a == b => Some(11),
            (Standing::Active(_) | Standing::Trying(_) | Standing::Held(_), Standing::Active(_)) => Some(12),
            (Standing::Down, Standing::Active(_)) => Some(19),
            _ => None,
        };
        self.rows.extend(row);
        if matches!(row, Some(11 | 12 | 19)) {
            self.returned = Some(self.now);
        }
        self.last = now;
    }

    fn known(&self, (url, name): (&str, &str)) -> Known<'_> {
        let kind = self.table.resolve(url);
        match name {
            "*" => Known::Unknown, // judged by its members
            _ => self.unit.state().known(&kind, Class::Named, &name.into()),
        }
    }

    fn judge(&self, held: &[(&'static str, &'static str)]) -> Result<(), String> {
        for what in held.iter().filter(|what| self.wanted.contains(*what)) {
            if self.known(*what).is_unknown() {
                return Err(format!("{what:?} was known and is not any more"));
            }
        }
        for what in &self.wanted {
            let everywhere = self.servers.iter().all(|server| server.content.contains_key(what));
            if everywhere && matches!(self.known(*what), Known::Gone(_)) {
                return Err(format!("{what:?} is told absent, and every server has it"));
            }
            if let Standing::Active(server) = self.last
                && self.servers[server].content.contains_key(what)
                && self.has_said(server, *what)
                && matches!(self.known(*what), Known::Gone(_))
            {
                return Err(format!("{what:?} is told absent, and the active server has given it"));
            }
        }
        let too_soon = self.returned.is_some_and(|returned| self.now - returned < self.hold_down);
        if too_soon && matches!(self.last, Standing::Trying(1..)) && self.hold_down > Duration::ZERO {
            return Err(format!("{:?} so soon after a return", self.last));
        }
        Ok(())
    }

    /// Whether a server was asked for it, and so has sent what it has of it.
    fn has_said(&self, server: usize, (url, name): (&str, &str)) -> bool {
        let up = self.links.get(&StreamId { server, at: 0 }).and_then(|link| link.up.as_ref());
        up.is_some_and(|(_, subscriptions)| subscriptions.has(url, name))
    }

    fn judge_peace(&self) -> Result<(), String> {
        if self.last != Standing::Active(0) {
            return Err(format!("all servers are up, and the ladder stands at {:?}", self.last));
        }
        for (url, name) in self.wanted.iter().filter(|(_, name)| *name != "*") {
            let right = match (self.servers[0].content.get(&(*url, *name)), self.known((url, name))) {
                (Some(content), Known::Here(resource)) => resource.body.bytes().ends_with(&[*content as u8]),
                (None, Known::Gone(_)) => true,
                _ => false,
            };
            if !right {
                return Err(format!("{url} {name} is {:?}, not what the first server has", self.known((url, name))));
            }
        }
        let kind = self.table.resolve(CDS);
        let held: BTreeSet<_> = self.unit.star_names(&kind).map(|name| name.as_str().to_owned()).collect();
        let own = self.servers[0].content.keys().filter(|(url, _)| *url == CDS);
        let own: BTreeSet<_> = own.map(|(_, name)| (*name).to_owned()).collect();
        if held != own {
            return Err(format!("the set is {held:?}, and the first server has {own:?}"));
        }
        Ok(())
    }
}

fn below(random: &mut u64, end: u64) -> u64 {
    *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*random >> 33) % end
}
