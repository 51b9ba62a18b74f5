//! The servers of the plan: which ones are open, the streams to each, and what was found out about each.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;

use super::plan::{Plan, ServerPlan, authority_of};
use super::refused_types::RefusedTypes;
use super::source::Source;
use crate::protocol::local_set::{LocalSet, SetPart, SourceSnapshot};
use crate::protocol::moment::Moment;
use crate::protocol::session::Variant;
use crate::protocol::upstream::{Epoch, ReceivedResponse, Recovery, Stream, UpstreamOptions, ViewContext};
use crate::protocol::view::{InterestChange, Origin, Recovering, Selector, Update, View};
use crate::xds::{Authority, Type, TypeTable};

/// A stream, by its server and its index among the streams to that server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId {
    /// The index of the server in [`Plan::servers`].
    pub server: usize,
    /// The index of the stream among those to this server.
    pub at: usize,
}

/// What the edge knows about the end of a stream.
#[derive(Debug, Clone, Copy, Default)]
pub struct StreamEnd {
    /// The server can be reached: it has responded, lacks the variant, or takes no more streams on the connection.
    pub answered: bool,
    /// The server, or the connection to it, was lost: the server neither drained the connection nor lacks the variant.
    pub is_lost: bool,
}

impl From<bool> for StreamEnd {
    fn from(answered: bool) -> Self {
        Self { answered, is_lost: false }
    }
}

/// The result of the last attempt to reach a server since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reachability {
    /// It has responded.
    Responded,
    /// The last attempt failed before a stream was open.
    Unreachable,
    /// The last stream ended before its first response. That is unreachable too (FB-2), but for this view only: the server may reject the view's
    /// node.
    Refused,
}

/// What is known about one server, whether it is open or not.
#[derive(Debug, Default)]
pub(super) struct ServerFindings {
    reachability: Option<Reachability>,
    /// Other views have found the server unreachable (FB-20).
    unreachable_to_others: bool,
    /// Authorities of which the server reported that no server behind it is reachable. Only the hub reports that.
    without: BTreeSet<Authority>,
    /// The types for which the server ends streams.
    refused: RefusedTypes,
}

impl ServerFindings {
    pub(super) fn reachability(&self) -> Option<Reachability> {
        self.reachability
    }

    pub(super) fn has_responded(&self) -> bool {
        self.reachability == Some(Reachability::Responded)
    }

    /// Whether the server counts as unreachable. The last server of a list does not because of other views alone: each view tries it itself.
    pub(super) fn is_unreachable(&self, is_last: bool) -> bool {
        self.reachability.map_or(self.unreachable_to_others && !is_last, |found| found != Reachability::Responded)
    }

    pub(super) fn refused(&self) -> &BTreeSet<Type> {
        self.refused.all()
    }

    /// Whether no server behind this one is reachable for an authority.
    pub(super) fn is_without(&self, authority: &Authority) -> bool {
        self.without.contains(authority)
    }
}

/// Every server of the plan, by its index there.
#[derive(Debug)]
pub(super) struct Servers {
    plan: Arc<Plan>,
    pub(super) node: Bytes,
    /// `None` while no ladder uses the server.
    pub(super) sources: Vec<Option<Source>>,
    findings: Vec<ServerFindings>,
    /// Servers that were released since the last call of `take_closed`, even if they were opened again since.
    closed: BTreeSet<usize>,
    /// Streams that were closed in order to open them again.
    reopened: BTreeSet<StreamId>,
    /// What an earlier view knows about the recovery of servers that this view has not opened yet.
    recoveries: BTreeMap<u16, Recovery>,
    table: Arc<TypeTable>,
    options: Arc<UpstreamOptions>,
}

impl Servers {
    pub(super) fn new(plan: Arc<Plan>, node: Bytes, table: Arc<TypeTable>, options: Arc<UpstreamOptions>) -> Self {
        let sources = plan.servers.iter().map(|_| None).collect();
        let findings = plan.servers.iter().map(|_| ServerFindings::default()).collect();
        let (closed, reopened, recoveries) = Default::default();
        Self { plan, node, sources, findings, closed, reopened, recoveries, table, options }
    }

