//! Which of its clients a view shows its servers (`views.node: member`).
//!
//! Owns the nodes of the present clients, and which one is shown. Leaves to others when a server's stream is opened again
//! ([`pace`](MemberPace)), and what is held meanwhile ([`after_outage`](super::view)). Invariants: a client is one member, however many streams
//! it has; the shown client is present, or was the last one that servers were shown; the next one, the client that has been present longest, is
//! chosen only when it is shown, or at once if a server has refused the shown one. So a client that has just come is shown only if there is no
//! older one. A client that a server refuses comes last: each of the others is tried before it, and of several refused ones the one that was
//! refused longest ago is next.

mod pace;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;

pub use self::pace::MemberPace;
use super::keys::SessionId;
use super::moment::Moment;
use crate::xds::MemberNode;

/// The clients of one view that may be shown. Without clients it takes no memory.
#[derive(Debug, Default)]
pub struct Members {
    /// In the order in which they are shown.
    present: BTreeMap<Rank, Member>,
    ranks_by_node: BTreeMap<MemberNode, Rank>,
    ranks_by_session: BTreeMap<SessionId, Rank>,
    /// Parts of nodes that members have in common, each with how many members have it.
    extensions: BTreeMap<Bytes, usize>,
    /// Clients that a server has refused and that no server has accepted since, each with the number of its last refusal.
    refused: BTreeMap<Rank, u64>,
    refusals: u64,
    /// The first few different nodes that were refused in a row, since a server last answered for one. They may be of clients that have left.
    refused_in_a_row: Vec<MemberNode>,
    shown: Option<ShownClient>,
    /// When the shown client left or was refused; or, if there was no other client to show then, when one came.
    changing_since: Option<Moment>,
    serial: u64,
}

/// The position of a member: the client that has been connected longest comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    since: Moment,
    serial: u64,
}

/// A client that is present.
#[derive(Debug)]
pub struct Member {
    node: MemberNode,
    since: Moment,
    sessions: BTreeSet<SessionId>,
}

/// What servers are shown.
#[derive(Debug)]
struct ShownClient {
    node: MemberNode,
    /// `None` once the client has left.
    rank: Option<Rank>,
    /// The client's last refusal, if the client has left and no server has answered for it since.
    refusal: Option<u64>,
}

impl ShownClient {
    fn of(rank: Rank, member: &Member) -> Self {
        Self { node: member.node.clone(), rank: Some(rank), refusal: None }
    }
}

impl Member {
    /// Returns the client's node in the form that servers are shown.
    pub fn node(&self) -> &MemberNode {
        &self.node
    }

    /// Returns since when the client is connected, without a gap between its streams.
    pub fn since(&self) -> Moment {
        self.since
    }

    /// Returns the client's streams.
    pub fn sessions(&self) -> impl Iterator<Item = SessionId> {
        self.sessions.iter().copied()
    }
}

impl Members {
    /// Starts without clients.
    pub fn none() -> Self {
        Self::default()
    }

    /// Adds a stream of a client that is connected since `since`. The very first client is shown at once. A client that returns with the node
    /// that is still shown becomes the shown one again.
    pub fn join(&mut self, session: SessionId, node: MemberNode, since: Moment, now: Moment) {
        self.leave(session, now);
        let was_due = self.is_due();
        let rank = self.enter(session, node, since);
        let Some(member) = self.present.get(&rank) else { return };
        match &mut self.shown {
            None => self.shown = Some(ShownClient::of(rank, member)),
            Some(shown) if shown.rank.is_none() && shown.node == member.node => {
                shown.rank = Some(rank);
                self.refused.extend(shown.refusal.take().map(|refusal| (rank, refusal)));
            }
            Some(_) => {}
        }
        if self.is_due() && !was_due {
            self.changing_since = Some(now);
        }
    }

    /// Removes a stream of a client.
    pub fn leave(&mut self, session: SessionId, now: Moment) {
        let refusal = self.shown_rank().and_then(|rank| self.refused.get(&rank)).copied();
        let Some(left) = self.exit(session) else { return };
        if let Some(shown) = self.shown.as_mut().filter(|shown| shown.rank == Some(left)) {
            (shown.rank, shown.refusal) = (None, refusal);
            self.changing_since = Some(now);
        }
    }

