//! What must hold at every moment, and what must be reached within bounds. The judge knows what each server has at each time, and what each
//! client was sent. It shares no code with the relay.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use weir_core::proto::Response;
use weir_core::protocol::ladder::LadderState;
use weir_core::protocol::moment::Moment;
use weir_core::protocol::session::Variant;
use weir_core::protocol::upstream::{OnResourceTimeout, ServerQuirks};
use weir_core::protocol::view::{Class, Completeness, SavedSet, Selector, Update};
use weir_core::xds::{Name, Type};

use crate::bounds::Aspect;
use crate::client::Profile;
use crate::content::{Content, Key, Kind, MADE_UP};
use crate::options::Ending;
use crate::world::{Event, World};

#[derive(Default)]
pub struct Judge {
    ended_at: Option<Moment>,
    over_at: Option<Moment>,
    /// The active server, as far as tier 0 knows.
    active: usize,
    /// What the active server lacks, and when it last lacked each resource.
    lacking: BTreeSet<Key>,
    lacked: BTreeMap<Key, Moment>,
    /// Every name that any server has had.
    known: BTreeSet<Key>,
    /// What tier 0 was sent and still keeps: with `ignore_deletions`, until no client wants it.
    kept: BTreeMap<(Class, Key), Moment>,
    /// What tier 0 was last sent for each name.
    received: BTreeMap<(Class, Key), Option<Content>>,
    /// What tier 0 has from an earlier process, and no server has mentioned since.
    from_disk: BTreeSet<(Class, Key)>,
    /// The openings of tier 0 that brought new names, by type, since a set last ended.
    grown: BTreeMap<Kind, BTreeSet<usize>>,
    /// The classes and types that tier 0 was sent again unchanged on its openings.
    pub repeated: BTreeSet<(Class, Kind)>,
    /// When tier 0 was last sent something of a set.
    read: BTreeMap<Kind, Moment>,
    /// A set has come in what looks like pieces, so tier 0 does not ask this server for the end.
    pub has_pieces: bool,
    /// Since when the active server has been unable to respond.
    mute_since: Option<Moment>,
    /// For each client, when something last happened that it may have to wait for.
    pub due: Vec<Moment>,
    /// When each tier opened streams again of its own accord.
    reopened: Vec<(usize, Moment)>,
    pub restarts: u32,
    /// How late clients were right at most, for the report.
    pub latest: BTreeMap<&'static str, Duration>,
}

impl Judge {
    pub fn is_ended(&self) -> bool {
        self.ended_at.is_some()
    }

    pub fn ended(&mut self, now: Moment) {
        self.ended_at = Some(now);
    }

    /// Returns when the history is over.
    pub fn over_at(&self, _: Moment) -> Option<Moment> {
        self.over_at
    }

    pub fn note_first(&mut self, server: usize, keys: impl Iterator<Item = Key>) {
        let keys: Vec<Key> = keys.collect();
        self.known.extend(&keys);
        if server == 0 {
            self.received.clear();
        }
    }

    pub fn note_reopened(&mut self, tier: usize, now: Moment) {
        self.reopened.push((tier, now));
    }

    /// Returns on how many openings a set of tier 0 has grown before it ended.
    pub fn growths(&self) -> usize {
        self.grown.values().map(BTreeSet::len).max().unwrap_or(0)
    }

    /// Returns how often a tier has opened a stream again since a moment.
    pub fn reopenings(&self, tier: usize, since: Moment) -> u32 {
        self.reopened.iter().filter(|(of, at)| *of == tier && *at >= since).count() as u32
    }

