//! The present problems: one list for commands, pages and metrics.
//!
//! Those that watch report again and again what they see ([`Sighting`]). The board makes one problem of equal sightings, and knows when each began
//! and when it ended.

mod board;
mod kind;
mod sighting;

pub(crate) use self::board::ProblemBoard;
pub(crate) use self::kind::ProblemKind;
pub(crate) use self::sighting::{CountedSample, Sighting, shortened};
