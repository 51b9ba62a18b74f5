//! What is reported about one type on a stream: a summary for reports, logs and metrics, what is known of its names, and what waits for the
//! server until when.

use std::sync::Arc;
use std::time::Duration;

use super::name_states::NameState;
use super::opening::Opening;
use super::quirks::ServerQuirks;
use super::rejected::NewRejections;
use super::second_request::{ReopenPace, SecondRequest};
use super::set_progress::COMES_IN;
use super::silence::OtherTypes;
use super::type_subscription::TypeSubscription;
use crate::protocol::moment::{Moment, earliest};
use crate::protocol::server_status::ServerStatus;
use crate::protocol::upstream::options::UpstreamOptions;
use crate::protocol::view::{Class, Evidence, Selector, Update, View};
use crate::protocol::wait::{WaitKind, WaitList, WaitSubject, age_of};
use crate::xds::{Name, Type};

/// One type on a stream, for reports.
#[derive(Debug)]
pub struct TypeSummary<'a> {
    /// The type.
    pub kind: &'a Type,
    /// The wildcard set is requested.
    pub wildcard: bool,
    /// How many names are wanted.
    pub names: usize,
    /// Wanted names that are not requested, because a request has no room for them.
    pub left_out: usize,
    /// Resources whose name in the body differs from the one in the wrapper (TYPE-10).
    pub misnamed: u64,
    /// How many names are requested a second time. A set counts as one.
    pub asked_again: usize,
    /// How many names have a resource at the server that cannot be used.
    pub rejected: usize,
    /// Why an entry of the last response could not be matched to a name.
    pub unnamed: Option<&'a Arc<str>>,
    /// Where the type is requested.
    pub place: TypePlace<'a>,
}

/// Where a wanted type is requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TypePlace<'a> {
    /// On the view's stream, now or when the stream is open.
    OnStream,
    /// Nowhere yet: the type is tried apart first.
    NotAsked,
    /// Nowhere: the server ends streams for the type, with this status.
    Refused(&'a ServerStatus),
}

/// Rejections of one type that are not reported yet.
#[derive(Debug, PartialEq, Eq)]
pub struct TypeRejections {
    pub kind: Type,
    pub news: NewRejections,
}

impl TypeRejections {
    pub(super) fn of((kind, news): (&Type, NewRejections)) -> Option<Self> {
        (!news.is_empty()).then(|| Self { kind: kind.clone(), news })
    }
}

impl<'a> TypeSummary<'a> {
    /// Returns the summaries of a stream's types.
    pub(super) fn all(
        types: impl Iterator<Item = (&'a Type, &'a TypeSubscription)>,
        place: impl Fn(&Type) -> TypePlace<'a>,
    ) -> impl Iterator<Item = Self> {
        types.map(move |(kind, of)| Self::new(kind, of, place(kind)))
    }

    fn new(kind: &'a Type, subscription: &'a TypeSubscription, place: TypePlace<'a>) -> Self {
        let (wanted, second_request) = (subscription.wanted(), subscription.second_request());
        Self {
            kind,
            wildcard: wanted.has_wildcard(),
            names: wanted.names().len(),
            left_out: wanted.left_out().len(),
            misnamed: subscription.given().misnamed(),
            asked_again: second_request.names().len() + usize::from(second_request.has_set()),
            rejected: subscription.rejected().len(),
            unnamed: subscription.rejected().unnamed(),
            place,
        }
    }
}

/// One name on one upstream stream.
#[derive(Debug, PartialEq, Eq)]
pub struct NameRequest {
    /// How far its request has come.
    pub state: RequestState,
    /// Why the resource that the server last sent for the name could not be used.
    pub rejected: Option<Arc<str>>,
    /// The error that the server reported for the name.
    pub error: Option<String>,
    /// When the last response of the type came on this opening.
    pub heard: Option<Moment>,
}

