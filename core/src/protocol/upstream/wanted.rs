//! What is wanted of one type from one server: `*`, names and collections; and the wanted names for which requests have no room.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::request_room::{LeftOut, RequestRoom, name_bytes};
use crate::proto::code::UNIMPLEMENTED;
use crate::protocol::session::Variant;
use crate::protocol::view::{Class, Completeness, NamedError, Selector, Update};
use crate::protocol::visits::visit;
use crate::xds::{Name, Resource, Type};

#[derive(Debug)]
pub(super) struct Wanted {
    class: Class,
    wildcard: bool,
    names: BTreeSet<Name>,
    /// Those of `names` that are globs.
    globs: Globs,
    /// Wanted names that are not requested, because a request has no room for them.
    left_out: LeftOut,
}

impl Wanted {
    pub(crate) fn new(class: Class) -> Self {
        let (names, globs, left_out) = Default::default();
        Self { class, wildcard: false, names, globs, left_out }
    }

    pub(crate) fn class(&self) -> Class {
        self.class
    }

    pub(crate) fn has_wildcard(&self) -> bool {
        self.wildcard
    }

    /// Returns the names that are wanted by themselves and requested.
    pub(crate) fn names(&self) -> &BTreeSet<Name> {
        &self.names
    }

    pub(crate) fn globs(&self) -> &Globs {
        &self.globs
    }

    pub(crate) fn left_out(&self) -> &LeftOut {
        &self.left_out
    }

    /// Whether anything of the type is wanted.
    pub(crate) fn is_any(&self) -> bool {
        self.wildcard || !self.names.is_empty() || !self.left_out.is_empty()
    }

    pub(crate) fn has_sets(&self) -> bool {
        self.wildcard || self.globs.len() > 0
    }

    /// Whether a name is wanted by itself, or as part of a set.
    pub(crate) fn wants(&self, name: &Name) -> bool {
        self.wildcard || self.names.contains(name) || self.globs.of(name).is_some()
    }

    pub(crate) fn wants_resource(&self, resource: &Resource) -> bool {
        self.wants_by_key(resource) || self.globs.of(&resource.name).is_some()
    }

    /// Like [`Self::wants_resource`], but a resource is not wanted as a member of a collection.
    pub(crate) fn wants_by_key(&self, resource: &Resource) -> bool {
        let mut keys = [&resource.name].into_iter().chain(resource.aliases());
        self.class == Class::Wildcard || keys.any(|key| self.names.contains(key))
    }

    /// Whether a name is wanted as a member of a collection, and not by itself.
    pub(crate) fn is_member_alone(&self, name: &Name) -> bool {
        !self.names.contains(name) && self.globs.of(name).is_some()
    }

    /// Returns the selector for which the server sends a name.
    pub(crate) fn selector_of(&self, name: &Name) -> Selector {
        match self.class {
            Class::Wildcard => Selector::Wildcard,
            Class::Named => Selector::Name(name.clone()),
        }
    }

    /// Whether a request in this variant has anything to request.
    pub(crate) fn is_requestable(&self, variant: Variant) -> bool {
        self.wildcard
            || match variant {
                Variant::Delta => !self.names.is_empty(),
                Variant::Sotw => self.names.len() > self.globs.len(),
            }
    }

    /// Returns updates with this completeness for `*`, and for each collection of which the server has sent something.
    pub(crate) fn completeness_updates(&self, kind: &Type, completeness: Completeness) -> Vec<Update> {
        let wildcard = self.wildcard.then_some(Selector::Wildcard);
        let globs = self.globs.begun().cloned().map(Selector::Name);
        let of = wildcard.into_iter().chain(globs);
        of.map(|of| Update::Progress { kind: kind.clone(), of, completeness }).collect()
    }

    pub(crate) fn set_wildcard(&mut self, on: bool) {
        self.wildcard = on;
    }

    /// Adds a name. Returns whether it is new.
    pub(crate) fn insert(&mut self, name: &Name) -> bool {
        self.globs.insert(name);
        let is_new = self.names.insert(name.clone());
        if is_new {
            self.left_out.insert_new(name.clone());
        }
        is_new
    }

    /// Removes a name. Returns whether it is a glob.
    pub(crate) fn remove(&mut self, name: &Name) -> bool {
        self.names.remove(name);
        self.left_out.remove_new(name);
        self.globs.remove(name)
    }

    /// Records that the server has sent something of a collection. Returns whether that is the first time.
    pub(crate) fn begin(&mut self, glob: &Name) -> bool {
        self.globs.begin(glob)
    }

    /// Records that the stream has ended: another server may answer next, or the same one in another variant.
    pub(crate) fn disconnect(&mut self) {
        self.globs.disconnect();
    }

    /// Decides which wanted names the next request has room for: older names come before newer ones, and a name that the server was sent on this
    /// opening stays. Returns the names to leave out, and those that were left out and have room now.
    pub(crate) fn fit(&mut self, limit: usize, variant: Variant, is_first: bool) -> (Vec<Name>, Vec<Name>) {
        let new = self.left_out.take_new();
        let mut room = RequestRoom::new(limit, 0);
        let globs = &self.globs;
        let mut fits = |name: &Name| match variant {
            Variant::Delta => name_bytes(name.as_str()) <= limit,
            Variant::Sotw => globs.has(name) || room.take(name_bytes(name.as_str())),
        };
        let mut out = Vec::new();
        if is_first || variant == Variant::Sotw {
            let older = self.names.iter().filter(|name| !new.contains(*name));
            out.extend(older.filter(|name| !fits(name) && is_first).cloned());
        }
        let back = self.left_out.all().filter(|name| fits(name)).cloned().collect();
        out.extend(new.into_iter().filter(|name| !fits(name)));
        (out, back)
    }

