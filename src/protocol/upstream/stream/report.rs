//! What is told of a stream: summaries for reports, logs and metrics, what it knows of one name, and what waits for its server.

use std::sync::Arc;
use std::time::Duration;

use super::Stream;
use crate::protocol::limits::Limits;
use crate::protocol::moment::Moment;
use crate::protocol::upstream::quirks::OnResourceTimeout;
use crate::protocol::upstream::rejected::{NewRejections, Rejection};
use crate::protocol::upstream::requested_names::NameState;
use crate::protocol::upstream::second_request::{ReopenPace, SecondRequest};
use crate::protocol::upstream::set_progress::COMES_IN;
use crate::protocol::upstream::type_subscription::{OtherTypes, TypeSubscription};
use crate::protocol::view::{Class, View};
use crate::protocol::wait::{WaitKind, WaitList, WaitSubject, age_of};
use crate::xds::{Name, Type};

/// One type on a stream, for reports.
#[derive(Debug)]
pub struct TypeSummary<'a> {
    pub(crate) kind: &'a Type,
    pub(crate) wildcard: bool,
    pub(crate) names: usize,
    /// Wanted names that are not requested, since a request has no room for them.
    pub(crate) left_out: usize,
    /// Resources whose name in the body differs from the one in the wrapper (TYPE-10).
    pub(crate) misnamed: u64,
    /// Names that are requested a second time. A set counts as one.
    pub(crate) asked_again: usize,
    /// Names of which the server has a resource that cannot be used.
    pub(crate) rejected: usize,
    /// Why an entry of the last response could not be matched to a name.
    pub(crate) unnamed: Option<&'a Arc<str>>,
}

/// Rejections of one type that are not reported yet.
#[derive(Debug, PartialEq, Eq)]
pub struct TypeRejections {
    pub(crate) kind: Type,
    pub news: NewRejections,
}

impl Stream {
    pub fn types(&self) -> impl Iterator<Item = TypeSummary<'_>> {
        self.types.iter().map(|(kind, subscription)| TypeSummary {
            kind,
            wildcard: subscription.wildcard,
            names: subscription.names.len(),
            left_out: subscription.left_out.len(),
            misnamed: subscription.misnamed,
            asked_again: subscription.second_request.names.len() + usize::from(subscription.second_request.set),
            rejected: subscription.rejected.len(),
            unnamed: subscription.rejected.unnamed.as_ref(),
        })
    }

    /// Returns the current rejections of a type, by name.
    pub fn rejected(&self, kind: &Type) -> impl Iterator<Item = (&Name, &Rejection)> {
        self.types.get(kind).into_iter().flat_map(|subscription| subscription.rejected.names())
    }

    /// Returns what was rejected since the last call, each version of a name once.
    pub fn take_rejected(&mut self) -> Vec<TypeRejections> {
        let news = self.types.iter_mut().map(|(kind, subscription)| (kind, subscription.rejected.take_news()));
        let any = news.filter(|(_, news)| !news.is_empty());
        any.map(|(kind, news)| TypeRejections { kind: kind.clone(), news }).collect()
    }

    /// Returns how many names were left out of requests since the last call, by type.
    pub fn take_left_out(&mut self) -> Vec<(Type, usize)> {
        let counts = self.types.iter_mut().map(|(kind, subscription)| (kind, subscription.left_out.take_count()));
        counts.filter(|(_, count)| *count > 0).map(|(kind, count)| (kind.clone(), count)).collect()
    }

    /// Whether the server has answered the last liveness call on this opening; `None` if there was none.
    pub(crate) fn has_answered_call(&self) -> Option<bool> {
        if self.liveness.is_asked() { Some(false) } else { self.liveness.is_proven().then_some(true) }
    }
}

/// One name on one upstream stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NameRequest {
    pub(crate) state: RequestState,
    /// What the server last sent of it could not be used.
    pub(crate) rejected: Option<Arc<str>>,
    /// The error that the server reported for it.
    pub(crate) error: Option<String>,
}