/// How far a request for a name has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestState {
    /// The name was requested, and the server has not answered. If its timer runs, the silence counts at this time.
    Waiting(Option<Moment>),
    /// The server was silent about the name for the resource timer.
    Silent,
    /// The server has reported that the name does not exist.
    Absent,
    /// The server has sent the resource, or the request has stated it.
    Given,
    /// The whole set is requested instead.
    OfWildcard,
    /// The request has no room for the name.
    LeftOut,
    /// The server ends streams that request the type.
    TypeRefused,
    /// The server was not asked for the type yet: the type is tried apart from others first.
    TypeNotAsked,
}

impl NameRequest {
    /// Replaces the state if the type is not on the stream.
    fn placed(self, place: TypePlace<'_>) -> Self {
        match place {
            TypePlace::OnStream => self,
            TypePlace::NotAsked => Self { state: RequestState::TypeNotAsked, ..self },
            TypePlace::Refused(status) => {
                Self { state: RequestState::TypeRefused, error: Some(status.to_string()), ..self }
            }
        }
    }

    /// Returns what is known of a name; `None` if it is not requested.
    pub(super) fn find(subscription: &TypeSubscription, place: TypePlace<'_>, name: &Name) -> Option<Self> {
        Self::of(subscription, name).map(|request| request.placed(place))
    }

    fn of(subscription: &TypeSubscription, name: &Name) -> Option<Self> {
        let (wanted, names) = (subscription.wanted(), subscription.names());
        let collection = name.collection().filter(|glob| wanted.names().contains(glob));
        let state = if wanted.left_out().has(name) {
            RequestState::LeftOut
        } else if wanted.names().contains(name) || collection.is_some() {
            match names.get(name).or_else(|| names.get(&collection?)) {
                Some(NameState::Waiting { until, .. }) => RequestState::Waiting(until),
                Some(NameState::Silent) => RequestState::Silent,
                Some(NameState::Absent) => RequestState::Absent,
                None => RequestState::Given,
            }
        } else if wanted.has_wildcard() {
            RequestState::OfWildcard
        } else {
            return None;
        };
        let rejected = subscription.rejected().names().find(|(rejected, _)| *rejected == name);
        Some(Self {
            state,
            rejected: rejected.map(|(_, rejection)| rejection.reason.clone()),
            error: subscription.rejected().errors().get(name).map(|error| error.message.clone()),
            heard: subscription.progress().heard(),
        })
    }
}

/// Returns what is known of a type on this opening, for a view that begins to use the stream: absences, errors, what could not be read, and how
/// much of `*` is known.
pub(super) fn findings(kind: &Type, of: &TypeSubscription, quirks: &ServerQuirks) -> Vec<Update> {
    let gone = |(key, state): (&Name, NameState)| match state {
        NameState::Absent => Some(quirks.reported_absence(kind, Class::Named, key.clone())),
        NameState::Silent => {
            let (kind, key) = (kind.clone(), key.clone());
            Some(Update::Absent { kind, class: Class::Named, key, evidence: Evidence::Silence })
        }
        NameState::Waiting { .. } => None,
    };
    let reported = of.rejected().errors().iter().map(|(key, error)| (key, error.clone()));
    let errors = reported.chain(of.wanted().errors());
    let errors = errors.map(|(key, error)| Update::Error { kind: kind.clone(), key: key.clone(), error });
    let unread = of.rejected().unreadable();
    let unread = (!unread.is_empty() && of.wanted().class() == Class::Wildcard).then(|| Update::Unreadable {
        kind: kind.clone(),
        of: Selector::Wildcard,
        names: unread.clone(),
    });
    let is_begun = of.wanted().has_wildcard() && of.progress().has_response();
    let completeness = is_begun.then(|| Update::Progress {
        kind: kind.clone(),
        of: Selector::Wildcard,
        completeness: of.deliveries().completeness(quirks, &Selector::Wildcard, of.is_at_end()),
    });
    of.names().iter().filter_map(gone).chain(errors).chain(unread).chain(completeness).collect()
}

