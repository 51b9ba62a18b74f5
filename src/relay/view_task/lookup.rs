//! What views know of one resource, for operators: what is there under a name, which server gave it, and since when.

use super::ViewTask;
use crate::protocol::view::{AbsenceEvidence, Class, Entry, Presence};
use crate::relay::report::LookupReport;
use crate::xds::{Name, Type};

impl ViewTask {
    pub(super) fn lookup(&self, kind: &Type, name: &Name) -> Vec<LookupReport> {
        let state = self.view.snapshot();
        let of = |(class, asked_as)| {
            let entry = state.resources(kind, class).and_then(|shelf| shelf.get(name))?;
            Some(self.found(entry, asked_as))
        };
        [(Class::Wildcard, "wildcard"), (Class::Named, "named")].into_iter().filter_map(of).collect()
    }

    fn found(&self, entry: &Entry, asked_as: &'static str) -> LookupReport {
        let here = match &entry.presence {
            Presence::Present(resource) => Some(resource),
            Presence::Absent(_) | Presence::Unknown => None,
        };
        let giver = || self.connectors.get(usize::from(entry.origin.server)).map(|server| server.describe());
        LookupReport {
            view: self.view_id.clone(),
            subscription: asked_as,
            state: match &entry.presence {
                Presence::Present(_) => "present",
                Presence::Absent(_) if entry.absence == AbsenceEvidence::Expired => "expired",
                Presence::Absent(_) => "absent",
                Presence::Unknown => "error",
            },
            version: here.map(|resource| resource.full.to_string()),
            server: here.and_then(|_| giver()),
            state_seconds: (self.clock.now() - entry.since).as_secs(),
            error: entry.error.as_ref().map(|(_, error)| error.message.clone()),
        }
    }
}
