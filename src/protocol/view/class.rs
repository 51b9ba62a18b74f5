//! The two classes of subscription.

/// What the server sent for `*` and for a name may differ, so they are never kept together (XLAT-13).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// All resources of a type, `*`.
    Wildcard,
    /// Single names.
    Named,
}
