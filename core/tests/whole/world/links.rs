//! The streams from a tier to what it requests from: scripted servers, or sessions of the tier before it.

use std::time::Duration;

use weir_core::proto::{Request, Response};
use weir_core::protocol::session::{Client, Session};
use weir_core::protocol::sources::StreamEnd;
use weir_core::protocol::upstream::{ReceivedResponse, ResponseMessage};
use weir_core::protocol::view::{Class, SessionId};

use super::{Event, World};
use crate::content::{Kind, table};
use crate::server::Health;
use crate::support::bounds::Bounded;
use crate::tier::{Holder, LinkKey, Place, Seat};

impl World {
    pub(super) fn connect(&mut self, key: LinkKey) {
        let LinkKey { tier, id, .. } = key;
        let is_there = match tier {
            0 => matches!(self.servers[id.server].health, Health::Fine | Health::Mute | Health::Rejects),
            above => !self.tiers[above - 1].is_down,
        };
        let (now, variant) = (self.now, self.options.variants[tier]);
        let of = &mut self.tiers[tier];
        if of.link(key).is_none_or(|link| link.up.is_some()) || of.is_down {
            return;
        }
        if !is_there {
            return self.link_ended(key, "is not reached");
        }
        let Some(stream) = of.sources.stream(id) else { return };
        stream.set_variant(variant);
        let Some(epoch) = of.sources.opened(id) else { return };
        if tier > 0
            && let Some(stream) = of.sources.stream(id)
        {
            stream.on_relay(epoch); // as the header of the response shows
        }
        let session = (tier > 0).then(|| {
            self.next_id += 1;
            SessionId(self.next_id)
        });
        let of = &mut self.tiers[tier];
        if let Some(link) = of.link(key) {
            (link.up, link.opened_at, link.answered, link.session) = (Some(epoch), now, false, session);
            (link.called, link.calls_again) = (false, false);
        }
        match session {
            Some(session) => {
                let client = Client { relay: true, errors: true, wrappers: true, ttl: true, ..Client::plain(variant) };
                self.sit(Place { tier: tier - 1, session }, client, Holder::Relay(key));
            }
            None => {
                self.judge.repeated.clear();
                let accepted = self.servers[id.server].accept();
                self.streams.insert(key, accepted);
                if self.servers[id.server].health == Health::Rejects {
                    return self.link_ended(key, "is rejected");
                }
            }
        }
        if self.tiers[tier].link(key).is_some_and(|link| std::mem::take(&mut link.failed)) {
            self.disturbed("a stream is open");
        }
        self.tell(|_| format!("tier {tier} {id:?} is open"));
        if self.options.harsh && !self.judge.is_ended() && self.random.one_in(5) {
            let wait = self.random.millis(0, 200);
            self.soon(wait, Event::Cut(key)); // often before the first response
        }
        self.wake_tier(tier);
    }

    /// Sends a request of a tier to the other end of a stream.
    pub(super) fn carry_request(&mut self, key: LinkKey, request: Request) {
        let way = self.way();
        let now = self.now;
        self.tell(|_| format!("tier {} asks {:?}: {}", key.tier, key.id, text_of(&request)));
        let Some(link) = self.tiers[key.tier].link(key) else { return };
        link.last_out = link.last_out.max(now + way);
        let (at, session) = (link.last_out, link.session);
        match session {
            Some(session) => {
                let place = Place { tier: key.tier - 1, session };
                self.at(at, Event::AtSession(place, Box::new(request)));
            }
            None => self.at(at, Event::AtServer(key, Box::new(request))),
        }
    }

    /// Makes a liveness call, which arrives after everything that is under way.
    pub(super) fn call(&mut self, key: LinkKey) {
        let way = self.way() + self.way();
        let now = self.now;
        let Some(link) = self.tiers[key.tier].link(key) else { return };
        // The edge reports responses before the answer to a call if the answer came after them.
        link.last_in = link.last_in.max(now + way);
        let at = link.last_in;
        self.at(at, Event::Alive(key));
    }

    pub(super) fn on_alive(&mut self, key: LinkKey) {
        let is_there = match key.tier {
            0 => self.servers[key.id.server].health.answers_calls(),
            above => !self.tiers[above - 1].is_down,
        };
        let of = &mut self.tiers[key.tier];
        let Some(link) = of.links.get_mut(&key.id).filter(|link| link.opening == key.opening) else { return };
        if !is_there {
            // The call waits. The stream ends when two calls have had no answer.
            return self.soon(Duration::from_secs(1), Event::Alive(key));
        }
        link.called = false;
        if std::mem::take(&mut link.calls_again) {
            link.called = true; // a call that is made now also answers for what was wanted meanwhile
            return self.call(key);
        }
        if let (Some(epoch), Some(stream)) = (link.up, of.sources.stream(key.id)) {
            stream.on_liveness_answer(epoch);
        }
        self.wake_tier(key.tier);
    }

