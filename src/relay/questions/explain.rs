//! Why a client has or lacks a resource: what its session, its view, and the other resources of that view show.

use tokio::time::Instant;
use weir_core::xds::WILDCARD;

use super::measure::{Answers, PATIENCE, ask_together};
use crate::relay::command::ask;
use crate::relay::inspection::{self, Inspection};
use crate::relay::report::{Around, Books, ExplainQuery, Explanation, OtherViews, Reason, Search, WaitRow};
use crate::relay::session_handle::{SessionHandle, report};
use crate::relay::views::Views;

/// The answers of other views that may have a resource: the name of each view that has it, and the fields of its key as text.
type HavingIt = Answers<Option<(String, String)>>;

/// Returns for each open stream why the client has or lacks a resource.
pub(crate) async fn explain(views: &Views, query: &ExplainQuery) -> Vec<Explanation> {
    let (mut explanations, mut having_it) = (Vec::new(), None);
    for session in &query.sessions {
        explanations.extend(explain_one(views, *session, query, &mut having_it).await);
    }
    explanations
}

/// Explains one stream. Other views are asked once, for the first stream that lacks the resource.
async fn explain_one(
    views: &Views,
    session_id: u64,
    query: &ExplainQuery,
    having_it: &mut Option<HavingIt>,
) -> Option<Explanation> {
    let ExplainQuery { sessions: _, kind, name } = query;
    let handle = views.clients().get(session_id)?;
    let client = handle.client();
    let asked = (kind.clone(), name.clone());
    let view = match handle.view_task() {
        Some(task) => ask(&task, move |view| inspection::explain(view, &asked.0, &asked.1)).await,
        None => None,
    };
    let view = view.as_ref();
    // The view may be of an earlier configuration, which has other servers.
    let servers = view.map_or(&[][..], |view| &view.servers);
    // Read after the view's answer, so that what the view has released meanwhile is seen at the client.
    let (verdict, mut reasons, book_waits, set, around) = if name.as_str() == WILDCARD {
        let book = report::explain_set(&handle, kind);
        (book.verdict(), book.reasons(view), book.waits.clone(), book.set(view), Around::default())
    } else {
        let session = report::explain(&handle, kind, name);
        let mut around = look_around(views, &handle, query, view.and_then(|view| view.references)).await;
        if session.lacks_it() {
            around.other_views = other_views(views, &client.key, query, having_it).await;
        }
        let books = Books { session: &session, view, around: &around, servers };
        (books.verdict(), books.reasons(), session.waits.clone(), books.set(), around)
    };
    reasons.extend(views.incidents().audits.last(&client.key).and_then(|of| Reason::of_audit(&of)));
    let of_view = view.iter().flat_map(|view| &view.waits).map(|wait| (wait, None));
    let of_session = book_waits.iter().map(|wait| (wait, Some(session_id)));
    let waits = of_view.chain(of_session);
    Some(Explanation {
        session: session_id,
        node: client.node_id.clone(),
        view: client.key.clone(),
        kind: kind.name().to_owned(),
        name: name.to_string(),
        verdict,
        set,
        around,
        reasons,
        waits: waits.map(|(wait, session)| WaitRow::of(wait, &client.key, session, servers)).collect(),
    })
}

/// Looks around a name in the newest snapshot of a view. There may be very many names: the search must not block the runtime.
async fn look_around(views: &Views, handle: &SessionHandle, query: &ExplainQuery, counted: Option<usize>) -> Around {
    let (kind, name) = (query.kind.clone(), query.name.clone());
    let search = Search { kind, name, counted, state: handle.newest(), types: views.types().clone() };
    tokio::task::spawn_blocking(move || search.run()).await.unwrap_or_default()
}

/// Returns which other views have a resource. There may be very many views: they are asked together, once for all streams.
async fn other_views(views: &Views, own: &str, query: &ExplainQuery, having_it: &mut Option<HavingIt>) -> OtherViews {
    if having_it.is_none() {
        let (kind, name) = (query.kind.clone(), query.name.clone());
        let question = move |view: &Inspection<'_>| inspection::words_if_present(view, &kind, &name);
        *having_it = Some(ask_together(views.tasks(), Instant::now() + PATIENCE, question).await);
    }
    let Some(Answers { of, left_out }) = having_it else { return OtherViews::default() };
    let mut found = OtherViews::leaving_out(*left_out);
    of.iter().flatten().filter(|(view, _)| view != own).for_each(|(view, words)| found.add(view, words));
    found
}
