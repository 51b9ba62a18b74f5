//! The clients: how they come, what they are sent, and what they do next.

use std::time::Duration;

use weir_core::proto::Request;
use weir_core::protocol::session::{Client as Properties, Reply, Variant};
use weir_core::protocol::view::SessionId;

use super::{Event, World};
use crate::client::{Client, Profile};
use crate::content::{Content, Key, Kind, MADE_UP};
use crate::options::Ending;
use crate::server::Server;
use crate::tier::{Holder, Place};

impl World {
    /// Creates the servers with their contents, and the first clients.
    pub(super) fn populate(&mut self) {
        for server in 0..self.options.habits.len() {
            let content = self.first_contents(server);
            self.judge.note_first(server, content.keys().copied());
            self.servers.push(Server::new(self.options.habits[server].clone(), content));
        }
        for _ in 0..self.options.clients {
            self.add_client();
        }
        if self.options.guesses {
            let guesser = self.clients.len() - 1;
            let wait = self.random.millis(1000, 9000);
            self.soon(wait, Event::Guess(guesser));
        }
        for _ in 0..self.options.troubles {
            let wait = self.random.millis(500, self.options.span * 1000);
            self.soon(wait, Event::Trouble);
        }
        self.soon(Duration::from_secs(self.options.span + 1), Event::End);
    }

    pub fn add_client(&mut self) {
        let top = self.tiers.len() - 1;
        let tier = if self.random.one_in(4) { self.random.below(self.tiers.len() as u64) as usize } else { top };
        let profile = match self.random.below(7) {
            0..=2 => Profile::Stream(Variant::Sotw),
            6 if self.options.polls => Profile::Polls,
            _ => Profile::Stream(Variant::Delta),
        };
        let mut client = Client::new(tier, profile);
        client.scopes = self.random.one_in(3) && profile != Profile::Polls;
        client.all_endpoints = self.random.one_in(4) && profile != Profile::Polls;
        let wait = self.random.millis(0, 2000);
        let number = self.enter(client, wait);
        self.arm(number);
    }

    /// Adds a client that comes after a while.
    pub fn enter(&mut self, client: Client, wait: Duration) -> usize {
        let number = self.clients.len();
        let polls = client.profile == Profile::Polls;
        self.clients.push(client);
        self.soon(wait, if polls { Event::NextPoll(number) } else { Event::Come(number) });
        number
    }

    /// Gives a client what it holds when it comes.
    pub(super) fn arm(&mut self, client: usize) {
        let what = self.random.below(6);
        let all = self.servers[0].content.clone();
        let stale = self.random.below(6) as u16;
        let of = &mut self.clients[client];
        if of.profile == Profile::Polls && what > 1 {
            return;
        }
        match what {
            // The client was sent this here, under these versions.
            0 | 1 => {}
            2 => of.forget_all(),
            // The client comes from the control plane itself, or from a relay that has made no versions for it.
            3 | 4 => {
                let sets: Vec<Kind> = of.sets().collect();
                of.forget_all();
                all.iter().filter(|(key, _)| sets.contains(&key.0)).for_each(|(key, content)| {
                    of.hold(*key, *content, "", self.now);
                });
                for kind in [Kind::Endpoints, Kind::Routes] {
                    let wanted = of.wants(kind);
                    let known = all.iter().filter(|(key, _)| wanted.contains(key));
                    known.for_each(|(key, content)| of.hold(*key, *content, "", self.now));
                }
                of.forget_versions();
            }
            _ => {
                for number in 0..=stale {
                    let content = Content { serial: u32::MAX, to: 0 };
                    of.hold(Key(Kind::Clusters, MADE_UP + number), content, "", self.now);
                }
                of.forget_versions();
                of.stale = true;
            }
        }
    }

    pub(super) fn come(&mut self, client: usize) {
        if self.clients[client].session.is_some() || matches!(self.clients[client].profile, Profile::Polls) {
            return;
        }
        let tier = self.clients[client].tier;
        if self.tiers[tier].is_down {
            let wait = self.random.millis(200, 1500);
            return self.soon(wait, Event::Come(client));
        }
        self.next_id += 1;
        let place = Place { tier, session: SessionId(self.next_id) };
        let variant = self.clients[client].variant();
        self.sit(place, Properties::plain(variant), Holder::Client(client));
        let requests = self.clients[client].come(place.session, self.now);
        self.disturbed("a client comes"); // what it requests has to come in, too
        self.tell(|world| format!("client {client} comes to tier {tier} with {:?}", world.clients[client].held.keys()));
        self.send(client, requests);
    }

