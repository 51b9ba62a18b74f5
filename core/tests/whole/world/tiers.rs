//! What a view task does: runs timers, sends interest and requests, publishes, and wakes sessions.

use weir_core::protocol::moment::Moment;
use weir_core::protocol::sources::{StreamId, UpdateBatch};
use weir_core::protocol::view::Update;

use super::{Event, World};
use crate::tier::{Link, LinkKey, Place};

impl World {
    /// Has a tier do what there is to do.
    pub fn wake_tier(&mut self, tier: usize) {
        self.flush_by(tier, self.now);
    }

    fn flush_by(&mut self, tier: usize, at: Moment) {
        if self.tiers[tier].flush_at.is_none_or(|due| at < due) {
            self.tiers[tier].flush_at = Some(at);
            self.at(at, Event::Flush(tier));
        }
    }

    pub(super) fn on_flush_due(&mut self, tier: usize) {
        if self.tiers[tier].flush_at == Some(self.now) {
            self.tiers[tier].flush_at = None;
            self.flush(tier);
        }
    }

    pub fn apply(&mut self, tier: usize, batches: Vec<UpdateBatch>) {
        if !batches.is_empty() {
            let of = &mut self.tiers[tier];
            let recovering = of.sources.recovering();
            of.view.note_recovering(recovering);
        }
        for batch in batches {
            if !batch.updates.is_empty() {
                self.tell(|_| {
                    let texts: Vec<_> = batch.updates.iter().map(text_of_update).collect();
                    format!("tier {tier} applies {}", texts.join(", "))
                });
            }
            if tier == 0 {
                batch.updates.iter().for_each(|update| self.note_applied(update));
            }
            self.tiers[tier].view.apply_received(batch.origin, batch.updates, self.now, self.now);
        }
    }

    fn flush(&mut self, tier: usize) {
        let now = self.now;
        let batches = {
            let of = &mut self.tiers[tier];
            of.sources.on_time(&of.view, now)
        };
        self.apply(tier, batches);
        let of = &mut self.tiers[tier];
        if of.view.holds().awaits_routing() {
            let unsteady = of.sources.unsteady();
            of.view.note_unsteady(unsteady, now);
        }
        of.view.on_time(now);
        for change in of.view.take_upstream_changes() {
            of.sources.want(change, &of.view, now);
        }
        of.sources.close_unused(&of.view, now);
        let (down, repeats) = (of.sources.down(), of.sources.repeats());
        of.view.on_source(down, repeats);
        let limit = of.sources.list_limit();
        of.view.set_list_limit(limit);
        self.follow_links(tier);
        self.send_requests(tier);
        self.claim_again(tier);
        let of = &mut self.tiers[tier];
        let notified = of.view.publish().0;
        let counted = std::mem::take(&mut of.counted);
        for (session, marks) in &notified {
            if let Some(seat) = of.seats.get_mut(session) {
                marks.iter().for_each(|mark| seat.session.on_name_changed(mark));
            }
        }
        for session in &counted {
            if let Some(seat) = of.seats.get_mut(session) {
                seat.session.on_interest_applied();
            }
        }
        for session in notified.into_keys().chain(counted) {
            self.wake(Place { tier, session });
        }
        self.note_ladder(tier);
        if tier == 0 {
            self.note_forgotten();
        }
        self.plan_flush(tier);
    }

    /// Waits for the next deadline. A tier that has something to do at the same moment again and again would use a whole core.
    fn plan_flush(&mut self, tier: usize) {
        let of = &mut self.tiers[tier];
        let sources = of.sources.next_deadline(|_| false);
        let Some(at) = [sources, of.view.next_deadline()].into_iter().flatten().min() else { return };
        if at > self.now {
            return self.flush_by(tier, at);
        }
        let turns = if of.turns.0 == self.now { of.turns.1 + 1 } else { 0 };
        of.turns = (self.now, turns);
        if turns > MOST_TURNS {
            let who = if sources.is_some_and(|at| at <= self.now) { "its sources" } else { "its view" };
            return self.wrong(|| format!("tier {tier} has something to do again and again ({who}), and does nothing"));
        }
        self.flush_by(tier, self.now);
    }

