//! The views that audits look at: those of clients, of the present configuration.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::Views;
use crate::relay::command::Command;

/// Returns the running views by what logs and reports call them.
pub(in crate::relay) fn running(views: &Views) -> Vec<(Arc<str>, mpsc::Sender<Command>)> {
    let tasks = views.map.tasks_by_key();
    tasks.into_iter().map(|(key, task)| (views.shared.view_id(&key), task)).collect()
}
