//! Three servers, one view, clients that come and go, and the rules that must hold at every moment.

mod judge;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use weir_core::proto::discovery::DeltaDiscoveryRequest;
use weir_core::proto::{Any, Request, Response};
use weir_core::protocol::ladder::{FallbackTimers, LadderState, Rule};
use weir_core::protocol::moment::Moment;
use weir_core::protocol::options::ProtocolOptions;
use weir_core::protocol::session::Variant;
use weir_core::protocol::sources::{AuthorityPlan, Plan, ServerPlan, Sources, StreamId};
use weir_core::protocol::upstream::{Backoff, Epoch, ReceivedResponse, ResponseMessage};
use weir_core::protocol::view::{Class, InterestChange, Lookup, Selector, SessionId, View};
use weir_core::xds::{BodyStore, TypeTable};

use super::holder::Holder;
use super::support::random::Random;
use super::support::server::{Habit, Health, Name, Removals, Server, ServerStream, Stated};
use super::support::{CDS, EDS};

pub const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
const TICK: Duration = Duration::from_millis(250);
/// The step of the long quiet time at the end, in which everything due is sent.
const LONG_TICK: Duration = Duration::from_secs(2);
const SERVERS: usize = 3;

pub struct World {
    random: Random,
    now: Moment,
    view: View,
    sources: Sources,
    store: BodyStore,
    table: Arc<TypeTable>,
    servers: Vec<Server<Pair>>,
    links: BTreeMap<StreamId, Link>,
    wanted: BTreeSet<(&'static str, &'static str)>,
    holders: Vec<Holder>,
    next_id: u64,
    options: Arc<ProtocolOptions>,
    trace: bool,
    /// When each resource was last lacked, or not known to be there, by the server whose updates count.
    lacked: BTreeMap<(&'static str, &'static str), Moment>,
    /// What a server last reported as absent on its stream and has not sent since, and what it has only just got.
    said_gone: BTreeSet<(usize, String, String)>,
    /// Resources that some server lacked at some time.
    ever_lacked: BTreeSet<(&'static str, &'static str)>,
    hold_down: Duration,
    /// How long a connection without an answer to a call stays open.
    hung_after: Duration,
    /// Servers that were seen to send more of a set soon after its first response.
    cutters: BTreeSet<usize>,
    /// Names that are absent by silence only.
    silent: BTreeSet<(&'static str, &'static str)>,
    /// The first wrong conclusion that was noticed.
    wrong: Option<String>,
    last: LadderState,
    returned: Option<Moment>,
    /// The rows of the state table (FB-11) that were reached so far.
    pub rows: BTreeSet<u8>,
}

/// What the edge would store about a stream.
#[derive(Default)]
struct Link {
    up: Option<(Epoch, ServerStream<Pair>)>,
    answered: bool,
    backoff: Backoff,
    next_attempt: Moment,
    opened_at: Moment,
    /// How many times in a row the stream has ended without a response.
    fruitless: i32,
    /// The stream ends at the next tick, after its first response.
    doomed: bool,
    /// Since when a call is unanswered.
    unanswered: Option<Moment>,
    /// The relay has requested a liveness call, and waits for its result.
    called: bool,
    /// Requests that were sent, and that the server has not read yet.
    unread: VecDeque<DeltaDiscoveryRequest>,
    /// When the last response for clusters arrived on this opening.
    clusters_at: Option<Moment>,
    /// All clusters were left on this opening. The relay requests them again on the next one, and reads nothing of them on this one.
    has_left_clusters: bool,
}

/// A type and a name. Its content is a letter; a resource that a server does not have does not exist there.
type Pair = (&'static str, &'static str);

impl Name for Pair {
    type Kind = &'static str;
    type Content = char;

