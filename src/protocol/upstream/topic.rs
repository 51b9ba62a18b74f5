//! One type on one upstream stream: what is wanted, what the server has given of it, and what may be concluded from what it has
//! said and not said.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Standpoint;
use super::again::{Again, Question as SecondQuestion};
use super::asked::{Asked, Question};
use super::globs::Globs;
use super::habits::{Habit, SetSeen};
use super::heard::Heard;
use super::left::Left;
use super::life::{Life, Silence};
use super::refused::Refused;
use super::request::Wire;
use super::rules::{self, InitialSet, ServerRules};
use crate::protocol::faults::Fault;
use crate::protocol::limits::Limits;
use crate::protocol::moment::{Moment, sooner};
use crate::protocol::session::Variant;
use crate::protocol::unit::{Class, Entry, Fact, Fill, Kept, NamedError, Presence, Source, Unit, Wanted, Word};
use crate::xds::{Name, Type};

#[derive(Debug)]
pub(super) struct Topic {
    pub class: Class,
    pub star: bool,
    pub names: BTreeSet<Name>,
    /// Those of them that stand for a whole collection.
    pub globs: Globs,
    /// Names and versions as this server gave them (UP-12), told back to it on a new stream.
    pub versions: BTreeMap<Name, String>,
    /// Those of them that it has to say again on this opening, or are not confirmed: it was told nothing of them.
    pub unsaid: BTreeSet<Name>,
    /// Those of them that have an end. They are not stated on a new stream: what may have died is to be sent again.
    pub mortal: BTreeSet<Name>,
    /// What was asked for by an alias, with the name that the server has for it (DELTA-22).
    pub aliases: BTreeMap<Name, Name>,
    pub misnamed: u64,
    /// The last SotW version that was taken.
    pub accepted: String,
    /// Wanted names that the server has not given on this opening.
    pub asked: Asked,
    pub left: Left,
    pub heard: Heard,
    habit: Habit,
    /// What that was learnt from, for others who talk to this server.
    pub seen: Vec<SetSeen>,
    /// Others have seen the server send this in pieces.
    pub cut_for_others: bool,
    pub again: Again,
    pub refused: Refused,
    /// What the server has reported last of wanted names on this opening, and nothing of them since.
    pub troubles: BTreeMap<Name, Arc<NamedError>>,
    pub wire: Wire,
    /// When the first request of this opening was written.
    written: Option<Moment>,
    /// Where each type is polled for by itself: what its polls prove.
    polled: Life,
    /// Up to here time has done its work.
    looked: Moment,
}

/// What is at hand while time is let do its work.
pub(super) struct Turn<'a> {
    pub kind: &'a Type,
    pub at: &'a Standpoint<'a>,
    pub rules: &'a ServerRules,
    pub limits: &'a Limits,
    pub life: &'a mut Life,
    /// A message is coming in, so that the server is not silent.
    pub receiving: bool,
    pub others: Others,
    pub now: Moment,
}

/// What the types of one stream mean to one another: they come one after the other.
#[derive(Debug, Clone, Copy)]
pub(super) struct Others {
    /// None is taken to be at its end before this.
    pub come_in_until: Moment,
    /// When something of any of them was last said for the first time.
    pub news: Option<Moment>,
}

impl Topic {
    pub fn of(wanted: &Wanted) -> Self {
        let class = match wanted {
            Wanted::Star => Class::Star,
            Wanted::Name(_) => Class::Named,
        };
        Self {
            class,
            star: false,
            names: BTreeSet::new(),
            globs: Globs::default(),
            versions: BTreeMap::new(),
            unsaid: BTreeSet::new(),
            mortal: BTreeSet::new(),
            aliases: BTreeMap::new(),
            misnamed: 0,
            accepted: String::new(),
            asked: Asked::default(),
            left: Left::default(),
            heard: Heard::default(),
            habit: Habit::default(),
            seen: Vec::new(),
            cut_for_others: false,
            again: Again::default(),
            refused: Refused::default(),
            troubles: BTreeMap::new(),
            wire: Wire::default(),
            written: None,
            polled: Life::default(),
            looked: Moment::START,
        }
    }

    pub fn is_wanted(&self) -> bool {
        self.star || !self.names.is_empty()
    }

