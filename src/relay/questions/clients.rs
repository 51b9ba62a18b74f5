//! Questions of operators about client streams: page by page, all in one summary, and about one of them.

use std::sync::Arc;

use weir_core::xds::nearest_few;

use super::CHUNK;
use crate::relay::clients::Clients;
use crate::relay::report::{
    Census, ClientHoldings, ClientPage, ClientQuery, ClientReport, DifferenceReport, HoldingsSource as _,
};
use crate::relay::session_handle::{SessionHandle, report, tapping};
use crate::relay::taps::{OpenedStream, TapReader, TappedClient};
use crate::relay::views::Views;

/// Visits all client streams from a number on, in chunks, until `visit` returns true. Between chunks, other tasks have their turns.
async fn walk(clients: &Clients<SessionHandle>, from: u64, mut visit: impl FnMut(&[Arc<SessionHandle>]) -> bool) {
    let mut after = from;
    loop {
        let chunk = clients.after(after, CHUNK);
        let Some(last) = chunk.last() else { return };
        after = last.client().id.0;
        if visit(&chunk) {
            return;
        }
        drop(chunk);
        tokio::task::yield_now().await;
    }
}

/// Returns a page of client streams. Its cost does not depend on the number of other streams, unless a filter leaves out most of them.
pub(crate) async fn clients(views: &Views, query: &ClientQuery) -> ClientPage {
    let clients = views.clients();
    let mut page = ClientPage { open: clients.len(), ..ClientPage::default() };
    walk(clients, query.after, |chunk| {
        for session in chunk {
            if let Some(client) = reported(session, query) {
                page.clients.push(client);
                if page.clients.len() == query.limit {
                    page.next = Some(session.client().id.0);
                    return true;
                }
            }
        }
        false
    })
    .await;
    page
}

/// Returns the clients that have lacked something for longest.
pub(crate) async fn laggards(views: &Views, query: &ClientQuery) -> ClientPage {
    let clients = views.clients();
    let mut page = ClientPage { open: clients.len(), ..ClientPage::default() };
    walk(clients, 0, |chunk| {
        let behind = chunk.iter().filter_map(|session| reported(session, query)).filter(ClientReport::is_behind);
        page.clients.extend(behind);
        page.clients.sort_by(|one, other| other.lag().total_cmp(&one.lag()));
        page.clients.truncate(query.limit);
        false
    })
    .await;
    page
}

/// Returns the streams of a node.
pub(crate) async fn sessions_of(views: &Views, node: &str, limit: usize) -> Vec<u64> {
    let mut sessions = Vec::new();
    walk(views.clients(), 0, |chunk| {
        let of_node = chunk.iter().map(|session| session.client()).filter(|client| client.node_id == node);
        sessions.extend(of_node.map(|client| client.id.0).take(limit - sessions.len()));
        sessions.len() == limit
    })
    .await;
    sessions
}

/// Returns the ids of connected nodes that differ from a given one by a letter or two.
pub(crate) async fn similar_nodes(views: &Views, node: &str) -> Vec<String> {
    let mut similar: Vec<String> = Vec::new();
    walk(views.clients(), 0, |chunk| {
        let ids = chunk.iter().map(|session| session.client().node_id.as_str());
        let nearest = nearest_few(node, ids.chain(similar.iter().map(String::as_str)), MAX_TYPOS, SIMILAR);
        similar = nearest.into_iter().map(str::to_owned).collect();
        false
    })
    .await;
    similar
}

/// Opens a tap on a client: the stream with this number, or all streams of a node, also those that come. Returns it with the streams that are
/// open; none if there are too many taps.
pub(crate) async fn tap(views: &Views, client: &str, whole: bool) -> Option<(TapReader, Vec<OpenedStream>)> {
    let clients = views.clients();
    let session = client.parse().ok().and_then(|id| clients.get(id));
    if let Some(handle) = session {
        let tap = clients.taps().open(TappedClient::Session(handle.client().id.0), whole)?;
        tapping::mark(&handle);
        return Some((tap, vec![tapping::opened(&handle)]));
    }
    let tap = clients.taps().open(TappedClient::Node(client.to_owned()), whole)?;
    let mut streams = Vec::new();
    walk(clients, 0, |chunk| {
        for session in chunk.iter().filter(|session| session.client().node_id == client) {
            tapping::mark(session);
            streams.push(tapping::opened(session));
        }
        false
    })
    .await;
    Some((tap, streams))
}

/// Counts all client streams, and keeps so many of those that have been behind for longest.
pub(crate) async fn census(views: &Views, laggards: usize) -> (Census, Vec<ClientReport>) {
    let (clients, mut census) = (views.clients(), Census::with_laggards(laggards));
    walk(clients, 0, |chunk| {
        chunk.iter().for_each(|session| report::count_in(session, &mut census));
        false
    })
    .await;
    let sessions = census.laggards().into_iter().filter_map(|session| clients.get(session));
    let reports = sessions.map(|session| report::report(&session)).collect();
    (census, reports)
}

/// Returns one client.
pub(crate) fn client(views: &Views, session: u64) -> Option<ClientReport> {
    Some(report::report(&*views.clients().get(session)?))
}

pub(crate) fn is_open(views: &Views, session: u64) -> bool {
    views.clients().get(session).is_some()
}

/// Compares what a client was sent with the present state for it.
pub(crate) fn differences(views: &Views, session: u64) -> Option<DifferenceReport> {
    Some(report::differences(&*views.clients().get(session)?))
}

/// Returns what the client of the stream with this number was sent.
pub(crate) async fn client_of(views: &Views, session: u64) -> Option<ClientHoldings> {
    let client = views.clients().get(session)?;
    tokio::task::spawn_blocking(move || client.holdings()).await.ok()
}

fn reported(session: &SessionHandle, query: &ClientQuery) -> Option<ClientReport> {
    let client = session.client();
    let identity = client.peer.identity();
    let is_meant = query.takes(&client.node_id, identity.as_deref(), &client.key);
    is_meant.then(|| report::report(session)).and_then(|client| query.narrow(client))
}

/// How many ids are suggested, and by how many letters they may differ.
const SIMILAR: usize = 3;
const MAX_TYPOS: usize = 2;