    fn kind(self) -> &'static str {
        self.0
    }

    fn text(self) -> String {
        self.1.to_owned()
    }

    fn read(kind: &'static str, text: &str) -> Option<Self> {
        NAMES.into_iter().find(|name| *name == text).map(|name| (kind, name))
    }

    fn kind_of(url: &str) -> &'static str {
        if url == CDS { CDS } else { EDS }
    }

    fn url(kind: &'static str) -> &'static str {
        kind
    }

    fn is_full_state(kind: &'static str) -> bool {
        kind == CDS
    }

    fn packed(self, content: char) -> Any {
        let (url, name) = self;
        let value = [&[0x0a, 1], name.as_bytes(), &[0xc2, 0x3e, 1, content as u8]].concat();
        Any { type_url: url.into(), value: value.into() }
    }

    fn version(content: char, replica: u64) -> String {
        format!("{content}.{replica}")
    }
}

impl World {
    pub fn new(seed: u64) -> Self {
        let mut random = Random::of(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let rule = if random.below(2) == 0 { Rule::Uncached } else { Rule::Reachability };
        let hold_down = Duration::from_secs(10 * random.below(3));
        let hung_after = Duration::from_secs([10, 30, 300][random.below(3) as usize]);
        let server = || ServerPlan::Streams { variant: Variant::Delta, quirks: Arc::default() };
        let plan = Plan {
            servers: (0..SERVERS).map(|_| server()).collect(),
            top: AuthorityPlan { servers: (0..SERVERS).collect(), rule },
            timers: FallbackTimers { delay: Duration::ZERO, hold_down },
            holds_missing: random.below(2) == 0,
            ..Plan::single(Variant::Delta, Default::default())
        };
        let (table, options) = (
            Arc::new(TypeTable::new()),
            // Changes are judged when they are made. Changes that wait for others are tested in `core/tests/order.rs`.
            Arc::new(ProtocolOptions::default().with(|options| {
                options.view.linger = Duration::from_secs(2);
                options.hold_referenced(Duration::ZERO);
            })),
        );
        let habit = |random: &mut Random| -> Habit<&'static str> {
            let (compares, answers_foreign) = (random.below(4) != 0, random.below(4) != 0);
            Habit {
                compares,
                removes_stated: if answers_foreign { Stated::All } else { Stated::InOwnVersions },
                removes_unknown: answers_foreign,
                says_nothing_is_new: random.below(2) == 0,
                replicas: random.below(4) == 0,
                pieces: [None, Some(1), Some(7), Some(20), Some(60)][random.place(5)].map(Duration::from_secs),
                removals: Removals::Apart,
                unanswered: BTreeSet::new(),
            }
        };
        let servers = (0..SERVERS).map(|at| {
            let own = char::from(b'0' + at as u8);
            let pairs = NAMES.iter().flat_map(|name| [(CDS, *name), (EDS, *name)]);
            let content = pairs.filter(|_| random.below(6) != 0).map(|pair| (pair, own)).collect();
            let broken = NAMES.into_iter().filter(|_| random.below(12) == 0);
            let broken = broken.flat_map(|name| [(CDS, name), (EDS, name)]).collect();
            let mut server = Server::<Pair>::new(habit(&mut random), content);
            server.broken = broken;
            server
        });
        let servers: Vec<Server<Pair>> = servers.collect();
        let servers_that_cut = (0..SERVERS).filter(|at| servers[*at].habit.pieces.is_some()).collect();
        Self {
            now: Moment::START + Duration::from_secs(1),
            view: View::new(table.clone(), options.view.clone().into()),
            sources: Sources::new(
                Arc::new(plan),
                Bytes::from_static(b"node"),
                table.clone(),
                options.upstream.clone().into(),
            ),
            store: BodyStore::default(),
            table,
            servers,
            links: BTreeMap::new(),
            wanted: BTreeSet::new(),
            holders: Vec::new(),
            next_id: 2,
            options,
            trace: std::env::var_os("WEIR_TRACE").is_some(),
            lacked: BTreeMap::new(),
            said_gone: BTreeSet::new(),
            ever_lacked: BTreeSet::new(),
            hold_down,
            hung_after,
            cutters: servers_that_cut,
            silent: BTreeSet::new(),
            wrong: None,
            last: LadderState::Idle,
            returned: None,
            rows: BTreeSet::new(),
            random,
        }
    }

