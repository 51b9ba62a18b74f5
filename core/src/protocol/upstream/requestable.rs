//! What can be requested of a type in a variant.

use super::type_subscription::TypeSubscription;
use crate::protocol::session::Variant;
use crate::xds::{Role, Type};

/// Whether a type is requested in a variant. Delta-only types are not requested in SotW: no server would respond, and its silence would count as
/// absence.
pub(super) fn is_spoken(kind: &Type, variant: Variant) -> bool {
    variant == Variant::Delta || !kind.info().delta_only
}

/// Whether there is anything to request of the type.
pub(super) fn is_requestable(kind: &Type, of: &TypeSubscription, variant: Variant) -> bool {
    is_spoken(kind, variant) && of.wanted().is_requestable(variant)
}

/// Whether the type is a routing type, which counts for the order, and there is anything to request of it.
pub(super) fn is_routing(kind: &Type, of: &TypeSubscription, variant: Variant) -> bool {
    kind.is(Role::Routing) && is_requestable(kind, of, variant)
}
