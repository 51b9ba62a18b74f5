//! What has no room, of names, claims and requests, and what of a server is rejected.

use std::time::Instant;

use super::ViewTask;
use crate::protocol::sources::StreamId;
use crate::protocol::view::{Claim, NoRoom, SessionId};
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

    /// Seeks what a session claims, and gives back what there is no room for.
    pub(super) fn seek(&mut self, session: SessionId, claims: Vec<Claim>) {
        self.view.seek(session, claims);
        for (session, claims) in self.view.take_refused_claims() {
            self.limits.reached(Limit::SoughtNames);
            if let Some(handle) = self.sessions.get(&session) {
                handle.on_claims_refused(claims);
            }
        }
    }

    /// Wakes sessions whose claims had no room, once there is.
    pub(super) fn admit_claims(&mut self) {
        for session in self.view.take_sessions_to_claim() {
            if let Some(handle) = self.sessions.get(&session) {
                handle.on_claim_room();
            }
        }
    }

    /// Counts and logs the names that were left out of the last requests. Clients decide how often that is.
    pub(super) fn note_left_out(&mut self) {
        let view = self.view_id.as_str();
        for (id, stream) in self.sources.streams_mut() {
            for (kind, count) in stream.take_left_out() {
                self.limits.reached(Limit::MaxRequestBytes);
                let Some(unlogged) = self.left_out_lines.line(Instant::now()) else { continue };
                let server = self.connectors[id.server].describe();
                tracing::warn!(view, server, type_url = kind.name(), count, unlogged, "names left out of a request");
            }
        }
    }

    /// Logs and counts the rejected resources of the last response.
    pub(super) fn note_rejected(&mut self, id: StreamId) {
        let Some(stream) = self.sources.stream(id) else { return };
        let rejected = stream.take_rejected();
        if rejected.is_empty() {
            return;
        }
        let (view, server) = (self.view_id.as_str(), self.connectors[id.server].describe());
        for of_type in rejected {
            let (type_url, news) = (of_type.kind.name(), of_type.news);
            let count = news.entries.len() + news.more;
            self.incidents.rejected(&server, &of_type.kind, &self.table, count);
            for (name, nack) in news.entries.iter().take(MAX_LOGGED) {
                let name = name.as_ref().map(tracing::field::display);
                let (version, reason) = (&nack.version, &*nack.reason);
                tracing::warn!(view, server, type_url, name, version, reason, "resource rejected");
            }
            if count > MAX_LOGGED {
                let count = count - MAX_LOGGED;
                tracing::warn!(view, server, type_url, count, "more resources rejected");
            }
        }
    }
}

/// How many resources of a response are logged.
const MAX_LOGGED: usize = 20;
