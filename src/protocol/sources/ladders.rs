//! The ladders: which server of an authority's list is active, and which servers are open for that.

use std::collections::{BTreeMap, BTreeSet};

use super::{AuthorityContext, LadderSummary, Reachability, Server, Sources, UpdateBatch, authority_of};
use crate::protocol::faults::Fault;
use crate::protocol::ladder::{Ladder, LadderAction, LadderState};
use crate::protocol::moment::Moment;
use crate::protocol::session::Variant;
use crate::protocol::upstream::{Stream, Upstream};
use crate::protocol::view::{Class, InterestChange, Origin, Selector, Update, View};
use crate::xds::Authority;

impl Sources {
    /// Returns authorities with interest whose servers are all unreachable.
    pub fn down(&self) -> BTreeSet<Authority> {
        let is_down = |(authority, ladder): &(&Authority, &Ladder)| {
            let heard = self.is_authoritative(authority).map(|(_, server)| server);
            ladder.state() == LadderState::Down
                || heard.is_some_and(|server| self.servers[server].without.contains(authority))
        };
        self.ladders.iter().filter(is_down).map(|(authority, _)| authority.clone()).collect()
    }

    /// Whether the server that serves `*` and old-style names sends the same name twice (UP-17).
    pub fn repeats(&mut self) -> bool {
        let active = self.ladders.get(&Authority::TopLevel).and_then(Ladder::active);
        let server = active.map(|rung| self.plan.top.servers[rung]);
        let upstream = server.and_then(|server| self.servers[server].upstream.as_mut());
        upstream.is_some_and(|upstream| upstream.streams_mut().iter().all(|stream| stream.variant() == Variant::Delta))
    }

    /// Returns how long a request may be to servers that take whole lists of names: the least, if there are any. Of a server that is
    /// not open, the variant is known that is tried first.
    pub fn list_limit(&self) -> Option<usize> {
        let servers = self.servers.iter().zip(&self.plan.servers);
        let takes_lists = servers.filter(|(server, plan)| {
            let streams = server.upstream.iter().flat_map(|upstream| upstream.all());
            let mut variants = streams.map(Stream::variant).chain([plan.variant]);
            variants.next() == Some(Variant::Sotw)
        });
        takes_lists.map(|(_, plan)| plan.quirks.max_request_bytes).min()
    }

    /// Returns authorities whose server is unreachable, or has not sent its routing since it became reachable. Time alone may end that:
    /// the streams' deadlines say when it has to be read again.
    pub fn unsteady(&self) -> BTreeSet<Authority> {
        let is_steady = |server: usize, authority: &Authority| {
            let Server { upstream, without, .. } = &self.servers[server];
            let answered = |upstream: &Upstream| upstream.all().all(Stream::has_answered_routing);
            !without.contains(authority) && upstream.as_ref().is_some_and(answered)
        };
        let unsteady =
            self.ladders().filter(|ladder| !ladder.server.is_some_and(|server| is_steady(server, ladder.authority)));
        unsteady.map(|ladder| ladder.authority.clone()).collect()
    }

