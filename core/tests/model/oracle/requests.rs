//! What the requests of a client mean.

use super::*;

impl Judge {
    pub fn on_sotw(&mut self, kind: Kind, names: &[String], version: &str) {
        let first = !self.wants.contains_key(&kind);
        let mut names: BTreeSet<String> = names.iter().filter(|name| !name.is_empty()).cloned().collect();
        let grpc = self.grpc;
        let wants = self.wants.entry(kind).or_default();
        wants.named_once |= !names.is_empty();
        let wildcard = names.remove("*") || (names.is_empty() && !wants.named_once && kind.full_state() && !grpc);
        if first {
            wants.stated = !version.is_empty();
            if wants.stated {
                wants.first_names = names.clone();
            }
        }
        let joined = wildcard && !wants.wildcard;
        let left = wants.wildcard && !wildcard;
        let added: Vec<_> = names.difference(&wants.names).cloned().collect();
        let dropped: Vec<_> = wants.names.difference(&names).cloned().collect();
        wants.first_names.retain(|name| names.contains(name));
        (wants.wildcard, wants.names) = (wildcard, names);
        if wildcard && !kind.full_state() {
            self.requested.extend(dropped.iter().map(|name| (kind, Some(name.clone()))));
        }
        if joined || left || (!dropped.is_empty() && kind.full_state()) {
            self.requested.insert((kind, None));
        }
        self.requested.extend(added.into_iter().map(|name| (kind, Some(name))));
        self.forget_unwanted(kind);
    }

    pub fn on_delta(&mut self, kind: Kind, on: &[String], off: &[String], stated: &BTreeMap<String, String>) {
        let first = !self.wants.contains_key(&kind);
        let grpc = self.grpc;
        let wants = self.wants.entry(kind).or_default();
        if first {
            wants.stated = !stated.is_empty();
            wants.held_before = stated.clone();
            if on.is_empty() && off.is_empty() && kind.full_state() && !grpc {
                wants.again |= wants.wildcard;
                if !first {
                    wants.held_before.clear();
                }
                wants.wildcard = true;
                self.requested.insert((kind, None));
                self.star_unanswered.insert(kind);
            }
        }
        for name in on {
            if name == "*" {
                wants.again |= wants.wildcard;
                if !first {
                    wants.held_before.clear();
                }
                wants.wildcard = true;
                self.requested.insert((kind, None));
                self.star_unanswered.insert(kind);
                self.out_of_turn.extend(self.sent.keys().filter(|(of, _)| *of == kind).cloned());
            } else {
                wants.names.insert(name.clone());
                self.requested.insert((kind, Some(name.clone())));
            }
        }
        for name in off {
            if name == "*" {
                wants.wildcard = false;
            } else if wants.names.remove(name) && {
                wants.held_before.remove(name);
                wants.wildcard
            } {
                self.requested.insert((kind, Some(name.clone())));
            }
        }
        self.forget_unwanted(kind);
    }

    /// Ends waits: endpoints that are known to be absent are not awaited any more, even if they appear later.
    pub fn on_poll(&mut self, view: &ModelView, now: Moment) {
        // The total time limits the delay of one change, through any number of clusters.
        if self.kept_back_since.is_some_and(|since| now - since >= HOLD) {
            self.warming.clear();
        }
        self.warming.retain(|name, _| view.named.get(&(Kind::Endpoints, name.clone())) != Some(&None));
    }

    /// Records that the session has nothing to send now. A change of routing that the client lacks is being kept back since the first such time.
    pub fn on_idle(&mut self, view: &ModelView, log: &[Entry], now: Moment) {
        let waits = [Kind::Listener, Kind::Route].into_iter().any(|kind| self.lacks_routing(view, log, kind, now));
        self.kept_back_since = waits.then(|| self.kept_back_since.unwrap_or(now));
    }

    fn lacks_routing(&self, view: &ModelView, log: &[Entry], kind: Kind, now: Moment) -> bool {
        let detour = |content: &Content| self.made_a_detour(log, kind, content);
        self.wants.contains_key(&kind)
            && (!self.all_told(view, kind, now) || self.expected(view, kind, now).values().any(detour))
    }

    pub fn on_answer(&mut self, kind: Kind, nonce: u64) {
        if kind == Kind::Cluster {
            self.warming.retain(|_, (sent, _)| *sent > nonce);
        }
    }

    pub(super) fn forget_unwanted(&mut self, kind: Kind) {
        let wants = &self.wants[&kind];
        let wanted = |name: &String| wants.wildcard || wants.names.contains(name);
        self.sent.retain(|(of, name), _| *of != kind || wanted(name));
        self.requested.retain(|(of, name)| *of != kind || name.as_ref().is_none_or(wanted));
        if kind == Kind::Endpoints {
            self.needs_endpoints.retain(wanted);
        }
    }

    /// Whether the client would drop what a reply lacks.
    pub(super) fn may_lose(&self, kind: Kind) -> bool {
        self.wants.get(&kind).is_some_and(|wants| wants.stated)
    }
}
