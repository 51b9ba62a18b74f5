//! The resources of one type and interest class, each with the number of its last change.
//!
//! Owns the journal: each entry once, at its last change, absence included. Its maps are persistent, so a clone costs nothing
//! and a published state stays as it was.
//! Always: a name stands in exactly one of the two journals, at the number its entry has.

use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

use rpds::{HashTrieMapSync, QueueSync, RedBlackTreeMapSync};

use super::lives::Lives;
use super::state::{Class, Seq};
use crate::protocol::limits::Limits;
use crate::protocol::moment::{Moment, sooner};
use crate::xds::{Name, Resource, SetVersion};

#[derive(Debug, Clone)]
pub enum Presence {
    Here(Arc<Resource>),
    /// A tombstone. The body goes first, the name later.
    Gone(Option<Arc<Resource>>),
}

#[derive(Debug, Clone)]
pub struct Entry {
    pub changed: Seq,
    /// The last change of its body, which is all that a SotW client without wrappers sees.
    pub body_changed: Seq,
    pub lives: Lives,
    pub presence: Presence,
}

/// How much of a `*` set is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fill {
    #[default]
    Cold,
    /// Pieces have come, and nothing on the wire will mark the last (XLAT-12).
    ///
    /// In a flawed one a piece had something that could not be read: what is missing is then not known to be gone.
    Filling {
        since: Moment,
        last: Moment,
        flawed: bool,
        /// It has been quiet once for long enough for clients that hold nothing.
        quiet: bool,
    },
    /// The source went away before it was quiet for long, but after it was quiet at all.
    Halted,
    Whole,
}

#[derive(Debug, Clone, Default)]
pub struct Shelf {
    entries: HashTrieMapSync<Name, Entry>,
    additions: RedBlackTreeMapSync<Seq, Name>,
    removals: RedBlackTreeMapSync<Seq, Name>,
    content: SetVersion,
    full: SetVersion,
    pub fill: Fill,
    /// Removals up to here are forgotten.
    horizon: Seq,
    /// Tombstones that still have a body, oldest first.
    bodies: QueueSync<BodyOf>,
    body_bytes: usize,
}

#[derive(Debug, Clone)]
struct BodyOf {
    name: Name,
    seq: Seq,
    at: Moment,
    bytes: usize,
}

impl Fill {
    /// When the set counts as whole for a client that holds something, or nothing.
    pub fn whole_at(self, client_has_state: bool, limits: &Limits) -> Option<Moment> {
        match self {
            Self::Cold => None,
            Self::Whole => Some(Moment::START),
            Self::Halted | Self::Filling { quiet: true, .. } if !client_has_state => Some(Moment::START),
            Self::Halted => None,
            Self::Filling { flawed: true, .. } if client_has_state => None,
            Self::Filling { since, last, .. } => {
                let quiet = if client_has_state { limits.settle_stated } else { limits.settle_fresh };
                Some((last + quiet).min(since + limits.settle_cap))
            }
        }
    }

    pub(super) fn piece(&mut self, flawed: bool, now: Moment, limits: &Limits) {
        let quiet = self.was_quiet(now, limits);
        *self = match *self {
            Self::Cold | Self::Halted => Self::Filling { since: now, last: now, flawed, quiet },
            Self::Filling { since, .. } => Self::Filling { since, last: now, flawed, quiet },
            Self::Whole => Self::Whole,
        };
    }

    /// A set cut off in the middle does not become whole by waiting.
    pub(super) fn interrupted(&mut self, now: Moment, limits: &Limits) {
        if matches!(self, Self::Filling { .. }) {
            *self = if self.was_quiet(now, limits) { Self::Halted } else { Self::Cold };
        }
    }

    fn was_quiet(self, now: Moment, limits: &Limits) -> bool {
        self.whole_at(false, limits).is_some_and(|at| at <= now)
    }
}

impl Shelf {
    pub fn get(&self, name: &Name) -> Option<&Entry> {
        self.entries.get(name)
    }

    /// What is there and changed after a number, in the order of change.
    pub fn additions(&self, after: Seq) -> impl Iterator<Item = (&Entry, &Arc<Resource>)> {
        self.additions.range((Excluded(after), Unbounded)).filter_map(|(_, name)| {
            let entry = self.entries.get(name)?;
            match &entry.presence {
                Presence::Here(resource) => Some((entry, resource)),
                Presence::Gone(_) => None,
            }
        })
    }

    /// What was removed after a number, in the order of removal.
    pub fn removals(&self, after: Seq) -> impl Iterator<Item = (&Name, &Entry)> {
        self.removals
            .range((Excluded(after), Unbounded))
            .filter_map(|(_, name)| self.entries.get(name).map(|entry| (name, entry)))
    }

    /// The version of everything that is here: of bodies alone, or of all that a delta client sees (I5).
    pub fn version(&self, full: bool) -> SetVersion {
        if full { self.full } else { self.content }
    }

    /// A session that was told of removals only up to less than this has missed some.
    pub fn horizon(&self) -> Seq {
        self.horizon
    }

