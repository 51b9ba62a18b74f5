//! The control planes: what they read, what they send, and how their contents change.

use std::time::Duration;

use prost::Message;
use weir_core::proto::{Request, Response};
use weir_core::protocol::session::Variant;

use super::{Event, World};
use crate::content::{Content, Key, Kind};
use crate::server::Health;
use crate::tier::LinkKey;

impl World {
    pub(super) fn at_server(&mut self, key: LinkKey, request: Request) {
        let server = &self.servers[key.id.server];
        let Some(stream) = self.streams.get_mut(&key) else { return };
        if server.health.speaks() && stream.unread.is_empty() {
            server.hear(&request, stream, self.now);
        } else {
            stream.unread.push_back(request);
        }
        self.server_turn(key);
    }

    /// Sends what is due, unless the server is not well.
    pub(super) fn server_turn(&mut self, key: LinkKey) {
        let server = &self.servers[key.id.server];
        let Some(stream) = self.streams.get_mut(&key) else { return };
        if !server.health.speaks() {
            return;
        }
        while let Some(request) = stream.unread.pop_front() {
            server.hear(&request, stream, self.now);
        }
        let mut due = Vec::new();
        while stream.out.front().is_some_and(|(at, _)| *at <= self.now) {
            due.extend(stream.out.pop_front());
        }
        let next = stream.out.front().map(|(at, _)| *at);
        for (_, response) in due {
            self.sent_bytes += match &response {
                Response::Delta(response) => response.encoded_len(),
                Response::Sotw(response) => response.encoded_len(),
            };
            let way = self.way();
            let now = self.now;
            let Some(link) = self.tiers[0].link(key) else { return };
            link.last_in = link.last_in.max(now + way);
            let at = link.last_in;
            self.at(at, Event::Response(key, Box::new(response)));
        }
        if let Some(next) = next {
            self.at(next, Event::ServerTurn(key));
        }
    }

    /// Changes the state of a server.
    pub fn set_health(&mut self, server: usize, health: Health) {
        self.tell(|_| format!("server {server} is {health:?}"));
        self.servers[server].health = health;
        self.note_health();
        self.disturbed("a server");
        let keys: Vec<LinkKey> = self.streams.keys().copied().filter(|key| key.id.server == server).collect();
        for key in keys {
            match health {
                Health::Fine => self.server_turn(key),
                Health::Refuses | Health::Rejects | Health::Hangs => self.link_ended(key, "the server ends it"),
                // A hanging server is noticed by liveness calls of an idle stream, within 30 seconds.
                Health::HalfOpen => {
                    let wait = self.random.millis(15_000, 30_000);
                    self.soon(wait, Event::Hung(key));
                }
                Health::Mute => {}
                Health::AnswersOnce => unreachable!("no server of this world does that"),
            }
        }
    }

    pub(super) fn on_hung(&mut self, key: LinkKey) {
        if !self.servers[key.id.server].health.answers_calls() {
            self.link_ended(key, "no answer to two calls");
        }
    }

    pub fn serial(&mut self) -> u32 {
        self.next_serial += 1;
        self.next_serial
    }

    /// Lets a server get, change or lose a resource, and send that on its streams.
    pub fn change(&mut self, server: usize, key: Key, content: Option<Content>) {
        self.tell(|_| format!("server {server} has {key:?} {content:?}"));
        let of = &mut self.servers[server];
        match content {
            Some(content) => drop(of.content.insert(key, content)),
            None if of.content.remove(&key).is_none() => return,
            None => {}
        }
        *of.changes.entry(key.0).or_default() += 1;
        self.note_change(key);
        let sotw = self.options.variants[0] == Variant::Sotw;
        let streams = self.streams.iter_mut().filter(|(link, _)| link.id.server == server);
        let mut keys = Vec::new();
        for (link, stream) in streams {
            self.servers[server].push(key, sotw, stream, self.now);
            keys.push(*link);
        }
        for link in keys {
            self.server_turn(link);
        }
    }

    /// Returns the first contents of a server: a few resources of each type, with the same names on most servers.
    pub(super) fn first_contents(&mut self, server: usize) -> std::collections::BTreeMap<Key, Content> {
        let clusters = 1 + self.random.below(4) as u16;
        let (listeners, mut contents) = (1 + self.random.below(2) as u16, std::collections::BTreeMap::new());
        let lacks = |world: &mut Self| server > 0 && world.random.one_in(8);
        for number in 0..clusters {
            for kind in [Kind::Clusters, Kind::Endpoints] {
                let serial = self.serial();
                if !lacks(self) {
                    contents.insert(Key(kind, number), Content { serial, to: 0 });
                }
            }
        }
        for number in 0..listeners {
            let (serial, to) = (self.serial(), number);
            contents.insert(Key(Kind::Listeners, number), Content { serial, to });
            let (serial, to) = (self.serial(), self.random.below(u64::from(clusters)) as u16);
            contents.insert(Key(Kind::Routes, number), Content { serial, to });
        }
        if self.random.one_in(2) && !self.options.unanswered.contains(&Kind::Scopes) {
            contents.insert(Key(Kind::Scopes, 0), Content { serial: self.serial(), to: 0 });
        }
        contents
    }

    /// Returns a short pause within one change of a server.
    pub(super) fn pause(&mut self) -> Duration {
        self.random.millis(0, 30)
    }
}
