//! Client streams, page by page, and what is known of one of them.

use std::sync::Arc;

use super::Views;
use crate::relay::report::{
    ClientPage, ClientQuery, ClientReport, ExplainQuery, Explanation, Verdict, ViewBook, WaitRow, reasons,
};
use crate::relay::session_handle::SessionHandle;

impl Views {
    /// Returns a page of client streams. What it costs does not depend on how many others there are, unless a filter leaves out most of them.
    pub(crate) async fn clients(&self, query: &ClientQuery) -> ClientPage {
        let mut page = ClientPage { open: self.clients.len(), ..ClientPage::default() };
        let mut after = query.after;
        loop {
            let chunk = self.clients.after(after, CHUNK);
            let Some(last) = chunk.last() else { return page };
            after = last.id.0;
            for session in &chunk {
                if let Some(client) = reported(session, query) {
                    page.clients.push(client);
                    if page.clients.len() == query.limit {
                        page.next = Some(session.id.0);
                        return page;
                    }
                }
            }
            drop(chunk);
            tokio::task::yield_now().await;
        }
    }

    /// Returns the clients that have lacked something for longest.
    pub(crate) async fn laggards(&self, query: &ClientQuery) -> ClientPage {
        let mut page = ClientPage { open: self.clients.len(), ..ClientPage::default() };
        let mut after = 0;
        loop {
            let chunk = self.clients.after(after, CHUNK);
            let Some(last) = chunk.last() else { return page };
            after = last.id.0;
            let behind = chunk.iter().filter_map(|session| reported(session, query)).filter(ClientReport::is_behind);
            page.clients.extend(behind);
            page.clients.sort_by(|one, other| other.lag().total_cmp(&one.lag()));
            page.clients.truncate(query.limit);
            drop(chunk);
            tokio::task::yield_now().await;
        }
    }

    /// Returns the streams of a node.
    pub(crate) async fn sessions_of(&self, node: &str, limit: usize) -> Vec<u64> {
        let (mut sessions, mut after) = (Vec::new(), 0);
        loop {
            let chunk = self.clients.after(after, CHUNK);
            let Some(last) = chunk.last() else { return sessions };
            after = last.id.0;
            let of_node = chunk.iter().filter(|session| session.node_id == node).map(|session| session.id.0);
            sessions.extend(of_node.take(limit - sessions.len()));
            if sessions.len() == limit {
                return sessions;
            }
            drop(chunk);
            tokio::task::yield_now().await;
        }
    }

    /// Returns one client stream.
    pub(crate) fn client(&self, session: u64) -> Option<Arc<SessionHandle>> {
        self.clients.get(session)
    }

    /// Returns why a client has a resource, or lacks it; none if there is no such stream.
    pub(crate) async fn explain(&self, query: &ExplainQuery) -> Option<Explanation> {
        let ExplainQuery { session, kind, name } = query;
        let client = self.clients.get(*session)?;
        let view = self.view_book(&client, query).await;
        // Read after the view's: what the view has let go meanwhile is seen at the client.
        let book = client.explain(kind, name);
        let servers: Vec<_> = self.servers().collect();
        let of_view = view.iter().flat_map(|view| &view.waits).map(|wait| (wait, None));
        let of_session = book.waits.iter().map(|wait| (wait, Some(*session)));
        let waits = of_view.chain(of_session);
        Some(Explanation {
            session: *session,
            node: client.node_id.clone(),
            view: client.key.clone(),
            kind: kind.name().to_owned(),
            name: name.to_string(),
            verdict: Verdict::of(&book.name),
            reasons: reasons(&book, view.as_ref(), &servers),
            waits: waits.map(|(wait, session)| WaitRow::of(wait, &client.key, session, &servers)).collect(),
        })
    }

    async fn view_book(&self, client: &SessionHandle, query: &ExplainQuery) -> Option<ViewBook> {
        let (kind, name) = (query.kind.clone(), query.name.clone());
        client.ask_view(move |view| view.explain(&kind, &name)).await
    }
}

fn reported(session: &SessionHandle, query: &ClientQuery) -> Option<ClientReport> {
    let identity = session.peer.identity();
    let is_meant = query.takes(&session.node_id, identity.as_deref(), &session.key);
    is_meant.then(|| session.report()).and_then(|client| query.narrow(client))
}

/// How many streams are looked at between two turns of other tasks.
const CHUNK: usize = 256;