    /// Records a response of the active server that has arrived at tier 0.
    pub fn received(&mut self, response: &Response, class: Class, now: Moment) {
        match response {
            Response::Delta(response) => {
                let kind = Kind::of(&response.type_url);
                if class == Class::Wildcard && !response.resources.is_empty() {
                    let before = self.read.insert(kind, now);
                    self.has_pieces |= response.resources.len() > 1 && before.is_some_and(|at| now <= at + A_MOMENT);
                }
                let is_new = |key: &Key| self.received.get(&(class, *key)).is_none_or(Option::is_none);
                let mut keys = response.resources.iter().filter_map(|resource| Key::read(kind, &resource.name));
                if keys.any(|key| is_new(&key)) {
                    let opening = self.reopened.iter().filter(|(tier, _)| *tier == 0).count();
                    self.grown.entry(kind).or_default().insert(opening);
                }
                for resource in &response.resources {
                    let body = resource.resource.as_ref().map(|any| Content::read(&any.value));
                    if let Some(key) = Key::read(kind, &resource.name)
                        && self.received.insert((class, key), body) == Some(body)
                    {
                        self.repeated.insert((class, kind));
                    }
                }
                let gone = response.removed_resources.iter().filter_map(|name| Key::read(kind, name));
                self.received.extend(gone.map(|key| ((class, key), None)));
            }
            Response::Sotw(response) => {
                let kind = Kind::of(&response.type_url);
                if kind.full_state() {
                    let of_set = |(of, key): &(Class, Key)| *of == class && key.0 == kind;
                    self.received.iter_mut().filter(|(key, _)| of_set(key)).for_each(|(_, content)| *content = None);
                }
                for any in &response.resources {
                    let length = usize::from(any.value[1]);
                    let name = std::str::from_utf8(&any.value[2..2 + length]).unwrap_or_default();
                    if let Some(key) = Key::read(kind, name) {
                        self.received.insert((class, key), Some(Content::read(&any.value)));
                    }
                }
            }
        }
    }
}

impl World {
    /// Records that something has happened that clients may have to wait for: their time starts over.
    pub fn disturbed(&mut self, why: &str) {
        for client in 0..self.clients.len() {
            self.disturbed_one(client, why);
        }
    }

    pub fn disturbed_one(&mut self, client: usize, _: &str) {
        self.judge.due.resize(self.clients.len(), self.now);
        self.judge.due[client] = self.now;
        let (now, least) = (self.now, self.least_bound());
        self.at(now + least, Event::Check(client, now));
    }

    /// Plans the end: the history goes on until all clients were judged, and for a quiet time after that.
    pub fn plan_end(&mut self) {
        let quiet = Duration::from_secs(if self.options.watches { 300 } else { 30 });
        self.judge.over_at = Some(self.now + self.greatest_bound() + quiet);
    }

    /// Checks that a client is right in every aspect whose time is over.
    pub fn check(&mut self, client: usize, since: Moment) {
        if self.judge.due.get(client) != Some(&since) {
            return;
        }
        if !self.stands() {
            return self.soon(Duration::from_millis(500), Event::Check(client, since));
        }
        if self.judge.is_ended() {
            self.judge_waits();
        }
        let waited = self.now - since;
        let mut next = None;
        for (aspect, why) in self.faults(client) {
            let bound = self.bound(client, aspect);
            if waited >= bound {
                let profile = self.clients[client].profile;
                return self
                    .wrong(|| format!("client {client} ({profile:?}) after {waited:?}, {aspect:?} {bound:?}: {why}"));
            }
            next = Some(next.map_or(bound, |next: Duration| next.min(bound)));
        }
        if let Some(next) = next {
            self.at(since + next, Event::Check(client, since));
        }
    }

    /// Checks that all clients are right at the end of the history.
    pub fn judge_end(&mut self) -> Result<(), String> {
        self.judge_waits();
        if let Some(wrong) = self.wrong.take() {
            return Err(wrong);
        }
        if !self.stands() && self.options.ending == Ending::Well {
            return Err(format!("the path to the first server does not stand: {}", self.standing()));
        }
        for client in 0..self.clients.len() {
            if let Some((aspect, why)) = self.faults(client).into_iter().next() {
                return Err(format!(
                    "client {client} ({:?}) in the end, {aspect:?}: {why}",
                    self.clients[client].profile
                ));
            }
        }
        Ok(())
    }

    /// Records how late a client became right.
    pub fn note_rightness(&mut self, client: usize) {
        if self.counts && self.judge.due.get(client).is_some() && self.stands() && self.faults(client).is_empty() {
            let late = self.now - self.judge.due[client];
            let name = match self.clients[client].profile {
                Profile::Stream(Variant::Sotw) => "sotw",
                Profile::Stream(Variant::Delta) => "delta",
                Profile::Polls => "rest",
            };
            let latest = self.judge.latest.entry(name).or_default();
            *latest = late.max(*latest);
        }
    }

