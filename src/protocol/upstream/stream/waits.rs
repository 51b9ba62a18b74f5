//! What waits for a server: names, sets, and what clients hold. It is read from the timers that wake the stream.

use std::time::Duration;

use super::Stream;
use crate::protocol::limits::Limits;
use crate::protocol::moment::Moment;
use crate::protocol::upstream::quirks::OnResourceTimeout;
use crate::protocol::upstream::second_request::{ReopenPace, SecondRequest};
use crate::protocol::upstream::set_progress::COMES_IN;
use crate::protocol::upstream::type_subscription::{OtherTypes, TypeSubscription};
use crate::protocol::view::{Class, View};
use crate::protocol::wait::{WaitKind, WaitList, WaitSubject, age_of};
use crate::xds::Type;

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
