//! What the client of a wildcard stated that it holds, until everything of it is compared with the set (DELTA-13).

use std::sync::OnceLock;

use crate::protocol::view::Revision;
use crate::protocol::visits::visit;
use crate::xds::{HeldVersions, Name, Resource, SetVersion};

/// `initial_resource_versions`, kept only while the set is incomplete.
#[derive(Debug)]
pub(super) struct InitialVersions {
    versions: HeldVersions,
    /// Places of names that the client has been sent since, so that the stated version no longer counts; empty if there are none.
    outdated: Box<[bool]>,
    /// See [`Self::sum`]. Few clients need it, and there may be many names.
    sum: OnceLock<Option<SetVersion>>,
    /// The client subscribed again, and is sent everything, also what it stated. Removals are still to be sent.
    pub(super) send_all: bool,
    /// The snapshot that it was last compared with, and that led to no more removals.
    pub(super) judged_at: Option<Revision>,
}

impl InitialVersions {
    pub(super) fn new(versions: HeldVersions) -> Self {
        Self { versions, outdated: Box::default(), sum: OnceLock::new(), send_all: false, judged_at: None }
    }

    /// Returns the version of the set that is stated, if a relay may have given it.
    pub(super) fn sum(&self) -> Option<SetVersion> {
        let share = |(name, content): (&Name, Option<_>)| content.map(|content| SetVersion::of(name.as_str(), content));
        let add = |sum: SetVersion, stated| Some(sum.plus(share(stated)?));
        let all = || self.versions.iter().inspect(|_| visit());
        let resources = || all().filter(|(name, _)| !name.asks_for_end());
        *self.sum.get_or_init(|| resources().try_fold(SetVersion::EMPTY, add))
    }

    /// Returns how many names are stated.
    pub(super) fn len(&self) -> usize {
        self.versions.len()
    }

    /// Whether the client still holds this content.
    pub(super) fn holds(&self, resource: &Resource) -> bool {
        let stated = || self.versions.place(resource.name.as_str()).filter(|place| !self.is_outdated(*place));
        !self.send_all && stated().is_some_and(|place| self.versions.content(place) == Some(resource.full))
    }

    /// Whether the client has stated this content, or has stated the name and was sent this since.
    pub(super) fn has_or_was_sent(&self, resource: &Resource) -> bool {
        let place = self.versions.place(resource.name.as_str());
        place.is_some_and(|at| self.is_outdated(at) || self.versions.content(at) == Some(resource.full))
    }

    /// Whether the client still holds something under this name.
    pub(super) fn has(&self, name: &Name) -> bool {
        self.versions.place(name.as_str()).is_some_and(|place| !self.is_outdated(place))
    }

    /// Returns the names, with their places, whose stated versions still count, in order. A name that asks for the end of the set is one
    /// of them: it is removed once the set is complete.
    pub(super) fn current(&self) -> impl Iterator<Item = (usize, &Name)> {
        let all = self.versions.names().inspect(|_| visit()).enumerate();
        all.filter(|(place, _)| !self.is_outdated(*place))
    }

    /// Records that the client was sent a name.
    pub(super) fn note_sent(&mut self, name: &Name) {
        if let Some(place) = self.versions.place(name.as_str()) {
            self.note_judged(place);
        }
    }

    /// Records that the stated version at a place no longer counts.
    pub(super) fn note_judged(&mut self, place: usize) {
        if self.outdated.is_empty() {
            self.outdated = vec![false; self.versions.len()].into();
        }
        self.outdated[place] = true;
    }

    /// Returns the limit of the store in bytes, if there is no room for them any more.
    pub(super) fn refused_above(&self) -> Option<usize> {
        self.versions.refused_above()
    }

    fn is_outdated(&self, place: usize) -> bool {
        self.outdated.get(place).is_some_and(|outdated| *outdated)
    }
}
