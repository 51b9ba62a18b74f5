//! What all views say of themselves, those of the hub last.

use std::sync::PoisonError;

use tokio::sync::{mpsc, oneshot};

use super::Views;
use crate::relay::dangling::{Dangling, DanglingClusters};
use crate::relay::lookup::LookupReport;
use crate::relay::metrics::ViewMetrics;
use crate::relay::report::ViewReport;
use crate::relay::session_handle::ClientReport;
use crate::relay::view_task::Command;
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

    /// What there is to measure of each view.
    pub async fn measures(&self) -> Vec<ViewMetrics> {
        let mut measures = Vec::new();
        for owner in self.owners() {
            let (to, from) = oneshot::channel();
            if owner.send(Command::Measure(to)).await.is_ok() {
                measures.extend(from.await);
            }
        }
        measures
    }

    fn owners(&self) -> Vec<mpsc::Sender<Command>> {
        let units = self.views.lock().unwrap_or_else(PoisonError::into_inner);
        let mut owners: Vec<_> = units.values().map(|unit| unit.commands.clone()).collect();
        drop(units);
        owners.extend(self.hub.iter().flat_map(|hub| hub.owners()));
        owners
    }
}