/// What is needed to list the waits of one type.
pub(super) struct WaitContext<'a> {
    pub(crate) kind: &'a Type,
    pub(crate) server: usize,
    pub(crate) view: &'a View,
    pub(crate) quirks: &'a ServerQuirks,
    pub(crate) options: &'a UpstreamOptions,
    pub(crate) opening: &'a Opening,
    pub(crate) others: OtherTypes,
    /// When the stream was last opened again for a second request, and whether it is to be opened again for another reason.
    pub(crate) last_reopened: Option<Moment>,
    pub(crate) is_to_reopen: bool,
    pub(crate) now: Moment,
}

/// Adds the waits of one type to the list.
pub(super) fn add_waits(of: &TypeSubscription, context: &WaitContext, list: &mut WaitList) {
    match context.opening.is_open() {
        true => {
            add_names(of, context, list);
            add_set(of, context, list);
        }
        false => add_interrupted(of, context, list),
    }
    add_second_requests(of, context, list);
}

/// Whether the clock of the waits stands: the stream is not open, a liveness call is unanswered, or a message is coming in.
fn stands(context: &WaitContext) -> bool {
    let opening = context.opening;
    let is_silent = opening.has_answered_call() == Some(false) && !context.quirks.per_type_liveness;
    !opening.is_open() || opening.is_receiving() || is_silent
}

fn subject(of: &TypeSubscription, context: &WaitContext) -> WaitSubject {
    let subject = match of.wanted().class() {
        Class::Wildcard => WaitSubject::set(context.kind),
        Class::Named => WaitSubject::of_type(context.kind),
    };
    subject.at(context.server)
}

/// Adds what was requested when the stream ended, and is requested again when the server is back. Until then the clocks show nothing.
fn add_interrupted(of: &TypeSubscription, context: &WaitContext, list: &mut WaitList) {
    let mut names = of.names().untimed();
    for name in names.by_ref().take(list.room()) {
        list.add(WaitKind::Name, Duration::ZERO, None, || WaitSubject::name(context.kind, name).at(context.server));
    }
    list.add_younger(WaitKind::Name, names.count());
    if of.wanted().has_wildcard() {
        list.add(WaitKind::Set, Duration::ZERO, None, || WaitSubject::set(context.kind).at(context.server));
    }
}

fn add_names(of: &TypeSubscription, context: &WaitContext, list: &mut WaitList) {
    let Some(lasting) = context.quirks.resource_timer(context.options) else { return };
    if context.quirks.per_type_liveness && !of.is_polled() {
        return add_interrupted(of, context, list); // its polls fail
    }
    // An entry without a readable name may be that of any name.
    let is_in_doubt = context.quirks.per_type_liveness && of.rejected().unnamed().is_some();
    let (bound, mut added) = ((!stands(context) && !is_in_doubt).then_some(lasting), 0);
    let timers = of.names().timers();
    let count = timers.len();
    // The earliest end belongs to the oldest wait. Waits whose time is over are all listed.
    for (until, name) in timers {
        if added >= list.room() && until > context.now {
            break;
        }
        let age = age_of(until, lasting, context.now);
        list.add(WaitKind::Name, age, bound, || WaitSubject::name(context.kind, name).at(context.server));
        added += 1;
    }
    list.add_younger(WaitKind::Name, count - added);
}

fn add_set(of: &TypeSubscription, context: &WaitContext, list: &mut WaitList) {
    let (quirks, options, progress, stands) = (context.quirks, context.options, of.progress(), stands(context));
    let quiet = progress.settles_at(options).filter(|_| of.wanted().has_sets() && !quirks.is_hub());
    if let Some(until) = quiet {
        let lasting = options.settle_fresh;
        let bound = (!stands).then_some(lasting);
        list.add(WaitKind::Quiet, age_of(until, lasting, context.now), bound, || subject(of, context));
    }
    add_end(of, context, list);
    let is_concluded = of.second_request().has_looked() || !of.wanted().is_any();
    let end = first_silence_ends_at(of, context.others, options).filter(|_| !is_concluded);
    if let Some((end, written)) = end.zip(of.wire().written()) {
        // When this silence is over, it is judged with the next event, unless the server first has to show life.
        let is_stuck = end <= of.judged_at();
        if is_stuck && !stands {
            return;
        }
        let since = progress.first().map_or(written, |first| first.max(written));
        let bound = (!stands).then(|| longest_first_silence(options));
        list.add(WaitKind::Set, context.now - since, bound, || subject(of, context));
    }
}

