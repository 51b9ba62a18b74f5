//! Which versions are stated to the server, and when they are forgotten or cleared.

use super::TypeSubscription;
use crate::protocol::upstream::second_request::SecondRequest;
use crate::protocol::view::Class;
use crate::xds::Name;

impl TypeSubscription {
    /// Nothing is held of it any more.
    pub(crate) fn forget(&mut self, name: &Name) {
        self.versions.remove(name);
        self.with_ttl.remove(name);
        self.unconfirmed.remove(name);
    }

    /// Nothing is held of a collection any more but what is wanted by itself.
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
        self.rejected.disconnect();
        self.second_request = SecondRequest::default();
    }

    /// The server is to say again what it has of these: it speaks another variant from here on, or was cut off in the middle of a
    /// set, or others have given something else meanwhile. On a new stream it is told their names, under versions that are nobody's.
    pub(crate) fn clear_versions(&mut self, which: impl Fn(&Name) -> bool) {
        self.unconfirmed.extend(self.versions.keys().filter(|name| which(name)).cloned());
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
