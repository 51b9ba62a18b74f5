//! The session of one client stream: applies requests, and makes the replies of its subscriptions in order, from a leased snapshot.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::acks::{Ack, AnswerEffect, NackChange};
use super::beginning::Beginning;
use super::burst::{SendOrder, SessionLease};
use super::client::{Client, Identity, Variant};
use super::reply::{Draft, Reply, ReplyContext, SentReply};
use super::reports::{Footprint, SessionReport};
use super::requested_names::Authorities;
use super::requests::{RequestContext, Requests, answered_type, meant_type};
use super::subscription::Subscriptions;
use super::uncounted::Uncounted;
use super::{BadRequest, CloseReason, FetchResult, Step};
use crate::proto::Request;
use crate::protocol::moment::Moment;
use crate::protocol::server_status::ServerStatus;
use crate::protocol::session::options::SessionOptions;
use crate::protocol::view::{
    Claim, InterestChange, LeaseAccess, NameChanged, NamedError, NoRoom, RefusedName, Snapshot,
};
use crate::protocol::wait::WaitList;
use crate::xds::{HeldVersions, MemberNode, Name, Type, TypeTable};

/// The state of one client stream.
#[derive(Debug)]
pub struct Session {
    client: Client,
    identity: Option<Identity>,
    requests: Requests,
    subscriptions: Subscriptions,
    order: SendOrder,
    lease: SessionLease,
    uncounted: Uncounted,
    claims: Vec<Claim>,
    beginning: Beginning,
    end: Option<CloseReason>,
    /// The last poll left nothing that an ACK or NACK of the client could release.
    at_rest: bool,
    table: Arc<TypeTable>,
    options: Arc<SessionOptions>,
}

impl Session {
    /// Starts a session without subscriptions.
    pub fn new(client: Client, table: Arc<TypeTable>, options: Arc<SessionOptions>) -> Self {
        Self {
            client,
            identity: None,
            requests: Requests::default(),
            subscriptions: Subscriptions::new(),
            order: SendOrder::default(),
            lease: SessionLease::default(),
            uncounted: Uncounted::default(),
            claims: Vec::new(),
            beginning: Beginning::default(),
            end: None,
            at_rest: false,
            table,
            options,
        }
    }

    /// Lets the client subscribe to names of these authorities, beside old-style names.
    pub fn with_authorities(self, authorities: Authorities) -> Self {
        Self { requests: Requests::of_authorities(authorities), ..self }
    }

    /// Ends the stream if a later node leads to another key.
    pub fn with_identity(self, identity: Identity) -> Self {
        Self { identity: Some(identity), ..self }
    }

    /// Applies a request: its subscriptions and its ACK or NACK.
    pub fn on_request(&mut self, request: Request, now: Moment) -> Option<Ack> {
        self.on_request_stating(request, None, now)
    }

    /// Applies a request whose `initial_resource_versions` were taken out of it.
    pub fn on_request_stating(&mut self, request: Request, stated: Option<HeldVersions>, now: Moment) -> Option<Ack> {
        let was_at_rest = std::mem::take(&mut self.at_rest);
        let later_node = self.identity.as_mut().zip(request.node());
        self.end = self.end.take().or_else(|| later_node.and_then(|(identity, node)| identity.end_by(node)));
        if self.end.is_some() {
            return None;
        }
        let (kind, states) = (answered_type(&request, &self.client, &self.table), stated.is_some());
        let mut context = RequestContext {
            client: &self.client,
            table: &self.table,
            options: &self.options,
            now,
            subscriptions: &mut self.subscriptions,
            order: &mut self.order,
            interest: self.uncounted.changes(),
        };
        match self.requests.apply(request, stated, &mut context) {
            Ok(answer) => {
                if states {
                    self.end_if_refused(); // the store may have refused the versions while the request waited
                }
                let nothing_new = !self.uncounted.are_any() && matches!(answer, Some(Ack::Ack { .. }));
                let of = kind.and_then(|kind| self.subscriptions.get(&kind));
                self.at_rest = was_at_rest && nothing_new && of.is_some_and(|of| of.has_nothing_to_send());
                answer
            }
            Err(bad) => {
                self.end = Some(CloseReason::BadRequest(bad));
                None
            }
        }
    }