    /// Whether the server has something to say that it has not said.
    pub fn waits(&self) -> bool {
        let of_star = self.star && self.versions.is_empty() && self.accepted.is_empty();
        of_star || self.asked.is_any_waiting()
    }

    /// Whether the server has spoken of all that is wanted on this opening, or had the time to: one that goes by what it is told has
    /// nothing to say where nothing is new.
    pub fn has_said_all(&self) -> bool {
        let had_time = self.polled.is_proven() || self.again.has_looked();
        (!self.star || self.heard.has_spoken() || had_time) && !self.asked.is_any_waiting()
    }

    /// Whether nothing of it is wanted, and the server was told so and has had time for its last words.
    pub fn is_over(&self, now: Moment, limits: &Limits) -> bool {
        let told = self.wire.owes_nothing() && now >= self.wire.last_told() + limits.resource_timer;
        !self.is_wanted() && (told || !self.wire.opened)
    }

    /// What is held of another server is in the first request like everything; later it is a question like any other.
    pub fn want(&mut self, wanted: Wanted, on: bool, held: bool) {
        if self.star && on && wanted == Wanted::Star {
            return; // what there is to say of a set comes by itself
        }
        self.wire.changed = true;
        match (wanted, on) {
            (Wanted::Star, true) => {
                self.star = true;
                self.heard = Heard::again(self.wire.opened);
                self.forget_versions(); // an answer to the last words of an earlier `*` may have come since
            }
            (Wanted::Star, false) => {
                self.star = false;
                self.wire.star_dropped = self.wire.star_told;
                self.forget_versions();
            }
            (Wanted::Name(name), true) => {
                // What came with a collection is there: silence about it, once it is asked for by itself, says nothing.
                let given = self.versions.contains_key(&name) && self.globs.of(&name).is_some();
                let held = given || held && !self.wire.opened;
                self.wire.subscribe.insert(name.clone());
                self.globs.insert(&name);
                if self.holds_by_name(&name) {
                    self.forget(&name); // once more: it stays held, and the server is not told so, lest it leaves it out
                } else if self.names.insert(name.clone()) && held {
                    self.asked.given(&name);
                } else {
                    self.asked.ask(name);
                }
            }
            (Wanted::Name(name), false) => {
                self.names.remove(&name);
                self.asked.forget(&name);
                self.again.answered(&name);
                if self.globs.remove(&name) {
                    self.forget_members(&name);
                    self.refused.retain(|refused| refused.collection().as_ref() != Some(&name));
                    self.again.retain(|member| member.collection().as_ref() != Some(&name));
                }
                if self.globs.of(&name).is_none() {
                    self.forget(&name);
                }
                self.troubles.remove(&name);
                if let Some(canonical) = self.aliases.remove(&name)
                    && !self.names.contains(&canonical)
                    && !self.aliases.values().any(|other| *other == canonical)
                {
                    self.forget(&canonical);
                }
                if !self.wire.subscribe.remove(&name) {
                    self.wire.unsubscribe.insert(name);
                }
            }
        }
    }

    /// A name that is wanted by itself and was not left unanswered.
    pub fn holds_by_name(&self, name: &Name) -> bool {
        self.names.contains(name) && self.asked.get(name).is_none()
    }

    pub fn see(&mut self, seen: SetSeen) {
        self.habit.note(seen);
        if self.seen.last() != Some(&seen) {
            self.seen.push(seen); // told soon, and before that more of the same is no news
        }
        self.seen.drain(..self.seen.len().saturating_sub(2));
    }

    /// The server knows nothing of us any more; what it once gave stays, with its versions.
    pub fn disconnect(&mut self, variant: Variant, rules: &ServerRules) {
        if self.heard.was_at_once() {
            self.see(SetSeen::AtOnce);
        }
        if variant == Variant::Sotw || !rules.initial_versions {
            self.unsaid = self.versions.keys().cloned().collect();
        }
        self.globs.disconnect();
        self.ask_for_refused();
        self.refused.disconnect(); // it comes again, if it is there still
        self.troubles.clear();
        self.wire.disconnect();
        self.asked.disconnect();
        self.left = Left::default();
        self.again.disconnect();
        if !self.again.is_empty() && self.class == Class::Star {
            self.accepted.clear(); // told of it, the server would have no more reason to speak than before
        }
        self.heard = Heard::default();
        (self.written, self.polled) = (None, Life::default());
    }

