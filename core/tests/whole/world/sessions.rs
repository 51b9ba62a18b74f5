//! The sessions of the tiers: requests in, replies out. A session is used by the reader of requests, the body of replies and the view task.

use std::time::Duration;

use weir_core::proto::Request;
use weir_core::protocol::moment::Moment;
use weir_core::protocol::session::{FetchResult, Reply, Step};
use weir_core::protocol::view::Claim;

use super::{Event, World};
use crate::tier::{Holder, Place};
use crate::wire;

impl World {
    pub(super) fn at_session(&mut self, place: Place, request: Request) {
        let now = self.now;
        let of = &mut self.tiers[place.tier];
        let Some(seat) = of.seats.get_mut(&place.session) else { return };
        seat.session.on_request(request, now);
        self.forward_interest(place);
        self.wake(place);
    }

    fn forward_interest(&mut self, place: Place) {
        let of = &mut self.tiers[place.tier];
        let Some(seat) = of.seats.get_mut(&place.session) else { return };
        let changes = seat.session.take_interest();
        if !changes.is_empty() {
            // The queue of commands keeps the order of these changes.
            let wait = self.random.millis(0, 1);
            let now = self.now;
            let Some(seat) = self.tiers[place.tier].seats.get_mut(&place.session) else { return };
            seat.last_in = seat.last_in.max(now + wait);
            let at = seat.last_in;
            seat.under_way.push_back(changes);
            self.at(at, Event::Interest(place));
        }
    }

    /// Has a session polled now.
    pub fn wake(&mut self, place: Place) {
        self.poll_by(place, self.now);
    }

    fn poll_by(&mut self, place: Place, at: Moment) {
        let Some(seat) = self.tiers[place.tier].seats.get_mut(&place.session) else { return };
        if seat.poll_at.is_none_or(|due| at < due) {
            seat.poll_at = Some(at);
            self.at(at, Event::Poll(place));
        }
    }

    pub(super) fn on_poll_due(&mut self, place: Place) {
        let Some(seat) = self.tiers[place.tier].seats.get_mut(&place.session) else { return };
        if seat.poll_at == Some(self.now) {
            seat.poll_at = None;
            match seat.fetches {
                Some(until) => self.fetch(place, until),
                None => self.poll(place),
            }
        }
    }

    fn poll(&mut self, place: Place) {
        let now = self.now;
        loop {
            let of = &mut self.tiers[place.tier];
            let Some(seat) = of.seats.get_mut(&place.session) else { return };
            let newest = of.view.snapshot().clone();
            match seat.bounded.poll(&mut seat.session, &newest, &mut of.leases, now) {
                Step::Reply(reply) => {
                    self.deliver(place, *reply);
                    if self.random.one_in(4) {
                        // The transport accepts the next reply a moment later.
                        let wait = self.random.millis(1, 5);
                        return self.poll_by(place, now + wait);
                    }
                }
                Step::Idle(until) => {
                    let claims = seat.session.take_claims();
                    if !claims.is_empty() {
                        self.seek(place, claims);
                    }
                    if let Some(until) = until {
                        // If the moment has passed already, the session would be polled at it again and again.
                        self.poll_by(place, until.max(now + Duration::from_micros(100)));
                    }
                    return;
                }
                Step::End(why) => {
                    let why = why.to_string();
                    return self.end_session(place, &why);
                }
            }
        }
    }

    /// Gives claims without room back to their sessions, which claim again when there is room, as the view task does.
    fn seek(&mut self, place: Place, claims: Vec<Claim>) {
        let of = &mut self.tiers[place.tier];
        of.view.add_claims(place.session, claims);
        for (session, claims) in of.view.take_refused_claims() {
            if let Some(seat) = of.seats.get_mut(&session) {
                seat.session.on_claims_refused(claims);
            }
        }
        self.wake_tier(place.tier);
    }

    /// Sends a reply to the other end of a session.
    fn deliver(&mut self, place: Place, reply: Reply) {
        let way = self.way();
        let now = self.now;
        let Some(seat) = self.tiers[place.tier].seats.get_mut(&place.session) else { return };
        let (holder, variant) = (seat.holder, seat.variant);
        seat.last_out = seat.last_out.max(now + way);
        let at = seat.last_out;
        match holder {
            Holder::Client(client) => self.at(at, Event::ToClient(client, place.session, Box::new(reply))),
            Holder::Relay(key) => {
                let Some(link) = self.tiers[key.tier].link(key) else { return };
                link.last_in = link.last_in.max(at);
                let at = link.last_in;
                self.at(at, Event::Response(key, Box::new(wire::response(&reply, variant))));
            }
        }
    }

    /// Makes a client's poll in REST: one reply, as soon as everything is known.
    fn fetch(&mut self, place: Place, until: Moment) {
        let (now, of) = (self.now, &mut self.tiers[place.tier]);
        let Some(seat) = of.seats.get_mut(&place.session) else { return };
        let newest = of.view.snapshot().clone();
        let fetched = seat.session.fetch(&newest, &mut of.leases, now, now >= until);
        let claims = seat.session.take_claims();
        if !claims.is_empty() {
            self.seek(place, claims);
        }
        match fetched {
            FetchResult::Waiting(at) => {
                self.poll_by(place, at.unwrap_or(until).min(until).max(now + Duration::from_micros(100)))
            }
            FetchResult::Reply(reply) => {
                self.deliver(place, *reply);
                self.leave(place);
            }
            FetchResult::Unknown | FetchResult::End(_) => self.end_session(place, "nothing is known"),
        }
    }

    /// Ends a stream as the relay does.
    pub fn end_session(&mut self, place: Place, why: &str) {
        let Some(seat) = self.tiers[place.tier].seats.get(&place.session) else { return };
        let holder = seat.holder;
        self.leave(place);
        match holder {
            Holder::Relay(key) => self.link_ended(key, why),
            Holder::Client(client) => self.client_ended(client, place.session, why),
        }
    }

    /// Removes a session whose stream has ended.
    pub fn leave(&mut self, place: Place) {
        let now = self.now;
        let of = &mut self.tiers[place.tier];
        let Some(mut seat) = of.seats.remove(&place.session) else { return };
        seat.session.close();
        for change in seat.under_way.into_iter().flatten() {
            of.view.change_interest(place.session, change, now);
        }
        of.view.on_session_left(place.session, seat.session.take_interest(), now);
        self.wake_tier(place.tier);
    }
}
