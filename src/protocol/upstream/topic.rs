//! One type on one upstream stream: what is wanted, what the server has been told of it, and which answers it is owed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::doubt::{Begun, Doubt};
use super::globs::Globs;
use super::refused::Refused;
use super::rules::{ServerRules, Silence};
use crate::proto::Request;
use crate::proto::discovery::{DeltaDiscoveryRequest, DiscoveryRequest, Status};
use crate::protocol::limits::Limits;
use crate::protocol::moment::{Moment, sooner};
use crate::protocol::session::Variant;
use crate::protocol::unit::{Class, Fact, Kept, NamedError, Wanted};
use crate::xds::{Name, Type, WILDCARD};

#[derive(Debug)]
pub(super) struct Topic {
    pub class: Class,
    pub star: bool,
    pub names: BTreeMap<Name, Standing>,
    /// Those of them that stand for a whole collection.
    pub globs: Globs,
    /// Names and versions as this server gave them (UP-12), told back to it on a new stream.
    pub versions: BTreeMap<Name, String>,
    /// Those of them that have an end. They are not stated on a new stream: what may have died is to be sent again.
    pub mortal: BTreeSet<Name>,
    /// What was asked for by an alias, with the name that the server has for it (DELTA-22).
    pub aliases: BTreeMap<Name, Name>,
    /// What the server has not sent again since a stream on which it was told nothing of it (UP-16), or since it was asked for
    /// what another had given.
    pub doubt: Doubt,
    pub misnamed: u64,
    /// The last SotW version that was taken.
    pub accepted: String,
    pub nonce: String,
    pub owed: VecDeque<Owed>,
    /// A question about this type has been answered on this opening, and the last one was.
    pub alive: bool,
    pub refused: Refused,
    /// What the server has reported last of wanted names on this opening, and nothing of them since.
    pub troubles: BTreeMap<Name, Arc<NamedError>>,
    timers: BTreeSet<(Moment, Name)>,
    /// The first request of the type is out on this stream.
    opened: bool,
    /// The server was told a name on this stream, `*` included, so that an empty list means nothing (SOTW-38).
    named: bool,
    star_told: bool,
    /// Changes the server has not been told. A name in both was dropped and is wanted again: it is told twice.
    subscribe: BTreeSet<Name>,
    unsubscribe: BTreeSet<Name>,
    star_dropped: bool,
    /// A change is not told yet.
    changed: bool,
    /// No change is told before: those in between are merged (UP-5).
    next_at: Moment,
    /// Wanted names that went out while the server's silence said nothing.
    handed_out: BTreeSet<Name>,
}

/// How far a wanted name has got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// Not answered; its timer runs once the request is written.
    Asked { until: Option<Moment> },
    /// The server has given it, or something under its name that could not be used.
    Held,
    /// The server has said that there is none, or nothing for so long that there is none.
    Absent,
}

