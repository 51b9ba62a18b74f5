//! One type on one upstream stream: what is wanted, what the server has been told of it, and which answers it is owed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::proto::Request;
use crate::proto::discovery::{DeltaDiscoveryRequest, DiscoveryRequest, Status};
use crate::protocol::limits::Limits;
use crate::protocol::moment::{Moment, sooner};
use crate::protocol::session::Variant;
use crate::protocol::unit::{Class, Fact, Wanted};
use crate::xds::{Name, Type, WILDCARD};

#[derive(Debug)]
pub(super) struct Topic {
    pub class: Class,
    pub star: bool,
    pub names: BTreeMap<Name, Standing>,
    /// Names and versions as this server gave them (UP-12), told back to it on a new stream.
    pub versions: BTreeMap<Name, String>,
    /// The last SotW version that was taken.
    pub accepted: String,
    pub nonce: String,
    pub owed: VecDeque<Owed>,
    /// Names of which the last that came could not be used: present, and not known (UP-25).
    pub refused: BTreeSet<Name>,
    /// Something without a name could not be used.
    pub unnamed_refused: bool,
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
    changed_at: Option<Moment>,
    handed_out: Vec<Name>,
}

/// How far a wanted name has got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// Not answered; its timer runs once the request is written.
    Asked { until: Option<Moment> },
    /// The server has given it or has said that there is none.
    Answered,
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
            versions: BTreeMap::new(),
            accepted: String::new(),
            nonce: String::new(),
            owed: VecDeque::new(),
            refused: BTreeSet::new(),
            unnamed_refused: false,
            timers: BTreeSet::new(),
            opened: false,
            named: false,
            star_told: false,
            subscribe: BTreeSet::new(),
            unsubscribe: BTreeSet::new(),
            star_dropped: false,
            changed_at: None,
            handed_out: Vec::new(),
        }
    }

    pub fn is_wanted(&self) -> bool {
        self.star || !self.names.is_empty()
    }

    pub fn want(&mut self, wanted: Wanted, on: bool, now: Moment) {
        self.changed_at.get_or_insert(now);
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
                self.subscribe.insert(name.clone());
                self.names.insert(name, Standing::Asked { until: None });
            }
            (Wanted::Name(name), false) => {
                if let Some(Standing::Asked { until: Some(until) }) = self.names.remove(&name) {
                    self.timers.remove(&(until, name.clone()));
                }
                self.versions.remove(&name);
                if !self.subscribe.remove(&name) {
                    self.unsubscribe.insert(name);
                }
            }
        }
    }

    /// The server knows nothing of us any more; what it once gave stays, with its versions.
    pub fn disconnect(&mut self) {
        self.timers.clear();
        self.owed.clear();
        self.handed_out.clear();
        self.subscribe.clear();
        self.unsubscribe.clear();
        self.nonce.clear();
        (self.opened, self.named, self.star_told, self.star_dropped) = (false, false, false, false);
        self.changed_at = None;
        for standing in self.names.values_mut() {
            if let Standing::Asked { until } = standing {
                *until = None; // timers run only while the server can answer (UP-35)
            }
        }
    }

    fn forget_versions(&mut self) {
        self.versions.clear();
        self.accepted.clear();
        self.refused.clear();
        self.unnamed_refused = false;
    }

    /// The server speaks another variant from here on. It is still told what is held, under a version that is nobody's: what
    /// is there it sends again, and what is gone it has to say.
    pub fn blank_versions(&mut self) {
        self.versions.values_mut().for_each(String::clear);
        self.accepted.clear();
    }

    /// Owes an answer to a response. A server that reads none of them is owed no more than so many.
    pub fn owe(&mut self, nonce: String, error: Option<String>, limits: &Limits) {
        if self.owed.len() >= limits.owed_answers {
            self.owed.pop_front();
        }
        self.owed.push_back(Owed { nonce, version: self.accepted.clone(), error });
    }

    /// The name has been answered: no timer will call it absent.
    pub fn answered(&mut self, name: &Name) {
        if let Some(standing) = self.names.get_mut(name)
            && let Standing::Asked { until } = std::mem::replace(standing, Standing::Answered)
            && let Some(until) = until
        {
            self.timers.remove(&(until, name.clone()));
        }
    }

    pub fn written(&mut self, now: Moment, limits: &Limits) {
        let end = now + limits.resource_timer;
        for name in std::mem::take(&mut self.handed_out) {
            if let Some(Standing::Asked { until: until @ None }) = self.names.get_mut(&name) {
                *until = Some(end);
                self.timers.insert((end, name));
            }
        }
    }

    pub fn next_deadline(&self, limits: &Limits) -> Option<Moment> {
        let request = match (self.opened, self.owed.is_empty()) {
            (true, true) => self.changed_at.map(|at| at + limits.interest_window),
            _ => None, // those go at once
        };
        sooner(request, self.timers.first().map(|(until, _)| *until))
    }

    pub fn expire(&mut self, kind: &Type, now: Moment) -> Vec<Fact> {
        let mut facts = Vec::new();
        while self.timers.first().is_some_and(|(until, _)| *until <= now) {
            let Some((_, name)) = self.timers.pop_first() else { break };
            self.names.insert(name.clone(), Standing::Answered);
            facts.push(Fact::Gone { kind: kind.clone(), class: Class::Named, key: name });
        }
        facts
    }

    pub fn next_request(&mut self, kind: &Type, variant: Variant, now: Moment, limits: &Limits) -> Option<Request> {
        let ripe = self.changed_at.is_some_and(|at| now >= at + limits.interest_window);
        let first = !self.opened && self.is_wanted();
        if !first && !ripe && self.owed.is_empty() {
            return None;
        }
        if !self.opened && !self.is_wanted() {
            self.changed_at = None; // wanted and dropped again before a word was said
            return None;
        }
        Some(match variant {
            Variant::Sotw => Request::Sotw(self.sotw_request(kind, first)),
            Variant::Delta => Request::Delta(self.delta_request(kind, first)),
        })
    }

    fn sotw_request(&mut self, kind: &Type, first: bool) -> DiscoveryRequest {
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
            request.resource_names = self.name_list(first);
        }
        self.opened = true;
        request
    }

    /// `*` alone goes in the form that every server knows (UP-7), and is left by way of its explicit name: to a server that
    /// was never told a name an empty list still means everything (UP-8).
    fn star_list(&mut self, kind: &Type, first: bool) -> Vec<String> {
        let legacy_form = kind.info().legacy_wildcard && !self.named;
        if self.star_dropped && !self.named {
            self.named = true;
            return vec![WILDCARD.into()];
        }
        if std::mem::take(&mut self.star_dropped) {
            self.star_told = false;
            if !self.star {
                self.changed_at = None;
            }
            return Vec::new();
        }
        self.changed_at = None;
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

    fn name_list(&mut self, first: bool) -> Vec<String> {
        if first {
            self.subscribe = self.names.keys().cloned().collect();
        }
        let twice = !first && self.subscribe.iter().any(|name| self.unsubscribe.contains(name));
        self.unsubscribe.clear();
        let subscribed = |name: &&Name| !twice || !self.subscribe.contains(*name);
        let list = self.names.keys().filter(subscribed).map(|name| name.as_str().to_owned()).collect();
        if !twice {
            self.handed_out.extend(std::mem::take(&mut self.subscribe));
            self.changed_at = None;
        }
        self.named = true;
        list
    }

    fn delta_request(&mut self, kind: &Type, first: bool) -> DeltaDiscoveryRequest {
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
            request.initial_resource_versions =
                self.versions.iter().map(|(name, version)| (text(name), version.clone())).collect();
            self.subscribe = self.names.keys().cloned().collect();
            self.unsubscribe.clear();
        }
        let ripe = first || self.changed_at.is_some();
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
                    let legacy_form = kind.info().legacy_wildcard && first;
                    request.resource_names_subscribe.extend((!legacy_form).then(|| WILDCARD.to_owned()));
                }
                self.changed_at = None;
            }
        }
        self.opened = true;
        request
    }

    pub fn drop_everything(&mut self, kind: &Type) -> Vec<Fact> {
        let kind = kind.clone();
        match self.class {
            Class::Star => vec![Fact::Whole { kind, resources: Vec::new() }],
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

fn refusal(message: String) -> Status {
    Status { code: INVALID_ARGUMENT, message, details: Vec::new() }
}

fn url_of(kind: &Type) -> String {
    format!("type.googleapis.com/{}", kind.name())
}

const INVALID_ARGUMENT: i32 = 3;