    /// Records that the server ends streams which request a type. This stream ends too if it is for that type alone, or if the options say so.
    pub fn on_type_refused(&mut self, kind: &Type, status: &ServerStatus) {
        if self.client.ends_by_refusal(kind, self.options.on_refused_type) {
            self.end.get_or_insert(CloseReason::TypeRefused(Box::new(status.clone())));
        }
    }

    /// Records that the server refuses what it is shown of this view. The next poll ends the stream of a relay, or of a client that has had no reply.
    pub fn on_view_refused(&mut self, status: &ServerStatus) {
        self.beginning.on_view_refused(status);
    }

    /// Ends the stream if the store has no room for the versions that it stated. They are not compared, so the client is sent no removal.
    pub fn end_if_refused(&mut self) {
        let Some(limit) = self.subscriptions.values().find_map(|of| of.refused_above()) else { return };
        self.end.get_or_insert(CloseReason::BadRequest(BadRequest::TooManyStatedVersions(limit)));
        self.subscriptions.values_mut().for_each(|of| of.forget_initial_versions());
    }

    /// Makes a name pending, because it has changed in the view. Once the stream has to end, nothing is added any more.
    pub fn on_name_changed(&mut self, mark: &NameChanged) {
        if self.end.is_some() || !self.client.clearance.allows(&mark.kind, &mark.name) {
            return; // of names that the client may not have, only members of collections are reported: others are never requested from the view
        }
        let (limit, reached) = (self.options.names, self.lease.reached());
        let Some(subscription) = self.subscriptions.get_mut(&mark.kind) else { return };
        if let Some(class) = mark.claimed {
            return subscription.on_claim_answered(class, &mark.name, mark.revision, reached);
        }
        self.lease.note_forgotten(subscription.on_name_changed(mark, reached));
        let is_too_long = subscription.longest_list() > limit;
        self.end = is_too_long.then_some(CloseReason::BadRequest(BadRequest::TooManyNames(limit)));
    }

    /// Records names for which the view has no room. They stay requested. A client that reads errors is sent one for each name.
    pub fn on_names_refused(&mut self, names: &[RefusedName]) {
        let mut errors = BTreeMap::<NoRoom, Arc<NamedError>>::new();
        for RefusedName { kind, name, why } in names {
            let error = self.client.errors.then(|| &*errors.entry(*why).or_insert_with(|| Arc::new(why.error())));
            let Some(subscription) = self.subscriptions.get_mut(kind) else { continue };
            subscription.on_name_refused(name.clone(), error);
        }
    }

    /// Returns the changes of interest since the last call. The caller gives them to the view, and reports when the view has counted them.
    pub fn take_interest(&mut self) -> Vec<InterestChange> {
        self.take_interest_part(usize::MAX)
    }

    /// Like [`Self::take_interest`], but returns at most `most` changes.
    pub fn take_interest_part(&mut self, most: usize) -> Vec<InterestChange> {
        self.uncounted.take(most)
    }

    /// Returns whether a request changed something that the view task needs to know.
    pub fn has_news_for_view(&self) -> bool {
        self.uncounted.are_any()
    }

    /// Records that the view has counted the changes of one [`Self::take_interest`] or part, and has reported their names.
    pub fn on_interest_applied(&mut self) {
        self.uncounted.on_counted(&mut self.subscriptions);
    }

    /// Returns what the client newly holds that the view does not know, since the last call. The view requests it from servers.
    pub fn take_claims(&mut self) -> Vec<Claim> {
        std::mem::take(&mut self.claims)
    }

    /// Takes back claims that could not be delivered.
    pub fn return_claims(&mut self, claims: Vec<Claim>) {
        self.claims.extend(claims);
    }

    /// Takes back claims for which the view has no room.
    pub fn on_claims_refused(&mut self, claims: Vec<Claim>) {
        for Claim { kind, of } in claims {
            let Some(subscription) = self.subscriptions.get_mut(&kind) else { continue };
            subscription.on_claim_refused(of);
        }
    }

    /// Records that the view has room again: the next poll makes the refused claims again.
    pub fn on_claim_room(&mut self) {
        self.subscriptions.values_mut().for_each(|subscription| subscription.on_claim_room());
    }