/// How far a request for a name has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestState {
    /// The server was asked, and has not answered. Its silence counts from then on, if the time runs.
    Waiting(Option<Moment>),
    /// It was silent about the name for the resource timer.
    Silent,
    /// It has reported that the name does not exist.
    Absent,
    /// It has sent the name, or has it stated.
    Given,
    /// It is asked for the whole set.
    OfWildcard,
    /// The request has no room for the name.
    LeftOut,
}

impl Stream {
    /// Returns what is known of a name; none if it is not requested on this stream.
    pub(crate) fn request_of(&self, kind: &Type, name: &Name) -> Option<NameRequest> {
        let of = self.types.get(kind)?;
        let collection = name.collection().filter(|glob| of.names.contains(glob));
        let state = if of.left_out.has(name) {
            RequestState::LeftOut
        } else if of.names.contains(name) || collection.is_some() {
            match of.requested.get(name).or_else(|| of.requested.get(&collection?)) {
                Some(NameState::Waiting { until, .. }) => RequestState::Waiting(until),
                Some(NameState::Silent) => RequestState::Silent,
                Some(NameState::Absent) => RequestState::Absent,
                None => RequestState::Given,
            }
        } else if of.wildcard {
            RequestState::OfWildcard
        } else {
            return None;
        };
        let rejected = of.rejected.names().find(|(rejected, _)| *rejected == name);
        Some(NameRequest {
            state,
            rejected: rejected.map(|(_, rejection)| rejection.reason.clone()),
            error: of.errors.get(name).map(|error| error.message.clone()),
        })
    }
}

/// How long a server may be silent about a type before Weir concludes what it has sent.
fn longest_first_silence(limits: &Limits) -> Duration {
    limits.resource_timer.max(COMES_IN + limits.settle_stated)
}

/// What is needed to read the waits of one type.
struct Look<'a> {
    kind: &'a Type,
    server: usize,
    /// The clock of the waits stands: the server is not there, has not shown life, or is in the middle of a message.
    stands: bool,
    others: OtherTypes,
    now: Moment,
}

impl Stream {
    /// Adds what waits for this server.
    pub(crate) fn add_waits(&self, server: usize, view: &View, now: Moment, list: &mut WaitList) {
        let others = self.others();
        let is_silent = self.liveness.is_asked() && !self.quirks.per_type_liveness;
        for (kind, of) in &self.types {
            let stands = !self.open || self.receiving || is_silent;
            let look = Look { kind, server, stands, others, now };
            match self.open {
                true => {
                    self.add_names(of, &look, list);
                    self.add_set(of, &look, view, list);
                }
                false => add_interrupted(of, &look, list),
            }
            self.add_second_requests(of, &look, list);
        }
    }

    fn add_names(&self, of: &TypeSubscription, look: &Look, list: &mut WaitList) {
        let lasting = match self.quirks.on_resource_timeout {
            OnResourceTimeout::Absent => self.limits.resource_timer,
            OnResourceTimeout::TransientError => 2 * self.limits.resource_timer,
            OnResourceTimeout::Unknown => return, // only the server knows, and it will say so
        };
        if self.quirks.per_type_liveness && !of.is_polled() {
            return add_interrupted(of, look, list); // its polls fail
        }
        let (bound, mut added) = ((!look.stands).then_some(lasting), 0);
        // The first end belongs to the oldest wait. Those that are over are looked at one by one.
        for (until, name) in of.requested.timers() {
            if added >= list.room() && until > look.now {
                break;
            }
            let age = age_of(until, lasting, look.now);
            list.add(WaitKind::Name, age, bound, || WaitSubject::name(look.kind, name).at(look.server));
            added += 1;
        }
        list.add_younger(WaitKind::Name, of.requested.timers().len() - added);
    }

