//! Names that the view has no room for.

use super::ViewTask;
use crate::relay::limit::Limit;

impl ViewTask {
    /// Notifies sessions of names that the last changes of interest had no room for.
    pub(super) fn refuse_names(&mut self) {
        for (session, names) in self.view.take_refused_names() {
            self.limits.reached(Limit::NamesPerView);
            if let Some(handle) = self.sessions.get(&session) {
                handle.on_names_refused(names);
            }
        }
    }
}