    /// Whether every stream of the path is open, and the first server responds.
    pub fn stands(&self) -> bool {
        let away = self.options.ending == Ending::Away && self.judge.is_ended();
        let serves = away || self.servers[0].health.speaks();
        serves
            && self.tiers.iter().enumerate().all(|(at, tier)| {
                let is_cut_off = away && at == 0;
                let open = |link: &crate::tier::Link| link.up.is_some() || link.reopened > 0;
                let first =
                    |state| matches!(state, LadderState::Active(0) | LadderState::Trying(0) | LadderState::Idle);
                !tier.is_down
                    && (is_cut_off || tier.links.values().all(open) && tier.sources.ladders().all(|of| first(of.state)))
            })
    }

    fn standing(&self) -> String {
        let of = |tier: &crate::tier::Tier| {
            let ladders: Vec<_> = tier.sources.ladders().map(|ladder| ladder.state).collect();
            format!("{ladders:?} {:?}", tier.links.iter().map(|(id, link)| (id, link.up.is_some())).collect::<Vec<_>>())
        };
        self.tiers.iter().map(of).collect::<Vec<_>>().join("; ")
    }

    /// Returns how a client differs from what it should have.
    pub fn faults(&self, client: usize) -> Vec<(Aspect, String)> {
        let of = &self.clients[client];
        let mut faults = Vec::new();
        if of.session.is_none() && of.profile != Profile::Polls {
            return faults;
        }
        let away = self.options.ending == Ending::Away && self.judge.is_ended();
        if away && of.profile != Profile::Stream(Variant::Delta) {
            return faults;
        }
        let class = |kind: Kind| if of.is_set(kind) { Class::Wildcard } else { Class::Named };
        let has = |key: &Key| match away {
            true => self.judge.received.get(&(class(key.0), *key)).copied().flatten(),
            false => self.servers[0].content.get(key).copied(),
        };
        let polled = [Kind::Clusters, Kind::Listeners];
        for kind in Kind::ALL.into_iter().filter(|kind| !self.options.unanswered.contains(kind)) {
            if of.profile == Profile::Polls && !polled.contains(&kind) {
                continue;
            }
            let is_told = of.is_set(kind) && self.servers[0].habit.says_nothing_is_new && !away;
            // In SotW a type that is not full-state has no empty reply.
            let path = self.options.variants[..=of.tier].iter();
            let is_said = kind.full_state() || path.chain([&of.variant()]).all(|variant| *variant == Variant::Delta);
            let is_delta = of.profile == Profile::Stream(Variant::Delta);
            if is_told && is_said && is_delta && !of.answered.contains(&kind) {
                faults.push((Aspect::Answered(kind), "its wildcard was not answered".into()));
            }
            let wanted: BTreeSet<Key> = match of.is_set(kind) {
                true => self.judge.known.iter().filter(|key| key.0 == kind).copied().collect(),
                false => of.wants(kind).into_iter().filter(|key| key.1 < MADE_UP).collect(),
            };
            for key in &wanted {
                let held = of.held.get(key).map(|held| held.content);
                match (has(key), held) {
                    (there, held) if there == held => {}
                    // The relay knows that the resource is removed, from a set that lacks it.
                    (Some(_), None) if away && !self.servers[0].content.contains_key(key) => {}
                    _ if away && self.may_hold_newer(client, *key) => {}
                    (Some(there), held) => {
                        if !(away && self.may_wait_for_cluster(*key, there)) {
                            faults.push((Aspect::Has(kind), format!("{key:?} is {there:?} and it holds {held:?}")));
                        }
                    }
                    (None, _) if away || self.may_keep(client, kind) => {}
                    (None, held) => {
                        faults.push((Aspect::Gone(kind), format!("{key:?} is not there and it holds {held:?}")))
                    }
                }
            }
            let stale = of.held.keys().find(|key| key.0 == kind && key.1 >= MADE_UP);
            if let Some(key) = stale.filter(|_| !away && !self.may_keep(client, kind)) {
                faults.push((Aspect::Stale(kind), format!("{key:?} does not exist and it holds it")));
            }
        }
        faults
    }

    /// Whether a route may wait for a cluster that has not come, because the control plane is away.
    fn may_wait_for_cluster(&self, key: Key, content: Content) -> bool {
        let cluster = Key(Kind::Clusters, content.to);
        let has = |class| self.judge.received.get(&(class, cluster)).copied().flatten().is_some();
        key.0 == Kind::Routes && ![Class::Wildcard, Class::Named].into_iter().any(has)
    }

