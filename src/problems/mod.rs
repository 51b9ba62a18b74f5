//! What is wrong now: one list for commands, pages and metrics.
//!
//! Who watches says what is seen, again and again ([`Sighting`]). The board makes one problem of equal ones, knows since when it is there, and
//! when it is over.

mod board;
mod kind;
mod sighting;

pub(crate) use self::board::ProblemBoard;
pub(crate) use self::kind::ProblemKind;
pub(crate) use self::sighting::{Several, Sighting, shortened};
