//! Finds the present problems each second, from counts and states that others keep, so that no client has to be asked.

mod certificates;
mod counters;
mod process;
mod views;

use std::time::{Duration, Instant};

use self::certificates::ServerCertificateFiles;
use self::counters::Rising;
use super::MetricsSources;
use crate::relay::{Views, questions};

/// The state that one check keeps for the next.
#[derive(Default)]
struct ProblemCheck {
    limits: Rising,
    log_lines: Rising,
    files: ServerCertificateFiles,
    /// When waits are checked again: that asks all views.
    waits_due: Option<Instant>,
}

/// Records the present problems for pages and metrics, without end.
pub(crate) async fn watch_problems(sources: impl Fn() -> MetricsSources) {
    let mut check = ProblemCheck::default();
    loop {
        tokio::time::sleep(EVERY).await;
        check.run(&sources()).await;
    }
}

impl ProblemCheck {
    async fn run(&mut self, sources: &MetricsSources) {
        let views = &*sources.views;
        self.check_waits(views).await;
        self.files.look(&sources.certificate_files);
        let (incidents, counters) = (views.incidents(), views.counters());
        let now = Instant::now();
        let watched = incidents.troubles.views();
        let mut seen = views::troubles(&watched, views.types(), &incidents.brakes);
        seen.extend(views::audits(&incidents.audits.findings(), &watched));
        seen.extend(process::waits(&incidents.waits.beyond(), &watched));
        seen.extend(process::laggards(&counters.deliveries));
        seen.extend(process::certificates(&sources.process.tls, self.files.ends()));
        seen.extend(process::state_file(sources.process.state.as_deref(), &sources.config));
        seen.extend(process::configuration(&sources.config));
        seen.extend(self.limits.limits(counters.limits.counts(), now));
        seen.extend(self.log_lines.log_lines(sources.process.log.dropped_lines(), now));
        incidents.problems.note(seen, now);
    }

    /// Asks the views for their open waits, rarely enough to use at most a fiftieth of the time.
    async fn check_waits(&mut self, views: &Views) {
        let began = Instant::now();
        if self.waits_due.is_some_and(|due| began < due) {
            return;
        }
        questions::look_at_waits(views).await;
        let pause = (began.elapsed() * LEFT_TO_OTHERS).max(LOOK_AT_WAITS);
        self.waits_due = Some(Instant::now() + pause);
    }
}

const EVERY: Duration = Duration::from_secs(1);
const LOOK_AT_WAITS: Duration = Duration::from_secs(2);
const LEFT_TO_OTHERS: u32 = 50;
