//! The results of audits: counts over the life of the process, and the last finding of each view.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;
use weir_core::protocol::audit::AuditPace;
use weir_core::protocol::moment::Moment;
use weir_core::xds::MemberNode;

use crate::log_pace::LogPace;

/// One for the process.
#[derive(Debug)]
pub(crate) struct AuditBoard {
    state: Mutex<BoardState>,
    /// Locked by the audit that is running: while one configuration replaces another, both may have views to audit.
    turn: tokio::sync::Mutex<()>,
    lines: LogPace,
}

#[derive(Debug, Default)]
struct BoardState {
    ends: [u64; AuditResult::ALL.len()],
    bytes: u64,
    /// By server.
    paces: BTreeMap<String, AuditPace>,
    /// By server, the view whose audit waits for room in the server's share. Others wait behind it, or smaller audits would use up the room.
    waiting: BTreeMap<String, Arc<str>>,
    /// How many configurations were set up, and the number of the one whose views are audited.
    configurations: u64,
    audited: u64,
    /// What the last finished audit of each view has found.
    last: BTreeMap<Arc<str>, Finding>,
}

/// What the last audit of a view has found, and which member it has asked for.
#[derive(Debug)]
struct Finding {
    member: MemberNode,
    report: AuditReport,
}

/// How an audit has ended, in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AuditResult {
    Equal,
    Differs,
    Unfinished,
}

/// What the last audit of a view has found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct AuditReport {
    pub(crate) server: String,
    /// The first few places in which a member is given something else, and how many were found.
    pub(crate) differences: Vec<AuditDifference>,
    pub(crate) differences_count: usize,
    /// The fields in which the node of that member differs from the one that the server is shown.
    pub(crate) node_fields: Vec<String>,
}

/// A place in a resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct AuditDifference {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) name: String,
    /// Empty if the view or the member does not have the resource.
    pub(crate) path: String,
}

impl AuditResult {
    pub(crate) const ALL: [Self; 3] = [Self::Equal, Self::Differs, Self::Unfinished];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Equal => "equal",
            Self::Differs => "differs",
            Self::Unfinished => "unfinished",
        }
    }
}

impl Default for AuditBoard {
    fn default() -> Self {
        Self { state: Mutex::default(), turn: tokio::sync::Mutex::default(), lines: LogPace::once_a_minute() }
    }
}