    fn add_set(&self, of: &TypeSubscription, look: &Look, view: &View, list: &mut WaitList) {
        let subject = || match of.class {
            Class::Wildcard => WaitSubject::set(look.kind).at(look.server),
            Class::Named => WaitSubject::of_type(look.kind).at(look.server),
        };
        let quiet = of.progress.settles_at(&self.limits).filter(|_| of.has_sets() && !self.quirks.signals_completion);
        if let Some(until) = quiet {
            let lasting = self.limits.settle_fresh;
            let bound = (!look.stands).then_some(lasting);
            list.add(WaitKind::Quiet, age_of(until, lasting, look.now), bound, subject);
        }
        self.add_end(of, look, view, list);
        // Nothing follows from the silence of such a server.
        let means_nothing =
            self.quirks.on_resource_timeout == OnResourceTimeout::Unknown && !self.quirks.signals_completion;
        let is_concluded = of.second_request.has_looked() || means_nothing || !of.is_wanted();
        let end = of.first_silence_ends_at(look.others.come_in_until, &self.limits).filter(|_| !is_concluded);
        if let Some((end, written)) = end.zip(of.written) {
            // Once it is over, it is judged at the next look, unless the server has to show life or a switch is under way.
            let is_stuck = end <= of.judged_at;
            if is_stuck && !look.stands {
                return;
            }
            let since = of.progress.first().map_or(written, |first| first.max(written));
            let stands = look.stands || view.is_gated(look.kind);
            let bound = (!stands).then(|| longest_first_silence(&self.limits));
            list.add(WaitKind::Set, look.now - since, bound, subject);
        }
    }

    /// An answer that shows no end helps nobody: whoever needs the end waits on.
    fn add_end(&self, of: &TypeSubscription, look: &Look, view: &View, list: &mut WaitList) {
        let Some((written, is_answered)) = of.end_question.waits_since().filter(|_| of.wildcard) else { return };
        // What is requested a second time is judged by its own silence.
        if is_answered && (!view.seeks_set(look.kind) || !of.second_request.is_empty()) {
            return;
        }
        let stands = is_answered && (look.stands || of.progress.is_marked_partial());
        let lasting = self.limits.resource_timer + if is_answered { self.limits.settle_fresh } else { Duration::ZERO };
        let bound = (!stands).then_some(lasting);
        list.add(WaitKind::End, look.now - written, bound, || WaitSubject::set(look.kind).at(look.server));
    }

    fn add_second_requests(&self, of: &TypeSubscription, look: &Look, list: &mut WaitList) {
        let subject = || match of.class {
            Class::Wildcard => WaitSubject::set(look.kind).at(look.server),
            Class::Named => WaitSubject::of_type(look.kind).at(look.server),
        };
        let second = &of.second_request;
        if !second.is_empty() {
            // A relay says itself what does not exist, once its own servers have said so.
            let stands = look.stands || self.is_relay || of.progress.is_marked_partial();
            // With each name that the server confirms, the wait for the others starts over.
            let since = second.since().map(|since| of.progress.growth().map_or(since, |growth| growth.max(since)));
            let age = since.map_or(Duration::ZERO, |since| look.now - since);
            let bound = (!stands).then(|| SecondRequest::longest(&self.limits));
            list.add(WaitKind::SecondSilence, age, bound, subject);
        }
        if (second.is_to_ask() || self.must_reopen || self.is_to_show_life)
            && let Some(last) = self.pace.last()
        {
            let bound = self.open.then(|| ReopenPace::longest(&self.limits));
            list.add(WaitKind::Reopening, look.now - last, bound, subject);
        }
    }
}

/// Everything that was requested is requested again once the server is there: until then the clocks show nothing.
fn add_interrupted(of: &TypeSubscription, look: &Look, list: &mut WaitList) {
    let mut names = of.requested.untimed();
    for name in names.by_ref().take(list.room()) {
        list.add(WaitKind::Name, Duration::ZERO, None, || WaitSubject::name(look.kind, name).at(look.server));
    }
    list.add_younger(WaitKind::Name, names.count());
    if of.wildcard {
        list.add(WaitKind::Set, Duration::ZERO, None, || WaitSubject::set(look.kind).at(look.server));
    }
}
