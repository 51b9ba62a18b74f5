//! The interest in one type.

use super::name_map::NameMap;
use super::watchers::Watchers;
use crate::protocol::view::name_room::NameRoom;

#[derive(Debug, Default)]
pub(super) struct OfType {
    pub(super) wildcard: Option<Watchers>,
    /// Includes globs.
    pub(super) names: NameMap<Watchers>,
    pub(super) globs: usize,
    /// Counts the bytes of names.
    pub(super) list: NameRoom,
    /// Bytes of names that linger.
    pub(super) lingering: usize,
}
