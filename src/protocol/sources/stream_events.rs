//! What happens on streams: responses, openings, ends and outages.

use std::collections::BTreeSet;

use super::{Reachability, Sources, StreamId, UpdateBatch, authority_of};
use crate::proto::Response;
use crate::protocol::faults::Fault;
use crate::protocol::moment::Moment;
use crate::protocol::upstream::{Epoch, ReceivedResponse, ResponseMessage, Stream};
use crate::protocol::view::{Class, Completeness, Evidence, Selector, Update, View};
use crate::xds::{Authority, BodyStore, Name, Type};

impl Sources {
    /// Reads a response in one go, and applies it as [`Self::on_received`] does.
    pub fn on_response(
        &mut self,
        id: StreamId,
        epoch: Epoch,
        response: Response,
        store: &BodyStore,
        view: &View,
        now: Moment,
    ) -> Vec<UpdateBatch> {
        let response = ReceivedResponse::read(ResponseMessage::Decoded(response), &self.table, store);
        response.map_or_else(|_| Vec::new(), |response| self.on_received(id, epoch, response, view, now))
    }

    /// Turns a response that has been read into updates of the authorities for which the server is active.
    pub fn on_received(
        &mut self,
        id: StreamId,
        epoch: Epoch,
        response: ReceivedResponse,
        view: &View,
        now: Moment,
    ) -> Vec<UpdateBatch> {
        let Some(stream) = self.stream(id) else { return Vec::new() };
        if !stream.is_current(epoch) {
            return Vec::new(); // from an earlier opening of the stream
        }
        let nothing_left = response.is_empty_set();
        let updates = stream.on_received(epoch, response, now);
        self.servers[id.server].reachability = Some(Reachability::Responded);
        let usable = nothing_left
            || updates.iter().any(|update| matches!(update, Update::Upsert { .. } | Update::FullSet { .. }));
        let updates = self.on_heard(id.server, usable, updates, view, now);
        self.authoritative_updates(id.server, updates)
    }

    /// Applies what timers of a server's streams conclude. A server that has answered for the end of a set is usable, also if all that it
    /// sent were removals.
    pub(super) fn on_concluded(
        &mut self,
        server: usize,
        updates: Vec<Update>,
        view: &View,
        now: Moment,
    ) -> Vec<UpdateBatch> {
        let mut streams = self.servers[server].upstream.iter_mut().flat_map(|upstream| upstream.streams_mut());
        let any_ended = streams.any(Stream::take_answered_end);
        let updates = if any_ended { self.on_heard(server, true, updates, view, now) } else { updates };
        self.authoritative_updates(server, updates)
    }

    /// Lets the ladders know that a server has spoken. If it became active by that, what it has reported before counts from now on.
    fn on_heard(
        &mut self,
        server: usize,
        usable: bool,
        mut updates: Vec<Update>,
        view: &View,
        now: Moment,
    ) -> Vec<Update> {
        let newly = self.on_server_responded(server, usable, view, now);
        if !newly.is_empty() {
            updates.splice(..0, interrupted_sets(view, &newly));
            let streams = self.servers[server].upstream.iter_mut().flat_map(|upstream| upstream.streams_mut());
            for stream in streams {
                stream.recheck();
                updates.extend(stream.findings());
            }
            if self.options.faults.has(Fault::SwitchDeletes) {
                updates.extend(is_from_others(server, view));
            }
        }
        updates
    }

    /// A polled server has given the same as before for a type.
    pub(crate) fn on_unchanged(&mut self, id: StreamId, epoch: Epoch, url: &str, now: Moment) -> Vec<UpdateBatch> {
        let update = self.stream(id).and_then(|stream| stream.on_unchanged(epoch, url, now));
        self.authoritative_updates(id.server, update.into_iter().collect())
    }

    /// A source within the process reports how much of a collection was sent.
    pub(crate) fn on_progress(
        &mut self,
        id: StreamId,
        epoch: Epoch,
        url: &str,
        glob: Name,
        completeness: Completeness,
    ) -> Vec<UpdateBatch> {
        let kind = self.table.resolve(url);
        let current = self.stream(id).is_some_and(|stream| stream.is_current(epoch));
        let of = Selector::Name(glob);
        // What counted as complete may have grown since.
        let less =
            (completeness < Completeness::Complete).then(|| Update::Interrupted { kind: kind.clone(), of: of.clone() });
        let updates = less.into_iter().chain([Update::Progress { kind, of, completeness }]);
        self.authoritative_updates(id.server, updates.filter(|_| current).collect())
    }

