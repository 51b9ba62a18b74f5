//! Which versions are stated to the server, and when they are forgotten or cleared.

use super::TypeSubscription;
use crate::protocol::upstream::end_question::EndQuestion;
use crate::protocol::upstream::second_request::SecondRequest;
use crate::protocol::view::Class;
use crate::protocol::visits::visit;
use crate::xds::Name;

impl TypeSubscription {
    /// Forgets the version of a name, which is no longer cached.
    pub(crate) fn forget(&mut self, name: &Name) {
        self.versions.remove(name);
        self.with_ttl.remove(name);
        self.unconfirmed.remove(name);
    }

    /// Forgets the members of a collection, except those that are wanted by name.
    pub(crate) fn forget_members(&mut self, glob: &Name) {
        let members = glob.members_in(&self.versions).map(|(member, _)| member);
        let alone: Vec<_> = members.filter(|member| !self.names.contains(*member)).cloned().collect();
        alone.iter().for_each(|member| self.forget(member));
    }

    pub(super) fn forget_versions(&mut self) {
        self.versions.clear();
        self.with_ttl.clear();
        self.unconfirmed.clear();
        self.accepted.clear();
        self.progress.stated.clear();
        self.rejected.disconnect();
        self.second_request = SecondRequest::default();
        self.end_question = EndQuestion::default(); // the set that it asks for is no longer subscribed
    }

    /// Makes the server send these again: it is used in another variant, its stream ended within a set, or other servers have
    /// sent other content meanwhile. A new stream states their names under a version that no server gives.
    pub(crate) fn clear_versions(&mut self, which: impl Fn(&Name) -> bool) {
        let all = self.versions.keys().inspect(|_| visit());
        self.unconfirmed.extend(all.filter(|name| which(name)).cloned());
        if self.class == Class::Wildcard {
            self.accepted.clear();
        }
    }

    pub(crate) fn clear_one_version(&mut self) {
        let first = self.versions.keys().find(|name| !self.with_ttl.contains(*name));
        self.unconfirmed.extend(first.cloned());
        if self.class == Class::Wildcard {
            self.accepted.clear();
        }
    }

    /// Whether a name is wanted as a member of a collection, and not by itself.
    pub(crate) fn is_member_alone(&self, name: &Name) -> bool {
        !self.names.contains(name) && self.globs.of(name).is_some()
    }
}
