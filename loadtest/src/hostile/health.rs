//! Whether the admin address answers, and what it counts: limits that were reached, and polls.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};

use super::times::{Phases, Time};
use crate::measure::{Polls, metrics, page};

/// Requests `/healthz` again and again, until the future is dropped.
pub async fn probe(probes: SocketAddr, phases: Phases) {
    loop {
        let phase = phases.current();
        let start = Instant::now();
        match timeout(LIMIT, page(probes, "/healthz")).await {
            Ok(Ok(_)) => phase.record(Time::Health, start.elapsed()),
            Ok(Err(error)) => phase.problem(format!("/healthz: {error:#}")),
            Err(_) => phase.problem(format!("/healthz: nothing in {LIMIT:?}")),
        }
        sleep(BETWEEN).await;
    }
}

/// What a server counts.
#[derive(Debug, Default)]
pub struct Counted {
    /// How often each limit was reached; empty if the server counts none.
    pub limits: BTreeMap<String, u64>,
    /// The polls that it measures, if it does.
    pub polls: Option<Polls>,
}

/// Returns what the server has counted. Nothing, if its address is not known.
pub async fn counted(admin: Option<SocketAddr>) -> anyhow::Result<Counted> {
    let Some(admin) = admin else { return Ok(Counted::default()) };
    let text = metrics(admin).await?;
    Ok(Counted { limits: limits_in(&text), polls: Polls::in_metrics(&text) })
}

/// Returns what was counted, or nothing and why that is not known.
pub fn known(counted: anyhow::Result<Counted>) -> (Counted, Option<String>) {
    match counted {
        Ok(counted) => (counted, None),
        Err(why) => (Counted::default(), Some(format!("no answer from /metrics: {why:#}"))),
    }
}

fn limits_in(metrics: &str) -> BTreeMap<String, u64> {
    let of = |line: &str| {
        let (limit, value) = line.strip_prefix("weir_limit_reached_total{limit=\"")?.split_once("\"} ")?;
        Some((limit.to_owned(), value.trim().parse::<f64>().ok()? as u64))
    };
    metrics.lines().filter_map(of).filter(|(_, value)| *value > 0).collect()
}

const LIMIT: Duration = Duration::from_secs(5);
const BETWEEN: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reserved::Reserved;

    #[tokio::test]
    async fn counts_that_cannot_be_read_are_not_counts_of_nothing() {
        let (counted, why) = known(super::counted(None).await);
        assert!(counted.polls.is_none() && why.is_none(), "no address is known");
        let silent = Reserved::new().unwrap();
        let (counted, why) = known(super::counted(Some(silent.address)).await);
        assert!(counted.polls.is_none() && why.unwrap().starts_with("no answer from /metrics: "));
    }

    #[test]
    fn limits_that_were_reached_are_found_in_the_metrics() {
        let text = "# TYPE weir_limit_reached_total counter\nweir_limit_reached_total{limit=\"views.max\"} 7\n\
                    weir_limit_reached_total{limit=\"limits.types_per_stream\"} 0\nweir_views 3\n";
        assert_eq!(limits_in(text).into_iter().collect::<Vec<_>>(), [("views.max".to_owned(), 7)]);
    }
}
