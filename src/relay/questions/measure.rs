//! The metrics of all views. A view that does not answer is left out, so that the others are still shown.

use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::join;
use futures_util::stream::FuturesUnordered;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::add_session_waits;
use crate::relay::command::{Command, ask};
use crate::relay::incidents::AnsweringViews;
use crate::relay::inspection::{self, Inspection};
use crate::relay::report::{ViewMetrics, ViewWaits, WaitReport};
use crate::relay::views::Views;

/// All views at one moment.
pub(crate) struct Measured {
    /// The number of views, including those that were left out.
    pub(crate) view_count: usize,
    pub(crate) views: Vec<ViewMetrics>,
    /// All waits, summed up.
    pub(crate) waits: WaitReport,
}

/// The answers of some views, in the order of their tasks.
pub(super) struct Answers<T> {
    pub(super) of: Vec<T>,
    pub(super) left_out: usize,
}

/// Returns the metrics and the waits of all views. A wait beyond its bound is counted when it is first seen, a view that is left out each time.
pub(crate) async fn measure(views: &Views) -> Measured {
    let until = Instant::now() + PATIENCE;
    let question = |view: &Inspection<'_>| (inspection::metrics(view), inspection::waits(view, 0));
    let hub = views.shown_hub();
    let hub_tasks = hub.iter().flat_map(|hub| hub.tasks()).collect();
    let asked = join(ask_together(views.tasks(), until, question), ask_together(hub_tasks, until, question));
    let (own, of_hub) = asked.await;
    let left_out = own.left_out + of_hub.left_out;
    views.counters().views_left_out(left_out);
    let view_count = own.of.len() + of_hub.of.len() + left_out;
    let (own, waits): (Vec<_>, Vec<_>) = own.of.into_iter().unzip();
    let (of_hub, waits_of_hub): (Vec<_>, Vec<_>) = of_hub.of.into_iter().unzip();
    let mut merged = views.merge_metrics(own);
    if let Some(hub) = hub {
        merged.extend(hub.merge_metrics(of_hub));
    }
    let mut report = WaitReport::keeping(0);
    let waits: Vec<_> = waits.into_iter().chain(waits_of_hub).collect();
    let answered = answered(&waits, left_out);
    for of in waits {
        report.add(&of.view, None, &of.servers, of.list);
    }
    add_session_waits(views, &mut report).await;
    views.incidents().waits.note(&report.beyond, &answered);
    Measured { view_count, views: merged, waits: report }
}

/// Looks for waits beyond their bounds. Each is counted when it is first seen.
pub(crate) async fn look_at_waits(views: &Views) {
    let until = Instant::now() + PATIENCE;
    let question = |view: &Inspection<'_>| inspection::waits(view, 0);
    let hub_tasks = views.shown_hub().iter().flat_map(|hub| hub.tasks()).collect();
    let asked = join(ask_together(views.tasks(), until, question), ask_together(hub_tasks, until, question));
    let (mut own, of_hub) = asked.await;
    own.of.extend(of_hub.of);
    let answered = answered(&own.of, own.left_out + of_hub.left_out);
    let mut report = WaitReport::keeping(0);
    own.of.into_iter().for_each(|of| report.add(&of.view, None, &of.servers, of.list));
    add_session_waits(views, &mut report).await;
    views.incidents().waits.note(&report.beyond, &answered);
}

fn answered(waits: &[ViewWaits], left_out: usize) -> AnsweringViews {
    match left_out {
        0 => AnsweringViews::All,
        _ => AnsweringViews::Some(waits.iter().map(|of| of.view.clone()).collect()),
    }
}

/// Returns how many views there are, and the metrics of those that answer.
pub(crate) async fn metrics(views: &Views) -> (usize, Vec<ViewMetrics>) {
    let until = Instant::now() + PATIENCE;
    let own = ask_together(views.tasks(), until, inspection::metrics).await;
    let (mut count, mut merged) = (own.of.len() + own.left_out, views.merge_metrics(own.of));
    if let Some(hub) = views.shown_hub() {
        let of_hub = ask_together(hub.tasks(), until, inspection::metrics).await;
        count += of_hub.of.len() + of_hub.left_out;
        merged.extend(hub.merge_metrics(of_hub.of));
    }
    (count, merged)
}

/// Puts a question to many views at the same time. Those that have not answered by then are left out; those that have ended do not count.
///
/// As long as they answer, some are asked at a time: all other tasks would be late if thousands were at work at once. If none of them
/// answers for a moment, more are asked.
pub(super) async fn ask_together<T: Send + 'static>(
    tasks: Vec<mpsc::Sender<Command>>,
    until: Instant,
    question: impl Fn(&Inspection<'_>) -> T + Clone + Send + 'static,
) -> Answers<T> {
    let (mut answers, mut asked, mut at_a_time) = (Vec::new(), FuturesUnordered::new(), AT_A_TIME);
    let mut others = tasks.iter().enumerate();
    loop {
        let room = at_a_time.saturating_sub(asked.len());
        asked.extend(others.by_ref().take(room).map(|(place, task)| {
            let question = question.clone();
            async move { (place, ask(task, question).await) }
        }));
        let moment = Instant::now() + MOMENT;
        tokio::select! {
            biased;
            answered = asked.next() => match answered {
                Some((place, answer)) => answers.extend(answer.map(|answer| (place, answer))),
                None => break,
            },
            () = sleep_until(until) => break,
            () = sleep_until(moment), if others.len() > 0 => at_a_time *= 2,
        }
    }
    answers.sort_by_key(|(place, _)| *place);
    let left_out = asked.len() + others.len();
    Answers { of: answers.into_iter().map(|(_, answer)| answer).collect(), left_out }
}

/// How long all views together have for their answers.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);
const AT_A_TIME: usize = 64;
const MOMENT: Duration = Duration::from_millis(20);