    /// Replaces the node of a client, which has stated another one with the same key. If the client is shown and was not refused, it remains
    /// the shown one, with the node that servers have, because it is still present.
    pub fn replace(&mut self, session: SessionId, node: MemberNode) {
        let Some(before) = self.ranks_by_session.get(&session).copied() else { return };
        let Some(since) = self.present.get(&before).map(|member| member.since) else { return };
        let is_refused = self.refused.contains_key(&before);
        let has_left = self.exit(session).is_some();
        let rank = self.enter(session, node, since);
        if let Some(shown) = self.shown.as_mut().filter(|shown| has_left && shown.rank == Some(before)) {
            shown.rank = (!is_refused).then_some(rank); // servers may accept the client with its new node
        }
    }

    /// Records that a server has refused the shown client with a status that may be about its credential: counts the client's node, and passes over
    /// the client.
    pub fn refuse(&mut self, now: Moment) {
        let node = self.shown.as_ref().filter(|shown| shown.rank.is_some()).map(|shown| &shown.node);
        if let Some(node) = node.filter(|node| !self.is_any_refused() && !self.refused_in_a_row.contains(node)) {
            self.refused_in_a_row.push(node.clone());
        }
        self.pass_over(now);
    }

    /// Records that a server has refused the shown client, which may have left. If the client has stated another node by now, that node was not
    /// refused.
    pub fn pass_over(&mut self, now: Moment) {
        let was_due = self.is_due();
        let Some(shown) = &mut self.shown else { return };
        self.refusals += 1;
        match shown.rank {
            Some(rank) if self.present.get(&rank).is_some_and(|member| member.node != shown.node) => shown.rank = None,
            Some(rank) => _ = self.refused.insert(rank, self.refusals),
            None => shown.refusal = Some(self.refusals),
        }
        if self.is_due() && !was_due {
            self.changing_since = Some(now);
        }
    }

    /// Records that a server has answered for the shown client.
    pub fn accept(&mut self) {
        if let Some(rank) = self.shown_rank() {
            self.refused.remove(&rank);
        }
        if let Some(shown) = &mut self.shown {
            shown.refusal = None;
        }
        self.refused_in_a_row.clear();
    }

    /// Whether a server has refused each present client, and there is one.
    pub fn are_all_refused(&self) -> bool {
        !self.present.is_empty() && self.refused.len() == self.present.len()
    }

    /// Whether servers have refused so many different clients in a row that their nodes cannot be the reason.
    fn is_any_refused(&self) -> bool {
        self.refused_in_a_row.len() >= REFUSED_IN_A_ROW
    }

    /// Whether servers refuse the view: they have refused each present client, or several different ones in a row. It is true without clients,
    /// too: nothing shows that a server would accept the next client, so no client may have what is cached.
    pub fn is_view_refused(&self) -> bool {
        self.is_any_refused() || self.refused.len() == self.present.len()
    }

    /// Shows another client, if the shown one has left or was refused: of those that were not refused, the one that has been present longest. If
    /// there is none and the shown one has left: the one that was refused longest ago. Returns whether another one is shown.
    pub fn show_next(&mut self) -> bool {
        if !self.is_due() {
            return false;
        }
        let mut candidates = self.present.iter().filter(|(rank, _)| !self.refused.contains_key(rank));
        let next = candidates.next();
        self.shown = next.map(|(rank, member)| ShownClient::of(*rank, member)).or_else(|| self.refused_longest_ago());
        true
    }

    /// Shows the client that was refused longest ago, if there are several and all were refused, the shown one last. This is for a server that is
    /// asked again anyway, and may accept another client now. Returns whether another one is shown.
    pub fn show_refused(&mut self) -> bool {
        let is_due = self.are_all_refused() && self.present.len() > 1;
        if is_due {
            self.shown = self.refused_longest_ago();
        }
        is_due
    }

    fn refused_longest_ago(&self) -> Option<ShownClient> {
        let (rank, _) = self.refused.iter().min_by_key(|(_, number)| **number)?;
        Some(ShownClient::of(*rank, self.present.get(rank)?))
    }

    fn shown_rank(&self) -> Option<Rank> {
        self.shown.as_ref()?.rank
    }