    /// Opens a server, and requests everything of an authority from it (FB-7). Names that are cached start no timer (FB-15).
    pub(super) fn open(&mut self, server: usize, authority: &Authority, view: &View) {
        let (plan, node) = (&self.plan.servers[server], self.node.clone());
        let (table, options) = (self.table.clone(), self.options.clone());
        let source = self.sources[server].get_or_insert_with(|| Source::new(plan, node, table, options));
        for (kind, selector, cached) in
            view.wants().all().filter(|(_, selector, _)| authority_of(selector) == *authority)
        {
            source.want(InterestChange { kind: kind.clone(), selector, on: true }, cached);
        }
        for (kind, class, name) in view.tables().unconfirmed_from_disk(server, authority) {
            source.note_given_earlier(kind, class, name);
        }
        if let Some(recovery) = u16::try_from(server).ok().and_then(|server| self.recoveries.remove(&server)) {
            source.streams_mut().iter_mut().for_each(|stream| *stream.recovery() = recovery);
        }
    }

    /// Passes a change of interest to a server, if the server is open.
    pub(super) fn want(&mut self, server: usize, change: InterestChange) {
        if let Some(source) = &mut self.sources[server] {
            source.want(change, false);
        }
    }

    /// Ends the subscriptions of one authority at a server that other authorities still use.
    pub(super) fn unsubscribe(&mut self, server: usize, authority: &Authority, view: &View) {
        let Some(source) = &mut self.sources[server] else { return };
        for (kind, selector, _) in view.wants().all().filter(|(_, selector, _)| authority_of(selector) == *authority) {
            source.want(InterestChange { kind: kind.clone(), selector, on: false }, false);
        }
    }

    /// Releases a server. Its versions and the findings about it are forgotten.
    pub(super) fn close(&mut self, server: usize) {
        if self.sources[server].take().is_some() {
            let of = &mut self.findings[server];
            (of.reachability, of.without, of.refused) = Default::default();
            self.closed.insert(server);
        }
    }

    pub(super) fn take_closed(&mut self) -> BTreeSet<usize> {
        std::mem::take(&mut self.closed)
    }

    /// Closes the streams to a server that are due to be opened again. Returns the updates that follow from the end of each.
    pub(super) fn reopen_due(&mut self, server: usize, view: &View, now: Moment) -> Vec<Vec<Update>> {
        let epoch = |stream: &mut Stream| stream.take_reopen(now).then(|| stream.epoch());
        let streams = self.streams_to_mut(server).iter_mut().enumerate();
        let due = streams.filter_map(|(at, stream)| Some((StreamId { server, at }, epoch(stream)?)));
        let due: Vec<_> = due.collect();
        self.reopened.extend(due.iter().map(|(id, _)| *id));
        due.into_iter().map(|(id, epoch)| self.interrupt(id, epoch, view)).collect()
    }

    pub(super) fn take_reopened(&mut self) -> BTreeSet<StreamId> {
        std::mem::take(&mut self.reopened)
    }

    pub(super) fn streams(&self) -> impl Iterator<Item = (StreamId, &Stream)> {
        (0..self.sources.len()).flat_map(|server| {
            let streams = self.streams_to(server).iter().enumerate();
            streams.map(move |(at, stream)| (StreamId { server, at }, stream))
        })
    }

    /// Returns the servers that may still be reading their state after an outage.
    pub(super) fn recovering(&mut self) -> Recovering {
        let seen = |(id, stream): (StreamId, &mut Stream)| Some((u16::try_from(id.server).ok()?, *stream.recovery()));
        Recovery::doubts(self.streams_mut().filter_map(seen).collect())
    }

    /// Returns the recovery state of the servers that are away, or may still be reading their state.
    pub(super) fn recoveries(&mut self, now: Moment) -> BTreeMap<u16, Recovery> {
        let mut servers = self.recoveries.clone();
        for (id, stream) in self.streams_mut() {
            let (Ok(server), recovery) = (u16::try_from(id.server), *stream.recovery()) else { continue };
            let latest = servers.entry(server).or_default();
            *latest = recovery.max(*latest);
        }
        servers.retain(|_, recovery| recovery.lasts(now));
        servers
    }

    /// Takes over what an earlier view knows about its servers, by their indexes in this plan. Recoveries count for the first streams.
    pub(super) fn go_on(&mut self, recoveries: BTreeMap<u16, Recovery>, refused: BTreeMap<usize, BTreeSet<Type>>) {
        self.recoveries = recoveries;
        for (server, types) in refused {
            if let Some(of) = self.findings.get_mut(server) {
                of.refused.go_on(types);
            }
        }
    }

    pub(super) fn streams_mut(&mut self) -> impl Iterator<Item = (StreamId, &mut Stream)> {
        self.sources.iter_mut().enumerate().flat_map(|(server, of)| {
            let streams = of.iter_mut().flat_map(|source| source.streams_mut().iter_mut().enumerate());
            streams.map(move |(at, stream)| (StreamId { server, at }, stream))
        })
    }

