//! One ADS stream to one server, through all its reconnects.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;

use super::response::Reader;
use super::rules::ServerRules;
use super::topic::Topic;
use crate::proto::{Request, Response};
use crate::protocol::faults::Fault;
use crate::protocol::limits::Limits;
use crate::protocol::moment::Moment;
use crate::protocol::session::Variant;
use crate::protocol::unit::{Class, Fact, InterestChange, Unit, Wanted};
use crate::xds::{BodyStore, Name, Type, TypeTable};

/// One type on a stream, for reports.
#[derive(Debug)]
pub struct TopicSummary<'a> {
    pub kind: &'a Type,
    pub wildcard: bool,
    pub names: usize,
    /// Resources whose body goes by another name than they came under (TYPE-10).
    pub misnamed: u64,
}

/// Which opening of the stream a message belongs to, so that a late one of an earlier opening is known as such.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Epoch(u64);

#[derive(Debug)]
pub struct Stream {
    variant: Variant,
    node: Bytes,
    topics: BTreeMap<Type, Topic>,
    epoch: Epoch,
    open: bool,
    /// The server has shown that it is there, on this opening: until then its silence says nothing (UP-36).
    alive: bool,
    /// A response has come on this opening.
    answered: bool,
    /// When the first request of this opening was made.
    asked_at: Option<Moment>,
    rules: Arc<ServerRules>,
    table: Arc<TypeTable>,
    limits: Arc<Limits>,
}

impl Stream {
    pub fn new(
        variant: Variant,
        node: Bytes,
        rules: Arc<ServerRules>,
        table: Arc<TypeTable>,
        limits: Arc<Limits>,
    ) -> Self {
        let (topics, epoch) = (BTreeMap::new(), Epoch(0));
        let (open, alive, answered, asked_at) = (false, false, false, None);
        Self { variant, node, topics, epoch, open, alive, answered, asked_at, rules, table, limits }
    }

    /// The stream is up; what is sent next opens it for the server.
    pub fn opened(&mut self) -> Epoch {
        self.epoch.0 += 1;
        (self.open, self.alive, self.answered, self.asked_at) = (true, false, false, None);
        self.epoch
    }

    /// The server has said something, be it of no use.
    pub fn on_sign_of_life(&mut self, epoch: Epoch) {
        self.alive |= epoch == self.epoch && self.open;
    }

    /// A question about one type was not answered. Until one is again, the server's silence about that type says nothing.
    pub fn on_trouble(&mut self, epoch: Epoch, url: &str) {
        let kind = self.table.resolve(url);
        if let Some(topic) = self.topics.get_mut(&kind).filter(|_| epoch == self.epoch && self.open) {
            topic.on_trouble();
        }
    }

    /// The stream has ended. What is held stays (UP-32); only a set that was still coming in is no longer about to be whole.
    pub fn ended(&mut self, epoch: Epoch) -> Vec<Fact> {
        if epoch != self.epoch || !self.open {
            return Vec::new();
        }
        self.open = false;
        self.topics.retain(|_, topic| topic.is_wanted());
        let mut facts = Vec::new();
        for (kind, topic) in &mut self.topics {
            topic.disconnect(&self.rules);
            let star = (topic.class == Class::Star).then_some(Wanted::Star);
            let sets = star.into_iter().chain(topic.globs.all().cloned().map(Wanted::Name));
            facts.extend(sets.map(|of| Fact::Interrupted { kind: kind.clone(), of }));
            if self.limits.faults.has(Fault::DropOnDisconnect) {
                facts.extend(topic.drop_everything(kind));
            }
            if self.limits.faults.has(Fault::ForgetNamesOnReconnect) {
                topic.forget_names();
            }
        }
        facts
    }

    pub fn has_answered(&self) -> bool {
        self.open && self.answered
    }

