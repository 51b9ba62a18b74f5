//! Questions of operators over all views, in this order: views of clients, those of an earlier configuration, and then the hub's view.

mod clients;
mod explain;
mod measure;

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

pub(crate) use self::clients::{
    census, client, client_of, clients, differences, is_open, laggards, sessions_of, similar_nodes, tap,
};
pub(crate) use self::explain::explain;
pub(crate) use self::measure::{Measured, look_at_waits, measure, metrics};
use super::command::{Command, ask};
use super::incidents::AnsweringViews;
use super::inspection;
use super::report::{
    AnswersSource, BrakesReport, Dangling, DanglingClusters, NackPage, NackQuery, NackReport, ReleaseQuery, Released,
    ResourcePage, ResourceQuery, ViewReport, ViewSnapshot, WaitReport,
};
use super::session_handle::report::add_waits;
use super::views::Views;

/// Returns the reports of every view.
pub(crate) async fn report(views: &Views) -> Vec<ViewReport> {
    let mut reports = Vec::new();
    for task in tasks(views) {
        reports.extend(ask(&task, inspection::report).await);
    }
    reports
}

/// Returns what the views know of resources.
pub(crate) async fn resources(views: &Views, query: ResourceQuery) -> ResourcePage {
    let mut snapshots = Vec::new();
    for task in tasks(views) {
        snapshots.extend(ask(&task, inspection::snapshot).await);
    }
    // There may be very many resources: the search must not block the runtime.
    tokio::task::spawn_blocking(move || query.page(&snapshots)).await.unwrap_or_default()
}

/// Returns, by view, the clusters that routing refers to and that do not exist.
pub(crate) async fn dangling(views: &Views) -> Vec<Dangling> {
    let mut dangling = Vec::new();
    for task in tasks(views) {
        let clusters = ask(&task, inspection::dangling).await;
        dangling.extend(clusters.into_iter().flat_map(DanglingClusters::explained));
    }
    dangling
}

/// Returns what the brakes of all views hold.
pub(crate) async fn brakes(views: &Views) -> BrakesReport {
    let mut sets = Vec::new();
    if views.incidents().brakes.views() == 0 {
        return BrakesReport::default(); // no view is asked
    }
    for task in tasks(views) {
        sets.extend(ask(&task, inspection::brakes).await.into_iter().flatten());
    }
    BrakesReport::of(sets)
}

/// Releases the held removals that an operator names.
pub(crate) async fn release(views: &Views, query: &ReleaseQuery) -> Released {
    let mut sum = Released::default();
    for task in tasks(views) {
        let (to, from) = oneshot::channel();
        if task.send(Command::Release(query.clone(), to)).await.is_ok()
            && let Ok(Released { removals, views, later }) = from.await
        {
            sum.removals += removals;
            sum.views += views;
            sum.later += later;
        }
    }
    sum
}

/// Returns all waits, with so many of the oldest. A wait beyond its bound is counted when it is first seen.
pub(crate) async fn waits(views: &Views, limit: usize) -> WaitReport {
    let mut report = WaitReport::keeping(limit);
    for task in tasks(views) {
        if let Some(of) = ask(&task, move |view| inspection::waits(view, limit)).await {
            report.add(&of.view, None, &of.servers, of.list);
        }
    }
    add_session_waits(views, &mut report).await;
    views.incidents().waits.note(&report.beyond, &AnsweringViews::All);
    report
}

/// Adds the waits of sessions. Other tasks have their turns meanwhile.
async fn add_session_waits(views: &Views, report: &mut WaitReport) {
    let clients = views.clients();
    for chunk in clients.waiting().chunks(CHUNK) {
        let sessions = chunk.iter().filter_map(|session| clients.get(*session));
        sessions.for_each(|session| add_waits(&session, report));
        tokio::task::yield_now().await;
    }
}

/// Returns how clients answer, by view and type.
pub(crate) async fn nacks(views: &Views, query: NackQuery) -> NackPage {
    let mut page = NackPage::default();
    for task in tasks(views) {
        let (_, reports) = nack_reports(&task, &query).await;
        query.add(reports, &mut page);
    }
    page
}

/// Returns the name of a view and its reports. They are made outside of its task, and of the runtime: there may be very many sessions.
pub(super) async fn nack_reports(view: &mpsc::Sender<Command>, query: &NackQuery) -> (String, Vec<NackReport>) {
    let (Some(view), query) = (ask(view, inspection::sessions).await, query.clone()) else {
        return Default::default();
    };
    let reports = tokio::task::spawn_blocking(move || {
        let reports = query.reports(&view);
        (view.view, reports)
    });
    reports.await.unwrap_or_default()
}

/// Returns how many streams NACK a version of each type. Types that are not known count as one, since clients can invent them.
pub(crate) fn nacking_streams(views: &Views) -> BTreeMap<String, usize> {
    let types = views.types();
    let mut streams: BTreeMap<_, _> = types.names().map(|name| (name.to_owned(), 0)).collect();
    let hub = views.shown_hub();
    let of_hub = hub.iter().flat_map(|hub| hub.nack_watches());
    let watches: Vec<_> = views.nack_watches().into_iter().chain(of_hub).collect();
    for (kind, count) in watches.iter().flat_map(|watch| watch.streams()) {
        let name = if types.knows(kind.name()) { kind.name() } else { OTHER };
        *streams.entry(name.to_owned()).or_default() += count;
    }
    streams
}

/// Returns the number of unanswered liveness calls, by server.
pub(crate) fn unanswered_calls(views: &Views) -> impl Iterator<Item = (String, u64)> {
    let connectors = views.shared().connectors.iter();
    connectors.filter_map(|connector| Some((connector.describe(), connector.unanswered_calls()?)))
}

/// Returns the number of connections to servers with streams, by server.
pub(crate) fn upstream_connections(views: &Views) -> impl Iterator<Item = (String, usize)> {
    let connectors = views.shared().connectors.iter();
    connectors.filter_map(|connector| Some((connector.describe(), connector.connections()?)))
}

/// A view that can be dumped.
pub(crate) struct DumpSource(mpsc::Sender<Command>);

/// Returns all views, the hub's last.
pub(crate) fn dump_sources(views: &Views) -> Vec<DumpSource> {
    tasks(views).into_iter().map(DumpSource).collect()
}

/// Returns the state of a view by the hash of its key.
pub(crate) async fn snapshot_of(views: &Views, view: &str) -> Option<ViewSnapshot> {
    for task in tasks(views) {
        if let Some(found) = ask(&task, inspection::snapshot).await.filter(|found| found.view == view) {
            return Some(found);
        }
    }
    None
}

impl DumpSource {
    /// Returns the report and the state of the view. None if it has ended.
    pub(crate) async fn view(&self) -> Option<(ViewReport, ViewSnapshot)> {
        ask(&self.0, |view| (inspection::report(view), inspection::snapshot(view))).await
    }

    /// Returns the sessions of the view.
    pub(crate) async fn clients(&self) -> Vec<Arc<dyn AnswersSource>> {
        ask(&self.0, |view| inspection::sessions(view).sessions).await.unwrap_or_default()
    }
}

/// Returns the tasks of all views.
fn tasks(views: &Views) -> Vec<mpsc::Sender<Command>> {
    let mut tasks = views.tasks();
    tasks.extend(views.shown_hub().iter().flat_map(|hub| hub.tasks()));
    tasks
}

/// How many streams are looked at between two turns of other tasks.
const CHUNK: usize = 256;
/// The label for unknown types.
const OTHER: &str = "other";