    /// Lives through a minute of faults, and then a quiet time.
    pub fn live(&mut self) -> Result<(), String> {
        self.servers.iter().for_each(|server| self.tell(|| format!("{server:?}")));
        for _ in 0..240 {
            self.trouble();
            self.clients();
            self.tick()?;
        }
        for server in &mut self.servers {
            server.health = Health::Fine;
            server.broken.clear();
        }
        // Requests on half-open streams are lost with them.
        let ids: Vec<_> = self.links.keys().copied().collect();
        ids.into_iter().for_each(|id| self.end(id));
        self.want((CDS, "*"), true);
        self.want((EDS, "a"), true);
        for _ in 0..800 {
            self.tick_by(LONG_TICK)?; // longer than any backoff has grown in a minute, and than a second request takes
        }
        let fresh = self.come(Variant::Sotw, BTreeSet::new());
        self.tick()?;
        if self.says_a_set() && !self.holders[fresh].answered {
            return Err("a client that holds nothing waits, and everything is there".into());
        }
        self.judge_peace()
    }

    fn trouble(&mut self) {
        if self.random.below(12) == 0 {
            let server = self.random.below(SERVERS as u64) as usize;
            let states = [
                Health::Fine,
                Health::Fine,
                Health::Refuses,
                Health::Hangs,
                Health::HalfOpen,
                Health::Mute,
                Health::Rejects,
                Health::AnswersOnce,
            ];
            self.servers[server].health = states[self.random.below(states.len() as u64) as usize];
            if !matches!(self.servers[server].health, Health::Fine | Health::HalfOpen | Health::Mute) {
                let ids: Vec<_> = self.links.keys().copied().filter(|id| id.server == server).collect();
                ids.into_iter().for_each(|id| self.end(id));
            }
        }
        if self.random.below(20) == 0 {
            // A server loses a resource, or gets it.
            let server = self.random.below(SERVERS as u64) as usize;
            let (url, name) = ([CDS, EDS][self.random.below(2) as usize], NAMES[self.random.below(6) as usize]);
            let own = char::from(b'0' + server as u8);
            if self.servers[server].content.remove(&(url, name)).is_none() {
                self.servers[server].content.insert((url, name), own);
                if self.links.iter().any(|(id, link)| id.server == server && link.up.is_some()) {
                    // Until the server reports that it has the resource, its stream still counts the resource as absent.
                    self.said_gone.insert((server, url.to_owned(), name.to_owned()));
                }
            }
            self.push(server, url, name);
        }
    }

    fn push(&mut self, server: usize, url: &'static str, name: &'static str) {
        let (now, speaks) = (self.now, self.servers[server].health.speaks());
        for (_, link) in self.links.iter_mut().filter(|(id, _)| id.server == server) {
            if let Some((_, to)) = &mut link.up {
                self.rows.extend(speaks.then_some(18));
                self.servers[server].push((url, name), false, to, now);
            }
        }
    }

    /// Connects a client, with what it holds from elsewhere.
    fn come(&mut self, variant: Variant, with: BTreeSet<&'static str>) -> usize {
        self.next_id += 1;
        let id = SessionId(self.next_id);
        let mut holder = Holder::come(id, variant, with, &self.table, &self.options, self.now);
        for change in holder.changes() {
            self.view.change_interest(id, change, self.now);
        }
        holder.counted();
        self.holders.push(holder);
        self.settle();
        self.holders.len() - 1
    }

