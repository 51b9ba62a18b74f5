//! Periodic work over all views: removing idle views, and logging what concerns many clients.

use std::time::{Duration, Instant};

use weir_core::xds::Type;

use super::nack_watch::NackNews;
use super::questions::nack_reports;
use super::report::{NackQuery, NackReport};
use super::views::Views;

/// Removes views that were idle for `views.idle_timeout`, or for as long as they were in use, with their upstream streams. Never returns.
pub(crate) async fn retire_idle(views: &Views, after: Duration) {
    let mut ticks = tokio::time::interval(after.clamp(Duration::from_millis(100), LOOKS_EVERY));
    loop {
        ticks.tick().await;
        with_hub(views).for_each(|views| views.retire(after));
        views.watch_split();
        log_nacks(views).await;
    }
}

/// Writes a line for each view and type with news of NACKs. News beyond the limit of lines waits for the next time.
async fn log_nacks(views: &Views) {
    let (now, mut left, mut found) = (Instant::now(), MOST_LINES, Vec::new());
    for views in with_hub(views) {
        let news = views.take_nack_news(now, left);
        left -= news.iter().map(|(_, news)| news.len()).sum::<usize>();
        found.extend(news);
    }
    for (task, news) in found {
        for (kind, news) in news {
            let query = NackQuery { kind: Some(kind.clone()), ..NackQuery::default() };
            let (view, reports) = nack_reports(&task, &query).await;
            log(&view, &kind, reports.first(), news);
        }
    }
}

fn with_hub(views: &Views) -> impl Iterator<Item = &Views> {
    [Some(views), views.hub().map(|hub| &**hub)].into_iter().flatten()
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

const LOOKS_EVERY: Duration = Duration::from_secs(5);
/// Lines about NACKs over all views each time.
const MOST_LINES: usize = 20;
