//! The servers that refuse what a view shows them: their status is what new streams get, in place of what is cached.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_core::proto::code;
use weir_core::protocol::ladder::LadderState;
use weir_core::protocol::members::Members;
use weir_core::protocol::sources::{LadderSummary, Sources, StreamId};
use weir_core::protocol::upstream::ServerStatus;
use weir_core::protocol::view::View;
use weir_core::xds::{Authority, KeyRule};

use super::reports::ViewReporter;
use super::shown_member::ShownMember;
use crate::relay::links::Links;
use crate::relay::published::Published;
use crate::relay::reachability::ViewReachability;
use crate::relay::subscriber::Subscribers;

/// Refusals by the stream that was refused: a response on another stream may answer a request from before the refusal. Only a view with headers
/// in its key has refusals: in other views, nothing shows which client the server means.
#[derive(Default)]
pub(super) struct Refusals {
    has_headers: bool,
    by: BTreeMap<StreamId, Arc<ServerStatus>>,
    /// The last refusal has ended.
    has_lapsed: bool,
}

impl Refusals {
    /// Returns the refusals of a view whose key is made by this rule. Clients that send none of the rule's headers have a view of their own, too.
    pub(super) fn of(rule: &KeyRule) -> Self {
        Self { has_headers: rule.headers().next().is_some(), by: BTreeMap::new(), has_lapsed: false }
    }

    /// A server has ended a stream by this status, and not because of a type. Returns whether it refuses the view by that.
    pub(super) fn on_status(&mut self, stream: StreamId, status: &ServerStatus) -> bool {
        let is_refusal = self.has_headers && matches!(status.code, code::PERMISSION_DENIED | code::UNAUTHENTICATED);
        if is_refusal {
            self.by.insert(stream, Arc::new(status.clone()));
        }
        is_refusal
    }

    /// Whether no server refuses the view.
    pub(super) fn is_none(&self) -> bool {
        self.by.is_empty()
    }

    /// A server has answered on a stream: it takes the view.
    pub(super) fn on_taken(&mut self, stream: StreamId) {
        if self.by.remove(&stream).is_some() {
            self.has_lapsed |= self.by.is_empty();
        }
    }

    /// A server has left a stream open for as long as a trial lasts, or has refused a request for another reason. A gateway may do so too while
    /// the server behind it is down: if anything of that server is cached, the refusal stays until the server answers.
    pub(super) fn on_left_open(&mut self, stream: StreamId, has_cache: impl Fn(usize) -> bool) {
        if self.by.contains_key(&stream) && !has_cache(stream.server) {
            self.by.remove(&stream);
            self.has_lapsed |= self.by.is_empty();
        }
    }

    /// Exchanges with other views which types servers have answered in trials.
    pub(super) fn exchange_trials(&mut self, sources: &mut Sources, view: &View, others: &ViewReachability) {
        for (id, stream) in sources.streams_mut() {
            let mut trials = stream.trials();
            let answered = trials.take_answered();
            if !answered.is_empty() {
                others.record_answered(id.server, answered);
            }
            trials.on_answered_in_others(&others.answered(id.server));
            if trials.is_taken() {
                self.on_left_open(id, |server| has_of(view, server));
            }
        }
    }

    /// Refuses new streams, and streams that have had no reply yet, while a server refuses the view. Where servers are shown clients, the view counts
    /// as refused once each connected client was refused, or several different ones in a row.
    pub(super) fn follow(
        &mut self,
        (view, sources, shown): (&View, &mut Sources, &mut ShownMember),
        (links, sessions): (&Links, &Subscribers),
        published: &Published,
        reporter: &ViewReporter,
    ) {
        if !self.by.is_empty() || published.refusal().is_some() {
            self.follow_servers((view, sources, shown.members()), (links, sessions), published, reporter);
        }
        if std::mem::take(&mut self.has_lapsed) && self.by.is_empty() {
            shown.accept_if_answered();
        }
    }

    fn follow_servers(
        &mut self,
        (view, sources, members): (&View, &Sources, &Members),
        (links, sessions): (&Links, &Subscribers),
        published: &Published,
        reporter: &ViewReporter,
    ) {
        // A refusal stays while something is cached, even without clients and while no server is asked: no client may have what is cached.
        let is_unused = sources.ladders().all(|ladder| ladder.state == LadderState::Idle);
        let stays = is_unused && view.tables().sizes().any(|(_, present, _)| present > 0);
        let ladders: Vec<_> = sources.ladders().collect();
        let counts = |server| counts_in(&ladders, server);
        let was_any = !self.by.is_empty();
        self.by.retain(|id, _| stays || links.has_link(*id));
        self.has_lapsed |= was_any && self.by.is_empty();
        // A view that is refused stays so for clients that come, or state another node, meanwhile: they have to wait for an answer, too.
        let of_all = members.is_view_refused() || published.refusal().is_some();
        if let Some((server, status)) = self.publish(published, |server| of_all && (stays || counts(server))) {
            reporter.report_view_refused(&links.server(server), &status);
            sessions.refuse_view(&status);
        }
    }

    /// Publishes the status of a server that counts. Returns it with the server if it is news.
    fn publish(&self, published: &Published, counts: impl Fn(usize) -> bool) -> Option<(usize, Arc<ServerStatus>)> {
        let found = self.by.iter().find(|(id, _)| counts(id.server));
        let found = found.map(|(id, status)| (id.server, status.clone()));
        let is_news = published.note_refusal(found.as_ref().map(|(_, status)| status.clone()));
        found.filter(|_| is_news)
    }
}