    pub(super) fn client_ended(&mut self, client: usize, session: SessionId, why: &str) {
        if self.clients[client].session != Some(session) {
            return;
        }
        self.tell(|_| format!("client {client} is ended: {why}"));
        self.clients[client].session = None;
        let wait = self.random.millis(200, 1500);
        match self.clients[client].profile {
            Profile::Polls => self.soon(Duration::from_secs(3), Event::NextPoll(client)),
            Profile::Stream(_) => self.soon(wait, Event::Come(client)),
        }
    }

    /// Breaks the stream of a client, which comes back later.
    pub fn break_client(&mut self, client: usize, arms: bool) {
        let Some(session) = self.clients[client].session.take() else { return };
        self.tell(|_| format!("the stream of client {client} breaks"));
        self.leave(Place { tier: self.clients[client].tier, session });
        if arms {
            self.arm(client);
        }
        let wait = self.random.millis(50, 1500);
        match self.clients[client].profile {
            Profile::Polls => self.soon(wait, Event::NextPoll(client)),
            Profile::Stream(_) => self.soon(wait, Event::Come(client)),
        }
    }

    pub(super) fn send(&mut self, client: usize, requests: Vec<Request>) {
        let of = &self.clients[client];
        let Some(session) = of.session else { return };
        let place = Place { tier: of.tier, session };
        for request in requests {
            let way = self.way();
            let now = self.now;
            self.tell(|_| format!("client {client} asks {}", super::links::text_of(&request)));
            let Some(seat) = self.tiers[place.tier].seats.get_mut(&session) else { return };
            seat.last_in = seat.last_in.max(now + way);
            let at = seat.last_in;
            self.at(at, Event::AtSession(place, Box::new(request)));
        }
    }

    pub(super) fn client_gets(&mut self, client: usize, session: SessionId, reply: &Reply) {
        let polls = self.clients[client].profile == Profile::Polls;
        if self.clients[client].session != Some(session) {
            return;
        }
        self.tell(|_| {
            let names: Vec<_> = reply.resources.iter().map(|of| of.name.as_str()).collect();
            let kind = reply.kind.name().rsplit_once('.').map_or("", |(_, kind)| kind);
            format!("client {client} gets {kind} {names:?} -{:?}", reply.removed)
        });
        let reaction = self.clients[client].take(reply, self.now);
        if let Some(wrong) = reaction.wrong {
            self.wrong(|| format!("client {client}: {wrong}"));
        }
        for (key, since) in reaction.lost {
            self.judge_loss(client, key, since);
        }
        if polls {
            self.clients[client].session = None;
            let kind = Kind::of(&reply.spelling);
            let wait = if kind == Kind::Clusters { self.random.millis(5, 50) } else { self.poll_pause() };
            self.clients[client].polled = Some(kind);
            self.soon(wait, Event::NextPoll(client));
        }
        self.send(client, reaction.requests);
        self.note_rightness(client);
    }

    fn poll_pause(&mut self) -> Duration {
        let long = self.judge.is_ended();
        if long { self.random.millis(1500, 2500) } else { self.random.millis(500, 5000) }
    }

    /// Lets a client that polls request one type after another.
    pub(super) fn next_poll(&mut self, client: usize) {
        if self.clients[client].session.is_some() {
            return;
        }
        let tier = self.clients[client].tier;
        if self.tiers[tier].is_down {
            return self.soon(Duration::from_secs(1), Event::NextPoll(client));
        }
        let kind = match self.clients[client].polled {
            Some(Kind::Clusters) => Kind::Listeners,
            _ => Kind::Clusters,
        };
        self.next_id += 1;
        let place = Place { tier, session: SessionId(self.next_id) };
        self.sit(place, Properties::plain(Variant::Sotw), Holder::Client(client));
        let until = self.now + Duration::from_secs(5);
        if let Some(seat) = self.tiers[tier].seats.get_mut(&place.session) {
            seat.fetches = Some(until);
        }
        let request = self.clients[client].poll(kind);
        self.clients[client].session = Some(place.session);
        self.clients[client].polled = Some(kind);
        self.send(client, vec![request]);
    }

    /// Lets a client request a route that does not exist, and unsubscribe from the one before.
    pub(super) fn guess(&mut self, client: usize) {
        self.guess_once(client);
        if !self.judge.is_ended() || self.options.ending == Ending::Well {
            self.soon(Duration::from_secs(8), Event::Guess(client));
        }
    }

    pub fn guess_once(&mut self, client: usize) {
        let number = MADE_UP + self.random.below(1000) as u16;
        let of = &mut self.clients[client];
        if of.session.is_some() && of.profile != Profile::Polls && !of.is_set(Kind::Routes) {
            of.made_up = [Key(Kind::Routes, number)].into();
            let request = of.follow(Kind::Routes);
            self.send(client, request.into_iter().collect());
        }
    }
}