impl AuditBoard {
    /// Waits for the turn of an audit.
    pub(super) async fn turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.turn.lock().await
    }

    /// Notes how much the views have received from each server since the process began.
    pub(super) fn note_received(&self, by_server: impl Iterator<Item = (String, u64)>, now: Moment) {
        let mut state = self.state();
        by_server.for_each(|(server, bytes)| state.paces.entry(server).or_default().note_views(bytes, now));
    }

    /// Whether the audit of a view, which is expected to receive so much from a server, may begin. If not, other audits at that server wait behind it.
    pub(super) fn may_begin(&self, server: &str, view: &Arc<str>, bytes: u64, now: Moment) -> bool {
        let mut state = self.state();
        state.waiting.retain(|at, of| of != view || at == server); // the view may have had another server before
        let has_room = state.paces.entry(server.to_owned()).or_default().may_begin(bytes, now);
        let is_first = state.waiting.entry(server.to_owned()).or_insert_with(|| view.clone()) == view;
        if is_first && has_room {
            state.waiting.remove(server);
        }
        is_first && has_room
    }

    /// Notes that a view cannot be audited for another reason, so that no other view waits behind it.
    pub(super) fn note_not_waiting(&self, view: &Arc<str>) {
        self.state().waiting.retain(|_, of| of != view);
    }

    /// Notes that an audit has ended, and what it has received.
    pub(super) fn note_end(&self, result: AuditResult, server: &str, bytes: u64, now: Moment) {
        let mut state = self.state();
        state.ends[result as usize] += 1;
        state.bytes = state.bytes.saturating_add(bytes);
        state.paces.entry(server.to_owned()).or_default().note_audit(bytes, now);
    }

    /// Returns a number for a new configuration. Its views are audited from [`Self::follow`] on.
    pub(crate) fn number(&self) -> u64 {
        let mut state = self.state();
        state.configurations += 1;
        state.configurations
    }

    /// Takes findings of this configuration alone from now on. What was found at servers that it does not audit is forgotten.
    pub(crate) fn follow(&self, number: u64, servers: &[String]) {
        let mut state = self.state();
        state.audited = number;
        state.last.retain(|_, of| servers.contains(&of.report.server));
        state.waiting.retain(|server, _| servers.contains(server));
    }

    /// Whether the views of a configuration are audited now.
    pub(super) fn is_followed(&self, number: u64) -> bool {
        self.state().audited == number
    }

    /// Notes what a finished audit of a view has found, unless another configuration is in use by now.
    ///
    /// This replaces what was found before. While the member that is given something else is present, later audits ask for no other member.
    pub(super) fn note_finding(&self, number: u64, view: &Arc<str>, member: MemberNode, report: AuditReport) {
        let mut state = self.state();
        if state.audited == number {
            state.last.insert(view.clone(), Finding { member, report });
        }
    }

    /// Returns the member of a view that, as its last audit has found, is given something else than the view.
    pub(super) fn member_of_finding(&self, view: &str) -> Option<MemberNode> {
        let state = self.state();
        state.last.get(view).filter(|of| of.report.differences_count > 0).map(|of| of.member.clone())
    }

    /// Forgets what was found of a view, since it concerns no client that is connected now.
    pub(super) fn forget(&self, view: &str) {
        self.state().last.remove(view);
    }

    /// Forgets all views but these. The others have ended, or have fewer than two clients.
    pub(super) fn retain(&self, views: &BTreeSet<Arc<str>>) {
        let mut state = self.state();
        state.last.retain(|view, _| views.contains(view));
        state.waiting.retain(|_, view| views.contains(&*view));
    }

    /// `Some` if a finding may be logged now, with the number of findings before it that were not.
    pub(super) fn line(&self) -> Option<u64> {
        self.lines.line(std::time::Instant::now())
    }

    /// Returns what the last audit of a view has found.
    pub(crate) fn last(&self, view: &str) -> Option<AuditReport> {
        self.state().last.get(view).map(|of| of.report.clone())
    }

    /// Returns the views with members that are given something else.
    pub(crate) fn findings(&self) -> Vec<(Arc<str>, AuditReport)> {
        let state = self.state();
        let found = state.last.iter().filter(|(_, of)| of.report.differences_count > 0);
        found.map(|(view, of)| (view.clone(), of.report.clone())).collect()
    }

    /// Returns how many audits have ended, by result.
    pub(crate) fn ends(&self) -> impl Iterator<Item = (AuditResult, u64)> {
        let ends = self.state().ends;
        AuditResult::ALL.into_iter().zip(ends)
    }

    /// Returns how many bytes audits have received.
    pub(crate) fn bytes(&self) -> u64 {
        self.state().bytes
    }

    fn state(&self) -> std::sync::MutexGuard<'_, BoardState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use prost::Message;
    use weir_core::proto::node::Node;
    use weir_core::xds::KeyRule;

    use super::*;

    const SERVER: &str = "http://server";

    fn report(differences: usize) -> AuditReport {
        let server = SERVER.into();
        AuditReport { server, differences: Vec::new(), differences_count: differences, node_fields: Vec::new() }
    }

    /// Returns the number of the configuration in use.
    fn followed(board: &AuditBoard) -> u64 {
        let number = board.number();
        board.follow(number, &[SERVER.to_owned()]);
        number
    }

    fn member(id: &str) -> MemberNode {
        let node = Node { id: id.into(), ..Node::default() }.encode_to_vec();
        KeyRule::of(Vec::new()).key(&node).unwrap().member_node(&node).unwrap()
    }

    #[test]
    fn what_was_found_of_a_view_goes_with_it_and_counts_stay() {
        let (board, now) = (AuditBoard::default(), Moment::START);
        let [one, other]: [Arc<str>; 2] = ["1a".into(), "2b".into()];
        board.note_end(AuditResult::Differs, "http://server", 7, now);
        let number = followed(&board);
        board.note_finding(number, &one, member("a"), report(3));
        board.note_finding(number, &other, member("a"), report(0));
        assert_eq!(board.findings(), [(one.clone(), report(3))]);
        board.retain(&BTreeSet::from([other.clone()]));
        assert!(board.findings().is_empty() && board.last("1a").is_none());
        assert_eq!(board.last("2b"), Some(report(0)));
        board.follow(number, &[]);
        assert_eq!(board.last("2b"), None);
        let ends: Vec<_> = board.ends().filter(|(_, count)| *count > 0).collect();
        assert_eq!((ends, board.bytes()), (vec![(AuditResult::Differs, 1)], 7));
    }

    #[test]
    fn whose_finding_it_is_is_known_until_an_audit_finds_nothing() {
        let (board, view): (_, Arc<str>) = (AuditBoard::default(), "1a".into());
        let number = followed(&board);
        assert_eq!(board.member_of_finding(&view), None);
        board.note_finding(number, &view, member("a"), report(1));
        assert_eq!(board.member_of_finding(&view), Some(member("a")));
        board.note_finding(number, &view, member("a"), report(0));
        assert!(board.findings().is_empty());
        assert_eq!(board.member_of_finding(&view), None);
    }

    #[test]
    fn an_audit_that_a_reload_has_left_behind_enters_nothing() {
        let (board, view): (_, Arc<str>) = (AuditBoard::default(), "1a".into());
        let earlier = followed(&board);
        let later = board.number();
        board.note_finding(later, &view, member("a"), report(1));
        assert!(board.findings().is_empty() && board.is_followed(earlier), "it is not in use yet");
        board.note_finding(earlier, &view, member("a"), report(1));
        board.follow(later, &["http://other".to_owned(), SERVER.to_owned()]);
        assert_eq!(board.findings().len(), 1, "what was found is still so");
        board.follow(later, &[]);
        board.note_finding(earlier, &view, member("a"), report(1));
        assert!(board.findings().is_empty() && !board.is_followed(earlier));
    }

    #[test]
    fn what_was_found_at_a_server_goes_with_a_reload_that_leaves_it_out() {
        let (board, view): (_, Arc<str>) = (AuditBoard::default(), "1a".into());
        let number = followed(&board);
        board.note_finding(number, &view, member("a"), report(1));
        let now = Moment::START;
        board.note_end(AuditResult::Differs, SERVER, 1, now);
        assert!(!board.may_begin(SERVER, &view, 1 << 30, now));
        board.follow(board.number(), &["http://other".to_owned()]);
        assert!(board.findings().is_empty() && board.last(&view).is_none());
        assert!(board.may_begin(SERVER, &"2b".into(), 1, now), "nor is anything behind what waited there");
    }

    #[test]
    fn what_audits_receive_counts_for_their_server_alone() {
        const MANY: u64 = 16 << 20;
        let (board, now) = (AuditBoard::default(), Moment::START + Duration::from_secs(60));
        board.note_end(AuditResult::Equal, "http://one", MANY, now);
        let view: Arc<str> = "1a".into();
        assert!(!board.may_begin("http://one", &view, 1, now) && board.may_begin("http://two", &view, 1, now));
        board.note_received([("http://one".to_owned(), 0)].into_iter(), now);
        board.note_received([("http://one".to_owned(), 200 * MANY)].into_iter(), now);
        assert!(board.may_begin("http://one", &view, 1, now));
    }

    #[test]
    fn a_view_that_has_another_server_now_keeps_no_others_waiting_at_the_one_before() {
        const MIB: u64 = 1 << 20;
        let (board, now) = (AuditBoard::default(), Moment::START + Duration::from_secs(60));
        let [moves, stays]: [Arc<str>; 2] = ["1a".into(), "2b".into()];
        let [full, other] = ["http://full", "http://other"];
        [SERVER, full].iter().for_each(|server| board.note_end(AuditResult::Equal, server, 10 * MIB, now));
        for (at, has_room) in [(full, false), (other, true)] {
            assert!(!board.may_begin(SERVER, &moves, 10 * MIB, now) && !board.may_begin(SERVER, &stays, MIB, now));
            assert_eq!(board.may_begin(at, &moves, 10 * MIB, now), has_room, "{at}");
            assert!(board.may_begin(SERVER, &stays, MIB, now), "{at}: its server is another one");
            assert_eq!(board.may_begin(at, &stays, MIB, now), has_room, "{at}");
        }
    }

    #[test]
    fn smaller_views_wait_behind_a_large_one_of_their_server_until_it_has_left() {
        const MIB: u64 = 1 << 20;
        let (board, now) = (AuditBoard::default(), Moment::START + Duration::from_secs(60));
        let [large, small]: [Arc<str>; 2] = ["1a".into(), "2b".into()];
        let server = "http://server";
        board.note_end(AuditResult::Equal, server, 10 * MIB, now);
        assert!(board.may_begin(server, &small, MIB, now), "there is room");
        assert!(!board.may_begin(server, &large, 10 * MIB, now) && !board.may_begin(server, &small, MIB, now));
        assert!(board.may_begin("http://other", &small, MIB, now));
        board.note_not_waiting(&large);
        assert!(board.may_begin(server, &small, MIB, now), "it cannot be audited in any case");
        assert!(!board.may_begin(server, &large, 10 * MIB, now));
        board.retain(&BTreeSet::from([small.clone()]));
        assert!(board.may_begin(server, &small, MIB, now));
        let tomorrow = now + Duration::from_secs(25 * 3600);
        assert!(!board.may_begin(server, &large, 10 * MIB, now) && board.may_begin(server, &large, 10 * MIB, tomorrow));
        assert!(board.may_begin(server, &small, MIB, tomorrow), "it has had its turn");
    }
}
