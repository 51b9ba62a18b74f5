//! Types that one opening of a stream has requested, and of which nothing has been wanted for a while. The server still knows them: to a SotW
//! server, a request without its last nonce is an old one. Clients can make up any number of types, so the number of types kept is bounded.

use std::collections::BTreeMap;

use super::request::RequestProgress;
use crate::proto::Response;
use crate::protocol::view::Class;
use crate::xds::Type;

#[derive(Debug, Default)]
pub(super) struct ForgottenTypes {
    types: BTreeMap<Type, (Class, RequestProgress)>,
    /// There were more types than are kept.
    is_over: bool,
}

impl ForgottenTypes {
    /// Keeps what the next request of a type needs to know.
    pub(super) fn note(&mut self, kind: &Type, class: Class, wire: &RequestProgress) {
        let Some(wire) = wire.remembered() else { return };
        if self.types.len() < MOST {
            self.types.insert(kind.clone(), (class, wire));
        } else {
            self.is_over = true;
        }
    }

    /// Records a response for a type of which nothing is wanted.
    pub(super) fn on_response(&mut self, kind: &Type, response: &Response) {
        if let (Some((_, wire)), Response::Sotw(response)) = (self.types.get_mut(kind), response) {
            wire.note_nonce(&response.nonce);
        }
    }

    /// Returns how far the requests of a type have come that is wanted now. If that is not known, the type is requested again on a new opening.
    pub(super) fn take(&mut self, kind: &Type, class: Class, is_kept: impl Fn(&Type) -> bool) -> RequestProgress {
        match self.types.remove(kind) {
            Some((before, wire)) if before == class => wire,
            Some(_) => RequestProgress::unknown(class),
            None if self.is_over && !is_kept(kind) => RequestProgress::unknown(class),
            None => RequestProgress::default(),
        }
    }
}

/// The most types that are kept of one opening.
const MOST: usize = 64;
