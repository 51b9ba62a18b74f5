//! Where a view's resources come from: a ladder of servers for each authority. Authorities share the stream to a server (BOOT-9).
//!
//! Owns what each server is asked for, and the state of each ladder. Leaves connecting to the edge, and resources to [`view`](super::view).
//! Invariants: a server's updates for an authority count only while it is the active one (I6); a server that is opened is asked for everything
//! of the authority; a switch deletes nothing.

mod derived_updates;
mod ladders;
mod plan;
mod refused_types;
mod servers;
mod shown_node;
mod source;

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use ladders::{AuthorityContext, Ladders};
pub use ladders::{LadderSummary, LowestOpen, ServerHistory, SetUpdates, UpdateBatch};
pub(crate) use plan::authority_of;
pub use plan::{AuthorityPlan, Plan, ServerPlan};
pub use servers::{Reachability, StreamEnd, StreamId};
use servers::{ServerFindings, Servers};
pub use shown_node::ShownNode;

use super::ladder::{Ladder, LadderAction, LadderState};
use super::local_set::{LocalSet, SetPart, SourceSnapshot};
use super::moment::{Moment, earliest};
use super::upstream::{Delivery, Epoch, ReceivedResponse, Stream, UpstreamOptions};
use super::view::{Completeness, InterestChange, Recovering, Selector, Update, View};
use super::wait::WaitList;
use crate::xds::{Authority, Name, Type, TypeTable};

/// The servers of one view, and the ladder of each authority. Passes events of servers to ladders, and applies moves of ladders to servers.
#[derive(Debug)]
pub struct Sources {
    plan: Arc<Plan>,
    servers: Servers,
    ladders: Ladders,
    table: Arc<TypeTable>,
}

impl Sources {
    /// Starts with every ladder idle and no stream open. `node` is the encoded node for the servers.
    pub fn new(plan: Arc<Plan>, node: Bytes, table: Arc<TypeTable>, options: Arc<UpstreamOptions>) -> Self {
        let ladders = Ladders::new(plan.clone());
        let servers = Servers::new(plan.clone(), node, table.clone(), options);
        Self { plan, servers, ladders, table }
    }

    /// Applies what other views have found out about the servers. It counts for servers that this view has not tried yet (FB-20).
    pub fn on_shared_reachability(&mut self, unreachable: impl Fn(usize) -> bool) {
        self.servers.on_shared_reachability(unreachable);
    }

    /// Returns what this view has found out about each server, by its index in the plan.
    pub fn reachability(&self) -> impl Iterator<Item = Option<Reachability>> {
        self.servers.findings().iter().map(ServerFindings::reachability)
    }

    /// Returns the indexes of the servers that have responded since they were last unreachable.
    pub fn responding(&self) -> impl Iterator<Item = u16> {
        self.servers.responding()
    }

    /// Applies what other views have learned: the types whose sets each server sends in several responses.
    pub fn on_delivery_habits(&mut self, cut: impl Fn(usize) -> Arc<BTreeSet<Type>>) {
        self.servers.on_delivery_habits(cut);
    }

    /// Returns how servers have delivered their sets since the last call, by the server's index in the plan.
    pub fn take_deliveries(&mut self) -> Vec<(usize, Type, Delivery)> {
        let streams = self.streams_mut();
        streams.flat_map(|(id, of)| of.take_deliveries().map(move |(kind, seen)| (id.server, kind, seen))).collect()
    }

    /// Applies a change of interest. No server has names of an authority that is not in the plan (BOOT-16).
    pub fn want(&mut self, change: InterestChange, view: &View, now: Moment) {
        let (authority, plan) = (authority_of(&change.selector), self.plan.clone());
        let Some(AuthorityPlan { servers, .. }) = plan.authority(&authority) else { return };
        let ladder = self.ladders.on_interest_change(&authority, change.on);
        servers[ladder.open()].iter().for_each(|server| self.servers.want(*server, change.clone()));
        match ladder.state() {
            _ if !change.on => {}
            LadderState::Idle => self.step(&authority, view, |ladder, around| ladder.on_interest(around, now)),
            _ => self.ladders.note_missed(&change, view),
        }
    }

    /// Lets names that sessions have subscribed to trigger a fallback, even if interest in them existed before.
    pub fn on_names_requested(&mut self, changes: &[InterestChange], view: &View) {
        changes.iter().filter(|change| change.on).for_each(|change| self.ladders.note_missed(change, view));
    }

