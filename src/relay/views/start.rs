//! Starts the task of a view.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::map::{ViewHandle, view_values};
use super::saved::{FromDisk, WaitingView};
use super::{ClientInfo, Views};
use crate::proto::Request;
use crate::protocol::session::Client;
use crate::protocol::sources::Sources;
use crate::protocol::view::View;
use crate::relay::client_log::LogPace;
use crate::relay::links::Links;
use crate::relay::published::Published;
use crate::relay::reachability::ViewReachability;
use crate::relay::reopenings::Reopenings;
use crate::relay::view_task::{TracedChanges, ViewTask};
use crate::relay::view_usage::{Stay, ViewUsage};
use crate::xds::SharingKey;

impl Views {
    pub(super) fn start_view(&self, key: &SharingKey, first: &Request, by: &ClientInfo) -> ViewHandle {
        let fields: Vec<_> =
            key.parts(&self.rule).into_iter().map(|(field, value)| (field.to_string(), value)).collect();
        let values = view_values(fields.iter().map(|(_, value)| value.as_str()));
        let of_relay = first.node().is_some_and(|node| Client::is_relay(node));
        let (table, options) = (self.table.clone(), self.view_options.clone());
        let (sender, commands) = mpsc::channel(1024);
        let active = Arc::new(AtomicUsize::new(self.plan.top.servers.first().copied().unwrap_or_default()));
        let begins_empty = || WaitingView::new(View::new(table.clone(), options.clone()), FromDisk::default());
        let WaitingView { view, from_disk, fallen, life } = self.waiting.take(key).unwrap_or_else(begins_empty);
        let published = Arc::new(Published::new(options.clone(), life));
        let mut sources =
            Sources::new(self.plan.clone(), key.upstream_node(), table.clone(), self.stream_options.clone());
        sources.go_on_fallen(fallen);
        let known = from_disk.clone();
        published.replace(view.snapshot());
        let usage = Arc::new(ViewUsage::new(Instant::now()));
        let name = if self.is_hub { "shared".into() } else { key.to_string() };
        let owner = ViewTask {
            readiness: self.readiness.view(&name, from_disk.answered.clone()),
            from_disk,
            brakes: self.incidents.brakes.view(&name),
            metric_label: self.metric_labels.assign(&name),
            view_id: name,
            made_from: fields.into_iter().collect(),
            view,
            sources,
            connectors: self.connectors.clone(),
            reachability: ViewReachability::none(self.reachability.clone()),
            ladder_states: Default::default(),
            order_metrics: Default::default(),
            published: published.clone(),
            store: self.store.clone(),
            cached_bytes_limit: self.view_options.cached_bytes,
            incidents: self.incidents.clone(),
            limits: self.counters.limits.clone(),
            left_out_lines: LogPace::of_client(),
            server_log: self.server_log.clone(),
            table,
            clock: self.clock,
            commands,
            usage: usage.clone(),
            active: active.clone(),
            active_server_changes: self.active_server_changes.clone(),
            sessions: HashMap::new(),
            links: Links::none(self.readers.clone(), key.tenant()),
            reopenings: Reopenings::default(),
            interest_applied: Vec::new(),
            traced: TracedChanges::of(self.counters.clone()),
            faults: self.view_options.faults,
        };
        tokio::spawn(owner.run_supervised());
        let (stay, maker) = (Stay::default(), by.quota.clone());
        let nacks = Arc::default();
        ViewHandle {
            published,
            nacks,
            commands: sender,
            usage,
            active,
            stay,
            values,
            maker,
            of_relay,
            from_disk: known,
        }
    }
}
