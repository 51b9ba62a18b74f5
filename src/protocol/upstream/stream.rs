//! One ADS stream to one server, through all its reconnects.

mod shown;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;

pub use self::shown::{RefusedNews, TopicSummary};
use super::Standpoint;
use super::again::Pace;
use super::habits::SetSeen;
use super::heard::COMES_IN;
use super::life::Life;
use super::response::Reader;
use super::rules::{ServerRules, Silence};
use super::topic::{Others, Topic, Turn};
use crate::proto::{Request, Response};
use crate::protocol::faults::Fault;
use crate::protocol::limits::Limits;
use crate::protocol::moment::Moment;
use crate::protocol::session::Variant;
use crate::protocol::unit::{Class, Fact, InterestChange, Wanted};
use crate::xds::{BodyStore, Role, Type, TypeTable};

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
    life: Life,
    /// A response has come on this opening.
    answered: bool,
    /// When the first request of this opening was made, and when the first response came.
    asked_at: Option<Moment>,
    answered_at: Option<Moment>,
    /// A message has begun to come in.
    receiving: bool,
    /// It is to be opened anew, since the server was told something on this opening that counts no more.
    begins_anew: bool,
    /// How often it was opened anew to ask once more.
    pace: Pace,
    looked: Moment,
    /// Types that others have seen the server send in pieces.
    cut_for_others: Arc<BTreeSet<Type>>,
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
        Self {
            variant,
            node,
            topics: BTreeMap::new(),
            epoch: Epoch(0),
            open: false,
            life: Life::default(),
            answered: false,
            asked_at: None,
            answered_at: None,
            receiving: false,
            begins_anew: false,
            pace: Pace::default(),
            looked: Moment::START,
            cut_for_others: Arc::default(),
            rules,
            table,
            limits,
        }
    }

    /// The stream is up; what is sent next opens it for the server.
    pub fn opened(&mut self) -> Epoch {
        self.epoch.0 += 1;
        (self.open, self.answered, self.receiving) = (true, false, false);
        self.begins_anew = false;
        (self.asked_at, self.answered_at) = (None, None);
        self.life = Life::new(self.limits.faults);
        self.epoch
    }

    /// The server has answered the call that was asked for.
    pub fn on_life(&mut self, epoch: Epoch) {
        if epoch == self.epoch && self.open {
            self.life.answered();
        }
    }

    /// Whether the server is to be asked on this connection if it is there.
    pub fn take_life_question(&mut self) -> bool {
        self.open && self.life.take_question()
    }

    /// A message has begun to come in: until it is there, the server is not silent.
    pub fn on_receiving(&mut self, epoch: Epoch) {
        self.receiving |= epoch == self.epoch && self.open;
    }

    /// A poll for a type was answered with nothing new.
    pub fn on_unchanged(&mut self, epoch: Epoch, url: &str, now: Moment) {
        let kind = self.table.resolve(url);
        if let Some(topic) = self.topics.get_mut(&kind).filter(|_| epoch == self.epoch && self.open) {
            topic.on_poll(now);
        }
    }

    /// A question about one type was not answered. Until one is again, the server's silence about that type says nothing.
    pub fn on_trouble(&mut self, epoch: Epoch, url: &str) {
        let kind = self.table.resolve(url);
        if let Some(topic) = self.topics.get_mut(&kind).filter(|_| epoch == self.epoch && self.open) {
            topic.on_trouble();
        }
    }

    /// What others have seen of how the server sends its sets.
    pub fn on_habits(&mut self, cut: &Arc<BTreeSet<Type>>) {
        if !Arc::ptr_eq(cut, &self.cut_for_others) {
            self.cut_for_others = cut.clone();
            self.topics.iter_mut().for_each(|(kind, topic)| topic.cut_for_others = cut.contains(kind));
        }
    }

    /// What this one has seen of that since it was last asked.
    pub fn take_seen(&mut self) -> impl Iterator<Item = (Type, SetSeen)> {
        let of = |(kind, topic): (&Type, &mut Topic)| {
            topic.seen.drain(..).map(|seen| (kind.clone(), seen)).collect::<Vec<_>>()
        };
        self.topics.iter_mut().flat_map(of)
    }

    /// Whether the server has said, since the stream was opened, what it has of all routing that is wanted.
    pub fn has_said_routing(&self) -> bool {
        let mut routing = self.topics.iter().filter(|(kind, topic)| kind.is(Role::Routing) && topic.is_wanted());
        self.open && routing.all(|(_, topic)| topic.has_said_all())
    }

    /// The stream has ended. What is held stays (UP-32); what is known of sets, and that names are gone, is of this opening.
    pub fn ended(&mut self, epoch: Epoch) -> Vec<Fact> {
        if epoch != self.epoch || !self.open {
            return Vec::new();
        }
        self.open = false;
        self.topics.retain(|_, topic| topic.is_wanted());
        let mut facts = Vec::new();
        for (kind, topic) in &mut self.topics {
            let star = (topic.class == Class::Star).then_some(Wanted::Star);
            let names = topic.asked.iter().map(|(name, _)| name).chain(topic.globs.all());
            let of = star.into_iter().chain(names.cloned().map(Wanted::Name));
            facts.extend(of.map(|of| Fact::Interrupted { kind: kind.clone(), of }));
            topic.disconnect(self.variant, &self.rules);
            if self.limits.faults.has(Fault::DropOnDisconnect) {
                facts.extend(topic.drop_everything(kind));
            }
            if self.limits.faults.has(Fault::ForgetNamesOnReconnect) {
                topic.forget_names();
            }
        }
        facts
    }

    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    pub fn is_open(&self) -> bool {
        self.open
    }

    pub fn has_answered(&self) -> bool {
        self.open && self.answered
    }

    /// Whether the server has nothing to say because nothing is left to say: it is there, has had time to answer, and owes no
    /// answer. One that is told what it gave before has no reason to repeat it.
    pub fn is_well(&self, now: Moment) -> bool {
        let wanted = || self.topics.values().filter(|topic| topic.is_wanted());
        let alive =
            if self.rules.by_type { wanted().all(Topic::is_polled) } else { self.answered || self.life.is_proven() };
        let in_time = |asked: Moment| alive && now >= asked + self.limits.resource_timer;
        let owes_nothing = self.asked_at.is_some_and(in_time) && !self.topics.values().any(Topic::waits);
        self.open && (owes_nothing || !self.is_wanted())
    }

    /// Others have given something else of these meanwhile: the server says again what it has.
    pub fn say_again_all(&mut self, of: impl Fn(&Wanted) -> bool) {
        self.begins_anew |= self.open; // it was told on this opening that this is held
        for topic in self.topics.values_mut() {
            match topic.class {
                Class::Star if of(&Wanted::Star) => topic.say_again(|_| true),
                Class::Star => {}
                Class::Named => topic.say_again(|name| of(&Wanted::Name(name.clone()))),
            }
        }
    }

    /// The server's word counts for more than before: what others gave may have to be asked for.
    pub fn look_anew(&mut self) {
        self.topics.values_mut().for_each(|topic| topic.again.look_anew());
    }

    /// The server was out of reach. One that has nothing to add could not show that it is back: of each type it says one thing again.
    pub fn say_something_again(&mut self) {
        self.topics.values_mut().for_each(Topic::say_something_again);
    }

    /// A set was not all there when a stream ended: the server says it again from the beginning.
    pub fn say_again(&mut self, kind: &Type, of: &Wanted) {
        let Some(topic) = self.topics.get_mut(kind) else { return };
        match of {
            Wanted::Star => topic.say_again(|_| true),
            Wanted::Name(glob) => topic.say_again(|name| name.collection().as_ref() == Some(glob)),
        }
    }

    /// From the next opening on the server is spoken to in this variant.
    pub fn speak(&mut self, variant: Variant) {
        if self.variant != variant {
            self.variant = variant;
            self.topics.values_mut().for_each(|topic| topic.say_again(|_| true));
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
        let cut = self.cut_for_others.contains(&kind);
        let topic = self.topics.entry(kind).or_insert_with(|| Topic::of(&wanted));
        topic.cut_for_others = cut;
        topic.want(wanted, on, held);
    }

    /// What this server has said of names, that it has spoken of a set, and what of that cannot be read, be it at a time when its
    /// word did not count. Resources are not among that: a server that has given one is one whose word counts.
    pub fn findings(&self) -> Vec<Fact> {
        let spoken = |topic: &Topic| topic.star && topic.heard.has_spoken();
        let filled = |kind: &Type, topic: &Topic| {
            let fill = topic.fill_by(&self.rules, &Wanted::Star, topic.heard.whole);
            spoken(topic).then(|| Fact::Filled { kind: kind.clone(), of: Wanted::Star, fill })
        };
        self.topics
            .iter()
            .flat_map(|(kind, topic)| topic.findings(kind).into_iter().chain(filled(kind, topic)))
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

    /// Everything handed out so far has been written to the transport: from here on the server's silence may mean something
    /// (UP-36).
    pub fn written(&mut self, now: Moment) {
        // A question that waits for an earlier poll to be answered was not asked yet.
        let asked = |topic: &&mut Topic| !self.rules.by_type || topic.is_polled();
        for topic in self.topics.values_mut().filter(asked) {
            topic.written(now, &self.rules, &self.limits);
        }
    }

    /// Turns a response into facts, and owes the server an answer for it. One of an earlier opening is nothing.
    pub fn on_response(&mut self, epoch: Epoch, response: Response, store: &mut BodyStore, now: Moment) -> Vec<Fact> {
        let late = epoch != self.epoch || !self.open;
        if late && !self.limits.faults.has(Fault::TakeLateMessages) {
            return Vec::new();
        }
        (self.answered, self.receiving) = (true, false);
        self.answered_at.get_or_insert(now);
        let mut copies = BodyStore::default();
        let store = if self.limits.faults.has(Fault::KeepCopies) { &mut copies } else { store };
        let url = match &response {
            Response::Sotw(response) => &response.type_url,
            Response::Delta(response) => &response.type_url,
        };
        let kind = self.table.resolve(url);
        let Some(topic) = self.topics.get_mut(&kind) else { return Vec::new() };
        topic.on_poll(now);
        let mut reader = Reader { kind: &kind, rules: &self.rules, limits: &self.limits, store, now };
        match response {
            Response::Sotw(response) => topic.read_sotw(response, &mut reader),
            Response::Delta(response) => topic.read_delta(response, &mut reader),
        }
    }

    pub fn next_deadline(&self) -> Option<Moment> {
        if !self.open {
            return None;
        }
        let unasked = |topic: &Topic| self.variant == Variant::Sotw && topic.globs.any_unasked();
        let at_once = |topic: &Topic| unasked(topic).then_some(Moment::START);
        let others = self.others();
        let deadline = |topic: &Topic| at_once(topic).or(topic.next_deadline(others, &self.limits));
        let topics = self.topics.values().filter_map(deadline).min();
        let again = self.pace.next_at(&self.limits).filter(|at| self.wants_again() && *at > self.looked);
        let proof = self.proof_due().filter(|at| *at > self.looked);
        [topics, again, proof].into_iter().flatten().min()
    }

    /// A server that has said nothing yet is asked whether it is there once it has had time to speak.
    fn proof_due(&self) -> Option<Moment> {
        let silent = !self.answered && !self.rules.by_type && self.rules.silence != Silence::Nothing;
        self.asked_at.filter(|_| silent).map(|asked| asked + self.limits.resource_timer)
    }

    /// The types of one stream come one after another: none is at its end while another is coming in, for a while.
    fn others(&self) -> Others {
        let news = self.topics.values().filter_map(|topic| topic.heard.news()).max();
        let last = self.topics.values().filter_map(|topic| topic.comes_in_until(&self.limits)).max();
        let until = last.zip(self.answered_at).map(|(last, first)| last.min(first + COMES_IN));
        Others { come_in_until: until.unwrap_or(Moment::START), news }
    }

    fn wants_again(&self) -> bool {
        self.open && (self.begins_anew || self.topics.values().any(|topic| topic.again.is_to_ask()))
    }

    /// Whether anything is kept of a type, be it that its last words may still come.
    pub fn has(&self, kind: &Type) -> bool {
        self.topics.contains_key(kind)
    }

    /// What the server's silence has come to.
    pub fn on_time(&mut self, at: &Standpoint, now: Moment) -> Vec<Fact> {
        self.looked = now;
        // Types that are not in the table may be made up, and there is no end of those. The others stay: what an empty list means
        // to the server depends on what it was told before (SOTW-38).
        let (table, limits) = (&self.table, &self.limits);
        let stays = |kind: &Type, topic: &Topic| !topic.is_over(now, limits) || table.knows(kind.name());
        self.topics.retain(|kind, topic| stays(kind, topic));
        if !self.open {
            return Vec::new();
        }
        if let Some(due) = self.proof_due() {
            self.life.judge(due, now);
        }
        let others = self.others();
        let mut facts = Vec::new();
        for (kind, topic) in &mut self.topics {
            if self.variant == Variant::Sotw {
                facts.extend(topic.refuse_globs(kind));
            }
            let (rules, limits, life, receiving) = (&self.rules, &self.limits, &mut self.life, self.receiving);
            let mut turn = Turn { kind, at, rules, limits, life, receiving, others, now };
            facts.extend(topic.on_time(&mut turn));
            topic.question(&mut turn);
        }
        facts
    }

    /// Whether it is to be opened anew now, to ask once more for what somebody holds.
    pub fn take_again(&mut self, now: Moment) -> bool {
        let due = self.pace.next_at(&self.limits).is_none_or(|at| at <= now);
        let again = due && self.wants_again();
        if again {
            self.pace.note(now, &self.limits);
        }
        again
    }
}