    /// Steps the ladders with missing names, and closes the servers of authorities without interest. To be called after all changes were applied.
    pub fn close_unused(&mut self, view: &View, now: Moment) {
        for authority in self.ladders.take_missed() {
            self.step(&authority, view, |ladder, around| ladder.on_interest(around, now));
        }
        for authority in self.ladders.take_unused(view) {
            self.step(&authority, view, |ladder, _| ladder.on_idle(now));
        }
    }

    /// Returns the servers that may still be reading their state after an outage.
    pub fn recovering(&mut self) -> Recovering {
        self.servers.recovering()
    }

    /// Returns the node that servers are shown, so that the caller can change it.
    pub fn shown_node(&mut self) -> ShownNode<'_> {
        ShownNode::of(&mut self.servers)
    }

    /// Returns every stream that is wanted, open or not.
    pub fn streams(&self) -> impl Iterator<Item = (StreamId, &Stream)> {
        self.servers.streams()
    }

    /// Returns every stream that is wanted, open or not, so that the caller can change it.
    pub fn streams_mut(&mut self) -> impl Iterator<Item = (StreamId, &mut Stream)> {
        self.servers.streams_mut()
    }

    /// Returns a stream, if it is still wanted.
    pub fn stream(&mut self, id: StreamId) -> Option<&mut Stream> {
        self.servers.stream(id)
    }

    /// Returns every local set that is wanted, reachable or not.
    pub fn local_sets(&self) -> impl Iterator<Item = (StreamId, &LocalSet)> {
        self.servers.local_sets()
    }

    /// Returns the servers that were closed since the last call. One that was opened again since then has new streams.
    pub fn take_closed(&mut self) -> BTreeSet<usize> {
        self.servers.take_closed()
    }

    /// Returns the streams that have ended since the last call in order to be opened again.
    pub fn take_reopened(&mut self) -> BTreeSet<StreamId> {
        self.servers.take_reopened()
    }

    /// Returns the servers that have a stream to be opened again now.
    pub fn due_reopenings(&self, now: Moment) -> BTreeSet<usize> {
        self.streams().filter(|(_, stream)| stream.is_reopen_due(now)).map(|(id, _)| id.server).collect()
    }

    /// Returns the lowest limit of a request's length among the servers that are sent whole lists of names, if there are any.
    pub fn list_limit(&self) -> Option<usize> {
        self.servers.list_limit()
    }

    /// Returns the state of the ladder of each authority that is in use.
    pub fn ladders(&self) -> impl Iterator<Item = LadderSummary<'_>> {
        self.ladders.summaries()
    }

    /// Returns what a later view of the same key needs to know.
    pub fn history(&mut self, now: Moment) -> ServerHistory {
        let refused = self.servers.findings().iter().map(|of| of.refused().clone()).enumerate().collect();
        ServerHistory { lowest: self.ladders.lowest(), recoveries: self.servers.recoveries(now), refused }
    }

    /// Goes on from an earlier view. By its lowest open servers, authorities may fall back even if everything is cached.
    pub fn go_on(&mut self, history: ServerHistory) {
        self.ladders.go_on(history.lowest);
        self.servers.go_on(history.recoveries, history.refused);
    }

    /// Returns authorities with interest whose servers are all unreachable.
    pub fn down(&self) -> BTreeSet<Authority> {
        self.ladders.down(self.servers.findings())
    }

    /// Returns authorities without an active server, or whose server has not sent its routing on this opening. To be called again at streams' deadlines.
    pub fn unsteady(&self) -> BTreeSet<Authority> {
        let is_steady = |of: &LadderSummary| of.server.is_some_and(|at| self.servers.is_steady(at, of.authority));
        self.ladders().filter(|ladder| !is_steady(ladder)).map(|ladder| ladder.authority.clone()).collect()
    }

    /// Whether the server that serves `*` and old-style names sends a name again when the name is requested again (UP-17).
    pub fn repeats(&self) -> bool {
        self.ladders.active(&Authority::TopLevel).is_some_and(|rung| self.servers.repeats(self.plan.top.servers[rung]))
    }

    /// Adds the waits for servers to the list.
    pub fn add_waits(&self, view: &View, now: Moment, list: &mut WaitList) {
        self.streams().for_each(|(id, stream)| stream.add_waits(id.server, view, now, list));
        self.local_sets().for_each(|(id, set)| set.add_waits(id.server, view, now, list));
        self.ladders.add_waits(now, list);
    }

    /// Returns the next deadline. Streams that cannot send requests now (`blocked`) are left out.
    pub fn next_deadline(&self, blocked: impl Fn(StreamId) -> bool) -> Option<Moment> {
        let streams = self.streams().filter(|(id, _)| !blocked(*id)).filter_map(|(_, stream)| stream.next_deadline());
        let sets = self.local_sets().filter_map(|(_, set)| set.next_deadline());
        earliest(self.ladders.next_deadline(), streams.chain(sets).min())
    }

    /// Runs the timers that are due, and returns the updates that follow.
    pub fn on_time(&mut self, view: &View, now: Moment) -> Vec<UpdateBatch> {
        self.on_time_with(view, now, |_| true)
    }

    /// Like [`Self::on_time`], but opens streams again only to servers that `may_reopen`; the others stay open until they may.
    pub fn on_time_with(&mut self, view: &View, now: Moment, may_reopen: impl Fn(usize) -> bool) -> Vec<UpdateBatch> {
        for authority in self.ladders.authorities().cloned().collect::<Vec<_>>() {
            self.step(&authority, view, |ladder, around| ladder.on_time(around, now));
        }
        let mut batches = Vec::new();
        for server in 0..self.plan.servers.len() {
            batches.extend(self.run_stream_timers(server, view, now));
            if may_reopen(server) {
                let reopened = self.servers.reopen_due(server, view, now).into_iter();
                batches.extend(reopened.flat_map(|updates| self.authoritative_updates(server, updates)));
            }
        }
        batches
    }

    /// Lets the streams of one server judge its silence. An answer for the end of a set counts as usable content.
    fn run_stream_timers(&mut self, server: usize, view: &View, now: Moment) -> Vec<UpdateBatch> {
        let origin = |of: &Authority, found: &[ServerFindings]| self.ladders.origin_if_counts(server, of, found);
        let (updates, any_ended) = self.servers.on_time(server, view, origin, now);
        let updates = if any_ended { self.on_heard(server, true, updates, view, now) } else { updates };
        self.authoritative_updates(server, updates)
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
        let nothing_left = response.is_empty_set();
        let Some(updates) = self.servers.on_received(id, epoch, response, now) else { return Vec::new() };
        let updates = self.on_heard(id.server, nothing_left, updates, view, now);
        self.authoritative_updates(id.server, updates)
    }

    /// Passes to the ladders that a server has responded. If the server became active by that, what it has reported before counts from now on.
    fn on_heard(
        &mut self,
        server: usize,
        usable: bool,
        mut updates: Vec<Update>,
        view: &View,
        now: Moment,
    ) -> Vec<Update> {
        let usable = usable || updates.iter().any(derived_updates::has_content);
        let newly = self.on_server_responded(server, usable, view, now);
        if !newly.is_empty() {
            updates.splice(..0, derived_updates::interrupted_sets(view, &newly));
            updates.extend(self.servers.recheck(server));
        }
        updates
    }

    /// Passes a response to every ladder that has the server open (FB-33). Returns the authorities for which the server became active by that.
    fn on_server_responded(&mut self, server: usize, usable: bool, view: &View, now: Moment) -> BTreeSet<Authority> {
        let (mut newly, plan) = (BTreeSet::new(), self.plan.clone());
        for (authority, rung) in self.ladders.users(server) {
            let before = self.ladders.active(&authority);
            self.step(&authority, view, |ladder, _| ladder.on_response(rung, usable, now).1);
            if self.ladders.active(&authority) == Some(rung) && before != Some(rung) {
                // The servers above it have to send all of their resources again when they are back.
                let above = plan.authority(&authority).and_then(|plan| plan.servers.get(..rung)).unwrap_or_default();
                self.servers.clear_versions(above, &authority);
                newly.insert(authority);
            }
        }
        newly
    }

    /// Applies that a polled server has nothing new for a type.
    pub fn on_unchanged(&mut self, id: StreamId, epoch: Epoch, url: &str, now: Moment) -> Vec<UpdateBatch> {
        let update = self.stream(id).and_then(|stream| stream.on_unchanged(epoch, url, now));
        self.authoritative_updates(id.server, update.into_iter().collect())
    }

    /// Applies the hub's report of how much of a collection it has sent.
    pub fn on_progress(
        &mut self,
        id: StreamId,
        epoch: Epoch,
        url: &str,
        glob: Name,
        completeness: Completeness,
    ) -> Vec<UpdateBatch> {
        if self.servers.current_stream(id, epoch).is_none() {
            return Vec::new();
        }
        let updates = derived_updates::progress(self.table.resolve(url), Selector::Name(glob), completeness);
        self.authoritative_updates(id.server, updates)
    }

    /// Applies the report of a source that stands for several servers: the authorities for which none of them is reachable.
    pub fn on_outage(&mut self, id: StreamId, epoch: Epoch, authorities: BTreeSet<Authority>) {
        self.servers.on_outage(id, epoch, authorities);
    }

    /// Gives a local set its next snapshot. [`Self::take_set_updates`] returns what follows from it.
    pub fn on_snapshot(&mut self, id: StreamId, epoch: Epoch, snapshot: Arc<SourceSnapshot>) {
        self.servers.on_snapshot(id, epoch, snapshot);
    }

    /// Returns the next part of the updates of each local set. [`Self::next_deadline`] says when there are more.
    pub fn take_set_updates(&mut self, view: &View, now: Moment) -> Vec<SetUpdates> {
        let mut all = Vec::new();
        for server in 0..self.plan.servers.len() {
            for SetPart { updates, summary, misnamed, .. } in self.servers.next_parts(server, view, now) {
                let updates = self.on_heard(server, false, updates, view, now);
                let batches = self.authoritative_updates(server, updates);
                all.push(SetUpdates { server, batches, summary, misnamed });
            }
        }
        all
    }

    /// Records that a stream is open, or that a local set is reachable.
    pub fn opened(&mut self, id: StreamId) -> Option<Epoch> {
        self.servers.opened(id)
    }

    /// Records that a stream has ended or could not be opened, or that a local set is unreachable.
    pub fn ended(
        &mut self,
        id: StreamId,
        epoch: Option<Epoch>,
        end: impl Into<StreamEnd>,
        view: &View,
        now: Moment,
    ) -> Vec<UpdateBatch> {
        let StreamEnd { answered, is_lost } = end.into();
        if !self.servers.is_open(id.server) {
            return Vec::new(); // no ladder uses the server any more, so its reachability does not matter
        }
        let was_well = epoch.and_then(|of| self.servers.current_stream(id, of)).is_some_and(|of| of.is_healthy(now));
        let updates = epoch.map(|epoch| self.servers.interrupt(id, epoch, view)).unwrap_or_default();
        let batches = self.authoritative_updates(id.server, updates);
        if self.servers.on_ended(id.server, was_well, is_lost, now) || answered {
            return batches;
        }
        self.servers.on_unreachable(id.server, epoch.is_some());
        for (authority, rung) in self.ladders.users(id.server) {
            self.step(&authority, view, |ladder, around| ladder.on_unreachable(rung, around, now));
        }
        batches
    }

    fn authoritative_updates(&self, server: usize, updates: Vec<Update>) -> Vec<UpdateBatch> {
        self.ladders.authoritative_updates(server, updates, self.servers.findings())
    }

    /// Passes an event to a ladder, and opens and closes servers as the ladder demands.
    fn step(
        &mut self,
        authority: &Authority,
        view: &View,
        event: impl FnOnce(&mut Ladder, &AuthorityContext) -> Vec<LadderAction>,
    ) {
        let plan = self.plan.clone();
        let Some(servers) = plan.authority(authority).map(|plan| plan.servers.as_slice()) else { return };
        for action in self.ladders.step(authority, self.servers.findings(), view, event) {
            match action {
                LadderAction::Open(rung) => self.servers.open(servers[rung], authority, view),
                LadderAction::CloseBelow(rung) => self.close(&servers[rung + 1..], authority, view),
                LadderAction::CloseAll => self.close(servers, authority, view),
            }
        }
    }

    /// Ends the subscriptions of an authority, and releases the servers that no other authority uses.
    fn close(&mut self, servers: &[usize], authority: &Authority, view: &View) {
        for server in servers {
            if self.ladders.users(*server).iter().any(|(user, _)| user != authority) {
                self.servers.unsubscribe(*server, authority, view);
            } else {
                self.servers.close(*server);
            }
        }
    }
}

#[cfg(test)]
mod tests;