    /// What came on this opening and could not be read was given, and nothing is held of it: it is a question on the next.
    fn ask_for_refused(&mut self) {
        let unheld = |name: &&Name| !self.versions.contains_key(self.own_name(name)) && !self.globs.has(name);
        let refused = |name: &&Name| self.refused.may_be(name) && self.asked.get(name).is_none();
        let questions: Vec<_> = self.names.iter().filter(refused).filter(unheld).cloned().collect();
        questions.into_iter().for_each(|name| self.asked.ask(name));
    }

    /// The name that the server has for what is asked for.
    fn own_name<'a>(&'a self, name: &'a Name) -> &'a Name {
        self.aliases.get(name).unwrap_or(name)
    }

    /// A poll for the type was answered, be it with nothing new.
    pub fn on_poll(&mut self, now: Moment) {
        self.polled.answered_at(now);
    }

    /// A poll for the type was not answered.
    pub fn on_trouble(&mut self) {
        self.polled = Life::default();
        self.asked.pause();
    }

    pub fn is_polled(&self) -> bool {
        self.polled.is_proven()
    }

    /// Nothing is held of it any more.
    pub fn forget(&mut self, name: &Name) {
        self.versions.remove(name);
        self.mortal.remove(name);
        self.unsaid.remove(name);
    }

    /// Nothing is held of a collection any more but what is wanted by itself.
    pub fn forget_members(&mut self, glob: &Name) {
        let members = glob.members_in(&self.versions).map(|(member, _)| member);
        let alone: Vec<_> = members.filter(|member| !self.names.contains(*member)).cloned().collect();
        alone.iter().for_each(|member| self.forget(member));
    }

    fn forget_versions(&mut self) {
        self.versions.clear();
        self.mortal.clear();
        self.unsaid.clear();
        self.accepted.clear();
        self.refused.disconnect();
        self.again = Again::default();
    }

    /// The server is to say again what it has of these: it speaks another variant from here on, or was cut off in the middle of a
    /// set, or others have given something else meanwhile. On a new stream it is told their names, under versions that are nobody's.
    pub fn say_again(&mut self, which: impl Fn(&Name) -> bool) {
        self.unsaid.extend(self.versions.keys().filter(|name| which(name)).cloned());
        if self.class == Class::Star {
            self.accepted.clear();
        }
    }

    pub fn say_something_again(&mut self) {
        let first = self.versions.keys().find(|name| !self.mortal.contains(*name));
        self.unsaid.extend(first.cloned());
        if self.class == Class::Star {
            self.accepted.clear();
        }
    }

    /// Whether a name is wanted as a member of a collection, and not by itself.
    pub fn is_member_alone(&self, name: &Name) -> bool {
        !self.names.contains(name) && self.globs.of(name).is_some()
    }

    pub fn written(&mut self, now: Moment, rules: &ServerRules, limits: &Limits) {
        if self.wire.opened {
            self.written.get_or_insert(now);
            self.again.written(now);
            self.left.written(now, limits.resource_timer);
        }
        let lasting = match rules.silence {
            rules::Silence::Absence => limits.resource_timer,
            rules::Silence::Trouble => limits.resource_timer * 2,
            rules::Silence::Nothing => return,
        };
        // How much there is in a collection only the server can say (COLL-20).
        let globs = &self.globs;
        self.asked.written(now, lasting, |name| !globs.has(name));
    }

    pub fn next_deadline(&self, others: Others, limits: &Limits) -> Option<Moment> {
        let later = |at: &Moment| *at > self.looked;
        let second = self.again.ends_at(self.heard.growth(), others.news, limits);
        let first = self.silent_at(others.come_in_until, limits).filter(|_| !self.again.has_looked());
        let settles = self.heard.settles_at(limits).filter(|_| self.has_sets());
        let silence = [second, first, settles].into_iter().flatten().filter(later).min();
        sooner(silence, sooner(self.wire.next_deadline(), self.asked.next_deadline(self.looked)))
    }