    /// Whether another client is to be shown: the shown one has left, or was refused while others were not.
    pub fn is_due(&self) -> bool {
        match self.shown.as_ref().map(|shown| shown.rank) {
            None => false,
            Some(None) => !self.present.is_empty(),
            Some(Some(rank)) => self.refused.contains_key(&rank) && !self.are_all_refused(),
        }
    }

    /// Whether a client with this node should be shown even if it comes and goes: there was none yet, or another one has left, and a server
    /// refuses that one. If the refused one counted each time that it is back, it would keep out all others.
    pub fn needs_a_client(&self, node: &MemberNode) -> bool {
        let is_other = |shown: &ShownClient| shown.refusal.is_some() && shown.node != *node;
        self.present.is_empty() && self.shown.as_ref().is_none_or(is_other)
    }

    /// Whether the shown client has left.
    pub fn has_left(&self) -> bool {
        self.shown.as_ref().is_some_and(|shown| shown.rank.is_none())
    }

    /// Returns the node that is shown: that of a present client, or of the last one. `None` if there never was a client.
    pub fn shown(&self) -> Option<&MemberNode> {
        self.shown.as_ref().map(|shown| &shown.node)
    }

    /// Returns the shown client, if it is present.
    pub fn shown_member(&self) -> Option<&Member> {
        self.present.get(&self.shown_rank()?)
    }

    /// Returns the present clients, those that have been connected longest first.
    pub fn present(&self) -> impl ExactSizeIterator<Item = &Member> {
        self.present.values()
    }

    /// Returns until when removals wait that come on a stream which shows a client that has left or was refused. `None` if there was none yet.
    pub fn removals_wait_until(&self) -> Option<Moment> {
        Some(self.changing_since? + REMOVALS_WAIT)
    }

    /// Returns the bytes of parts that members have in common. The other bytes of each are [`MemberNode::own_bytes`].
    pub fn shared_bytes(&self) -> usize {
        self.extensions.keys().map(Bytes::len).sum()
    }

    /// Returns the bytes of the shown node, without parts that it shares with present clients. The node stays after its client has left.
    pub fn shown_bytes(&self) -> usize {
        let Some(ShownClient { node, .. }) = &self.shown else { return 0 };
        let is_kept = self.extensions.keys().any(|kept| kept.as_ptr() == node.extensions().as_ptr());
        node.own_bytes() + if is_kept { 0 } else { node.extensions().len() }
    }

    /// Adds a stream to its member, which may be new.
    fn enter(&mut self, session: SessionId, mut node: MemberNode, since: Moment) -> Rank {
        let rank = match self.ranks_by_node.get(&node) {
            Some(rank) => *rank,
            None => {
                self.serial += 1;
                let rank = Rank { since, serial: self.serial };
                if let Some((same, _)) = self.extensions.get_key_value(node.extensions()) {
                    node.share_extensions(same.clone());
                }
                *self.extensions.entry(node.extensions().clone()).or_default() += 1;
                self.ranks_by_node.insert(node.clone(), rank);
                self.present.insert(rank, Member { node, since, sessions: BTreeSet::new() });
                rank
            }
        };
        if let Some(member) = self.present.get_mut(&rank) {
            member.sessions.insert(session);
        }
        self.ranks_by_session.insert(session, rank);
        rank
    }

    /// Removes a stream from its member. Returns the member if that was its last stream.
    fn exit(&mut self, session: SessionId) -> Option<Rank> {
        let rank = self.ranks_by_session.remove(&session)?;
        let member = self.present.get_mut(&rank)?;
        member.sessions.remove(&session);
        if !member.sessions.is_empty() {
            return None;
        }
        self.refused.remove(&rank);
        let member = self.present.remove(&rank)?;
        self.ranks_by_node.remove(&member.node);
        if let Some(count) = self.extensions.get_mut(member.node.extensions()) {
            *count -= 1;
            if *count == 0 {
                self.extensions.remove(member.node.extensions());
            }
        }
        Some(rank)
    }
}

/// Once this many different clients were refused in a row, their nodes do not count as the reason: to try each of some hundred would take hours.
const REFUSED_IN_A_ROW: usize = 3;
/// How long removals wait for the first stream that shows the next client.
const REMOVALS_WAIT: Duration = Duration::from_secs(10);
