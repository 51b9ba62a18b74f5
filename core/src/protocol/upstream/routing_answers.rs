//! When a server that is silent about its routing has had enough time to answer. The routing types of a stream count together.

use super::opening::Opening;
use super::set_progress::COMES_IN;
use super::terms::Terms;
use super::type_subscription::TypeSubscription;
use crate::protocol::moment::Moment;
use crate::protocol::upstream::options::UpstreamOptions;

/// Returns when a silent server has next had enough time for a type. `None` for a polled server: only its answer to a poll of the type counts.
pub(super) fn next_due<'a>(
    routing: impl Iterator<Item = &'a TypeSubscription> + Clone,
    terms: &Terms,
    opening: &Opening,
    judged_at: Moment,
) -> Option<Moment> {
    if terms.quirks.per_type_liveness {
        return None;
    }
    let news = news(routing.clone(), opening);
    let due = routing.filter_map(|of| first_answer_due(of, news, &terms.options));
    due.filter(|at| *at > judged_at).min()
}

/// Returns when the last response with new routing came. This is at most `COMES_IN` after the first response, so that a server that always has
/// something new is not waited for without end.
pub(super) fn news<'a>(routing: impl Iterator<Item = &'a TypeSubscription>, opening: &Opening) -> Option<Moment> {
    let news = routing.filter_map(|of| of.progress().news()).max()?;
    Some(opening.first_response().map_or(news, |first| news.min(first + COMES_IN)))
}

/// Returns when a server that has sent no new routing since `news` has had enough time to answer the first request.
pub(super) fn first_answer_due(
    of: &TypeSubscription,
    news: Option<Moment>,
    options: &UpstreamOptions,
) -> Option<Moment> {
    let written = of.wire().written().filter(|_| !of.names().has_answered_first())?;
    Some(news.map_or(written, |news| news.max(written)) + options.resource_timer)
}