    /// Whether the server has nothing to say because nothing is left to say: it is there, has had time to answer, and owes no
    /// answer. One that is told what it gave before has no reason to repeat it.
    pub fn is_well(&self, now: Moment) -> bool {
        let wanted = || self.topics.values().filter(|topic| topic.is_wanted());
        let alive = if self.rules.by_type { wanted().all(|topic| topic.alive) } else { self.alive };
        let in_time = |asked: Moment| alive && now >= asked + self.limits.resource_timer;
        let owes_nothing = self.asked_at.is_some_and(in_time) && !self.topics.values().any(Topic::waits);
        self.open && (owes_nothing || !self.is_wanted())
    }

    /// The server was out of reach, and others may have given something else meanwhile: it says again all that it has.
    pub fn doubt_versions(&mut self) {
        self.topics.values_mut().for_each(Topic::blank_versions);
    }

    /// A set was not whole when a stream ended: the server says it again from the beginning.
    pub fn say_again(&mut self, kind: &Type, of: &Wanted) {
        self.topics.get_mut(kind).into_iter().for_each(|topic| topic.blank_set(of));
    }

    /// From the next opening on the server is spoken to in this variant.
    pub fn speak(&mut self, variant: Variant) {
        if self.variant != variant {
            self.variant = variant;
            self.topics.values_mut().for_each(Topic::blank_versions);
        }
    }

    pub fn variant(&self) -> Variant {
        self.variant
    }

    pub fn is_wanted(&self) -> bool {
        self.topics.values().any(Topic::is_wanted)
    }

    pub fn want(&mut self, change: InterestChange, held: bool) {
        let InterestChange { kind, wanted, on } = change;
        let by_full_answers = self.variant == Variant::Sotw && kind.info().full_state;
        let topic = self.topics.entry(kind).or_insert_with(|| Topic::of(&wanted));
        topic.want(wanted.clone(), on, held);
        if let (Wanted::Name(name), true) = (wanted, on && held && by_full_answers) {
            topic.doubt_full_answers(name);
        }
    }

    /// This server's word counts from now on for some sets. What others gave of these and it does not say is in doubt.
    pub fn doubt(&mut self, unit: &Unit, now: Moment, counts: impl Fn(&Wanted) -> bool) {
        for (kind, topic) in &mut self.topics {
            match topic.class {
                Class::Star if counts(&Wanted::Star) => topic.doubt(unit.star_names(kind), now, &self.limits),
                // In SotW it cannot say what is in a collection.
                Class::Named if self.variant == Variant::Sotw => {}
                Class::Star => {}
                Class::Named => {
                    let globs: BTreeSet<_> = topic.globs.all().cloned().map(Wanted::Name).filter(&counts).collect();
                    let meant = |(glob, _): &(&Name, &Name)| globs.contains(&Wanted::Name((*glob).clone()));
                    let members: Vec<_> = unit.members(kind).filter(meant).map(|(_, name)| name).collect();
                    topic.doubt(members.into_iter(), now, &self.limits);
                }
            }
        }
    }

    /// What this server has said of names, and that it has spoken of a set, be it at a time when its word did not count. Resources
    /// are not among that: a server that has given one is one whose word counts.
    pub fn findings(&self) -> Vec<Fact> {
        let begun = |topic: &Topic| topic.star && topic.alive;
        let piece = |kind: &Type, topic: &Topic| begun(topic).then(|| topic.piece(kind, Wanted::Star, &self.rules));
        self.topics
            .iter()
            .flat_map(|(kind, topic)| topic.findings(kind).into_iter().chain(piece(kind, topic)))
            .collect()
    }

    /// Whether a message of this opening is one of the present.
    pub fn is_current(&self, epoch: Epoch) -> bool {
        epoch == self.epoch && self.open
    }