    fn note_claims(&mut self, state: &Snapshot, now: Moment) {
        let view = ReplyContext { state, client: &self.client, options: &self.options, now };
        for (kind, subscription) in &mut self.subscriptions {
            let claims = subscription.take_claims(kind, &view).into_iter().flatten();
            self.claims.extend(claims.map(|of| Claim { kind: kind.clone(), of }));
        }
    }

    /// Ends every subscription. The session cannot be used afterwards.
    pub fn close(&mut self) {
        self.lease.release();
        self.claims.clear();
        self.requests.end_nacks(&mut self.subscriptions);
        for (kind, subscription) in std::mem::take(&mut self.subscriptions) {
            let off = |selector| InterestChange { kind: kind.clone(), selector, on: false };
            self.uncounted.changes().extend(subscription.selectors().map(off));
        }
    }

    /// Records that the last reply has waited this long since it was made. Changes of routing wait that much longer.
    pub fn on_late_reply(&mut self, by: std::time::Duration) {
        self.order.on_late_reply(by);
    }

    /// Returns the next reply, if there is one. To be called when the transport has accepted the last reply and something has happened.
    pub fn poll(&mut self, newest: &Arc<Snapshot>, leases: &mut impl LeaseAccess, now: Moment) -> Step {
        self.at_rest = false;
        loop {
            if let Some(end) = &self.end {
                return Step::End(end.clone());
            }
            let Some(state) = self.lease.state(leases, now).or_else(|| self.start_on(newest, leases, now)) else {
                return self.end.clone().map_or(Step::Idle(None), Step::End); // the next snapshot wakes the session
            };
            let refusal = self.beginning.take_refusal();
            if let Some(end) = self.beginning.end(refusal, self.report(), &state, now) {
                self.lease.release();
                return Step::End(end);
            }
            let view = ReplyContext { state: &state, client: &self.client, options: &self.options, now };
            let is_behind = self.uncounted.is_behind();
            match self.order.next_draft(&mut self.subscriptions, &view, self.lease.ends_at(), is_behind) {
                Ok((kind, draft)) => {
                    self.at_rest = false;
                    return Step::Reply(self.finish(&kind, draft, &state, now).into());
                }
                // The burst has sent everything, or nothing may be sent yet. In both cases it is better to go on with the newest snapshot.
                Err(pause) => {
                    self.at_rest = pause.is_at_rest;
                    self.lease.release();
                    if state.revision == newest.revision {
                        self.note_claims(&state, now);
                        self.subscriptions.values_mut().for_each(|subscription| subscription.release_room());
                        return Step::Idle(pause.until);
                    }
                }
            }
        }
    }

    /// Starts a burst on the newest snapshot. Returns `None` if the stream has to end, with the reason in `end`, or to wait for the next snapshot.
    fn start_on(
        &mut self,
        newest: &Arc<Snapshot>,
        leases: &mut impl LeaseAccess,
        now: Moment,
    ) -> Option<Arc<Snapshot>> {
        let state = self.lease.take(newest, leases, now)?;
        let view = ReplyContext { state: &state, client: &self.client, options: &self.options, now };
        let bursts = self.subscriptions.iter_mut().map(|(kind, subscription)| subscription.start_burst(kind, &view));
        let has_missed = bursts.filter(|is_whole| !is_whole).count() > 0; // not `any`, which stops early: every subscription has to begin its burst
        if self.lease.ends_by(has_missed, leases, now) {
            self.end = Some(CloseReason::HistoryExpired);
            return None;
        }
        Some(state)
    }

    fn finish(&mut self, kind: &Type, draft: Draft, state: &Snapshot, now: Moment) -> Reply {
        let (nonce, revision) = (self.beginning.next_nonce(), state.revision);
        let view = ReplyContext { state, client: &self.client, options: &self.options, now };
        self.order.on_draft(kind, &draft, nonce, &mut self.subscriptions, &self.table, &view);
        let (carried, names) = (draft.carried(), draft.names());
        let mut reply = Reply::new(kind.clone(), nonce, revision, self.client.wrappers, draft);
        (reply.progress, reply.awaits_endpoints) = (self.lease.progress(), self.order.warming() > 0);
        let is_full_set = self.client.variant == Variant::Sotw && kind.info().full_state;
        if let Some(subscription) = self.subscriptions.get_mut(kind) {
            let sent = SentReply { nonce, version: reply.version, revision, is_full_set, sent: now, carried };
            reply.lag = carried.lag(now);
            subscription.on_reply(sent, names, &mut reply, &self.options);
        }
        reply
    }