/// An ACK, or a NACK with its text.
#[derive(Debug)]
pub(super) struct Owed {
    pub nonce: String,
    /// SotW: the version in use once that response was read.
    pub version: String,
    pub error: Option<String>,
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
            names: BTreeMap::new(),
            globs: Globs::default(),
            versions: BTreeMap::new(),
            mortal: BTreeSet::new(),
            aliases: BTreeMap::new(),
            doubt: Doubt::default(),
            misnamed: 0,
            accepted: String::new(),
            nonce: String::new(),
            owed: VecDeque::new(),
            alive: false,
            refused: Refused::default(),
            troubles: BTreeMap::new(),
            timers: BTreeSet::new(),
            opened: false,
            named: false,
            star_told: false,
            subscribe: BTreeSet::new(),
            unsubscribe: BTreeSet::new(),
            star_dropped: false,
            changed: false,
            next_at: Moment::START,
            handed_out: BTreeSet::new(),
        }
    }

    pub fn is_wanted(&self) -> bool {
        self.star || !self.names.is_empty()
    }

    /// Whether the server has something to say that it has not said.
    pub fn waits(&self) -> bool {
        let of_star = self.star && self.versions.is_empty() && self.accepted.is_empty();
        of_star || self.names.values().any(|standing| matches!(standing, Standing::Asked { .. }))
    }

    /// Whether nothing of it is wanted, and the server was told so and has had time for its last words.
    pub fn is_over(&self, now: Moment, limits: &Limits) -> bool {
        let told = !self.changed && self.owed.is_empty() && now >= self.next_at + limits.resource_timer;
        !self.is_wanted() && (told || !self.opened)
    }

    pub fn want(&mut self, wanted: Wanted, on: bool, held: bool) {
        if self.star && on && wanted == Wanted::Star {
            return; // what there is to say of a set comes by itself
        }
        self.changed = true;
        match (wanted, on) {
            (Wanted::Star, true) => {
                self.star = true;
                self.forget_versions(); // an answer to the last words of an earlier `*` may have come since
            }
            (Wanted::Star, false) => {
                self.star = false;
                self.star_dropped = self.star_told;
                self.forget_versions();
            }
            (Wanted::Name(name), true) => {
                // What came with a collection is there: silence about it, once it is asked for by itself, says nothing.
                let held = held || (self.versions.contains_key(&name) && self.globs.of(&name).is_some());
                self.subscribe.insert(name.clone());
                self.globs.insert(&name);
                match self.names.get(&name).copied() {
                    // Once more: it stays held, and the server is not told so, lest it leaves it out.
                    Some(Standing::Held) => self.forget(&name),
                    standing => {
                        if let Some(Standing::Asked { until: Some(until) }) = standing {
                            self.timers.remove(&(until, name.clone()));
                        }
                        self.names.insert(name, if held { Standing::Held } else { Standing::Asked { until: None } });
                    }
                }
            }
            (Wanted::Name(name), false) => {
                if let Some(Standing::Asked { until: Some(until) }) = self.names.remove(&name) {
                    self.timers.remove(&(until, name.clone()));
                }
                if self.globs.remove(&name) {
                    self.forget_members(&name);
                    self.refused.retain(|refused| refused.collection().as_ref() != Some(&name));
                }
                if self.globs.of(&name).is_none() {
                    self.forget(&name);
                }
                self.handed_out.remove(&name);
                self.troubles.remove(&name);
                if let Some(canonical) = self.aliases.remove(&name)
                    && !self.names.contains_key(&canonical)
                    && !self.aliases.values().any(|other| *other == canonical)
                {
                    self.forget(&canonical);
                }
                if !self.subscribe.remove(&name) {
                    self.unsubscribe.insert(name);
                }
            }
        }
    }

    /// Another server gave this, and an answer to less may be under way: a full answer without it is no word of it yet.
    pub fn doubt_full_answers(&mut self, name: Name) {
        if self.opened {
            self.doubt.pause(); // all that is in doubt has its time from the next word on
            self.doubt.insert(name);
        }
    }

    /// The server knows nothing of us any more; what it once gave stays, with its versions.
    pub fn disconnect(&mut self, rules: &ServerRules) {
        if !rules.initial_versions {
            let in_a_set = |name: &&Name| self.class == Class::Star || self.is_member_alone(name);
            let unsaid: Vec<_> = self.versions.keys().filter(in_a_set).cloned().collect();
            self.doubt.clear();
            self.doubt.extend(unsaid);
        }
        self.doubt.retain(|name| !self.names.contains_key(name)); // all are asked for at once now
        self.globs.disconnect();
        self.on_trouble();
        self.refused.clear(); // it comes again, if it is there still
        self.troubles.clear();
        self.owed.clear();
        self.handed_out.clear();
        self.subscribe.clear();
        self.unsubscribe.clear();
        self.nonce.clear();
        (self.opened, self.named, self.star_told, self.star_dropped) = (false, false, false, false);
        self.changed = false;
        // It is asked again, and what it said before an outage is no news when it is back.
        for standing in self.names.values_mut().filter(|standing| **standing == Standing::Absent) {
            *standing = Standing::Asked { until: None };
        }
    }

    /// Timers run only while the server can answer (UP-35). Those that ran start over when it does.
    pub fn on_trouble(&mut self) {
        self.alive = false;
        self.doubt.pause();
        self.timers.clear();
        for (name, standing) in &mut self.names {
            if let Standing::Asked { until } = standing
                && until.take().is_some()
            {
                self.handed_out.insert(name.clone());
            }
        }
    }

    /// Nothing is held of it any more.
    pub fn forget(&mut self, name: &Name) {
        self.versions.remove(name);
        self.mortal.remove(name);
        self.doubt.remove(name);
    }

    /// Nothing is held of a collection any more but what is wanted by itself.
    pub fn forget_members(&mut self, glob: &Name) {
        let members = glob.members_in(&self.versions).map(|(member, _)| member);
        let alone: Vec<_> = members.filter(|member| !self.names.contains_key(*member)).cloned().collect();
        alone.iter().for_each(|member| self.forget(member));
    }

    fn forget_versions(&mut self) {
        self.versions.clear();
        self.mortal.clear();
        self.doubt.clear();
        self.accepted.clear();
        self.refused.clear();
    }

    /// The server speaks another variant from here on. It is still told what is held, under a version that is nobody's: what
    /// is there it sends again, and what is gone it has to say.
    pub fn blank_versions(&mut self) {
        self.versions.values_mut().for_each(String::clear);
        self.accepted.clear();
    }

    /// The same for a set that was cut off: stated as it is, a server that has all of it out would have nothing to say, and nobody
    /// would learn that it is whole.
    pub fn blank_set(&mut self, of: &Wanted) {
        match of {
            Wanted::Star => self.blank_versions(),
            Wanted::Name(glob) => {
                let members = self.versions.iter_mut().filter(|(name, _)| name.collection().as_ref() == Some(glob));
                members.for_each(|(_, version)| version.clear());
            }
        }
    }

    /// Whether a name is wanted as a member of a collection, and not by itself.
    pub fn is_member_alone(&self, name: &Name) -> bool {
        !self.names.contains_key(name) && self.globs.of(name).is_some()
    }

    /// Owes an answer to a response. A server that reads none of them is owed no more than so many.
    pub fn owe(&mut self, nonce: String, error: Option<String>, limits: &Limits) {
        if self.owed.len() >= limits.owed_answers {
            self.owed.pop_front();
        }
        self.owed.push_back(Owed { nonce, version: self.accepted.clone(), error });
    }

    /// The name has been answered: no timer will call it absent.
    pub fn answered(&mut self, name: &Name, standing_now: Standing) {
        if let Some(standing) = self.names.get_mut(name)
            && let Standing::Asked { until } = std::mem::replace(standing, standing_now)
            && let Some(until) = until
        {
            self.timers.remove(&(until, name.clone()));
        }
    }

    pub fn written(&mut self, now: Moment, rules: &ServerRules, limits: &Limits) {
        let asked = std::mem::take(&mut self.handed_out);
        let end = match rules.silence {
            Silence::Absence => now + limits.resource_timer,
            Silence::Trouble => now + limits.resource_timer * 2,
            Silence::Nothing => return,
        };
        // How much there is in a collection only the server can say (COLL-20).
        for name in asked.into_iter().filter(|name| !self.globs.has(name)) {
            if let Some(Standing::Asked { until: until @ None }) = self.names.get_mut(&name) {
                *until = Some(end);
                self.timers.insert((end, name));
            }
        }
    }

    pub fn next_deadline(&self) -> Option<Moment> {
        let request = match (self.opened, self.owed.is_empty()) {
            (true, true) if self.changed => Some(self.next_at),
            _ => None, // those go at once
        };
        sooner(self.doubt.until(), sooner(request, self.timers.first().map(|(until, _)| *until)))
    }

    /// The server has begun to answer, and has said nothing of some of these. What it has said and could not be read is there.
    pub fn doubt<'a>(&mut self, held: impl Iterator<Item = &'a Name>, now: Moment, limits: &Limits) {
        let said = |name: &Name| self.versions.contains_key(name) || self.refused.may_be(name);
        let unsaid: Vec<_> = held.filter(|name| !said(name) && !self.names.contains_key(*name)).cloned().collect();
        // What it has not begun to say anything of is not in doubt before it has.
        if self.alive && !unsaid.is_empty() {
            self.doubt.restart(now, limits);
        }
        self.doubt.extend(unsaid);
    }

    /// The server has begun to say again what it has; what it has not said some time after its last word is gone.
    pub fn confirm(&mut self, sent: impl Iterator<Item = Name>, now: Moment, limits: &Limits) {
        self.doubt.heard(sent, |name| self.names.contains_key(name), now, limits);
    }

    pub fn expire(&mut self, kind: &Type, now: Moment, rules: &ServerRules, limits: &Limits) -> Vec<Fact> {
        let mut facts = Vec::new();
        let alone = |name: &Name| !self.names.contains_key(name);
        let begun = |name: &Name| Some(Begun(self.globs.begun(self.globs.of(name).filter(|_| alone(name))?)));
        let unsaid = self.doubt.end(begun, now, limits);
        let unclear = self.refused.unnamed || rules.hold_deletions;
        for name in unsaid.into_iter().filter(|_| !unclear) {
            self.forget(&name);
            self.answered(&name, Standing::Absent);
            facts.push(Fact::Gone { kind: kind.clone(), class: self.class, key: name });
        }
        while self.timers.first().is_some_and(|(until, _)| *until <= now) {
            let Some((until, name)) = self.timers.pop_first() else { break };
            if self.names.get(&name) != Some(&(Standing::Asked { until: Some(until) })) {
                continue;
            }
            let kind = kind.clone();
            facts.push(match rules.silence {
                Silence::Trouble | Silence::Nothing => {
                    let error = NamedError { code: UNAVAILABLE, message: "the control plane does not answer".into() };
                    self.names.insert(name.clone(), Standing::Asked { until: None });
                    let error = Arc::new(error);
                    self.troubles.insert(name.clone(), error.clone());
                    Fact::Error { kind, key: name, error }
                }
                Silence::Absence => {
                    self.troubles.remove(&name);
                    self.names.insert(name.clone(), Standing::Absent);
                    Fact::Gone { kind, class: Class::Named, key: name }
                }
            });
        }
        facts
    }

    /// Globs that this server cannot be asked for in the variant that it speaks (COLL-23).
    pub fn refuse_globs(&mut self, kind: &Type) -> Vec<Fact> {
        let error = Arc::new(unspeakable());
        let refused = self.globs.take_unasked().into_iter();
        refused.map(|key| Fact::Error { kind: kind.clone(), key, error: error.clone() }).collect()
    }

    pub fn next_request(
        &mut self,
        kind: &Type,
        variant: Variant,
        now: Moment,
        rules: &ServerRules,
        limits: &Limits,
    ) -> Option<Request> {
        let ripe = self.changed && now >= self.next_at;
        let askable = variant == Variant::Delta || self.star || self.names.len() > self.globs.len();
        let first = !self.opened && self.is_wanted() && askable;
        if !first && !ripe && self.owed.is_empty() {
            return None;
        }
        if !(self.opened || askable && self.is_wanted()) {
            self.changed = false; // wanted and dropped again before a word was said
            return None;
        }
        let told = self.changed;
        let request = match variant {
            Variant::Sotw => Request::Sotw(self.sotw_request(kind, first, rules)),
            Variant::Delta => Request::Delta(self.delta_request(kind, first, rules)),
        };
        if told && !self.changed {
            self.next_at = now + limits.interest_window;
        }
        Some(request)
    }

    fn sotw_request(&mut self, kind: &Type, first: bool, rules: &ServerRules) -> DiscoveryRequest {
        let owed = self.owed.pop_front();
        if let Some(owed) = &owed {
            self.nonce.clone_from(&owed.nonce);
        }
        // Where a response need not hold everything, a server could take the version for "has all of it" (UP-13).
        let unsafe_to_state = first && !(self.class == Class::Star && kind.info().full_state);
        let version = owed.as_ref().map_or(&self.accepted, |owed| &owed.version);
        let mut request = DiscoveryRequest {
            version_info: if unsafe_to_state { String::new() } else { version.clone() },
            type_url: url_of(kind),
            response_nonce: self.nonce.clone(),
            error_detail: owed.and_then(|owed| owed.error).map(refusal),
            ..DiscoveryRequest::default()
        };
        if self.class == Class::Star {
            request.resource_names = self.star_list(kind, first);
        } else {
            request.resource_names = self.name_list(first, rules);
        }
        self.opened = true;
        request
    }

    /// `*` alone goes in the form that every server knows (UP-7), and is left by way of its explicit name: to a server that
    /// was never told a name an empty list still means everything (UP-8).
    fn star_list(&mut self, kind: &Type, first: bool) -> Vec<String> {
        let legacy_form = kind.info().empty_first.is_wildcard() && !self.named;
        if self.star_dropped && !self.named {
            self.named = true;
            return vec![WILDCARD.into()];
        }
        if std::mem::take(&mut self.star_dropped) {
            self.star_told = false;
            if !self.star {
                self.changed = false;
            }
            return Vec::new();
        }
        self.changed = false;
        if !self.star {
            return Vec::new();
        }
        self.star_told = true;
        if legacy_form && (first || !self.named) {
            return Vec::new();
        }
        self.named = true;
        vec![WILDCARD.into()]
    }

    fn name_list(&mut self, first: bool, rules: &ServerRules) -> Vec<String> {
        if first {
            self.subscribe = self.names.keys().cloned().collect();
        }
        let twice = !first && self.subscribe.iter().any(|name| self.unsubscribe.contains(name));
        self.unsubscribe.clear();
        let subscribed = |name: &&Name| !self.globs.has(name) && (!twice || !self.subscribe.contains(*name));
        let mut list: Vec<_> = self.names.keys().filter(subscribed).map(|name| name.as_str().to_owned()).collect();
        if list.is_empty() && !rules.empty_list {
            list.push(NOTHING.into());
        }
        if !twice {
            self.handed_out.extend(std::mem::take(&mut self.subscribe));
            self.changed = false;
        }
        self.named = true;
        list
    }

    fn delta_request(&mut self, kind: &Type, first: bool, rules: &ServerRules) -> DeltaDiscoveryRequest {
        let owed = self.owed.pop_front();
        let (nonce, error) = owed.map(|owed| (owed.nonce, owed.error)).unwrap_or_default();
        let mut request = DeltaDiscoveryRequest {
            type_url: url_of(kind),
            response_nonce: nonce,
            error_detail: error.map(refusal),
            ..DeltaDiscoveryRequest::default()
        };
        let text = |name: &Name| name.as_str().to_owned();
        if first {
            let states = |name: &Name| rules.initial_versions && !self.mortal.contains(name);
            let stated = self.versions.iter().filter(|(name, _)| states(name));
            request.initial_resource_versions = stated.map(|(name, version)| (text(name), version.clone())).collect();
            self.subscribe = self.names.keys().cloned().collect();
            self.unsubscribe.clear();
        }
        let ripe = first || self.changed;
        let twice =
            self.subscribe.iter().any(|name| self.unsubscribe.contains(name)) || (self.star_dropped && self.star);
        if ripe {
            request.resource_names_unsubscribe = self.unsubscribe.iter().map(text).collect();
            self.unsubscribe.clear();
            if std::mem::take(&mut self.star_dropped) {
                self.star_told = false;
                request.resource_names_unsubscribe.push(WILDCARD.into());
            }
            if !twice {
                request.resource_names_subscribe = self.subscribe.iter().map(text).collect();
                self.handed_out.extend(std::mem::take(&mut self.subscribe));
                if self.star && !std::mem::replace(&mut self.star_told, true) {
                    let legacy_form = kind.info().empty_first.is_wildcard() && first;
                    request.resource_names_subscribe.extend((!legacy_form).then(|| WILDCARD.to_owned()));
                }
                self.changed = false;
            }
        }
        self.opened = true;
        request
    }

    /// What was found of names on this opening: that there is none, or that something is wrong with one.
    pub fn findings(&self, kind: &Type) -> Vec<Fact> {
        let absent = self.names.iter().filter(|(_, standing)| **standing == Standing::Absent);
        let gone = |(key, _): (&Name, _)| Fact::Gone { kind: kind.clone(), class: Class::Named, key: key.clone() };
        let error = |key: &Name, error| Fact::Error { kind: kind.clone(), key: key.clone(), error };
        let troubles = self.troubles.iter().map(|(key, of)| error(key, of.clone()));
        let refused = self.globs.refused().map(|glob| error(glob, Arc::new(unspeakable())));
        absent.map(gone).chain(troubles).chain(refused).collect()
    }

    pub fn drop_everything(&mut self, kind: &Type) -> Vec<Fact> {
        let kind = kind.clone();
        match self.class {
            Class::Star => vec![Fact::Whole { kind, resources: Vec::new(), kept: Kept::nothing() }],
            Class::Named => {
                let gone = |key: &Name| Fact::Gone { kind: kind.clone(), class: Class::Named, key: key.clone() };
                self.names.keys().map(gone).collect()
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

fn refusal(message: String) -> Status {
    Status { code: INVALID_ARGUMENT, message, details: Vec::new() }
}

fn url_of(kind: &Type) -> String {
    format!("type.googleapis.com/{}", kind.name())
}

/// A name that no resource has, for servers that take an empty list for everything (UP-9).
const NOTHING: &str = "weir.nothing";
const INVALID_ARGUMENT: i32 = 3;
const UNIMPLEMENTED: i32 = 12;
const UNAVAILABLE: i32 = 14;
