//! What all views say of themselves, those of the hub last.

use std::sync::PoisonError;

use tokio::sync::{mpsc, oneshot};

use super::Views;
use crate::relay::command::Command;
use crate::relay::report::{ClientReport, Dangling, DanglingClusters, LookupReport, ViewMetrics, ViewReport};
use crate::xds::Name;

impl Views {
    /// What every unit and every session holds.
    pub async fn report(&self) -> Vec<(ViewReport, Vec<ClientReport>)> {
        let mut reports = Vec::new();
        for owner in self.owners() {
            let (to, from) = oneshot::channel();
            if owner.send(Command::Report(to)).await.is_ok() {
                reports.extend(from.await);
            }
        }
        reports
    }

    /// What each view knows of a resource, of those that know anything of it.
    pub async fn lookup(&self, type_url: &str, name: &str) -> Vec<LookupReport> {
        let (kind, name) = (self.table.resolve(type_url), Name::canonical(name));
        let mut found = Vec::new();
        for owner in self.owners() {
            let (to, from) = oneshot::channel();
            if owner.send(Command::Lookup(kind.clone(), name.clone(), to)).await.is_ok() {
                found.extend(from.await.into_iter().flatten());
            }
        }
        found
    }

    /// Clusters that routing leads to and that do not exist, by view.
    pub async fn dangling(&self) -> Vec<Dangling> {
        let mut dangling = Vec::new();
        for owner in self.owners() {
            let (to, from) = oneshot::channel();
            if owner.send(Command::Dangling(to)).await.is_ok() {
                dangling.extend(from.await.into_iter().flat_map(DanglingClusters::explained));
            }
        }
        dangling
    }

    /// Returns how many views there are, and what there is to measure of them.
    pub async fn metrics(&self) -> (usize, Vec<ViewMetrics>) {
        let mut measures = Vec::new();
        for owner in self.owners() {
            let (to, from) = oneshot::channel();
            if owner.send(Command::Measure(to)).await.is_ok() {
                measures.extend(from.await);
            }
        }
        (measures.len(), self.metric_labels.merge(measures))
    }

    fn owners(&self) -> Vec<mpsc::Sender<Command>> {
        let units = self.views.lock().unwrap_or_else(PoisonError::into_inner);
        let mut owners: Vec<_> = units.values().map(|unit| unit.commands.clone()).collect();
        drop(units);
        owners.extend(self.hub.iter().flat_map(|hub| hub.owners()));
        owners
    }
}
