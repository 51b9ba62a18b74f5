//! Why a client has a resource, or lacks it: what its session, its view and what is around the name in that view show.

use weir_core::xds::WILDCARD;

use crate::relay::command::ask;
use crate::relay::inspection;
use crate::relay::report::{Around, Books, ExplainQuery, Explanation, OtherViews, Search, WaitRow};
use crate::relay::session_handle::{SessionHandle, report};
use crate::relay::views::Views;

/// Returns why a client has a resource, or lacks it; none if there is no such stream.
pub(crate) async fn explain(views: &Views, query: &ExplainQuery) -> Option<Explanation> {
    let ExplainQuery { session, kind, name } = query;
    let handle = views.clients().get(*session)?;
    let client = handle.client();
    let asked = (kind.clone(), name.clone());
    let view = ask(handle.view_task(), move |view| inspection::explain(view, &asked.0, &asked.1)).await;
    let (view, servers) = (view.as_ref(), views.servers().collect::<Vec<_>>());
    // Read after the view's: what the view has let go meanwhile is seen at the client.
    let (verdict, reasons, book_waits, set, around) = if name.as_str() == WILDCARD {
        let book = report::explain_set(&handle, kind);
        (book.verdict(), book.reasons(view), book.waits.clone(), book.set(view), Around::default())
    } else {
        let session = report::explain(&handle, kind, name);
        let mut around = look_around(views, &handle, query, view.and_then(|view| view.references)).await;
        if session.lacks_it() {
            around.other_views = other_views(views, &client.key, query).await;
        }
        let books = Books { session: &session, view, around: &around, servers: &servers };
        (books.verdict(), books.reasons(), session.waits.clone(), books.set(), around)
    };
    let of_view = view.iter().flat_map(|view| &view.waits).map(|wait| (wait, None));
    let of_session = book_waits.iter().map(|wait| (wait, Some(*session)));
    let waits = of_view.chain(of_session);
    Some(Explanation {
        session: *session,
        node: client.node_id.clone(),
        view: client.key.clone(),
        kind: kind.name().to_owned(),
        name: name.to_string(),
        verdict,
        set,
        around,
        reasons,
        waits: waits.map(|(wait, session)| WaitRow::of(wait, &client.key, session, &servers)).collect(),
    })
}

/// Looks around a name in the newest snapshot of a view. There may be very many names: the search must not block the runtime.
async fn look_around(views: &Views, handle: &SessionHandle, query: &ExplainQuery, counted: Option<usize>) -> Around {
    let (kind, name) = (query.kind.clone(), query.name.clone());
    let search = Search { kind, name, counted, state: handle.newest(), types: views.types().clone() };
    tokio::task::spawn_blocking(move || search.run()).await.unwrap_or_default()
}

/// Returns which other views have a resource.
async fn other_views(views: &Views, own: &str, query: &ExplainQuery) -> OtherViews {
    let mut found = OtherViews::default();
    for task in views.tasks() {
        let (kind, name) = (query.kind.clone(), query.name.clone());
        let words = ask(&task, move |view| inspection::words_if_present(view, &kind, &name)).await.flatten();
        if let Some((view, words)) = words.filter(|(view, _)| view != own) {
            found.add(&view, &words);
        }
    }
    found
}
