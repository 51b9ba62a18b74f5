//! The world: tiers of relays between control planes and clients, in virtual time. Time jumps from one event to the next.

mod clients;
mod links;
mod servers;
mod sessions;
mod tiers;
mod trouble;
mod waits;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;
use std::time::Duration;

use weir_core::proto::{Request, Response};
use weir_core::protocol::moment::Moment;
use weir_core::protocol::options::ProtocolOptions;
use weir_core::protocol::session::Reply;
use weir_core::protocol::view::SessionId;

use crate::client::Client;
use crate::content::{Content, Key};
use crate::judge::Judge;
use crate::options::Options;
use crate::random::Random;
use crate::server::{Server, ServerStream};
use crate::tier::{LinkKey, Place, Tier};

pub struct World {
    pub random: Random,
    pub options: Options,
    pub now: Moment,
    events: BinaryHeap<Reverse<Due>>,
    /// Numbers the events, so that those of one moment happen in the order in which they were made.
    made: u64,
    pub tiers: Vec<Tier>,
    pub servers: Vec<Server>,
    pub streams: BTreeMap<LinkKey, ServerStream>,
    pub clients: Vec<Client>,
    pub judge: Judge,
    protocol: Arc<ProtocolOptions>,
    next_id: u64,
    next_opening: u64,
    next_serial: u32,
    /// Whether to print a log of the history.
    log: bool,
    /// The first fault that was noticed.
    pub wrong: Option<String>,
    pub handled: u64,
    /// The bytes of the responses that the servers have sent.
    pub sent_bytes: usize,
    /// Whether the control plane leaves soon after its next response.
    leaves_soon: bool,
    /// Whether to record how late clients are right.
    pub counts: bool,
}

struct Due {
    at: Moment,
    number: u64,
    event: Event,
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

/// An event.
pub enum Event {
    /// The view task of a tier has something to do.
    Flush(usize),
    /// A stream is cut.
    Cut(LinkKey),
    /// A stream is opened, or an attempt is made.
    Connect(LinkKey),
    /// A request arrives at a scripted server.
    AtServer(LinkKey, Box<Request>),
    /// A scripted server may have something to send.
    ServerTurn(LinkKey),
    /// A response arrives at a tier.
    Response(LinkKey, Box<Response>),
    /// The answer to a liveness call arrives, if the server is alive.
    Alive(LinkKey),
    /// Two liveness calls have had no answer.
    Hung(LinkKey),
    /// A request arrives at a session.
    AtSession(Place, Box<Request>),
    /// Changes of interest arrive at the view task.
    Interest(Place),
    /// A session is polled.
    Poll(Place),
    /// A reply arrives at a client.
    ToClient(usize, SessionId, Box<Reply>),
    /// A client comes, or comes back.
    Come(usize),
    /// A client that polls begins with its next poll.
    NextPoll(usize),
    /// A client asks for another name that does not exist.
    Guess(usize),
    /// A tier that was stopped is back.
    Restarted(usize, Box<trouble::Saved>),
    Trouble,
    /// A server gets, changes or loses a resource.
    Change(usize, Key, Option<Content>),
    /// The last fault is over.
    End,
    /// The control plane goes away for good.
    Leave,
    /// A step of a history that a test has written.
    Step(Box<dyn FnOnce(&mut World)>),
    /// A client has to be right by now, unless something has happened since that moment.
    Check(usize, Moment),
}

impl World {
    pub fn new(number: u64, log: bool) -> Self {
        Self::with(number, log, |_, _| {})
    }