    /// Until when the type is coming in, if it is.
    pub fn comes_in_until(&self, limits: &Limits) -> Option<Moment> {
        self.heard.news().filter(|_| self.has_sets()).map(|news| news + limits.settle_stated)
    }

    fn has_sets(&self) -> bool {
        self.star || self.globs.len() > 0
    }

    /// Whether what the server has of a name is known on this opening: it was sent, or confirmed, or came and could not be read.
    fn is_said(&self, name: &Name) -> bool {
        let own = self.own_name(name);
        let given = self.versions.contains_key(own) && !self.unsaid.contains(own);
        given || self.refused.may_be(name) || self.troubles.contains_key(name)
    }

    /// Lets time do its work: what a silence means, where somebody was there who could have spoken.
    pub fn on_time(&mut self, turn: &mut Turn) -> Vec<Fact> {
        self.looked = turn.now;
        let mut facts = Vec::new();
        if !turn.receiving && self.heard.settle(turn.now, turn.limits) && !turn.rules.says_whole {
            facts.extend(self.filled(turn.kind, Fill::Settled));
            self.heard.whole |= self.star && turn.limits.faults.has(Fault::FirstQuietIsTheEnd);
        }
        self.expire(turn, &mut facts);
        self.conclude_polls(turn, &mut facts);
        self.conclude_end(turn, &mut facts);
        self.conclude_second_silence(turn, &mut facts);
        facts
    }

    /// What is known of each set that the server has spoken of.
    fn filled(&self, kind: &Type, fill: Fill) -> Vec<Fact> {
        let star = self.star.then_some(Wanted::Star);
        let globs = self.globs.begun().cloned().map(Wanted::Name);
        let of = star.into_iter().chain(globs);
        of.map(|of| Fact::Filled { kind: kind.clone(), of, fill }).collect()
    }

    /// Names that the server was asked for and said nothing of, for the time that it has (XLAT-15).
    fn expire(&mut self, turn: &mut Turn, facts: &mut Vec<Fact>) {
        let life = if turn.rules.by_type { &mut self.polled } else { &mut *turn.life };
        let (now, receiving) = (turn.now, turn.receiving);
        let mut judge = |end| if receiving { Silence::Unproven } else { life.judge(end, now) };
        while let Some(name) = self.asked.next_silent(now, &mut judge) {
            self.again.look_anew(); // somebody may hold it
            let kind = turn.kind.clone();
            facts.push(match turn.rules.silence {
                rules::Silence::Trouble | rules::Silence::Nothing => {
                    let error = NamedError { code: UNAVAILABLE, message: "the control plane does not answer".into() };
                    self.asked.ask(name.clone());
                    let error = Arc::new(error);
                    self.troubles.insert(name.clone(), error.clone());
                    Fact::Error { kind, key: name, error }
                }
                rules::Silence::Absence => {
                    self.troubles.remove(&name);
                    // A poll is answered in full each time: what it leaves out it does not have.
                    let word = if turn.rules.by_type { Word::Said } else { Word::Silence };
                    Fact::Gone { kind, class: Class::Named, key: name, word }
                }
            });
        }
    }

    /// Where a type is polled for, each answer is one to all that is asked: what others gave and it lacks is gone.
    fn conclude_polls(&mut self, turn: &Turn, facts: &mut Vec<Fact>) {
        let end = self.silent_at(turn.others.come_in_until, turn.limits).filter(|_| turn.rules.by_type);
        let Some(end) = end.filter(|_| !self.again.has_looked()) else { return };
        if self.polled.judge(end, turn.now) == Silence::Proven {
            self.again.looked(turn.at.unit.sought_generation());
            self.all_gone(self.unsaid_here(turn), turn.kind, facts);
        }
    }

    /// Where the end of `*` is known: what is here and was not said is gone.
    fn conclude_end(&mut self, turn: &Turn, facts: &mut Vec<Fact>) {
        if !self.heard.whole || self.heard.concluded || turn.at.unit.is_gated(turn.kind) {
            return;
        }
        self.heard.concluded = true;
        let mut gone = self.unsaid_here(turn);
        gone.append(&mut self.again.conclude_all());
        self.all_gone(gone, turn.kind, facts);
        facts.extend(self.filled(turn.kind, Fill::Whole));
    }

