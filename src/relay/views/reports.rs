//! The reports of all views: the hub's behind those of clients, and behind them those of an earlier configuration.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use super::Views;
use crate::relay::command::{Command, ask};
use crate::relay::report::{
    BrakesReport, Dangling, DanglingClusters, ReleaseQuery, Released, ResourcePage, ResourceQuery, ViewMetrics,
    ViewReport,
};
use crate::xds::{Type, UnknownType};

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
        self.table.by_word(text)
    }

    /// Returns, by view, the clusters that routing leads to and that do not exist.
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
}

async fn measured(owners: Vec<mpsc::Sender<Command>>) -> Vec<ViewMetrics> {
    let mut measures = Vec::new();
    for owner in owners {
        measures.extend(ask(&owner, |view| view.metrics()).await);
    }
    measures
}