    /// Makes the history of a number, after changing its options.
    pub fn with(number: u64, log: bool, steer: impl FnOnce(&mut Options, &mut Random)) -> Self {
        let mut random = Random::of(number);
        let mut options = Options::of(&mut random);
        steer(&mut options, &mut random);
        let protocol = Arc::new(options.protocol.clone());
        let tiers = (0..options.tiers).map(|tier| Tier::new(options.plan(tier), protocol.clone())).collect();
        let mut world = Self {
            random,
            options,
            now: Moment::START + Duration::from_secs(1),
            events: BinaryHeap::new(),
            made: 0,
            tiers,
            servers: Vec::new(),
            streams: BTreeMap::new(),
            clients: Vec::new(),
            judge: Judge::default(),
            protocol,
            next_id: 0,
            next_opening: 0,
            next_serial: 0,
            log,
            wrong: None,
            handled: 0,
            sent_bytes: 0,
            leaves_soon: false,
            counts: false,
        };
        world.populate();
        world
    }

    /// Adds a step to the history, at this many milliseconds from its beginning.
    pub fn step(&mut self, millis: u64, step: impl FnOnce(&mut Self) + 'static) {
        self.at(Moment::START + Duration::from_millis(millis), Event::Step(Box::new(step)));
    }

    /// Runs the history.
    pub fn live(&mut self) -> Result<(), String> {
        self.tell(|world| format!("{:?}", world.options));
        while let Some(Reverse(Due { at, event, .. })) = self.events.pop() {
            if let Some(is_over) = self.judge.over_at(self.now)
                && at > is_over
            {
                break;
            }
            self.now = at;
            self.handled += 1;
            if self.handled > MOST_EVENTS {
                return Err(format!("no end after {MOST_EVENTS} events"));
            }
            self.handle(event);
            if let Some(wrong) = self.wrong.take() {
                return Err(wrong);
            }
        }
        self.judge_end()
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Flush(tier) => self.on_flush_due(tier),
            Event::Cut(link) => self.link_ended(link, "it is cut"),
            Event::Connect(link) => self.connect(link),
            Event::AtServer(link, request) => self.at_server(link, *request),
            Event::ServerTurn(link) => self.server_turn(link),
            Event::Response(link, response) => self.on_response(link, *response),
            Event::Alive(link) => self.on_alive(link),
            Event::Hung(link) => self.on_hung(link),
            Event::AtSession(place, request) => self.at_session(place, *request),
            Event::Interest(place) => self.on_interest(place),
            Event::Poll(place) => self.on_poll_due(place),
            Event::ToClient(client, session, reply) => self.client_gets(client, session, &reply),
            Event::Come(client) => self.come(client),
            Event::NextPoll(client) => self.next_poll(client),
            Event::Guess(client) => self.guess(client),
            Event::Restarted(tier, saved) => self.restarted(tier, *saved),
            Event::Trouble => self.trouble(),
            Event::Change(server, key, content) => self.change(server, key, content),
            Event::End => self.end(),
            Event::Leave => self.servers_leave(),
            Event::Step(step) => step(self),
            Event::Check(client, since) => self.check(client, since),
        }
    }

    pub fn at(&mut self, at: Moment, event: Event) {
        self.made += 1;
        self.events.push(Reverse(Due { at: at.max(self.now), number: self.made, event }));
    }

    pub fn soon(&mut self, wait: Duration, event: Event) {
        self.at(self.now + wait, event);
    }

    /// Returns how long a message is under way.
    pub fn way(&mut self) -> Duration {
        let lag = self.options.lag;
        self.random.millis(0, lag)
    }

    pub fn wrong(&mut self, what: impl FnOnce() -> String) {
        if self.wrong.is_none() {
            let what = what();
            self.tell_waits();
            self.tell(|_| format!("WRONG: {what}"));
            self.wrong = Some(format!("at {:.3}: {what}", self.seconds()));
        }
    }

    /// Writes a line of the log.
    pub fn tell(&self, what: impl FnOnce(&Self) -> String) {
        if self.log {
            println!("{:>10.3} {}", self.seconds(), what(self));
        }
    }

    fn seconds(&self) -> f64 {
        (self.now - Moment::START).as_secs_f64()
    }
}

/// A usual history has some thousand events.
const MOST_EVENTS: u64 = 300_000;