/// Returns for how long a server may be silent about a type before it has had enough time to send what it has.
fn longest_first_silence(options: &UpstreamOptions) -> Duration {
    options.resource_timer.max(COMES_IN + options.settle_stated)
}

/// Adds the wait for the end of the set. An answer that does not show the end leaves a client that needs the end waiting.
fn add_end(of: &TypeSubscription, context: &WaitContext, list: &mut WaitList) {
    let waits = of.end_question().waits_since().filter(|_| of.wanted().has_wildcard());
    let Some((written, is_answered)) = waits else { return };
    // What is requested a second time is judged by its own silence.
    if is_answered && (!context.view.sought().has_set(context.kind) || !of.second_request().is_empty()) {
        return;
    }
    let stands = is_answered && (stands(context) || of.progress().is_marked_partial());
    let settles = if is_answered { context.options.settle_fresh } else { Duration::ZERO };
    let bound = (!stands).then_some(context.options.resource_timer + settles);
    list.add(WaitKind::End, context.now - written, bound, || WaitSubject::set(context.kind).at(context.server));
}

fn add_second_requests(of: &TypeSubscription, context: &WaitContext, list: &mut WaitList) {
    let (second_request, progress) = (of.second_request(), of.progress());
    if !second_request.is_empty() {
        // A relay reports itself what does not exist, when its own servers have reported it.
        let stands = stands(context) || context.opening.is_relay() || progress.is_marked_partial();
        // Each name that the server confirms makes the wait for the others start over.
        let since = second_request.since().map(|since| progress.growth().map_or(since, |growth| growth.max(since)));
        let age = since.map_or(Duration::ZERO, |since| context.now - since);
        let bound = (!stands).then(|| SecondRequest::longest(context.options));
        list.add(WaitKind::SecondSilence, age, bound, || subject(of, context));
    }
    if (second_request.is_to_ask() || of.wire().waits_for_opening() || context.is_to_reopen)
        && let Some(last) = context.last_reopened
    {
        let bound = context.opening.is_open().then(|| ReopenPace::longest(context.options));
        list.add(WaitKind::Reopening, context.now - last, bound, || subject(of, context));
    }
}

/// Returns when the next timer of a type ends.
pub(super) fn next_deadline(of: &TypeSubscription, others: OtherTypes, options: &UpstreamOptions) -> Option<Moment> {
    let (second_request, end_question, progress) = (of.second_request(), of.end_question(), of.progress());
    let has_looked = second_request.has_looked();
    let second = second_request.ends_at(progress.growth(), others.news, options);
    let first = first_silence_ends_at(of, others, options).filter(|_| !has_looked);
    let settles = progress.settles_at(options).filter(|_| of.wanted().has_sets());
    let ends = [end_question.ends_at(options), end_question.given_up_at(options)];
    let written = of.wire().written().filter(|_| !of.given().accepted().is_empty());
    let soon = progress.quiet_of_all_at(written, others.fresh_until, options);
    let soon = soon.filter(|_| of.wanted().has_wildcard() && !has_looked);
    let later = |at: &Moment| *at > of.judged_at();
    let silence = [second, first, settles, soon].into_iter().chain(ends).flatten().filter(later).min();
    earliest(silence, earliest(of.wire().next_deadline(), of.names().next_deadline(of.judged_at())))
}

/// Returns when a silent server has had enough time to send what it has.
fn first_silence_ends_at(of: &TypeSubscription, others: OtherTypes, options: &UpstreamOptions) -> Option<Moment> {
    let (class, written) = (of.wanted().class(), of.wire().written());
    of.progress().first_silence_ends_at(class, written, others.come_in_until, options)
}
