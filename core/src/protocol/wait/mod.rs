//! Waits: what each wait is for, how long it has lasted, and how long it may last.
//!
//! Owns the kinds of waits with their bounds, and lists of waits. Leaves each wait to its owner: a list is read from the timers and states by
//! which the owners decide, so nothing is recorded twice. Invariant: a wait has a bound from documented options, unless the control plane is
//! away; then its clock stands.

mod table;

use std::cmp::Reverse;
use std::time::Duration;

pub use self::table::{WaitKind, WaitRow};
use super::keys::Selector;
use super::moment::Moment;
use crate::xds::{Authority, Name, Type};

/// One wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wait {
    /// What is waited for.
    pub kind: WaitKind,
    /// For how long it has lasted, by a clock that stands while the control plane is away.
    pub age: Duration,
    /// How long it may last; `None` while the control plane is away.
    pub bound: Option<Duration>,
    /// What waits.
    pub subject: WaitSubject,
}

/// What waits. This distinguishes waits of one kind and one owner.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct WaitSubject {
    /// The type that the wait is about.
    pub kind: Option<Type>,
    /// The set or the name that the wait is about.
    pub of: Option<Selector>,
    /// The server that is asked, by its index in the plan.
    pub server: Option<usize>,
    /// The authority whose servers wait.
    pub authority: Option<Authority>,
}

impl Wait {
    /// Returns whether the wait lasts clearly longer than it may.
    pub fn is_beyond(&self) -> bool {
        is_beyond(self.age, self.bound)
    }
}

impl WaitSubject {
    pub(crate) fn of_type(kind: &Type) -> Self {
        Self { kind: Some(kind.clone()), ..Self::default() }
    }

    pub(crate) fn set(kind: &Type) -> Self {
        Self { of: Some(Selector::Wildcard), ..Self::of_type(kind) }
    }

    pub(crate) fn name(kind: &Type, name: &Name) -> Self {
        Self { of: Some(Selector::Name(name.clone())), ..Self::of_type(kind) }
    }

    pub(crate) fn authority(authority: &Authority) -> Self {
        Self { authority: Some(authority.clone()), ..Self::default() }
    }

    /// Whether this wait delays a name.
    fn concerns(&self, kind: &Type, name: &Name) -> bool {
        self.kind.as_ref() == Some(kind)
            && match &self.of {
                None | Some(Selector::Wildcard) => true,
                Some(Selector::Name(of)) => of == name || name.collection().as_ref() == Some(of),
            }
    }

    pub(crate) fn at(self, server: usize) -> Self {
        Self { server: Some(server), ..self }
    }
}

/// Returns the age of a wait that ends at `until` after it has lasted for `bound`.
pub(crate) fn age_of(until: Moment, bound: Duration, now: Moment) -> Duration {
    (bound + (now - until)).saturating_sub(until - now)
}

fn is_beyond(age: Duration, bound: Option<Duration>) -> bool {
    bound.is_some_and(|bound| age > bound + SLACK)
}

/// A timer wakes a little late, and a call that shows that a server is alive takes its time.
const SLACK: Duration = Duration::from_secs(1);

/// Waits that their owners have added.
#[derive(Debug, Default)]
pub struct WaitList {
    sums: [WaitSum; WaitKind::ALL.len()],
    /// The oldest waits; at most twice `limit`.
    kept: Vec<Wait>,
    limit: usize,
    beyond: Vec<Wait>,
    /// If set, only waits that concern this name are added.
    about: Option<(Type, Name)>,
}

/// All waits of one kind.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct WaitSum {
    /// How many waits there are.
    pub count: usize,
    /// How long the oldest of them has lasted.
    pub oldest: Duration,
    /// How many have lasted longer than they may.
    pub beyond: usize,
}

impl WaitList {
    /// Returns a list that keeps this many of the oldest waits.
    pub fn keeping(limit: usize) -> Self {
        Self { limit, ..Self::default() }
    }

    /// Returns a list that keeps waits which concern one name: its own, and those of its sets.
    pub fn about(kind: &Type, name: &Name) -> Self {
        Self { about: Some((kind.clone(), name.clone())), ..Self::keeping(MAX_ABOUT) }
    }

    /// Adds one wait. `subject` is only called if the wait may be kept.
    pub fn add(
        &mut self,
        kind: WaitKind,
        age: Duration,
        bound: Option<Duration>,
        subject: impl FnOnce() -> WaitSubject,
    ) {
        if let Some((of_kind, name)) = &self.about {
            let subject = subject();
            if subject.concerns(of_kind, name) {
                self.keep(Wait { kind, age, bound, subject });
            }
            return;
        }
        let is_beyond = is_beyond(age, bound);
        self.sums[kind as usize].absorb(&WaitSum { count: 1, oldest: age, beyond: is_beyond.into() });
        let is_noted = is_beyond && self.beyond.len() < MAX_BEYOND;
        if self.limit == 0 && !is_noted {
            return;
        }
        let wait = Wait { kind, age, bound, subject: subject() };
        if is_noted {
            self.beyond.push(wait.clone());
        }
        if self.limit > 0 {
            self.keep(wait);
        }
    }

    /// Counts waits of one kind without keeping any of them.
    pub(crate) fn add_younger(&mut self, kind: WaitKind, count: usize) {
        self.sums[kind as usize].count += count;
    }

    /// Returns how many waits of one kind are worth adding one by one, if they are added from the oldest on.
    pub(crate) fn room(&self) -> usize {
        if self.about.is_some() { usize::MAX } else { self.limit.max(1) }
    }

    fn keep(&mut self, wait: Wait) {
        self.kept.push(wait);
        if self.kept.len() >= 2 * self.limit {
            self.shorten();
        }
    }

    fn shorten(&mut self) {
        self.kept.sort_by_key(|wait| Reverse(wait.age));
        self.kept.truncate(self.limit);
    }

    /// Returns the sums of the kinds that have waits.
    pub fn sums(&self) -> impl Iterator<Item = (WaitKind, WaitSum)> {
        let all = WaitKind::ALL.into_iter().zip(self.sums);
        all.filter(|(_, sum)| sum.count > 0)
    }

    /// Returns waits that have lasted longer than they may. If they are very many, only some of them.
    pub fn beyond(&self) -> &[Wait] {
        &self.beyond
    }

    /// Returns the oldest waits, in order of age.
    pub fn into_oldest(mut self) -> Vec<Wait> {
        self.shorten();
        self.kept
    }
}

impl WaitSum {
    /// Adds the waits of another owner.
    pub fn absorb(&mut self, other: &Self) {
        self.count += other.count;
        self.oldest = self.oldest.max(other.oldest);
        self.beyond += other.beyond;
    }
}

/// How many of the waits that last too long are listed one by one.
const MAX_BEYOND: usize = 10_000;
/// How many waits that concern one name are listed at most.
const MAX_ABOUT: usize = 16;

#[cfg(test)]
mod tests;