    fn clients(&mut self) {
        if self.random.below(6) == 0 {
            let pick = self.random.below(7) as usize;
            let what = if pick == 6 { (CDS, "*") } else { (EDS, NAMES[pick]) };
            let on = !self.wanted.contains(&what);
            if on || self.random.below(3) == 0 {
                self.want(what, on);
            }
        }
        if matches!(self.last, LadderState::Trying(_)) && self.random.below(3) == 0 {
            // Clients that wait give up. Everything else is cached.
            let waiting = self.wanted.iter().copied().filter(|what| self.known(*what).is_unknown());
            for what in waiting.collect::<Vec<_>>() {
                self.want(what, false);
            }
        }
        if self.random.below(25) == 0 && self.holders.len() < 6 {
            let nothing = self.random.below(3) == 0;
            let with = NAMES.into_iter().filter(|_| self.random.below(2) == 0 && !nothing);
            let with: BTreeSet<_> = with.collect::<Vec<_>>().into_iter().collect();
            let variant = [Variant::Sotw, Variant::Delta][self.random.below(2) as usize];
            self.tell(|| format!("{variant:?} client comes with {with:?}"));
            self.come(variant, with);
        }
        if self.random.below(40) == 0 && !self.holders.is_empty() {
            let at = self.random.below(self.holders.len() as u64) as usize;
            let mut holder = self.holders.remove(at);
            for change in holder.leave() {
                self.view.change_interest(holder.id, change, self.now);
            }
            self.settle();
        }
        if self.random.below(150) == 0 && self.holders.is_empty() {
            for what in self.wanted.clone() {
                self.want(what, false);
            }
            self.now = self.now + Duration::from_secs(40); // longer than any interest lingers
        }
    }

    fn want(&mut self, (url, name): (&'static str, &'static str), on: bool) {
        let changed = if on { self.wanted.insert((url, name)) } else { self.wanted.remove(&(url, name)) };
        if !changed {
            return;
        }
        self.tell(|| format!("wanted {} {name}: {on}, known {:?}", letter(url), self.known((url, name))));
        let wanted = if name == "*" { Selector::Wildcard } else { Selector::Name(name.into()) };
        let change = InterestChange { kind: self.table.resolve(url), selector: wanted, on };
        self.view.change_interest(SessionId(1), change, self.now);
        if matches!(self.last, LadderState::Active(_)) {
            self.rows.insert(if on { 14 } else { 15 });
        }
        self.settle();
    }

    fn tick(&mut self) -> Result<(), String> {
        self.tick_by(TICK)
    }

    fn tick_by(&mut self, time: Duration) -> Result<(), String> {
        let held: Vec<_> = self.wanted.iter().copied().filter(|what| !self.known(*what).is_unknown()).collect();
        self.now = self.now + time;
        self.settle();
        let ids: Vec<_> = self.links.keys().copied().collect();
        for id in ids {
            self.carry(id);
        }
        self.settle();
        self.note_lacks();
        self.judge_losses()?;
        self.settle();
        self.judge(&held)
    }