/// Whether a view has something that this server gave.
pub(super) fn has_of(view: &View, server: usize) -> bool {
    let by_server = view.tables().cached_by_server();
    by_server.iter().any(|(of, count)| usize::from(*of) == server && *count > 0)
}

/// Whether the refusal by a server counts for the whole view: the server is in the list for old-style names, or none of these are requested, and it
/// is in another list in use. It need not be active: what it gave may be served while another server is.
fn counts_in(ladders: &[LadderSummary], server: usize) -> bool {
    let is_top = |ladder: &&LadderSummary| *ladder.authority == Authority::TopLevel;
    match ladders.iter().find(is_top).filter(|top| top.state != LadderState::Idle) {
        Some(top) => top.servers.contains(&server),
        None => ladders.iter().any(|ladder| ladder.state != LadderState::Idle && ladder.servers.contains(&server)),
    }
}

#[cfg(test)]
mod tests {
    use weir_core::protocol::moment::Moment;
    use weir_core::xds::KeyField;

    use super::*;

    fn status(code: i32) -> ServerStatus {
        ServerStatus { code, message: "no".into() }
    }

    /// A stream of the view to a server.
    fn stream(server: usize, at: usize) -> StreamId {
        StreamId { server, at }
    }

    fn of_headers() -> Refusals {
        Refusals::of(&KeyRule::of(vec![KeyField::parse("header.x-token").unwrap()]))
    }

    #[test]
    fn a_server_refuses_a_view_until_it_responds_on_that_stream_and_another_status_is_news_by_its_code() {
        let published = Published::new(Arc::default(), 1);
        let mut refusals = of_headers();
        let news =
            |refusals: &Refusals| refusals.publish(&published, |_| true).map(|(server, status)| (server, status.code));
        assert!(!refusals.on_status(stream(0, 0), &status(code::UNAVAILABLE)));
        assert_eq!(news(&refusals), None);
        assert!(refusals.on_status(stream(0, 0), &status(code::PERMISSION_DENIED)));
        assert_eq!(news(&refusals), Some((0, code::PERMISSION_DENIED)));
        let other_words = ServerStatus { message: "request 7: no".into(), ..status(code::PERMISSION_DENIED) };
        refusals.on_status(stream(0, 0), &other_words);
        assert_eq!(news(&refusals), None);
        assert_eq!(published.refusal().as_deref(), Some(&other_words));
        refusals.on_taken(stream(0, 1));
        assert!(!refusals.by.is_empty(), "that stream is older");
        refusals.on_status(stream(0, 0), &status(code::UNAUTHENTICATED));
        assert_eq!(news(&refusals), Some((0, code::UNAUTHENTICATED)));
        refusals.on_left_open(stream(0, 0), |server| server == 0);
        assert!(!refusals.by.is_empty(), "nobody may be behind a gateway");
        refusals.on_taken(stream(0, 0));
        assert_eq!((news(&refusals), published.refusal()), (None, None));
        refusals.on_status(stream(0, 0), &status(code::UNAUTHENTICATED));
        refusals.on_left_open(stream(0, 0), |server| server == 1);
        assert!(refusals.by.is_empty(), "what new streams get is of others");
    }

    #[test]
    fn the_last_refusal_lapses_with_an_answer_and_without() {
        let mut refusals = of_headers();
        let refused = status(code::PERMISSION_DENIED);
        assert!([0, 1].iter().all(|at| refusals.on_status(stream(0, *at), &refused)));
        refusals.on_left_open(stream(0, 0), |_| false);
        assert!(!refusals.has_lapsed, "another one is left");
        refusals.on_taken(stream(0, 1));
        assert!(refusals.is_none() && refusals.has_lapsed, "the server has answered");
        refusals.has_lapsed = false;
        refusals.on_taken(stream(0, 1));
        assert!(!refusals.has_lapsed, "there was none");
        refusals.on_status(stream(0, 1), &refused);
        refusals.on_left_open(stream(0, 1), |_| false);
        assert!(refusals.is_none() && refusals.has_lapsed);
    }

    #[test]
    fn a_client_without_the_header_has_a_view_that_can_be_refused_and_a_key_without_headers_none() {
        let refused = status(code::PERMISSION_DENIED);
        assert!(of_headers().on_status(stream(0, 0), &refused), "whatever its clients show");
        assert!(!Refusals::of(&KeyRule::default()).on_status(stream(0, 0), &refused));
    }

    #[test]
    fn a_server_counts_wherever_its_ladder_is_and_one_of_another_authority_only_where_nothing_else_is_requested() {
        let own = Authority::of(&"xdstp://x/envoy.config.cluster.v3.Cluster/a".into());
        let ladder = |authority, state, servers| LadderSummary {
            authority,
            state,
            since: Moment::START,
            switches: Default::default(),
            server: None,
            servers,
        };
        let top = |state| ladder(&Authority::TopLevel, state, &[4, 2]);
        let other = || ladder(&own, LadderState::Active(0), &[7]);
        let states = [
            LadderState::Trying(0),
            LadderState::Trying(1),
            LadderState::Active(1),
            LadderState::Cached(0),
            LadderState::Down,
        ];
        for state in states {
            let ladders = [top(state), other()];
            let counts = [4, 2, 7, 9].map(|server| counts_in(&ladders, server));
            assert_eq!(counts, [true, true, false, false], "{state:?}");
        }
        let ladders = [top(LadderState::Idle), other()];
        assert_eq!([4, 7].map(|server| counts_in(&ladders, server)), [false, true]);
    }
}