    pub fn here(&self) -> impl Iterator<Item = &Name> {
        self.additions.values()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn cold_after(horizon: Seq) -> Self {
        Self { horizon, ..Self::default() }
    }

    /// Whether anything that a client can see differs (I5): a TTL does not count and is taken over in silence.
    pub(super) fn set(&mut self, name: Name, resource: Arc<Resource>, seq: Seq) -> bool {
        let before = self.entries.get(&name);
        let mut body_changed = seq;
        let lives = match before {
            None => Lives::beginning(seq),
            Some(Entry { presence: Presence::Here(_), lives, .. }) => lives.clone(),
            Some(Entry { presence: Presence::Gone(_), lives, changed, .. }) => lives.again(*changed, seq, self.horizon),
        };
        if let Some(entry @ Entry { presence: Presence::Here(held), .. }) = before {
            if held.full == resource.full {
                if held.ttl != resource.ttl {
                    let entry = Entry { presence: Presence::Here(resource), ..entry.clone() };
                    self.entries.insert_mut(name, entry);
                }
                return false;
            }
            if held.content() == resource.content() {
                body_changed = entry.body_changed;
            }
        }
        self.detach(&name);
        self.count(&name, &resource, SetVersion::plus);
        self.additions.insert_mut(seq, name.clone());
        self.entries.insert_mut(name, Entry { changed: seq, body_changed, lives, presence: Presence::Here(resource) });
        true
    }

    /// Whether the name was here.
    pub(super) fn remove(&mut self, name: &Name, seq: Seq, now: Moment) -> bool {
        let Some(Entry { lives, presence: Presence::Here(last), .. }) = self.entries.get(name).cloned() else {
            return false;
        };
        self.detach(name);
        let bytes = last.body.bytes().len();
        self.bodies.enqueue_mut(BodyOf { name: name.clone(), seq, at: now, bytes });
        self.body_bytes += bytes;
        self.bury(name, seq, lives, Some(last));
        true
    }

    /// Like [`Self::remove`], and a name that was never here is remembered as absent too.
    pub(super) fn mark_absent(&mut self, name: &Name, seq: Seq, now: Moment) -> bool {
        if self.entries.get(name).is_some() {
            return self.remove(name, seq, now);
        }
        self.bury(name, seq, Lives::beginning(seq), None);
        true
    }

    /// Nothing is known of the name any more.
    pub(super) fn forget(&mut self, name: &Name) {
        self.detach(name);
        self.entries.remove_mut(name);
    }

    pub(super) fn next_deadline(&self, limits: &Limits) -> Option<Moment> {
        let tombstone = self.bodies.peek().map(|oldest| oldest.at + limits.tombstone_age);
        let settled = match self.fill {
            Fill::Filling { .. } => self.fill.whole_at(true, limits),
            _ => None,
        };
        sooner(tombstone, settled)
    }

    /// Whether a published state would look different now.
    pub(super) fn on_time(&mut self, now: Moment, limits: &Limits) -> bool {
        let bodies = self.bodies.len();
        self.drop_bodies(|oldest, _| now - oldest.at >= limits.tombstone_age);
        let settled = matches!(self.fill, Fill::Filling { .. })
            && self.fill.whole_at(true, limits).is_some_and(|settled| settled <= now);
        if settled {
            self.fill = Fill::Whole;
        }
        settled || self.bodies.len() != bodies
    }

    /// Bounds what is kept of the dead. Absent names of a named shelf stay: they are bounded by the interest in them.
    pub(super) fn trim(&mut self, now: Moment, limits: &Limits, class: Class) {
        while class == Class::Star && self.removals.size() > limits.tombstones {
            let Some((seq, name)) = self.removals.first().map(|(seq, name)| (*seq, name.clone())) else { break };
            self.forget(&name);
            self.horizon = self.horizon.max(seq);
        }
        let horizon = self.horizon;
        self.drop_bodies(|oldest, bytes| {
            oldest.seq <= horizon || bytes > limits.tombstone_bytes || now - oldest.at >= limits.tombstone_age
        });
    }

    fn drop_bodies(&mut self, too_much: impl Fn(&BodyOf, usize) -> bool) {
        while let Some(oldest) = self.bodies.peek().filter(|oldest| too_much(oldest, self.body_bytes)).cloned() {
            self.bodies.dequeue_mut();
            self.body_bytes -= oldest.bytes;
            // The name may have come back, or gone again, since: then this tombstone is not its body any more.
            let same = self.entries.get(&oldest.name).filter(|entry| entry.changed == oldest.seq);
            if let Some(entry @ Entry { presence: Presence::Gone(_), .. }) = same.cloned() {
                self.entries.insert_mut(oldest.name, Entry { presence: Presence::Gone(None), ..entry });
            }
        }
    }

    fn bury(&mut self, name: &Name, seq: Seq, lives: Lives, last: Option<Arc<Resource>>) {
        self.removals.insert_mut(seq, name.clone());
        let presence = Presence::Gone(last);
        self.entries.insert_mut(name.clone(), Entry { changed: seq, body_changed: seq, lives, presence });
    }

    /// Takes a name out of its journal and of the sums; its entry is about to be replaced.
    fn detach(&mut self, name: &Name) {
        match self.entries.get(name).cloned() {
            None => {}
            Some(Entry { changed, presence: Presence::Here(held), .. }) => {
                self.additions.remove_mut(&changed);
                self.count(name, &held, SetVersion::minus);
            }
            Some(Entry { changed, presence: Presence::Gone(_), .. }) => {
                self.removals.remove_mut(&changed);
            }
        }
    }

    fn count(&mut self, name: &Name, resource: &Resource, change: fn(SetVersion, SetVersion) -> SetVersion) {
        self.content = change(self.content, SetVersion::of(name.as_str(), resource.content()));
        self.full = change(self.full, SetVersion::of(name.as_str(), resource.full));
    }
}
