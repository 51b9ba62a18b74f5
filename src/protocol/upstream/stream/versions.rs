//! Clears stated versions, so that a server sends again what it would leave out.

use super::Stream;
use crate::protocol::faults::Fault;
use crate::protocol::session::Variant;
use crate::protocol::upstream::type_subscription::TypeSubscription;
use crate::protocol::view::{Class, Selector};
use crate::xds::{Name, Type};

impl Stream {
    /// Other servers have sent other content meanwhile: makes the server send again what it has.
    pub(crate) fn clear_all_versions(&mut self, of: impl Fn(&Selector) -> bool) {
        self.must_reopen |= self.open; // this opening has stated those versions
        for subscription in self.types.values_mut() {
            match subscription.class {
                Class::Wildcard if of(&Selector::Wildcard) => subscription.clear_versions(|_| true),
                Class::Wildcard => {}
                Class::Named => subscription.clear_versions(|name| of(&Selector::Name(name.clone()))),
            }
        }
    }

    /// The server gave this to an earlier process. The first delta request states it under a version that no server gives, so that the server
    /// sends it again or removes it.
    pub(crate) fn note_given_earlier(&mut self, kind: &Type, name: &Name) {
        let states = self.quirks.supports_initial_resource_versions;
        let unopened = self.types.get_mut(kind).filter(|subscription| states && !subscription.wire.opened);
        if let Some(subscription) = unopened {
            subscription.given_earlier.insert(name.clone());
        }
    }

    /// The server has removed this, and that counts no more: on the next opening it is to say so again.
    pub(crate) fn request_again(&mut self, kind: &Type, name: &Name) {
        let Some(subscription) = self.types.get_mut(kind) else { return };
        match self.variant {
            Variant::Delta if !self.quirks.supports_initial_resource_versions => {} // it is sent everything again
            Variant::Delta => drop(subscription.given_earlier.insert(name.clone())),
            Variant::Sotw => subscription.accepted.clear(),
        }
    }

    /// The server's responses count for more than before: what other servers sent may have to be requested.
    pub(crate) fn recheck(&mut self) {
        self.types.values_mut().for_each(|subscription| subscription.second_request.recheck());
    }

    /// The server was unreachable. If nothing has changed it would send nothing, and could not show that it is back: makes it
    /// send one resource of each type again. If this opening has stated their versions, that is on the next one, which follows soon.
    pub(crate) fn clear_one_version_per_type(&mut self) {
        let always = self.limits.faults.has(Fault::FailureDoubtsOtherStreams);
        if self.asked_at.is_none() || !self.open || always {
            self.types.values_mut().for_each(TypeSubscription::clear_one_version);
        } else {
            self.is_to_show_life = true;
        }
    }

    /// A set was incomplete when a stream ended: makes the server send it again from the beginning.
    pub(crate) fn clear_set_versions(&mut self, kind: &Type, of: &Selector) {
        let Some(subscription) = self.types.get_mut(kind) else { return };
        match of {
            Selector::Wildcard => subscription.clear_versions(|_| true),
            Selector::Name(glob) => subscription.clear_versions(|name| name.collection().as_ref() == Some(glob)),
        }
    }
}