    /// Asked a second time, and silent for as long as it may take: what was asked for is not there.
    fn conclude_second_silence(&mut self, turn: &mut Turn, facts: &mut Vec<Fact>) {
        let Some(end) = self.again.ends_at(self.heard.growth(), turn.others.news, turn.limits) else { return };
        let unfinished = turn.receiving || self.refused.unnamed.is_some() || self.heard.says_more_comes();
        if unfinished || turn.life.judge(end, turn.now) != Silence::Proven {
            return;
        }
        let SecondQuestion { names, set } = self.again.conclude();
        self.all_gone(names, turn.kind, facts);
        if set {
            facts.extend(self.filled(turn.kind, Fill::Whole));
        }
    }

    fn all_gone(&mut self, names: BTreeSet<Name>, kind: &Type, facts: &mut Vec<Fact>) {
        for name in names {
            self.forget(&name);
            if self.names.contains(&name) {
                self.asked.settle(name.clone(), Question::Absent);
            }
            facts.push(Fact::Gone { kind: kind.clone(), class: self.class, key: name, word: Word::Said });
        }
    }

    /// When a server that is silent has had time to say what it has.
    fn silent_at(&self, not_before: Moment, limits: &Limits) -> Option<Moment> {
        let asked = self.written? + limits.resource_timer;
        let quiet = self.heard.quiet_at(limits).map(|quiet| quiet.max(not_before));
        Some(match (self.class, quiet) {
            (Class::Star, Some(quiet)) => quiet,
            (_, quiet) => quiet.map_or(asked, |quiet| quiet.max(asked)),
        })
    }

    /// Finds what the server is to be asked a second time, on a new opening.
    pub fn question(&mut self, turn: &mut Turn) {
        let generation = turn.at.unit.sought_generation();
        let Some(end) = self.silent_at(turn.others.come_in_until, turn.limits) else { return };
        if !self.again.is_to_look(generation) || turn.now < end {
            return;
        }
        let nobody_says = turn.rules.silence == rules::Silence::Nothing && !turn.rules.says_whole;
        if nobody_says || turn.rules.by_type || turn.receiving || !self.is_wanted() || turn.at.unit.is_gated(turn.kind)
        {
            return;
        }
        let question = self.again.without_asked(self.unanswered(turn));
        if question.is_empty() {
            self.again.looked(generation);
        } else if turn.rules.says_whole || turn.life.judge(end, turn.now) == Silence::Proven {
            // What says by itself how much it has said is within the process.
            self.again.looked(generation);
            self.again.ask_next(question);
        }
    }

    /// What somebody holds and the server has not answered for.
    fn unanswered(&self, turn: &Turn) -> SecondQuestion {
        let unit = turn.at.unit;
        let asked = |name: &Name| {
            let wanted = self.star || self.names.contains(name) || self.globs.of(name).is_some();
            wanted && !self.asked.is_waiting(name) && turn.at.speaks_of(&self.wanted(name)).is_some()
        };
        let sought = unit.sought(turn.kind, self.class).filter(|name| asked(name) && !self.is_said(name));
        let mut names: BTreeSet<_> = sought.cloned().collect();
        names.extend(self.unsaid_here(turn));
        names.extend(self.unsaid_elsewhere(unit, turn.kind).filter(|name| asked(name)).cloned());
        // A server that goes by what it is told has nothing to say where all is told, and says so in the end.
        let asked = self.again.set && (self.heard.repeats || !self.heard.has_spoken() || self.again.has_asked_enough());
        let speaks = || turn.at.speaks_of(&Wanted::Star).is_some();
        let asked = asked || self.heard.says_more_comes();
        let set = self.star && !self.heard.whole && !asked && unit.seeks_set(turn.kind) && speaks();
        SecondQuestion { names, set }
    }