    /// Returns one reply to everything that was requested, for a client that polls (TRN-22). It waits until everything is known. With `at_last`
    /// it replies with what is known, unless the reply would delete something at the client.
    pub fn fetch(
        &mut self,
        newest: &Arc<Snapshot>,
        leases: &mut impl LeaseAccess,
        now: Moment,
        at_last: bool,
    ) -> FetchResult {
        self.subscriptions.values_mut().for_each(|subscription| subscription.ask_once());
        let awaits = self.report().is_awaiting_data(newest, now);
        if awaits && !at_last {
            self.note_claims(newest, now);
            return FetchResult::Waiting(None);
        }
        match self.poll(newest, leases, now) {
            Step::Reply(reply) => FetchResult::Reply(reply),
            Step::End(end) => FetchResult::End(end),
            Step::Idle(_) => {
                let all = !awaits && self.subscriptions.values().all(|of| of.books().names.awaiting_data_count() == 0);
                // Everything is known, and nothing is present. For a full-state type the reply would have been an empty set.
                match self.subscriptions.keys().next().filter(|kind| all && !kind.info().full_state).cloned() {
                    Some(kind) => FetchResult::Reply(self.finish(&kind, Draft::default(), newest, now).into()),
                    None if at_last => FetchResult::Unknown,
                    None => FetchResult::Waiting(None),
                }
            }
        }
    }

    /// Suspects resources whose names the NACK of a type quotes. Quoted names that the client does not subscribe to are skipped.
    pub fn suspect(&mut self, type_url: &str, nonce: u64, quoted: &[Name], state: &Snapshot) {
        let Ok((kind, _)) = meant_type(type_url, &self.client, &self.table) else { return };
        let allowed = quoted.iter().filter(|name| self.client.clearance.allows(&kind, name));
        let Some(subscription) = self.subscriptions.get_mut(&kind) else { return };
        subscription.suspect(&kind, nonce, allowed, state);
    }

    /// Returns the latest node of the client if it has changed since the last call, for servers that may be shown it.
    pub fn take_changed_node(&mut self) -> Option<MemberNode> {
        self.identity.as_mut()?.take_changed_node()
    }

    /// Returns what the last request settled by its ACK or NACK.
    pub fn take_answered(&mut self) -> Option<AnswerEffect> {
        self.requests.take_answered()
    }

    /// Returns the NACKs that began or ceased to stand since the last call.
    pub fn take_nack_changes(&mut self) -> Vec<NackChange> {
        self.requests.take_nack_changes()
    }

    /// Returns how many names could not be requested since the last call.
    pub fn take_rejected_names(&mut self) -> usize {
        self.requests.take_rejected_names()
    }

    /// Returns how many requests stayed unanswered because this stream does not serve their type.
    pub fn unsupported_requests(&self) -> usize {
        self.requests.unserved()
    }

    /// Returns the options that the session was opened with.
    pub fn options(&self) -> &SessionOptions {
        &self.options
    }

    /// Whether nothing is pending that an ACK or NACK could release: then polling again gives no reply.
    pub fn is_at_rest(&self) -> bool {
        self.at_rest
    }

    /// Returns the revision of the session's lease, which may have been revoked.
    pub fn leased_revision(&self) -> Option<crate::protocol::view::Revision> {
        self.lease.revision()
    }

    /// Whether a change of routing waits for endpoints.
    pub fn holds_routing(&self) -> bool {
        self.order.holds_routing()
    }

    /// Returns how much the session keeps.
    pub fn footprint(&self) -> Footprint {
        Footprint::of(&self.subscriptions, &self.order)
    }

    /// Adds the waits of this client to the list.
    pub fn add_waits(&self, now: Moment, list: &mut WaitList) {
        self.order.add_waits(&self.subscriptions, &self.options, now, list);
    }

    /// Returns a view of the session for reports.
    pub fn report(&self) -> SessionReport<'_> {
        let Self { client, options, requests, subscriptions, order, .. } = self;
        SessionReport::new(client, options, requests.authorities(), subscriptions, order, self.end.is_some())
    }
}