    /// Leaves out a name that is wanted and has no room. The caller has ended its subscription.
    pub(crate) fn leave_out(&mut self, name: Name, error: impl FnOnce() -> NamedError) {
        self.left_out.insert(name, error);
    }

    /// Removes a name from those that are left out. Returns whether it was one.
    pub(crate) fn remove_left_out(&mut self, name: &Name) -> bool {
        self.left_out.remove(name)
    }

    /// Records that the room for all wanted names was judged, so that none of them is new any more.
    pub(crate) fn end_fit(&mut self) {
        self.left_out.take_new();
    }

    /// Returns how many names were left out since the last call.
    pub(crate) fn take_left_out_count(&mut self) -> usize {
        self.left_out.take_count()
    }

    /// Reports an error for each name that is left out, once.
    pub(crate) fn report_left_out(&mut self, kind: &Type) -> Vec<Update> {
        let Some((names, error)) = self.left_out.take_unreported() else { return Vec::new() };
        names.into_iter().map(|key| Update::Error { kind: kind.clone(), key, error: error.clone() }).collect()
    }

    /// Reports an error for each glob that this server cannot serve because of its variant, once (COLL-23).
    pub(crate) fn reject_globs(&mut self, kind: &Type) -> Vec<Update> {
        let error = Arc::new(unspeakable());
        let rejected = self.globs.take_unasked().into_iter();
        rejected.map(|key| Update::Error { kind: kind.clone(), key, error: error.clone() }).collect()
    }

    /// Returns the names that have an error because they are not requested.
    pub(crate) fn errors(&self) -> impl Iterator<Item = (&Name, Arc<NamedError>)> {
        let rejected = self.globs.rejected().map(|glob| (glob, Arc::new(unspeakable())));
        rejected.chain(self.left_out.errors().map(|(name, error)| (name, error.clone())))
    }
}

fn unspeakable() -> NamedError {
    let message = "the control plane does not speak the delta variant, and collections exist in that alone".into();
    NamedError { code: UNIMPLEMENTED, message }
}

/// The collections that are requested.
#[derive(Debug, Default)]
pub(super) struct Globs {
    all: BTreeMap<Name, GlobState>,
    /// Globs for which no error was reported.
    unasked: BTreeSet<Name>,
}

#[derive(Debug, Default)]
struct GlobState {
    /// An error was reported, because this server cannot serve the collection.
    rejected: bool,
    /// The server has sent something of the collection on this opening.
    begun: bool,
}

impl Globs {
    pub(crate) fn insert(&mut self, name: &Name) {
        if name.is_glob() {
            self.all.insert(name.clone(), GlobState::default());
            self.unasked.insert(name.clone());
        }
    }

    /// Removes a glob. Returns whether it was there.
    pub(crate) fn remove(&mut self, name: &Name) -> bool {
        self.unasked.remove(name);
        self.all.remove(name).is_some()
    }

    pub(crate) fn has(&self, name: &Name) -> bool {
        self.all.contains_key(name)
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Name> {
        self.all.keys()
    }

    /// Returns the requested collection that a name is in.
    pub(crate) fn of(&self, name: &Name) -> Option<&Name> {
        if self.all.is_empty() {
            return None; // the usual case; a look-up costs time
        }
        self.all.get_key_value(&name.collection()?).map(|(glob, _)| glob)
    }

    /// Records that the server has sent something of a collection. Returns whether that is the first time.
    pub(crate) fn begin(&mut self, glob: &Name) -> bool {
        self.all.get_mut(glob).is_some_and(|state| !std::mem::replace(&mut state.begun, true))
    }

    /// Returns the collections of which the server has sent something.
    pub(crate) fn begun(&self) -> impl Iterator<Item = &Name> {
        self.all.iter().filter(|(_, state)| state.begun).map(|(name, _)| name)
    }

    /// Returns the globs for which an error was reported.
    pub(crate) fn rejected(&self) -> impl Iterator<Item = &Name> {
        self.all.iter().filter(|(_, state)| state.rejected).map(|(name, _)| name)
    }

    pub(crate) fn any_unasked(&self) -> bool {
        !self.unasked.is_empty()
    }

    pub(crate) fn take_unasked(&mut self) -> Vec<Name> {
        let unasked = std::mem::take(&mut self.unasked);
        for name in &unasked {
            visit();
            self.all.get_mut(name).into_iter().for_each(|state| state.rejected = true);
        }
        unasked.into_iter().collect()
    }

    /// Records that the stream has ended: another server may answer next, or the same one in another variant.
    pub(crate) fn disconnect(&mut self) {
        self.all.values_mut().for_each(|state| *state = GlobState::default());
        self.unasked = self.all.keys().cloned().collect();
    }
}
