//! A published state: every shelf of a unit at one commit mark, never changed again.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::shelf::{Presence, Shelf};
use crate::xds::{Name, Resource, Type};

/// A change's number. One sequence per unit, because the order across types matters (ORD-4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Seq(u64);

impl Seq {
    pub const ZERO: Self = Self(0);

    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// What upstream said to `*` and what it said to a name may differ, so they are never kept together (XLAT-13).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    Star,
    Named,
}

/// What a state says of a name.
#[derive(Debug, Clone, Copy)]
pub enum Known<'a> {
    /// Nothing: not asked, not answered, or not complete yet. Never to be told as absent (I3).
    Unknown,
    Here(&'a Arc<Resource>),
    /// Upstream has said so; the last content may still be at hand.
    Gone(Option<&'a Arc<Resource>>),
}

#[derive(Debug, Default)]
pub struct State {
    /// The number of the last change in it, which is the end of a response.
    pub mark: Seq,
    shelves: BTreeMap<(Type, Class), Shelf>,
}

impl State {
    pub(super) fn new(mark: Seq, shelves: BTreeMap<(Type, Class), Shelf>) -> Self {
        Self { mark, shelves }
    }

    pub fn shelf(&self, kind: &Type, class: Class) -> Option<&Shelf> {
        self.shelves.get(&(kind.clone(), class))
    }

    pub fn known(&self, kind: &Type, class: Class, name: &Name) -> Known<'_> {
        match self.shelf(kind, class).and_then(|shelf| shelf.get(name)).map(|entry| &entry.presence) {
            None => Known::Unknown,
            Some(Presence::Here(resource)) => Known::Here(resource),
            Some(Presence::Gone(last)) => Known::Gone(last.as_ref()),
        }
    }
}