    pub(super) fn on_response(&mut self, key: LinkKey, response: Response) {
        let now = self.now;
        self.tell(|_| format!("tier {} {:?} reads {}", key.tier, key.id, text_of_response(&response)));
        let of = &mut self.tiers[key.tier];
        let Some(link) = of.links.get_mut(&key.id).filter(|link| link.opening == key.opening) else { return };
        let Some(epoch) = link.up else { return };
        link.answered = true;
        let is_first = key.tier == 0;
        if is_first && std::mem::take(&mut self.leaves_soon) {
            let wait = self.random.millis(20, 450);
            self.soon(wait, Event::Leave);
        }
        let of = &mut self.tiers[key.tier];
        let copy = is_first.then(|| response.clone());
        let response = ReceivedResponse::read(ResponseMessage::Decoded(response), &table(), &of.store).unwrap();
        let batches = of.sources.on_received(key.id, epoch, response, &of.view, now);
        if let Some(response) = copy.filter(|_| !batches.is_empty()) {
            let is_set = self.streams.get(&key).is_some_and(|of| of.is_set(Kind::of(response.type_url())));
            self.judge.received(&response, if is_set { Class::Wildcard } else { Class::Named }, now);
        }
        self.apply(key.tier, batches);
        self.wake_tier(key.tier);
    }

    /// Ends a stream that has ended, or cannot be opened. It is tried again after a pause.
    pub(super) fn link_ended(&mut self, key: LinkKey, why: &str) {
        let now = self.now;
        self.tell(|_| format!("tier {} {:?} ends: {why}", key.tier, key.id));
        self.drop_link(key);
        self.next_opening += 1;
        let (opening, share) = (self.next_opening, self.random.share());
        let of = &mut self.tiers[key.tier];
        let Some(link) = of.links.get_mut(&key.id).filter(|link| link.opening == key.opening) else { return };
        let (epoch, answered) = (link.up.take(), std::mem::take(&mut link.answered));
        let lived = epoch.map_or(Duration::ZERO, |_| now - link.opened_at);
        link.backoff.ended(answered, lived);
        let wait = link.backoff.next(share);
        (link.opening, link.reopened, link.failed) = (opening, 0, true);
        let is_lost = !self.options.protocol.view.brakes.after_outage.is_zero();
        let batches = of.sources.ended(key.id, epoch, StreamEnd { answered, is_lost }, &of.view, now);
        self.apply(key.tier, batches);
        self.soon(wait, Event::Connect(LinkKey { opening, ..key }));
        self.disturbed("a stream has ended");
        self.wake_tier(key.tier);
    }

    /// Drops a link, and what is at its other end.
    pub(super) fn drop_link(&mut self, key: LinkKey) {
        self.streams.remove(&key);
        let session = self.tiers[key.tier].link(key).and_then(|link| link.session.take());
        if let Some(session) = session {
            self.leave(Place { tier: key.tier - 1, session });
        }
    }

    /// Begins a session.
    pub(super) fn sit(&mut self, place: Place, client: Client, holder: Holder) {
        let variant = client.variant;
        let seat = Seat {
            session: Session::new(client, table(), self.protocol.session.clone().into()),
            holder,
            variant,
            bounded: Bounded::default(),
            poll_at: None,
            fetches: None,
            last_in: self.now,
            last_out: self.now,
            under_way: Default::default(),
        };
        self.tiers[place.tier].seats.insert(place.session, seat);
        self.wake_tier(place.tier);
    }
}

pub fn text_of(request: &Request) -> String {
    match request {
        Request::Sotw(of) => {
            let nack = if of.error_detail.is_some() { " NACK" } else { "" };
            format!("{} {:?} v{} n{}{nack}", short(&of.type_url), of.resource_names, of.version_info, of.response_nonce)
        }
        Request::Delta(of) => {
            let (on, off) = (&of.resource_names_subscribe, &of.resource_names_unsubscribe);
            let stated = &of.initial_resource_versions;
            format!("{} +{on:?} -{off:?} {stated:?} n{}", short(&of.type_url), of.response_nonce)
        }
    }
}

fn text_of_response(response: &Response) -> String {
    match response {
        Response::Sotw(of) => format!("{} {} of {}", short(&of.type_url), of.resources.len(), of.version_info),
        Response::Delta(of) => {
            let names: Vec<_> = of.resources.iter().map(|one| format!("{}={}", one.name, one.version)).collect();
            let mark = &of.system_version_info;
            format!("{} {names:?} -{:?} {mark}", short(&of.type_url), of.removed_resources)
        }
    }
}

fn short(url: &str) -> &str {
    url.rsplit_once('.').map_or(url, |(_, short)| short)
}
