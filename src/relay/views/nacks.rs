//! What clients NACK, over all views, the hub's last.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::mpsc;

use super::Views;
use crate::relay::command::{Command, ask};
use crate::relay::nack_watch::{NackNews, NackWatch};
use crate::relay::report::{NackPage, NackQuery, NackReport};
use crate::xds::Type;

/// A view with the types that are worth a log line.
type ViewNews = (mpsc::Sender<Command>, Vec<(Type, NackNews)>);

impl Views {
    /// Returns how clients answer, by view and type.
    pub(crate) async fn nacks(&self, query: NackQuery) -> NackPage {
        let mut page = NackPage::default();
        for owner in self.owners() {
            let (_, reports) = reports(&owner, &query).await;
            query.add(reports, &mut page);
        }
        page
    }

    /// Returns how many streams NACK a version of each type. Types that are not known count as one, since clients can invent them.
    pub(crate) fn nacking_streams(&self) -> BTreeMap<String, usize> {
        let mut streams: BTreeMap<_, _> = self.table.names().map(|name| (name.to_owned(), 0)).collect();
        let hub = self.shown_hub();
        let of_hub = hub.iter().flat_map(|hub| hub.nack_watches());
        let watches: Vec<_> = self.nack_watches().into_iter().chain(of_hub).collect();
        for (kind, count) in watches.iter().flat_map(|watch| watch.streams()) {
            let name = if self.table.knows(kind.name()) { kind.name() } else { OTHER };
            *streams.entry(name.to_owned()).or_default() += count;
        }
        streams
    }

    /// Writes a line for each view and type with news of NACKs, and leaves what is too much for the next time.
    pub(super) async fn log_nacks(&self) {
        for (owner, news) in self.nack_news() {
            for (kind, news) in news {
                let query = NackQuery { kind: Some(kind.clone()), ..NackQuery::default() };
                let (view, reports) = reports(&owner, &query).await;
                log(&view, &kind, reports.first(), news);
            }
        }
    }

    fn nack_news(&self) -> Vec<ViewNews> {
        let (now, mut left, mut found) = (Instant::now(), MOST_LINES, Vec::new());
        for views in [Some(self), self.hub.as_deref()].into_iter().flatten() {
            for view in views.lock().iter() {
                let news = view.nacks.take_news(now, left);
                left -= news.len();
                if !news.is_empty() {
                    found.push((view.commands.clone(), news));
                }
            }
        }
        found
    }

    fn nack_watches(&self) -> Vec<Arc<NackWatch>> {
        let mut watches: Vec<_> = self.lock().iter().map(|view| view.nacks.clone()).collect();
        watches.extend(self.before().iter().flat_map(|earlier| earlier.nack_watches()));
        watches
    }
}

/// Returns the name of a view and its reports. They are made outside of its task, and of the runtime: there may be very many sessions.
async fn reports(owner: &mpsc::Sender<Command>, query: &NackQuery) -> (String, Vec<NackReport>) {
    let (Some(view), query) = (ask(owner, |view| view.sessions()).await, query.clone()) else {
        return Default::default();
    };
    let reports = tokio::task::spawn_blocking(move || {
        let reports = query.reports(&view);
        (view.view, reports)
    });
    reports.await.unwrap_or_default()
}

fn log(view: &str, kind: &Type, report: Option<&NackReport>, news: NackNews) {
    let type_url = kind.name();
    let clients = report.map_or(0, |report| report.clients);
    if news == NackNews::Over {
        tracing::info!(view, type_url, clients, "no client NACKs this type any more");
        return;
    }
    let Some(report) = report.filter(|report| report.nacked > 0) else { return }; // it has ended meanwhile
    let NackReport { acked, nacked, pending, .. } = report;
    let Some(first) = report.versions.first() else { return };
    let suspected: Vec<_> = first.suspected.iter().map(|suspect| suspect.name.as_str()).collect();
    let (version, suspected) = (&first.version, suspected.join(", "));
    let error = first.reasons.first().map(|reason| reason.reason.as_str()).unwrap_or_default();
    let is_newest = first.newest > 0;
    let message = if news == NackNews::Began { "clients NACK a version" } else { "clients still NACK a version" };
    tracing::warn!(view, type_url, version, is_newest, nacked, clients, acked, pending, suspected, error, "{message}");
}

/// Lines over all views each time.
const MOST_LINES: usize = 20;
/// The label for unknown types.
const OTHER: &str = "other";