    /// The next request, in make-before-break order of types and without waiting for responses (UP-6).
    pub fn next_request(&mut self, now: Moment) -> Option<Request> {
        if !self.open {
            return None;
        }
        let (variant, rules, limits) = (self.variant, &self.rules, &self.limits);
        // What exists in delta alone is not asked for in SotW: no server would answer, and silence would pass for absence.
        let speakable = |kind: &Type| variant == Variant::Delta || !kind.info().delta_only;
        let topics = self.topics.iter_mut().filter(|(kind, _)| speakable(kind));
        let mut request =
            topics.into_iter().find_map(|(kind, topic)| topic.next_request(kind, variant, now, rules, limits))?;
        if self.asked_at.replace(self.asked_at.unwrap_or(now)).is_none() || rules.node_always {
            match &mut request {
                Request::Sotw(request) => request.node = Some(self.node.clone()),
                Request::Delta(request) => request.node = Some(self.node.clone()),
            }
        }
        Some(request)
    }

    /// Everything handed out so far has been written to the transport: from here on the server's silence means something
    /// (UP-36).
    pub fn written(&mut self, now: Moment) {
        let alive = |topic: &&mut Topic| if self.rules.by_type { topic.alive } else { self.alive };
        for topic in self.topics.values_mut().filter(alive) {
            topic.written(now, &self.rules, &self.limits);
        }
    }

    /// Turns a response into facts, and owes the server an answer for it. One of an earlier opening is nothing.
    pub fn on_response(&mut self, epoch: Epoch, response: Response, store: &mut BodyStore, now: Moment) -> Vec<Fact> {
        let late = epoch != self.epoch || !self.open;
        if late && !self.limits.faults.has(Fault::TakeLateMessages) {
            return Vec::new();
        }
        (self.alive, self.answered) = (true, true);
        let mut copies = BodyStore::default();
        let store = if self.limits.faults.has(Fault::KeepCopies) { &mut copies } else { store };
        let url = match &response {
            Response::Sotw(response) => &response.type_url,
            Response::Delta(response) => &response.type_url,
        };
        let kind = self.table.resolve(url);
        let Some(topic) = self.topics.get_mut(&kind) else { return Vec::new() };
        topic.alive = true;
        let mut reader = Reader { kind: &kind, rules: &self.rules, limits: &self.limits, store, now };
        match response {
            Response::Sotw(response) => topic.read_sotw(response, &mut reader),
            Response::Delta(response) => topic.read_delta(response, &mut reader),
        }
    }

    pub fn topics(&self) -> impl Iterator<Item = TopicSummary<'_>> {
        self.topics.iter().map(|(kind, topic)| TopicSummary {
            kind,
            wildcard: topic.star,
            names: topic.names.len(),
            misnamed: topic.misnamed,
        })
    }

    pub fn next_deadline(&self) -> Option<Moment> {
        let unasked = |topic: &Topic| self.variant == Variant::Sotw && topic.globs.any_unasked();
        let at_once = |topic: &Topic| unasked(topic).then_some(Moment::START);
        let topics = self.topics.values().filter(|_| self.open);
        topics.filter_map(|topic| at_once(topic).or(topic.next_deadline())).min()
    }

    /// Whether anything is kept of a type, be it that its last words may still come.
    pub fn has(&self, kind: &Type) -> bool {
        self.topics.contains_key(kind)
    }

    /// Names that the server was asked for and said nothing of, for long enough (XLAT-15).
    pub fn on_time(&mut self, now: Moment) -> Vec<Fact> {
        // Types that are not in the table may be made up, and there is no end of those. The others stay: what an empty list means
        // to the server depends on what it was told before (SOTW-38).
        let (table, limits) = (&self.table, &self.limits);
        let stays = |kind: &Type, topic: &Topic| !topic.is_over(now, limits) || table.knows(kind.name());
        self.topics.retain(|kind, topic| stays(kind, topic));
        let topics = self.topics.iter_mut().filter(|_| self.open);
        let expire = |(kind, topic): (&Type, &mut Topic)| {
            let refused = if self.variant == Variant::Sotw { topic.refuse_globs(kind) } else { Vec::new() };
            refused.into_iter().chain(topic.expire(kind, now, &self.rules, &self.limits)).collect::<Vec<_>>()
        };
        topics.flat_map(expire).collect()
    }
}