    /// What this server gave and has not said on this opening, and others have taken away meanwhile. It may have confirmed it by not
    /// sending it, before that.
    fn unsaid_elsewhere<'a>(&'a self, unit: &'a Unit, kind: &'a Type) -> impl Iterator<Item = &'a Name> {
        let gone = |name: &Name| {
            unit.entry(kind, self.class, name).is_none_or(|entry| !matches!(entry.presence, Presence::Here(_)))
        };
        self.unsaid.iter().filter(move |name| gone(name) && !self.is_said(name))
    }

    /// What is here that this server has not said on this opening, and that may go by that.
    fn unsaid_here(&self, turn: &Turn) -> BTreeSet<Name> {
        if turn.rules.hold_deletions {
            return BTreeSet::new();
        }
        let goes = |name: &Name, entry: &Entry| {
            let own = self.star || self.names.contains(name) || self.globs.of(name).is_some();
            let speaks = |source: Source| !(source.holds_missing && entry.source.rank < source.rank);
            own && !self.is_said(name)
                && !self.asked.is_waiting(name)
                && turn.at.speaks_of(&self.wanted(name)).is_some_and(speaks)
        };
        let here = turn.at.unit.here(turn.kind, self.class);
        here.filter(|(name, entry)| goes(name, entry)).map(|(name, _)| name.clone()).collect()
    }

    fn wanted(&self, name: &Name) -> Wanted {
        match self.class {
            Class::Star => Wanted::Star,
            Class::Named => Wanted::Name(name.clone()),
        }
    }

    /// How much is known of a set by a response, in which the server says or does not that this is all.
    pub fn fill_by(&self, rules: &ServerRules, of: &Wanted, ends: bool) -> Fill {
        let star = *of == Wanted::Star;
        match rules.initial_set {
            _ if ends && star => Fill::Whole,
            _ if rules.says_whole && !star => Fill::Coming,
            InitialSet::Pieces => self.heard.fill(true),
            InitialSet::OneResponse if star => Fill::Coming, // it says that there is more
            InitialSet::Auto | InitialSet::OneResponse => self.heard.fill(self.habit.cuts || self.cut_for_others),
        }
    }

    /// Globs that this server cannot be asked for in the variant that it speaks (COLL-23).
    pub fn refuse_globs(&mut self, kind: &Type) -> Vec<Fact> {
        let error = Arc::new(unspeakable());
        let refused = self.globs.take_unasked().into_iter();
        refused.map(|key| Fact::Error { kind: kind.clone(), key, error: error.clone() }).collect()
    }

    /// What was found of names on this opening: that there is none, or that something is wrong with one.
    pub fn findings(&self, kind: &Type) -> Vec<Fact> {
        let word = |question| match question {
            Question::Absent => Some(Word::Said),
            Question::Silent => Some(Word::Silence),
            Question::Waiting { .. } => None,
        };
        let gone = |(key, question): (&Name, Question)| {
            Some(Fact::Gone { kind: kind.clone(), class: Class::Named, key: key.clone(), word: word(question)? })
        };
        let error = |key: &Name, error| Fact::Error { kind: kind.clone(), key: key.clone(), error };
        let troubles = self.troubles.iter().map(|(key, of)| error(key, of.clone()));
        let refused = self.globs.refused().map(|glob| error(glob, Arc::new(unspeakable())));
        let unread = (!self.refused.unread().is_empty()).then(|| Fact::Unread {
            kind: kind.clone(),
            of: Wanted::Star,
            names: self.refused.unread().clone(),
        });
        let unread = unread.filter(|_| self.class == Class::Star);
        self.asked.iter().filter_map(gone).chain(troubles).chain(refused).chain(unread).collect()
    }

    pub fn drop_everything(&mut self, kind: &Type) -> Vec<Fact> {
        let kind = kind.clone();
        match self.class {
            Class::Star => vec![Fact::Whole { kind, resources: Vec::new(), kept: Kept::nothing() }],
            Class::Named => {
                let class = Class::Named;
                let gone = |key: &Name| Fact::Gone { kind: kind.clone(), class, key: key.clone(), word: Word::Said };
                self.names.iter().map(gone).collect()
            }
        }
    }

    pub fn forget_names(&mut self) {
        self.names.clear();
    }
}

fn unspeakable() -> NamedError {
    let message = "the control plane does not speak the delta variant, and collections exist in that alone".into();
    NamedError { code: UNIMPLEMENTED, message }
}

const UNIMPLEMENTED: i32 = 12;
const UNAVAILABLE: i32 = 14;
