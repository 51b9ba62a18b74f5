//! What there is to request of a type in a variant.

use super::type_subscription::TypeSubscription;
use crate::protocol::session::Variant;
use crate::xds::{Role, Type};

/// Whether a type is requested in a variant. Delta-only types are not requested in SotW: no server would respond, and the silence would count
/// as absence.
pub(super) fn is_spoken(kind: &Type, variant: Variant) -> bool {
    variant == Variant::Delta || !kind.info().delta_only
}

/// Whether a request of the type has anything to ask for.
pub(super) fn is_requestable(kind: &Type, of: &TypeSubscription, variant: Variant) -> bool {
    is_spoken(kind, variant) && of.wanted().is_requestable(variant)
}

/// The same of a type that counts for the order.
pub(super) fn is_routing(kind: &Type, of: &TypeSubscription, variant: Variant) -> bool {
    kind.is(Role::Routing) && is_requestable(kind, of, variant)
}
