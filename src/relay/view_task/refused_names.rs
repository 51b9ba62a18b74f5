//! Names for which there is no room.

use super::ViewTask;
use crate::protocol::view::NoRoom;
use crate::relay::limit::Limit;

impl ViewTask {
    /// Notifies sessions of names that the last changes of interest had no room for.
    pub(super) fn refuse_names(&mut self) {
        for (session, names) in self.view.take_refused_names() {
            let reached = |of: fn(&NoRoom) -> bool| names.iter().any(|refused| of(&refused.why));
            if reached(|why| matches!(why, NoRoom::InView(_))) {
                self.limits.reached(Limit::NamesPerView);
            }
            if reached(|why| matches!(why, NoRoom::InCache(_))) {
                self.limits.reached(Limit::CachedBytes);
            }
            if reached(|why| matches!(why, NoRoom::InRequest(_))) {
                self.limits.reached(Limit::MaxRequestBytes);
            }
            if let Some(handle) = self.sessions.get(&session) {
                handle.on_names_refused(names);
            }
        }
    }
}