    pub(super) fn stream(&mut self, id: StreamId) -> Option<&mut Stream> {
        self.sources.get_mut(id.server)?.as_mut()?.streams_mut().get_mut(id.at)
    }

    /// Returns a stream, if the message is from its present opening.
    pub(super) fn current_stream(&mut self, id: StreamId, epoch: Epoch) -> Option<&mut Stream> {
        self.stream(id).filter(|stream| stream.is_current(epoch))
    }

    fn streams_to(&self, server: usize) -> &[Stream] {
        self.sources[server].as_ref().map_or(&[], Source::streams)
    }

    fn streams_to_mut(&mut self, server: usize) -> &mut [Stream] {
        self.sources[server].as_mut().map_or(&mut [], Source::streams_mut)
    }

    /// Whether a ladder uses the server.
    pub(super) fn is_open(&self, server: usize) -> bool {
        self.sources.get(server).is_some_and(Option::is_some)
    }

    pub(super) fn findings(&self) -> &[ServerFindings] {
        &self.findings
    }

    /// Returns the indexes of the servers that have responded since they were last unreachable.
    pub(super) fn responding(&self) -> impl Iterator<Item = u16> {
        let responding = self.findings.iter().enumerate().filter(|(_, server)| server.has_responded());
        responding.filter_map(|(at, _)| u16::try_from(at).ok())
    }

    pub(super) fn on_shared_reachability(&mut self, unreachable: impl Fn(usize) -> bool) {
        for (at, server) in self.findings.iter_mut().enumerate() {
            server.unreachable_to_others = unreachable(at);
        }
    }

    /// Applies what other views have learned: the types whose sets each server sends in several responses.
    pub(super) fn on_delivery_habits(&mut self, cut: impl Fn(usize) -> Arc<BTreeSet<Type>>) {
        for (server, source) in self.sources.iter_mut().enumerate() {
            let Some(source) = source else { continue };
            let in_pieces = cut(server);
            source.streams_mut().iter_mut().for_each(|stream| stream.on_delivery_habits(&in_pieces));
        }
    }

    pub(super) fn on_outage(&mut self, id: StreamId, epoch: Epoch, authorities: BTreeSet<Authority>) {
        if self.current_stream(id, epoch).is_some() {
            self.findings[id.server].without = authorities;
        }
    }

    /// Records that a stream is open. A server that was unreachable counts as `Refused` until it responds; this is not shared with other views.
    pub(super) fn opened(&mut self, id: StreamId) -> Option<Epoch> {
        let epoch = self.sources.get_mut(id.server)?.as_mut()?.opened(id.at)?;
        let found = &mut self.findings[id.server].reachability;
        if *found == Some(Reachability::Unreachable) {
            *found = Some(Reachability::Refused);
        }
        Some(epoch)
    }

    /// Lets a stream read a response, unless the response is from an earlier opening.
    pub(super) fn on_received(
        &mut self,
        id: StreamId,
        epoch: Epoch,
        response: ReceivedResponse,
        now: Moment,
    ) -> Option<Vec<Update>> {
        let updates = self.current_stream(id, epoch)?.on_received(epoch, response, now);
        self.findings[id.server].reachability = Some(Reachability::Responded);
        Some(updates)
    }

    /// Records that a stream has ended; `was_well` is set if it had been healthy. Returns whether the server is known to be alive all the same.
    pub(super) fn on_ended(&mut self, server: usize, was_well: bool, is_lost: bool, now: Moment) -> bool {
        self.findings[server].without.clear();
        let had_answered = self.findings[server].has_responded();
        let is_polled = self.plan.servers[server].is_polled();
        // Another stream with a response shows that the server is alive. If the server has responded before, a healthy silent stream shows it
        // too, be it the one that ended (FB-3). A polled stream ends because its polls fail, and stays open while nothing is polled on it. So only
        // a poll that was answered on another one shows anything.
        let vouches =
            |of: &Stream| !is_polled && of.has_answered() || had_answered && of.is_wanted() && of.is_healthy(now);
        let is_vouched_for = self.streams_to(server).iter().any(vouches);
        if is_lost && !is_vouched_for {
            self.streams_to_mut(server).iter_mut().for_each(|stream| stream.note_lost(now));
        }
        is_vouched_for || had_answered && was_well && !is_polled
    }