    /// Lets one stream connect, send its requests, and receive responses.
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
            if !health.answers_calls() {
                self.end(id); // the HTTP/2 preface does not arrive
                return;
            }
            let epoch = stream.opened();
            self.rows.insert(21);
            link.up = Some((epoch, self.servers[id.server].accept()));
            (link.answered, link.unanswered, link.called, link.opened_at) = (false, None, false, self.now);
            (link.unread, link.clusters_at, link.has_left_clusters) = (VecDeque::new(), None, false);
        }
        if let (Some(stream), Some(link)) = (self.sources.stream(id), self.links.get_mut(&id)) {
            while let Some(Request::Delta(request)) = stream.next_request(self.now) {
                if request.type_url == CDS && request.resource_names_unsubscribe.iter().any(|name| name == "*") {
                    (link.clusters_at, link.has_left_clusters) = (None, true);
                }
                link.unread.push_back(request);
            }
            stream.written(self.now);
        }
        if self.ask_for_life(id, health) || !health.speaks() {
            return;
        }
        while let Some(request) = self.links.get_mut(&id).and_then(|link| link.unread.pop_front()) {
            let Some((_, subscriptions)) = self.links.get_mut(&id).and_then(|link| link.up.as_mut()) else { return };
            self.servers[id.server].hear_delta(&request, subscriptions, self.now);
            if !request.resource_names_subscribe.is_empty() || !request.initial_resource_versions.is_empty() {
                let on = &request.resource_names_subscribe;
                let stated = &request.initial_resource_versions;
                self.tell(|| format!("{id:?} is asked {} {on:?} {stated:?}", letter(&request.type_url)));
            }
        }
        while let Some(response) =
            self.links.get_mut(&id).and_then(|link| link.up.as_mut()).and_then(|(_, to)| to.next(self.now))
        {
            self.hear(id, response);
            if let Some(link) = self.links.get_mut(&id) {
                link.answered = true;
                link.doomed = health == Health::AnswersOnce;
            }
        }
    }

    /// Makes a liveness call, if one is requested. A connection with two unanswered calls is closed.
    fn ask_for_life(&mut self, id: StreamId, health: Health) -> bool {
        let Some(link) = self.links.get_mut(&id) else { return true };
        let (Some((epoch, _)), Some(stream)) = (&link.up, self.sources.stream(id)) else { return true };
        if health.answers_calls() {
            link.unanswered = None;
            if stream.take_liveness_call() || std::mem::take(&mut link.called) {
                stream.on_liveness_answer(*epoch);
            }
            return false;
        }
        link.called |= stream.take_liveness_call();
        let since = *link.unanswered.get_or_insert(self.now);
        if self.now - since >= self.hung_after {
            self.end(id);
        }
        true
    }

    fn hear(&mut self, id: StreamId, response: Response) {
        let Some(epoch) = self.links.get(&id).and_then(|link| Some(link.up.as_ref()?.0)) else { return };
        if let Response::Delta(of) = &response {
            for name in &of.removed_resources {
                self.said_gone.insert((id.server, of.type_url.clone(), name.clone()));
            }
            for resource in &of.resources {
                self.said_gone.remove(&(id.server, of.type_url.clone(), resource.name.clone()));
            }
            if of.type_url == CDS {
                let link = self.links.get_mut(&id).filter(|link| !link.has_left_clusters);
                let before = link.and_then(|link| link.clusters_at.replace(self.now));
                if before.is_some_and(|before| self.now - before <= SOON) {
                    self.cutters.insert(id.server);
                }
            }
            let names: Vec<_> = of.resources.iter().map(|of| format!("{}={}", of.name, of.version)).collect();
            self.tell(|| format!("{id:?} says {} {names:?} -{:?}", letter(&of.type_url), of.removed_resources));
        }
        let response = ReceivedResponse::read(ResponseMessage::Decoded(response), &self.table, &self.store).unwrap();
        let batches = self.sources.on_received(id, epoch, response, &self.view, self.now);
        for batch in batches {
            self.view.apply_from(batch.origin, batch.updates, self.now);
        }
        self.settle();
    }

    fn end(&mut self, id: StreamId) {
        self.tell(|| format!("{id:?} ends"));
        let before = self.last;
        self.said_gone.retain(|(server, _, _)| *server != id.server);
        let Some(link) = self.links.get_mut(&id) else { return };
        let (epoch, answered) = (link.up.take().map(|(epoch, _)| epoch), link.answered);
        (link.answered, link.doomed) = (false, false);
        let lived = epoch.map_or(Duration::ZERO, |_| self.now - link.opened_at);
        link.backoff.ended(answered, lived);
        let wait = link.backoff.next(0.5);
        link.next_attempt = self.now + wait;
        if let Err(hasty) = link.judge_wait(answered, lived, wait) {
            self.wrong.get_or_insert(format!("{id:?} {hasty}"));
        }
        let batches = self.sources.ended(id, epoch, answered, &self.view, self.now);
        for batch in batches {
            self.view.apply_from(batch.origin, batch.updates, self.now);
        }
        self.settle();
        match (before, self.last) {
            (LadderState::Active(_), LadderState::Active(_)) if answered => drop(self.rows.insert(6)),
            (before, now) if before == now => drop(self.rows.insert(20)),
            _ => {}
        }
    }

    fn settle(&mut self) {
        let gone =
            |world: &Self| world.wanted.iter().filter(|what| matches!(world.known(**what), Lookup::Absent(_))).count();
        let before = gone(self);
        for batch in self.sources.on_time(&self.view, self.now) {
            if !batch.updates.is_empty() {
                self.tell(|| format!("judged {:?}", batch.updates));
            }
            self.view.apply_from(batch.origin, batch.updates, self.now);
        }
        self.view.on_time(self.now);
        for change in self.view.take_upstream_changes() {
            self.sources.want(change, &self.view, self.now);
        }
        self.sources.close_unused(&self.view, self.now);
        for (id, marks) in self.view.publish().0 {
            if let Some(holder) = self.holders.iter_mut().find(|holder| holder.id == id) {
                marks.iter().for_each(|mark| holder.on_mark(mark));
            }
        }
        for id in self.sources.take_reopened() {
            if let Some(link) = self.links.get_mut(&id) {
                (link.up, link.next_attempt) = (None, self.now);
                self.said_gone.retain(|(server, _, _)| *server != id.server);
            }
        }
        if gone(self) > before {
            self.rows.insert(17);
        }
        self.judge_silence();
        let closed = self.sources.take_closed();
        let there: Vec<_> = self.sources.streams_mut().map(|(id, _)| id).collect();
        let is_there = |id: &StreamId| there.contains(id) && !closed.contains(&id.server);
        if !self.links.keys().all(is_there) {
            self.rows.insert(13); // responses that were still in flight are dropped
        }
        self.links.retain(|id, _| is_there(id));
        for id in there {
            self.links.entry(id).or_default();
        }
        self.note_move();
    }

    fn note_move(&mut self) {
        let now = self.sources.ladders().next().map_or(LadderState::Idle, |ladder| ladder.state);
        let row = match (self.last, now) {
            (before, now) if before == now => None,
            (_, LadderState::Idle) => Some(16),
            (LadderState::Idle, _) => Some(1),
            (LadderState::Trying(a), LadderState::Active(b)) if a == b => Some(2),
            (LadderState::Trying(_), LadderState::Trying(_)) => Some(3),
            (LadderState::Trying(_), LadderState::Cached(_)) => Some(4),
            (LadderState::Trying(_), LadderState::Down) => Some(5),
            (LadderState::Active(_), LadderState::Trying(_)) => Some(7),
            (LadderState::Active(_), LadderState::Cached(_)) => Some(8),
            (LadderState::Active(_), LadderState::Down) => Some(9),
            (LadderState::Cached(_), LadderState::Trying(_) | LadderState::Down) => Some(10),
            (LadderState::Cached(a), LadderState::Active(b)) if a == b => Some(11),
            (LadderState::Active(_) | LadderState::Trying(_) | LadderState::Cached(_), LadderState::Active(_)) => {
                Some(12)
            }
            (LadderState::Down, LadderState::Active(_)) => Some(19),
            _ => None,
        };
        self.rows.extend(row);
        if self.last != now {
            self.tell(|| format!("{now:?}"));
        }
        if matches!(row, Some(11 | 12 | 19)) {
            self.returned = Some(self.now);
        }
        self.last = now;
    }

    /// Prints events, one line each, with `WEIR_TRACE=1`.
    fn tell(&self, what: impl FnOnce() -> String) {
        if self.trace {
            println!("{:>10.2} {}", (self.now - Moment::START).as_secs_f64(), what());
        }
    }

    fn known(&self, (url, name): (&str, &str)) -> Lookup<'_> {
        let kind = self.table.resolve(url);
        match name {
            "*" => Lookup::Unknown, // judged by the members of the set
            _ => self.view.snapshot().lookup(&kind, Class::Named, &name.into()),
        }
    }
}

/// A response that follows another within this time shows that the first was not complete.
const SOON: Duration = Duration::from_secs(1);

fn letter(url: &str) -> &str {
    if url == CDS { "CDS" } else { "EDS" }
}