    /// A source that stands for several servers reports the authorities for which none is reachable.
    pub(crate) fn on_outage(&mut self, id: StreamId, epoch: Epoch, authorities: BTreeSet<Authority>) {
        if self.stream(id).is_some_and(|stream| stream.is_current(epoch)) {
            self.servers[id.server].without = authorities;
        }
    }

    /// A stream is open. The server has not responded yet, so this is not shared with other views.
    pub fn opened(&mut self, id: StreamId) -> Option<Epoch> {
        let server = &mut self.servers[id.server];
        server.reachability = server
            .reachability
            .map(|found| if found == Reachability::Unreachable { Reachability::Refused } else { found });
        self.stream(id).map(Stream::opened)
    }

    /// A stream has ended, or could not be opened.
    pub fn ended(
        &mut self,
        id: StreamId,
        epoch: Option<Epoch>,
        answered: bool,
        view: &View,
        now: Moment,
    ) -> Vec<UpdateBatch> {
        let was_well = epoch.is_some_and(|epoch| {
            self.stream(id).is_some_and(|stream| stream.is_current(epoch) && stream.is_healthy(now))
        });
        let batches = epoch.map(|epoch| self.interrupt(id, epoch, view)).unwrap_or_default();
        let server = &mut self.servers[id.server];
        server.without.clear();
        let had_answered = server.reachability == Some(Reachability::Responded);
        let mut others = server.upstream.iter_mut().flat_map(|upstream| upstream.streams_mut().iter());
        // Another stream with a response shows that the server is alive. So does any stream, this one included, that stayed silent but
        // healthy, if the server has responded before (FB-3).
        let vouches = |of: &Stream| of.has_answered() || had_answered && of.is_wanted() && of.is_healthy(now);
        let vouched = others.any(vouches) || had_answered && was_well;
        if !answered && !vouched {
            let finding = if epoch.is_some() { Reachability::Refused } else { Reachability::Unreachable };
            self.servers[id.server].reachability = Some(finding);
            let streams = self.servers[id.server].upstream.iter_mut().flat_map(|upstream| upstream.streams_mut());
            streams.for_each(Stream::clear_one_version_per_type);
            for (authority, rung) in self.users(id.server) {
                self.step(&authority, view, |ladder, around| ladder.on_unreachable(rung, around, now));
            }
        }
        batches
    }

    /// A stream has ended. Incomplete sets are requested again from the beginning.
    pub(super) fn interrupt(&mut self, id: StreamId, epoch: Epoch, view: &View) -> Vec<UpdateBatch> {
        let Some(stream) = self.stream(id) else { return Vec::new() };
        let updates = stream.ended(epoch);
        for update in &updates {
            let Update::Interrupted { kind, of } = update else { continue };
            let is_set = !matches!(of, Selector::Name(name) if !name.is_glob());
            if is_set && view.tables().completeness_of(kind, of) < Completeness::Settled {
                stream.clear_set_versions(kind, of);
            }
            // The end of the stream cancels what it has removed and waits.
            view.holds().removed_by(id.server, kind, of).for_each(|name| stream.request_again(kind, name));
        }
        self.authoritative_updates(id.server, updates)
    }
}

/// The sets and names that the previous server may have been sending or had removed. The rest of them will not come, and the new active
/// server has yet to send its own (XLAT-12).
fn interrupted_sets(view: &View, of: &BTreeSet<Authority>) -> Vec<Update> {
    let is_told = |kind: &Type, wanted: &Selector| match wanted {
        Selector::Wildcard => true,
        Selector::Name(name) => name.is_glob() || view.tables().is_gone(kind, name),
    };
    let sent =
        view.wants().all().filter(|(kind, wanted, _)| of.contains(&authority_of(wanted)) && is_told(kind, wanted));
    sent.map(|(kind, of, _)| Update::Interrupted { kind: kind.clone(), of }).collect()
}

/// What [`Fault::SwitchDeletes`] deletes.
fn is_from_others(server: usize, view: &View) -> Vec<Update> {
    let wanted = view.wants().all().map(|(kind, wanted, _)| match wanted {
        Selector::Wildcard => (kind.clone(), Class::Wildcard),
        Selector::Name(_) => (kind.clone(), Class::Named),
    });
    let gone = |(kind, class): (Type, Class)| {
        let others = view.holds().here(&kind, class).filter(|(_, entry)| usize::from(entry.origin.server) != server);
        let gone =
            |key: &Name| Update::Absent { kind: kind.clone(), class, key: key.clone(), evidence: Evidence::Reported };
        others.map(|(key, _)| gone(key)).collect::<Vec<_>>()
    };
    wanted.collect::<BTreeSet<_>>().into_iter().flat_map(gone).collect()
}
