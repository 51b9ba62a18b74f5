//! What a session knows of one resource, for operators.

use super::SessionHandle;
use crate::protocol::session::{Known, similar_to};
use crate::protocol::view::Class;
use crate::protocol::wait::WaitList;
use crate::relay::report::SessionBook;
use crate::xds::{Name, Type};

impl SessionHandle {
    /// Returns what the session knows of a name.
    pub(crate) fn explain(&self, kind: &Type, name: &Name) -> SessionBook {
        let newest = self.published.newest();
        let now = self.clock.now();
        let session = self.lock();
        let book = session.explain(kind, name, &newest, now);
        let mut waits = WaitList::about(kind, name);
        session.add_waits(now, &mut waits);
        drop(session);
        let similar = match book.known {
            Known::Present { .. } => None,
            Known::Unknown | Known::Absent { .. } => {
                let tables =
                    [Class::Wildcard, Class::Named].into_iter().filter_map(|class| newest.resources(kind, class));
                similar_to(name, tables.flat_map(|table| table.present_names()))
            }
        };
        SessionBook { now, name: book, obstruction: self.transit.get(), similar, waits: waits.into_oldest() }
    }
}