    /// Records that the last attempt to reach the server has failed; `was_open` is set if a stream was open.
    pub(super) fn on_unreachable(&mut self, server: usize, was_open: bool) {
        let finding = if was_open { Reachability::Refused } else { Reachability::Unreachable };
        self.findings[server].reachability = Some(finding);
        self.streams_to_mut(server).iter_mut().for_each(Stream::clear_one_version_per_type);
    }

    /// Lets the streams to a server judge its silence. Returns the updates, and whether the server has answered for the end of a set. `origin`
    /// returns the origin of the server's updates for an authority, if they count.
    pub(super) fn on_time(
        &mut self,
        server: usize,
        view: &View,
        origin: impl Fn(&Authority, &[ServerFindings]) -> Option<Origin>,
        now: Moment,
    ) -> (Vec<Update>, bool) {
        let streams = self.sources[server].iter_mut().flat_map(|source| source.streams_mut().iter_mut());
        self.findings[server].refused.follow(streams.map(Stream::trials));
        let origin = |selector: &Selector| origin(&authority_of(selector), &self.findings);
        let at = ViewContext { view, authority_of: &origin };
        self.sources[server].as_mut().map_or_else(Default::default, |source| source.on_time(&at, now))
    }

    /// Records that a stream has ended, or that a local set is unreachable.
    pub(super) fn interrupt(&mut self, id: StreamId, epoch: Epoch, view: &View) -> Vec<Update> {
        let source = self.sources.get_mut(id.server).and_then(Option::as_mut);
        source.map_or_else(Vec::new, |source| source.ended(id.server, id.at, epoch, view))
    }

    /// Returns what a server has reported so far, because its responses count from now on.
    pub(super) fn recheck(&mut self, server: usize) -> Vec<Update> {
        self.sources[server].as_mut().map_or_else(Vec::new, Source::recheck)
    }

    /// Returns the local sets that are wanted, reachable or not.
    pub(super) fn local_sets(&self) -> impl Iterator<Item = (StreamId, &LocalSet)> {
        let all = self.sources.iter().enumerate();
        all.filter_map(|(server, source)| Some((StreamId { server, at: 0 }, source.as_ref()?.local_set()?)))
    }

    /// Gives a local set its next snapshot.
    pub(super) fn on_snapshot(&mut self, id: StreamId, epoch: Epoch, snapshot: Arc<SourceSnapshot>) {
        let source = self.sources.get_mut(id.server).and_then(Option::as_mut);
        if let Some(set) = source.and_then(Source::local_set_mut) {
            set.on_snapshot(epoch, snapshot);
        }
    }

    /// Returns the next parts of the updates of a local set that are due.
    pub(super) fn next_parts(&mut self, server: usize, view: &View, now: Moment) -> Vec<SetPart> {
        let set = self.sources[server].as_mut().and_then(Source::local_set_mut);
        let parts = set.map(|set| set.next_parts(view, now)).unwrap_or_default();
        if !parts.is_empty() {
            self.findings[server].reachability = Some(Reachability::Responded);
        }
        parts
    }

    /// Makes servers send again everything that they have of an authority.
    pub(super) fn clear_versions(&mut self, servers: &[usize], authority: &Authority) {
        let theirs = |selector: &Selector| authority_of(selector) == *authority;
        for server in servers {
            self.streams_to_mut(*server).iter_mut().for_each(|stream| stream.clear_all_versions(theirs));
        }
    }

    /// Whether a server is open, and sends a name again when the name is requested again.
    pub(super) fn repeats(&self, server: usize) -> bool {
        self.sources[server].as_ref().is_some_and(Source::repeats)
    }

    /// Whether a server is open and has sent its routing, and a server behind it is reachable for the authority.
    pub(super) fn is_steady(&self, server: usize, authority: &Authority) -> bool {
        !self.findings[server].is_without(authority)
            && self.sources[server].as_ref().is_some_and(Source::has_answered_routing)
    }

    /// Returns the lowest limit of a request's length among the servers that are sent whole lists of names. For a server that is not open, the
    /// variant counts that is tried first.
    pub(super) fn list_limit(&self) -> Option<usize> {
        let limit = |(server, plan): (usize, &ServerPlan)| {
            let ServerPlan::Streams { variant, quirks } = plan else { return None };
            let variant = self.streams_to(server).first().map_or(*variant, Stream::variant);
            (variant == Variant::Sotw).then_some(quirks.max_request_bytes)
        };
        self.plan.servers.iter().enumerate().filter_map(limit).min()
    }
}
