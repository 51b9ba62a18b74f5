//! The audit of a view: would a member whose node the server is not shown be given the same as the view?
//!
//! Owns what such a member is given, how that is compared, what counts as a difference, which member is asked for, and how often. Leaves
//! streams to the edge, and the contents of bodies to those who can read them. Invariants: what is unknown on either side is no difference
//! (I3); a difference counts if it is found twice and the view's resource did not change in between.

mod choice;
mod comparison;
mod member_stream;
mod offer;
mod pace;
mod twice;

pub use choice::choose;
pub use comparison::{Unequal, unequal};
pub use member_stream::MemberStream;
pub use offer::{NotAuditable, Offer, Wanted};
pub use pace::AuditPace;
pub use twice::{Comparisons, Differing, NextStep};

#[cfg(test)]
mod tests;
