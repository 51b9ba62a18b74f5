//! Which of the wanted names a request has room for.

use super::globs::Globs;
use super::request::RequestContext;
use super::request_room::{RequestRoom, field_bytes, name_bytes};
use super::type_subscription::TypeSubscription;
use crate::protocol::session::Variant;
use crate::protocol::view::{NoRoom, Selector, Update};
use crate::xds::{Name, Type};

impl TypeSubscription {
    /// Decides which of the wanted names the next request can have: older names come before newer ones, and a name that the
    /// server was sent on this opening stays.
    pub(super) fn fit_names(&mut self, of: &RequestContext) {
        let new = std::mem::take(&mut self.left_out.new);
        let limit = of.room_for_names();
        let (first, sotw) = (!self.wire.opened, of.variant == Variant::Sotw);
        let mut room = RequestRoom::new(limit, 0);
        let mut fits = |name: &Name, globs: &Globs| match of.variant {
            Variant::Delta => name_bytes(name.as_str()) <= limit,
            Variant::Sotw => globs.has(name) || room.take(name_bytes(name.as_str())),
        };
        let (mut out, mut back) = (Vec::new(), Vec::new());
        if first || sotw {
            let older = self.names.iter().filter(|name| !new.contains(*name));
            out.extend(older.filter(|name| !fits(name, &self.globs) && first).cloned());
        }
        back.extend(self.left_out.all().filter(|name| fits(name, &self.globs)).cloned());
        out.extend(new.into_iter().filter(|name| !fits(name, &self.globs)));
        for name in out {
            self.want(Selector::Name(name.clone()), false, false);
            self.left_out.insert(name, || NoRoom::InRequest(of.quirks.max_request_bytes).error());
        }
        for name in back {
            self.left_out.remove(&name);
            self.want(Selector::Name(name), true, false);
        }
        self.left_out.new.clear();
    }

    /// Reports an error for each name that is left out, once.
    pub(crate) fn report_left_out(&mut self, kind: &Type) -> Vec<Update> {
        let Some((names, error)) = self.left_out.take_unreported() else { return Vec::new() };
        names.into_iter().map(|key| Update::Error { kind: kind.clone(), key, error: error.clone() }).collect()
    }
}

impl RequestContext<'_> {
    /// Returns the bytes that a request has for names beside a nonce, a version and an error text.
    fn room_for_names(&self) -> usize {
        let limit = self.quirks.max_request_bytes;
        let others = field_bytes(self.node.len()) + field_bytes(self.type_url().len()) + (limit / 8).min(OTHER_FIELDS);
        limit.saturating_sub(others)
    }
}

/// An error text has 4 KiB at most; servers keep nonces and versions short.
const OTHER_FIELDS: usize = 8 << 10;
