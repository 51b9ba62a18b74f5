//! The sessions of a view, as its task uses them.

use std::collections::HashMap;
use std::sync::Arc;

use super::report::AnswersSource;
use super::traces::OpenChange;
use crate::protocol::view::{Claim, NameChanged, RefusedName, SessionId};

/// The sessions of a view.
pub(super) type Subscribers = HashMap<SessionId, Box<dyn Subscriber>>;

/// A session, as its view task uses it.
pub(super) trait Subscriber: Send {
    fn id(&self) -> SessionId;
    /// Returns the session, to count its client's answers outside of the task.
    fn answers(&self) -> Arc<dyn AnswersSource>;
    fn on_names_changed(&self, changes: &[NameChanged]);
    /// A traced change concerns it.
    fn on_traced_change(&self, change: &Arc<OpenChange>);
    /// Whether its client is sent replies and answers them.
    fn answers_replies(&self) -> bool;
    /// Notifies it of names that the view has no room for.
    fn on_names_refused(&self, names: Vec<RefusedName>);
    /// Gives back claims that the view has no room for.
    fn on_claims_refused(&self, claims: Vec<Claim>);
    /// The view has room for claims again.
    fn on_claim_room(&self);
    fn on_interest_applied(&self);
    /// Wakes the session: there may be something to send.
    fn wake(&self);
}