    /// Whether a client may hold something newer: if it states something, it is sent nothing of that from disk.
    fn may_hold_newer(&self, client: usize, key: Key) -> bool {
        let of = &self.clients[client];
        let (class, states) = match of.is_set(key.0) {
            true => (Class::Wildcard, of.stated.iter().any(|stated| stated.0 == key.0)),
            false => (Class::Named, of.stated.contains(&key)),
        };
        states && !of.told.contains(&key) && self.judge.from_disk.contains(&(class, key))
    }

    /// Whether a client may keep something that no server has.
    fn may_keep(&self, client: usize, kind: Kind) -> bool {
        let of = &self.clients[client];
        let path = self.options.variants[..=of.tier].iter().copied();
        let sotw = path.chain([of.variant()]).any(|variant| variant == Variant::Sotw) && !kind.full_state();
        let is_set = of.is_set(kind);
        let habit = &self.servers[0].habit;
        // A server that ignores stated versions is recognized when it sends something again under the same version.
        let class = if is_set { Class::Wildcard } else { Class::Named };
        let is_known =
            !habit.replicas && self.judge.repeated.contains(&(class, kind)) && (!is_set || kind.full_state());
        let mute = !habit.compares && !is_known;
        mute || sotw
            || self.options.quirks[0].ignore_deletions
            || !if is_set { self.tells_empty(kind) } else { self.tells_names() }
    }

    /// Whether the first server sends something for each set of routing, even if the set is empty.
    pub fn tells_of_all_routing(&self) -> bool {
        let has = |kind| self.servers[0].content.keys().any(|key| key.0 == kind);
        self.servers[0].habit.says_nothing_is_new || [Kind::Listeners, Kind::Scopes].into_iter().all(has)
    }

    /// Whether it becomes known that a name does not exist: by the first server's answer to a request, or by its silence, unless that counts as
    /// an error.
    fn tells_names(&self) -> bool {
        let silence = |quirks: &ServerQuirks| quirks.on_resource_timeout == OnResourceTimeout::Absent;
        self.servers[0].habit.removes_unknown || self.options.quirks.iter().all(silence)
    }

    /// Whether the first server reports an empty set to those who hold something of it. Silence about a whole set proves nothing: the server may
    /// not have loaded it.
    fn tells_empty(&self, kind: Kind) -> bool {
        let (habit, content) = (&self.servers[0].habit, &self.servers[0].content);
        habit.says_nothing_is_new && habit.compares || content.keys().any(|key| key.0 == kind)
    }

    /// Checks that a client has not lost what the active server had.
    pub fn judge_loss(&mut self, client: usize, key: Key, since: Moment) {
        let slack = self.slack();
        let judge = &self.judge;
        let class = if self.clients[client].is_set(key.0) { Class::Wildcard } else { Class::Named };
        let is_kept = judge.kept.get(&(class, key)).is_some_and(|since| *since + slack <= self.now);
        if self.options.quirks[0].ignore_deletions && is_kept {
            return self.wrong(|| format!("client {client} loses {key:?} that ignore_deletions keeps"));
        }
        if key.1 >= MADE_UP || judge.lacking.contains(&key) {
            return;
        }
        // A resource that came back while the server could not respond may still count as removed.
        let mute = judge.mute_since;
        let is_under_way = |lacked: Moment| lacked + slack >= since || mute.is_some_and(|mute| lacked >= mute);
        if !judge.lacked.get(&key).is_some_and(|lacked| is_under_way(*lacked)) {
            let active = judge.active;
            self.wrong(|| format!("client {client} loses {key:?}, and server {active} has it"));
        }
    }

