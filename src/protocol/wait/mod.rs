//! Waits: what has to happen before something goes on, for how long it has not, and how long that may take at most.
//!
//! Owns the kinds of waits with their bounds, and lists of them. Leaves each wait to its owner: a list is read from the timers and states
//! by which the owners decide, and nothing is noted for it. Invariant: a wait has a bound from documented options, unless the control plane
//! is away; then its clock stands.

mod list;
mod table;

use std::time::Duration;

pub use self::list::{WaitList, WaitSum};
pub use self::table::{WaitKind, WaitRow};
use super::moment::Moment;
use super::view::Selector;
use crate::xds::{Authority, Name, Type};

/// Something that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wait {
    /// What it waits for.
    pub kind: WaitKind,
    /// For how long it has waited, by a clock that stands while the control plane is away.
    pub age: Duration,
    /// How long it may wait at most; `None` while the control plane is away.
    pub bound: Option<Duration>,
    /// What waits.
    pub subject: WaitSubject,
}

/// What waits. Two waits of one kind and one owner differ in it.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct WaitSubject {
    /// The type that it is about.
    pub kind: Option<Type>,
    /// The set or the name.
    pub of: Option<Selector>,
    /// The server that is asked, by its place in the plan.
    pub server: Option<usize>,
    /// The authority whose servers wait.
    pub authority: Option<Authority>,
}

impl Wait {
    /// Returns whether it lasts clearly longer than it may.
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

    /// Returns whether a name waits with it.
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

/// Returns for how long something has waited that ends at `until`, after `bound`.
pub(crate) fn age_of(until: Moment, bound: Duration, now: Moment) -> Duration {
    (bound + (now - until)).saturating_sub(until - now)
}

fn is_beyond(age: Duration, bound: Option<Duration>) -> bool {
    bound.is_some_and(|bound| age > bound + SLACK)
}

/// A timer wakes somewhat late, and a call that shows that a server is alive takes its time.
const SLACK: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
