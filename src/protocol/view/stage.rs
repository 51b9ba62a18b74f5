//! What stages judge, and where they stand: see `view/row.rs`.

use super::facts::Facts;
use super::update::{Origin, Update};
use crate::protocol::moment::Moment;

/// What a server said at once, or what a stage lets on of that.
#[derive(Debug)]
pub struct Unit {
    /// Who said it.
    pub origin: Origin,
    /// When it was received.
    pub received: Moment,
    /// What was said, in this order.
    pub updates: Vec<Update>,
}

/// Where something enters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// The head: everything that a server says, and the end of a TTL.
    Gate,
    /// What the gate lets on.
    Brakes,
    /// What the brakes let on.
    Order,
    /// What is applied now.
    Tables,
}

/// A stage that stands in the row beside those that are always there.
pub trait Stage: std::fmt::Debug + Send {
    /// Judges a unit, and returns what goes on.
    fn judge(&mut self, unit: Unit, facts: Facts<'_>, now: Moment) -> Vec<Unit>;

    /// Returns what is no longer held.
    fn on_time(&mut self, facts: Facts<'_>, now: Moment) -> Vec<Unit>;

    /// Returns when [`Self::on_time`] has something to return.
    fn next_deadline(&self) -> Option<Moment>;
}