    /// Records an update that tier 0 has applied.
    pub fn note_applied(&mut self, update: &Update) {
        let of = |kind: &Type, key: &Name| Key::read(Kind::of(kind.name()), key.as_str());
        let set_of = |kind: &Type| {
            let kind = Kind::of(kind.name());
            move |(class, key): &(Class, Key)| *class == Class::Wildcard && key.0 == kind
        };
        match update {
            Update::Upsert { kind, class, key, .. }
            | Update::Absent { kind, class, key, .. }
            | Update::Kept { kind, class, key } => {
                if let Some(key) = of(kind, key) {
                    self.judge.from_disk.remove(&(*class, key));
                }
            }
            Update::FullSet { kind, .. }
            | Update::Progress { kind, of: Selector::Wildcard, completeness: Completeness::Complete } => {
                let is_of_set = set_of(kind);
                self.judge.from_disk.retain(|key| !is_of_set(key));
                self.judge.grown.remove(&Kind::of(kind.name()));
            }
            _ => {}
        }
        let keys: Vec<(Class, Key)> = match update {
            Update::Upsert { kind, class, key, .. } => of(kind, key).map(|key| (*class, key)).into_iter().collect(),
            Update::FullSet { kind, resources, .. } => {
                let keys = resources.iter().filter_map(|resource| of(kind, &resource.name));
                keys.map(|key| (Class::Wildcard, key)).collect()
            }
            _ => return,
        };
        for key in keys {
            self.judge.kept.entry(key).or_insert(self.now);
        }
    }

    /// Records what tier 0 has forgotten because no client wants it any more.
    pub fn note_forgotten(&mut self) {
        let view = &self.tiers[0].view;
        let wanted = |&(class, key): &(Class, Key)| {
            view.wants().all().any(|(kind, of, _)| {
                Kind::of(kind.name()) == key.0
                    && match of {
                        Selector::Wildcard => class == Class::Wildcard,
                        Selector::Name(name) => class == Class::Named && name.as_str() == key.text(),
                    }
            })
        };
        if self.options.quirks[0].ignore_deletions {
            self.judge.kept.retain(|key, _| wanted(key));
        }
    }

    /// Records that tier 0 starts again, with what was saved.
    pub fn note_saved(&mut self, sets: &[SavedSet]) {
        let of = |set: &SavedSet, name: &Name| Some((set.class, Key::read(Kind::of(set.kind.name()), name.as_str())?));
        let saved = sets.iter().flat_map(|set| set.resources.iter().filter_map(move |one| of(set, &one.key)));
        let saved: BTreeSet<(Class, Key)> = saved.collect();
        self.judge.kept.retain(|key, _| saved.contains(key));
        self.judge.received.retain(|key, _| saved.contains(key));
        self.judge.grown.clear();
        self.judge.from_disk = saved;
    }

    pub fn note_change(&mut self, key: Key) {
        if self.judge.known.insert(key) {
            self.judge.lacked.insert(key, self.now);
        }
        self.note_lacks();
        self.disturbed("a change");
    }

    /// Records that another server may be active now.
    pub fn note_ladder(&mut self, tier: usize) {
        let state = self.tiers[tier].sources.ladders().next().map(|ladder| ladder.state);
        let state = state.unwrap_or(LadderState::Idle);
        let before = std::mem::replace(&mut self.tiers[tier].ladder, state);
        if before == state {
            return;
        }
        self.tell(|_| format!("tier {tier} stands at {state:?}"));
        if tier == 0 {
            if let LadderState::Active(at) | LadderState::Trying(at) | LadderState::Cached(at) = state {
                self.judge.active = at;
            }
            self.note_health();
            self.note_lacks();
        }
        // A stream that opens for the first subscription, or closes after the last one, disturbs no client.
        let is_first = |state| matches!(state, LadderState::Active(0) | LadderState::Trying(0) | LadderState::Idle);
        if !(is_first(before) && is_first(state)) {
            self.disturbed("a ladder");
        }
    }

    /// Records that the health of a server has changed.
    pub fn note_health(&mut self) {
        let speaks = self.servers[self.judge.active].health.speaks();
        let now = self.now;
        let judge = &mut self.judge;
        match (speaks, judge.mute_since) {
            (true, Some(mute)) => {
                judge.lacked.values_mut().filter(|lacked| **lacked >= mute).for_each(|lacked| *lacked = now);
                judge.mute_since = None;
            }
            (false, None) => judge.mute_since = Some(now),
            _ => {}
        }
    }

    pub fn note_lacks(&mut self) {
        let has = &self.servers[self.judge.active].content;
        for key in &self.judge.known {
            if has.contains_key(key) {
                if self.judge.lacking.remove(key) {
                    self.judge.lacked.insert(*key, self.now);
                }
            } else {
                self.judge.lacking.insert(*key);
            }
        }
    }
}

/// A response that comes this soon after another one of a set looks like a piece.
const A_MOMENT: Duration = Duration::from_millis(500);
