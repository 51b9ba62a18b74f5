//! A client's way into its view, by its first request.

use std::sync::Arc;

use weir_core::proto::Request;
use weir_core::protocol::session::{Client, Identity, Variant};
use weir_core::xds::{Peer, SharingKey};

use super::map::{Entrance, RunningViews, ViewHandle};
use super::saved::WaitingView;
use super::successor::{inherited, leaves_any};
use super::{ViewQuota, Views};
use crate::relay::admission::AdmissionError;
use crate::relay::clients::ClientFacts;
use crate::relay::command::Command;
use crate::relay::key_headers::KeyHeaders;
use crate::relay::member::Member;
use crate::relay::session_handle::{SessionCharge, SessionHandle, SessionPlace, ViewCommands};
use crate::relay::shared::Shared;
use crate::relay::tenants::TenantStream;
use crate::shared_runtime;

/// A client that opens a stream, and the kind of stream.
#[derive(Debug, Clone)]
pub(crate) struct ClientInfo {
    pub(crate) variant: Variant,
    /// The type of a stream that serves only one.
    pub(crate) only: Option<&'static str>,
    /// It stays open, as opposed to a call for one response.
    pub(crate) is_stream: bool,
    pub(crate) peer: Arc<Peer>,
    /// What it has sent of the headers in the key.
    pub(crate) headers: KeyHeaders,
    /// What counts the views that it makes.
    pub(crate) quota: Arc<ViewQuota>,
}

/// Accepts a client by its first request.
pub(crate) async fn open_session(
    views: &Views,
    first: &Request,
    visit: ClientInfo,
) -> Result<Arc<SessionHandle>, AdmissionError> {
    open_session_after(None, views, first, visit).await
}

/// Does the same for a client whose session before this one has not left. For its tenant both are one stream.
pub(crate) async fn open_session_after(
    before: Option<&SessionHandle>,
    views: &Views,
    first: &Request,
    visit: ClientInfo,
) -> Result<Arc<SessionHandle>, AdmissionError> {
    let handle = try_open_session(before, views, first, &visit).await;
    let Shared { counters, client_log, .. } = views.shared();
    match &handle {
        Ok(_) => counters.stream_accepted(visit.variant),
        Err(error) => {
            counters.rejected(error);
            client_log.rejected(&visit.peer, error);
        }
    }
    handle
}

async fn try_open_session(
    before: Option<&SessionHandle>,
    views: &Views,
    first: &Request,
    visit: &ClientInfo,
) -> Result<Arc<SessionHandle>, AdmissionError> {
    views.readiness().load().awaited().await;
    for _ in 0..JOINS {
        let identity = views.identify(&visit.peer, visit.headers.hashes(), first.node())?;
        let passed_on = before.and_then(|before| before.tenant()?.pass_on(identity.key()));
        let tenant =
            if passed_on.is_some() { passed_on } else { views.shared().tenants.open_stream(identity.key())? };
        let entrance = enter(views, identity.key(), first, visit).await?;
        if let Some(status) = entrance.published.refusal() {
            return Err(AdmissionError::RefusedByServer(status));
        }
        if let Some(handle) = join(views, entrance, tenant, identity, first, visit).await {
            return Ok(handle);
        }
    }
    Err(AdmissionError::Stopping)
}

/// Looks up the view of a key, or starts it. The view is kept for as long as the result exists. A new one begins with the resources of its earlier
/// view, as they are when its first client enters: nothing that is inherited waits for a client, as the earlier view may change.
pub(super) async fn enter(
    views: &Views,
    key: &SharingKey,
    first: &Request,
    visit: &ClientInfo,
) -> Result<Entrance, AdmissionError> {
    if views.map.has(key) || !leaves_any(views, key) {
        return enter_with(None, views, key, first, visit);
    }
    let turn = views.handovers.turn(key).begins().await;
    if views.map.has(key) {
        return enter_with(None, views, key, first, visit);
    }
    views.map.find_room(key, |running| find_room(views, running, key, visit))?; // nothing is copied for those who are refused
    let (inherited, _turn) = inherited(views, key, turn).await.unzip();
    enter_with(inherited, views, key, first, visit)
}

pub(super) fn enter_with(
    inherited: Option<WaitingView>,
    views: &Views,
    key: &SharingKey,
    first: &Request,
    visit: &ClientInfo,
) -> Result<Entrance, AdmissionError> {
    let ClientInfo { quota, headers, .. } = visit;
    views.map.enter(
        key,
        |made| keep_for_others(views, made, quota),
        |running| find_room(views, running, key, visit),
        |waiting| ViewHandle::start(&views.shared, (key, headers), waiting.or(inherited), first, quota.clone()),
    )
}

fn find_room(
    views: &Views,
    running: &mut RunningViews,
    key: &SharingKey,
    visit: &ClientInfo,
) -> Result<(), AdmissionError> {
    running.find_room(&views.limits, key, &visit.quota, &views.shared.rule)
}

/// Refuses an unused view to a client with more than its part of them, if all are made and others have had no room for one.
fn keep_for_others(views: &Views, made: usize, quota: &ViewQuota) -> Result<(), AdmissionError> {
    let limit = views.limits.views;
    let yields = made >= limit && quota.account().is_some_and(|account| account.yields_view(limit));
    if yields { Err(AdmissionError::TooManyViews { limit, split: None }) } else { Ok(()) }
}

/// Returns none if the view task has ended.
pub(super) async fn join(
    views: &Views,
    entrance: Entrance,
    tenant: Option<TenantStream>,
    identity: Identity,
    first: &Request,
    visit: &ClientInfo,
) -> Option<Arc<SessionHandle>> {
    let ClientInfo { variant, only, is_stream, ref peer, .. } = *visit;
    let node = views.shared().member_node(&identity, first);
    let identity = match &node {
        Some(node) => identity.of_member(node),
        None => identity,
    };
    let Entrance { published, nacks, commands, stay } = entrance;
    let (shared, clients) = (views.shared(), views.clients().clone());
    let (node_id, user_agent) = Client::id_and_user_agent(first.node().map_or(&[][..], |node| node));
    let facts = ClientFacts {
        id: clients.next_id(),
        variant,
        node_id,
        user_agent,
        key: shared.view_id(identity.key()).to_string(),
        is_stream,
        peer: peer.clone(),
        connected: shared.clock.now(),
    };
    let place = SessionPlace {
        published,
        commands: ViewCommands::new(commands.clone()),
        nacks,
        clients,
        clock: shared.clock,
        counters: shared.counters.clone(),
        log: shared.client_log.clone(),
        charge: SessionCharge::of(visit.quota.account(), tenant, &facts, node.as_ref()),
        shard: shared_runtime::own(),
    };
    let session = views.session(identity, first, peer, variant, only);
    let handle = SessionHandle::new(facts, place, session);
    commands.send(Command::Join(Box::new(Member::new(handle.clone(), node, stay)))).await.ok()?;
    // A view task that ends after this drops the command, which ends the session.
    (!commands.is_closed()).then_some(handle)
}

/// How often a stream joins a new view if the task of the one before has panicked.
const JOINS: usize = 3;
