//! The reports of all views: the hub's behind those of clients, and behind them those of an earlier configuration.
//! Beside them, what dumps and client status are made of, and all client streams at a glance.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use super::Views;
use crate::relay::command::{Command, ask};
use crate::relay::report::{
    AnswersSource, BrakesReport, Census, ClientHoldings, ClientReport, Dangling, DanglingClusters, HoldingsSource,
    ReleaseQuery, Released, ResourcePage, ResourceQuery, ViewMetrics, ViewReport, ViewSnapshot, WaitReport,
};
use crate::xds::{Type, UnknownType, type_by_word};

impl Views {
    /// Returns the reports of every view.
    pub(crate) async fn report(&self) -> Vec<ViewReport> {
        let mut reports = Vec::new();
        for owner in self.owners() {
            reports.extend(ask(&owner, |view| view.report()).await);
        }
        reports
    }

    /// Returns what the views know of resources.
    pub(crate) async fn resources(&self, query: ResourceQuery) -> ResourcePage {
        let mut views = Vec::new();
        for owner in self.owners() {
            views.extend(ask(&owner, |view| view.snapshot()).await);
        }
        // There may be very many resources: the search must not block the runtime.
        tokio::task::spawn_blocking(move || query.page(&views)).await.unwrap_or_default()
    }

    /// Returns the type that a short name, a full name or a URL means.
    pub(crate) fn type_of(&self, text: &str) -> Result<Type, UnknownType> {
        type_by_word(&self.table, text)
    }

    /// Returns, by view, the clusters that routing refers to and that do not exist.
    pub(crate) async fn dangling(&self) -> Vec<Dangling> {
        let mut dangling = Vec::new();
        for owner in self.owners() {
            let clusters = ask(&owner, |view| view.dangling()).await;
            dangling.extend(clusters.into_iter().flat_map(DanglingClusters::explained));
        }
        dangling
    }

    /// Returns what the brakes of all views hold.
    pub(crate) async fn brakes(&self) -> BrakesReport {
        let mut sets = Vec::new();
        if self.incidents.brakes.views() == 0 {
            return BrakesReport::default(); // no view is asked
        }
        for owner in self.owners() {
            sets.extend(ask(&owner, |view| view.brakes()).await.into_iter().flatten());
        }
        BrakesReport::of(sets)
    }

    /// Lets go what an operator names.
    pub(crate) async fn release(&self, query: &ReleaseQuery) -> Released {
        let mut sum = Released::default();
        for owner in self.owners() {
            let (to, from) = oneshot::channel();
            if owner.send(Command::Release(query.clone(), to)).await.is_ok()
                && let Ok(Released { removals, views, later }) = from.await
            {
                sum.removals += removals;
                sum.views += views;
                sum.later += later;
            }
        }
        sum
    }

    /// Returns how many views there are, and their metrics.
    pub(crate) async fn metrics(&self) -> (usize, Vec<ViewMetrics>) {
        let own = measured(self.own_owners()).await;
        let (mut count, mut merged) = (own.len(), self.metric_labels.merge(own));
        if let Some(hub) = self.shown_hub() {
            let of_hub = measured(hub.own_owners()).await;
            count += of_hub.len();
            merged.extend(hub.metric_labels.merge(of_hub));
        }
        (count, merged)
    }

    pub(super) fn owners(&self) -> Vec<mpsc::Sender<Command>> {
        let mut owners = self.own_owners();
        owners.extend(self.shown_hub().iter().flat_map(|hub| hub.own_owners()));
        owners
    }

    /// Returns these views and those before them, without the hub's.
    fn own_owners(&self) -> Vec<mpsc::Sender<Command>> {
        let views = self.lock();
        let mut owners: Vec<_> = views.iter().map(|view| view.commands.clone()).collect();
        drop(views);
        owners.extend(self.before().iter().flat_map(|earlier| earlier.own_owners()));
        owners
    }

    /// Returns the hub, or that of an earlier configuration.
    pub(super) fn shown_hub(&self) -> Option<Arc<Self>> {
        self.hub.clone().or_else(|| self.before()?.shown_hub())
    }

    /// Counts all client streams, and keeps so many of those that have been behind for longest.
    pub(crate) async fn census(&self, laggards: usize) -> (Census, Vec<ClientReport>) {
        let (mut census, mut after) = (Census::with_laggards(laggards), 0);
        loop {
            let chunk = self.clients.after(after, CHUNK);
            let Some(last) = chunk.last() else { break };
            after = last.id.0;
            chunk.iter().for_each(|session| session.count_in(&mut census));
            drop(chunk);
            tokio::task::yield_now().await;
        }
        let sessions = census.laggards().into_iter().filter_map(|session| self.clients.get(session));
        let reports = sessions.map(|session| session.report()).collect();
        (census, reports)
    }

    /// Returns all waits, with so many of the oldest. A wait beyond its bound is counted when it is first read.
    pub(crate) async fn waits(&self, limit: usize) -> WaitReport {
        let mut report = WaitReport::keeping(limit);
        for owner in self.owners() {
            if let Some(of) = ask(&owner, move |view| view.waits(limit)).await {
                report.add(&of.view, None, &of.servers, of.list);
            }
        }
        for chunk in self.clients.waiting().chunks(CHUNK) {
            let sessions = chunk.iter().filter_map(|session| self.clients.get(*session));
            sessions.for_each(|session| session.add_waits(&mut report));
            tokio::task::yield_now().await;
        }
        self.incidents.waits.note(&report.beyond);
        report
    }
}

/// A view that can be dumped.
pub(crate) struct DumpSource(mpsc::Sender<Command>);

impl Views {
    /// Returns all views, the hub's last.
    pub(crate) fn dump_sources(&self) -> Vec<DumpSource> {
        self.owners().into_iter().map(DumpSource).collect()
    }

    /// Returns the state of a view by the hash of its key.
    pub(crate) async fn snapshot_of(&self, view: &str) -> Option<ViewSnapshot> {
        for source in self.dump_sources() {
            if let Some(found) = source.snapshot().await.filter(|found| found.view == view) {
                return Some(found);
            }
        }
        None
    }

    /// Returns what a client was sent by the number of its stream.
    pub(crate) async fn client_of(&self, session: u64) -> Option<ClientHoldings> {
        let client = self.client(session)?;
        tokio::task::spawn_blocking(move || client.holdings()).await.ok()
    }
}

impl DumpSource {
    /// Returns the report and the state of the view. None if it has ended.
    pub(crate) async fn view(&self) -> Option<(ViewReport, ViewSnapshot)> {
        ask(&self.0, |view| (view.report(), view.snapshot())).await
    }

    /// Returns the sessions of the view.
    pub(crate) async fn clients(&self) -> Vec<Arc<dyn AnswersSource>> {
        ask(&self.0, |view| view.sessions().sessions).await.unwrap_or_default()
    }

    async fn snapshot(&self) -> Option<ViewSnapshot> {
        ask(&self.0, |view| view.snapshot()).await
    }
}

async fn measured(owners: Vec<mpsc::Sender<Command>>) -> Vec<ViewMetrics> {
    let mut measures = Vec::new();
    for owner in owners {
        measures.extend(ask(&owner, |view| view.metrics()).await);
    }
    measures
}

/// How many streams are looked at between two turns of other tasks.
const CHUNK: usize = 256;
