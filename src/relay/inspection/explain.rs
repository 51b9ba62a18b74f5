//! What a view task knows of one name, for operators.

use super::Inspection;
use crate::relay::report::{LadderBook, ServerBook, ViewBook};
use crate::xds::{Authority, Name, Type};

impl Inspection<'_> {
    /// Returns what is known of one name.
    pub(crate) fn explain(&self, kind: &Type, name: &Name) -> ViewBook {
        let authority = Authority::of(name);
        let connectors = self.connectors;
        let ladder = self.sources.ladders().find(|ladder| *ladder.authority == authority);
        let active = ladder.as_ref().and_then(|ladder| ladder.server);
        let ladder = ladder.map(|ladder| LadderBook {
            authority: authority.name().to_owned(),
            state: ladder.state.name(),
            server: ladder.server.map(|server| connectors[server].describe()),
            since: ladder.since,
            reason: self.links.reason_of(&ladder),
        });
        let links = self.links;
        let requests = self.sources.streams().filter_map(|(id, stream)| {
            Some(ServerBook {
                server: connectors[id.server].describe(),
                connected: links.get(id).is_some_and(|link| link.up.is_some()),
                is_active: active == Some(id.server),
                request: stream.request_of(kind, name)?,
            })
        });
        let requests = requests.collect();
        let (holds, waits) = (self.view.holds_of(kind, name), self.waits_of(kind, name));
        ViewBook { now: self.now, holds, ladder, requests, waits }
    }
}