    /// Returns the state of the ladder of each authority that is in use.
    pub fn ladders(&self) -> impl Iterator<Item = LadderSummary<'_>> {
        self.ladders.iter().map(|(authority, ladder)| {
            let servers = self.plan.authority(authority).map_or(&[][..], |plan| &plan.servers);
            let server = ladder.active().and_then(|rung| servers.get(rung).copied());
            LadderSummary {
                authority,
                state: ladder.state(),
                since: ladder.since(),
                switches: ladder.switches(),
                server,
                servers,
            }
        })
    }

    /// Passes a response to every ladder that has the server open (FB-33), and returns the authorities for which it became active by that.
    pub(super) fn on_server_responded(
        &mut self,
        server: usize,
        usable: bool,
        view: &View,
        now: Moment,
    ) -> BTreeSet<Authority> {
        let mut newly = BTreeSet::new();
        for (authority, rung) in self.users(server) {
            let before = self.ladder(&authority).active();
            if self.options.faults.has(Fault::NeverReturn) && before.is_some_and(|before| before > rung) {
                continue;
            }
            self.step(&authority, view, |ladder, _| ladder.on_response(rung, usable, now).1);
            if self.ladder(&authority).active() == Some(rung) && before != Some(rung) {
                self.clear_versions_above(rung, &authority);
                newly.insert(authority);
            }
        }
        newly
    }

    /// Another server now serves the authority. Those above it have to send all of their resources again when they are back.
    pub(super) fn clear_versions_above(&mut self, rung: usize, authority: &Authority) {
        let Some(above) = self.plan.authority(authority).and_then(|plan| plan.servers.get(..rung)) else { return };
        let theirs = |wanted: &Selector| authority_of(wanted) == *authority;
        for server in above {
            let streams = self.servers[*server].upstream.iter_mut().flat_map(|upstream| upstream.streams_mut());
            streams.for_each(|stream| stream.clear_all_versions(theirs));
        }
    }

    /// Returns the origin under which a server's updates of an authority count, if they do.
    pub(super) fn speaks(&self, server: usize, authority: &Authority) -> Option<Origin> {
        let plan = self.plan.authority(authority)?;
        let heard = self.is_authoritative(authority);
        let all = self
            .options
            .faults
            .has(Fault::AcceptEvidenceOfAll)
            .then(|| plan.servers.iter().position(|of| *of == server));
        let counts = heard.filter(|(_, at)| *at == server).map(|(rung, _)| rung);
        let rank = counts.or(all.flatten())?;
        Some(Origin {
            server: u16::try_from(server).unwrap_or(u16::MAX),
            rank: u8::try_from(rank).unwrap_or(u8::MAX),
            holds_missing: self.plan.holds_missing,
            from_disk: false,
            is_removed: false,
            skips_brakes: self.plan.servers.get(server)?.quirks.skips_brakes,
            is_polled: self.plan.servers.get(server)?.quirks.per_type_liveness,
        })
    }

    /// Returns the rung of the active server for an authority, and the server. A first server that has responded for another authority
    /// counts before it responds for this one (FB-33).
    pub(super) fn is_authoritative(&self, authority: &Authority) -> Option<(usize, usize)> {
        let (ladder, plan) = (self.ladders.get(authority)?, self.plan.authority(authority)?);
        let known = |server: &&usize| self.servers[**server].reachability == Some(Reachability::Responded);
        let first = || {
            let tried_first = ladder.state() == LadderState::Trying(0);
            plan.servers.first().filter(|_| tried_first).filter(known).map(|_| 0)
        };
        let rung = ladder.authoritative().or_else(first)?;
        Some((rung, *plan.servers.get(rung)?))
    }

    /// Keeps those of a server's updates that count: of authorities for which it is the active one.
    pub(super) fn authoritative_updates(&mut self, server: usize, updates: Vec<Update>) -> Vec<UpdateBatch> {
        let mut batches: BTreeMap<Authority, UpdateBatch> = BTreeMap::new();
        for update in updates {
            let authority = match update.subject() {
                (_, Some((Class::Named, key))) => Authority::of(key),
                _ => Authority::TopLevel,
            };
            let Some(source) = self.speaks(server, &authority) else { continue };
            batches
                .entry(authority)
                .or_insert(UpdateBatch { origin: source, updates: Vec::new() })
                .updates
                .push(update);
        }
        batches.into_values().collect()
    }

    /// Returns the authorities that have fallen back.
    pub fn fallen(&self) -> BTreeSet<Authority> {
        let has_fallen = |ladder: &Ladder| ladder.open().len() > 1;
        self.ladders.iter().filter(|(_, ladder)| has_fallen(ladder)).map(|(authority, _)| authority.clone()).collect()
    }

    /// Lets these authorities fall back again as soon as their first choice is unreachable, although everything may be cached.
    pub fn go_on_fallen(&mut self, authorities: BTreeSet<Authority>) {
        self.fallen = authorities;
    }

    /// Returns the ladders that have a server open, with its rung on each.
    pub(super) fn users(&self, server: usize) -> Vec<(Authority, usize)> {
        let rung = |(authority, ladder): (&Authority, &Ladder)| {
            let servers = &self.plan.authority(authority)?.servers;
            let rung = ladder.open().find(|rung| servers[*rung] == server)?;
            Some((authority.clone(), rung))
        };
        self.ladders.iter().filter_map(rung).collect()
    }

    pub(super) fn ladder(&mut self, authority: &Authority) -> &mut Ladder {
        let plan = &self.plan;
        self.ladders.entry(authority.clone()).or_insert_with(|| {
            let of = plan.authority(authority);
            Ladder::new(
                of.map_or(0, |of| of.servers.len()),
                of.map_or_else(Default::default, |of| of.rule),
                plan.timers,
            )
        })
    }

    /// Passes an event to a ladder, and opens and closes servers as it demands.
    pub(super) fn step(
        &mut self,
        authority: &Authority,
        view: &View,
        event: impl FnOnce(&mut Ladder, &AuthorityContext) -> Vec<LadderAction>,
    ) {
        let plan = self.plan.clone();
        let Some(servers) = plan.authority(authority).map(|plan| plan.servers.as_slice()) else { return };
        // Each view tries the last server itself: shared reachability alone does not rule it out.
        let tried_or_not_last =
            |rung: usize, server: &Server| rung + 1 < servers.len() || server.reachability.is_some();
        let unreachable = servers.iter().map(|server| &self.servers[*server]).enumerate();
        let unreachable =
            unreachable.map(|(rung, server)| server.is_unreachable() && tried_or_not_last(rung, server)).collect();
        let goes_on = self.fallen.contains(authority);
        let around = AuthorityContext { authority, goes_on, unreachable, view };
        let moves = event(self.ladder(authority), &around);
        if self.ladder(authority).active().is_some() {
            self.fallen.remove(authority);
        }
        for step in moves {
            match step {
                LadderAction::Open(rung) => self.open(authority, servers[rung], view),
                LadderAction::CloseBelow(rung) => {
                    servers[rung + 1..].iter().for_each(|server| self.close(authority, *server, view))
                }
                LadderAction::CloseAll => servers.iter().for_each(|server| self.close(authority, *server, view)),
            }
        }
    }

    /// Requests everything of an authority from a server (FB-7). Names that are cached start no timer (FB-15).
    pub(super) fn open(&mut self, authority: &Authority, server: usize, view: &View) {
        let (plan, node) = (&self.plan.servers[server], self.node.clone());
        let (table, options) = (self.table.clone(), self.options.clone());
        let upstream = self.servers[server]
            .upstream
            .get_or_insert_with(|| Upstream::new(plan.variant, node, plan.quirks.clone(), table, options));
        for (kind, wanted, cached) in view.wants().all().filter(|(_, wanted, _)| authority_of(wanted) == *authority) {
            upstream.want(InterestChange { kind: kind.clone(), selector: wanted, on: true }, cached);
        }
        for (kind, class, name) in view.tables().unconfirmed_from_disk(server, authority) {
            upstream.note_given_earlier(kind, class, name);
        }
    }

    /// Ends a server's subscriptions of an authority, and releases the server if no other authority uses it. Its versions are forgotten
    /// with it.
    pub(super) fn close(&mut self, authority: &Authority, server: usize, view: &View) {
        let in_use = self.users(server).iter().any(|(user, _)| user != authority);
        let Some(upstream) = &mut self.servers[server].upstream else { return };
        if in_use {
            for (kind, wanted, _) in view.wants().all().filter(|(_, wanted, _)| authority_of(wanted) == *authority) {
                upstream.want(InterestChange { kind: kind.clone(), selector: wanted, on: false }, false);
            }
        } else {
            self.servers[server].upstream = None;
            self.servers[server].reachability = None;
            self.servers[server].without.clear();
            self.closed.insert(server);
        }
    }
}