    pub(super) fn on_interest(&mut self, place: Place) {
        let (now, of) = (self.now, &mut self.tiers[place.tier]);
        let Some(changes) = of.seats.get_mut(&place.session).and_then(|seat| seat.under_way.pop_front()) else {
            return;
        };
        changes.iter().for_each(|change| of.view.change_interest(place.session, change.clone(), now));
        of.counted.push(place.session);
        for (session, names) in of.view.take_refused_names() {
            if let Some(seat) = of.seats.get_mut(&session) {
                seat.session.on_names_refused(&names);
            }
        }
        of.sources.on_names_requested(&changes, &of.view);
        self.wake_tier(place.tier);
    }

    /// Lets sessions claim again whose claims had no room.
    pub(super) fn claim_again(&mut self, tier: usize) {
        let of = &mut self.tiers[tier];
        let admitted = of.view.take_sessions_to_claim();
        for session in admitted {
            if let Some(seat) = self.tiers[tier].seats.get_mut(&session) {
                seat.session.on_claim_room();
                self.wake(Place { tier, session });
            }
        }
    }

    /// Opens a link for each stream that has none, and closes those whose stream is no longer wanted.
    fn follow_links(&mut self, tier: usize) {
        let of = &mut self.tiers[tier];
        let closed = of.sources.take_closed();
        let wanted: Vec<StreamId> = of.sources.streams_mut().map(|(id, _)| id).collect();
        let reopened = of.sources.take_reopened();
        let gone = |id: &StreamId| !wanted.contains(id) || closed.contains(&id.server) || reopened.contains(id);
        let gone: Vec<StreamId> = of.links.keys().copied().filter(gone).collect();
        for id in gone {
            let link = &self.tiers[tier].links[&id];
            let (opening, reopenings) = (link.opening, link.reopened + 1);
            self.drop_link(LinkKey { tier, id, opening });
            self.tiers[tier].links.remove(&id);
            if reopened.contains(&id) && wanted.contains(&id) {
                self.tell(|_| format!("tier {tier} opens {id:?} again"));
                self.judge.note_reopened(tier, self.now);
                self.add_link(tier, id, reopenings);
            }
        }
        for id in wanted {
            if !self.tiers[tier].links.contains_key(&id) {
                self.add_link(tier, id, 0);
            }
        }
    }

    fn add_link(&mut self, tier: usize, id: StreamId, reopened: u32) {
        self.next_opening += 1;
        let opening = self.next_opening;
        self.tiers[tier].links.insert(id, Link { opening, reopened, ..Link::default() });
        let way = self.way();
        self.soon(way, Event::Connect(LinkKey { tier, id, opening }));
    }

    fn send_requests(&mut self, tier: usize) {
        let now = self.now;
        let (mut requests, mut calls) = (Vec::new(), Vec::new());
        let of = &mut self.tiers[tier];
        for (id, stream) in of.sources.streams_mut() {
            let Some(link) = of.links.get_mut(&id) else { continue };
            let key = LinkKey { tier, id, opening: link.opening };
            if stream.take_liveness_call() {
                match std::mem::replace(&mut link.called, true) {
                    true => link.calls_again = true,
                    false => calls.push(key),
                }
            }
            if link.up.is_none() {
                continue;
            }
            while let Some(request) = stream.next_request(now) {
                requests.push((key, request));
            }
            stream.written(now);
        }
        for (key, request) in requests {
            self.carry_request(key, request);
        }
        for key in calls {
            self.call(key);
        }
    }
}

fn text_of_update(update: &Update) -> String {
    let short = |kind: &weir_core::xds::Type| kind.name().rsplit_once('.').map_or("", |(_, name)| name).to_owned();
    match update {
        Update::Upsert { kind, key, .. } => format!("{} {key}", short(kind)),
        Update::Absent { kind, key, evidence, .. } => format!("{} -{key} {evidence:?}", short(kind)),
        Update::FullSet { kind, resources, .. } => format!("{} set of {}", short(kind), resources.len()),
        Update::Progress { kind, of, completeness } => format!("{} {of:?} {completeness:?}", short(kind)),
        Update::Interrupted { kind, of } => format!("{} {of:?} interrupted", short(kind)),
        Update::Error { kind, key, error } => format!("{} {key} {}", short(kind), error.message),
        other => format!("{other:?}").chars().take(60).collect(),
    }
}

/// The most turns at one moment. No response causes that many.
const MOST_TURNS: u32 = 100;
