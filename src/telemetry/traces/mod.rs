//! Traces over OTLP, configured by the standard variables `OTEL_*`. docs/tracing.md lists them with the spans.
//!
//! Owns the sampling of events, the queue of spans, and their export. `relay/traces` decides what spans are. Always: only the exporter's task
//! waits for the collector.

mod export;
mod exporter;
mod metrics;
mod sampling;
mod span_data;
mod variables;

use std::sync::Arc;
use std::time::Duration;

pub(super) use self::metrics::add;

use self::export::ExportQueue;
use self::exporter::Exporter;
use self::variables::{TraceSettings, Warning};
use crate::relay::ProcessCounters;
use crate::relay::traces::Tracer;

/// The traces of a relay, if it has any.
#[derive(Debug, Default)]
pub struct Traces(Option<Running>);

#[derive(Debug)]
struct Running {
    tracer: Arc<Tracer>,
    queue: Arc<ExportQueue>,
}

impl Traces {
    /// Starts traces as the variables of the process require. Faults in them are logged, and never end the relay.
    pub fn from_environment() -> Self {
        Self::from_variables(&|name| std::env::var(name).ok(), CHANGE_BOUND)
    }

    /// Starts traces as these variables require. The span of a change is open for at most `bound`.
    pub fn from_variables(variable: &dyn Fn(&str) -> Option<String>, bound: Duration) -> Self {
        let (settings, warnings) = variables::read(variable);
        for Warning { variable, reason } in warnings {
            tracing::warn!(variable, reason, "invalid variable for traces");
        }
        let Some(settings) = settings else { return Self(None) };
        match Exporter::new(&settings, variable) {
            Ok(exporter) => Self(Some(Running::start(&settings, exporter, bound))),
            Err(error) => {
                tracing::warn!(%error, "traces cannot be exported; there are none");
                Self(None)
            }
        }
    }

    /// Starts the traces of a relay.
    pub(crate) fn attach(&self, counters: &ProcessCounters) {
        self.0.iter().for_each(|running| counters.traces.start(running.tracer.clone()));
    }

    /// Ends all spans of changes and exports all spans, within a short time.
    pub async fn finish(&self) {
        let Some(running) = &self.0 else { return };
        running.tracer.end_all();
        if tokio::time::timeout(LAST_EXPORT, running.queue.finish()).await.is_err() {
            tracing::warn!("the last spans could not be exported in time");
        }
    }
}

impl Running {
    fn start(settings: &TraceSettings, exporter: Exporter, bound: Duration) -> Self {
        let TraceSettings { sampling, .. } = settings;
        let endpoint = exporter.address();
        tracing::info!(endpoint, sampler = %sampling, "exporting traces");
        let queue = ExportQueue::start(settings, exporter);
        Self { tracer: Tracer::start(queue.clone(), bound), queue }
    }
}

/// How long the span of a change waits for the answers of clients.
const CHANGE_BOUND: Duration = Duration::from_secs(10);
/// How long the end of the process waits for the collector.
const LAST_EXPORT: Duration = Duration::from_secs(1);
