//! One type on one upstream stream: what is subscribed, what the server has sent of it, and what follows from that.

mod findings;
mod first_answer;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use self::first_answer::FirstAnswer;
use super::ViewContext;
use super::end_question::EndQuestion;
use super::liveness::{Liveness, PollFailure};
use super::quirks::{self, ServerQuirks};
use super::rejected::Rejected;
use super::request_room::LeftOut;
use super::requested_names::{Globs, RecentlyLeft, RequestedNames};
use super::second_request::SecondRequest;
use super::set_progress::{Delivery, DeliveryHabit, SetProgress};
use super::wire::Wire;
use crate::protocol::limits::Limits;
use crate::protocol::moment::{Moment, earliest};
use crate::protocol::session::Variant;
use crate::protocol::view::{Class, NamedError, Selector};
use crate::xds::{Name, Type};

#[derive(Debug)]
pub(super) struct TypeSubscription {
    pub(crate) class: Class,
    pub(crate) wildcard: bool,
    pub(crate) names: BTreeSet<Name>,
    /// Those of `names` that are globs of collections.
    pub(crate) globs: Globs,
    /// Wanted names that are not requested, since a request has no room for them.
    pub(crate) left_out: LeftOut,
    /// Names with the versions that this server gave (UP-12). A new stream states them.
    pub(crate) versions: BTreeMap<Name, String>,
    /// Those of `versions` that the server has not confirmed on this opening. Their versions were not stated to it.
    pub(crate) unconfirmed: BTreeSet<Name>,
    /// Those of `versions` with a TTL. A new stream does not state them, so that the server sends again what may have expired.
    pub(crate) with_ttl: BTreeSet<Name>,
    /// Aliases that were requested, with the server's own name of the resource (DELTA-22).
    pub(crate) aliases: BTreeMap<Name, Name>,
    pub(crate) misnamed: u64,
    /// The last accepted SotW version.
    pub(crate) accepted: String,
    /// Wanted names that the server has not sent on this opening.
    pub(crate) requested: RequestedNames,
    pub(crate) recently_left: RecentlyLeft,
    pub(crate) progress: SetProgress,
    habit: DeliveryHabit,
    /// Observations behind `habit`, for the other views of this server.
    pub(crate) deliveries: Vec<Delivery>,
    /// Another view has seen the server send this type in pieces.
    pub(crate) in_pieces_for_others: bool,
    pub(crate) second_request: SecondRequest,
    pub(crate) end_question: EndQuestion,
    /// What this server gave to an earlier process, until a request states it under a version that no server gives.
    pub(crate) given_earlier: BTreeSet<Name>,
    pub(crate) rejected: Rejected,
    /// The last error that the server reported for a wanted name on this opening, if it has sent nothing else for the name since.
    pub(crate) errors: BTreeMap<Name, Arc<NamedError>>,
    pub(crate) wire: Wire,
    /// When the first request of this opening was written.
    pub(crate) written: Option<Moment>,
    /// How far the server has answered that request.
    first_answer: FirstAnswer,
    /// If each type is polled separately: what the polls of this type prove.
    pub(crate) poll_liveness: Liveness,
    /// Timers up to this moment were handled.
    pub(crate) judged_at: Moment,
}

/// What a subscription needs to handle its timers.
pub(super) struct TimerContext<'a> {
    pub(crate) kind: &'a Type,
    pub(crate) at: &'a ViewContext<'a>,
    pub(crate) quirks: &'a ServerQuirks,
    pub(crate) limits: &'a Limits,
    pub(crate) liveness: &'a mut Liveness,
    /// A message is coming in, so the server is not silent.
    pub(crate) receiving: bool,
    /// The server is a relay, which knows no more than its own servers have said.
    pub(crate) is_relay: bool,
    /// This opening has stated versions that count no longer: what the server does not send is no news of those.
    pub(crate) is_outdated: bool,
    pub(crate) others: OtherTypes,
    pub(crate) now: Moment,
}

/// What a type needs to know of the others on its stream: they arrive one after another.
#[derive(Debug, Clone, Copy)]
pub(super) struct OtherTypes {
    /// No type counts as finished before this.
    pub(crate) come_in_until: Moment,
    /// No type counts as quiet for a moment before this.
    pub(crate) fresh_until: Moment,
    /// When new content of any type last came.
    pub(crate) news: Option<Moment>,
}

impl TypeSubscription {
    pub(crate) fn of(wanted: &Selector) -> Self {
        let class = match wanted {
            Selector::Wildcard => Class::Wildcard,
            Selector::Name(_) => Class::Named,
        };
        Self {
            class,
            wildcard: false,
            names: BTreeSet::new(),
            globs: Globs::default(),
            left_out: LeftOut::default(),
            versions: BTreeMap::new(),
            unconfirmed: BTreeSet::new(),
            with_ttl: BTreeSet::new(),
            aliases: BTreeMap::new(),
            misnamed: 0,
            accepted: String::new(),
            requested: RequestedNames::default(),
            recently_left: RecentlyLeft::default(),
            progress: SetProgress::default(),
            habit: DeliveryHabit::default(),
            deliveries: Vec::new(),
            in_pieces_for_others: false,
            second_request: SecondRequest::default(),
            end_question: EndQuestion::default(),
            given_earlier: BTreeSet::new(),
            rejected: Rejected::default(),
            errors: BTreeMap::new(),
            wire: Wire::default(),
            written: None,
            first_answer: FirstAnswer::default(),
            poll_liveness: Liveness::default(),
            judged_at: Moment::START,
        }
    }

    pub(crate) fn is_wanted(&self) -> bool {
        self.wildcard || !self.names.is_empty() || !self.left_out.is_empty()
    }

    /// Whether a response is due: the first set of `*`, or a requested name.
    pub(crate) fn is_waiting(&self) -> bool {
        let of_wildcard = self.wildcard && self.versions.is_empty() && self.accepted.is_empty();
        of_wildcard || self.requested.is_any_waiting()
    }

    /// Whether nothing of the type is wanted, the server was sent that, and it has had time for its last responses.
    pub(crate) fn is_over(&self, now: Moment, limits: &Limits) -> bool {
        let sent = self.wire.is_acked() && now >= self.wire.last_sent_at() + limits.resource_timer;
        !self.is_wanted() && (sent || !self.wire.opened)
    }

    /// Applies a change of interest. A name that is cached from another server (`held`) has no resource timer if it is part of
    /// the first request; later it has one like any other name.
    pub(crate) fn want(&mut self, wanted: Selector, on: bool, held: bool) {
        if self.wildcard && on && wanted == Selector::Wildcard {
            return; // the server sends changes of a set by itself
        }
        if let Selector::Name(name) = &wanted
            && if on { self.left_out.has(name) } else { self.left_out.remove(name) }
        {
            return; // the server does not know it
        }
        self.wire.changed = true;
        match (wanted, on) {
            (Selector::Wildcard, true) => {
                self.wildcard = true;
                self.progress = SetProgress::again(self.wire.opened);
                self.forget_versions(); // a late response to an earlier `*` may have come since
            }
            (Selector::Wildcard, false) => {
                self.wildcard = false;
                self.wire.wildcard_dropped = self.wire.wildcard_sent;
                self.forget_versions();
            }
            (Selector::Name(name), true) => {
                // A member that came with its collection exists. Silence about it, once it is requested by name, is no evidence.
                let given = self.versions.contains_key(&name) && self.globs.of(&name).is_some();
                let held = given || held && !self.wire.opened;
                self.wire.subscribe.insert(name.clone());
                self.globs.insert(&name);
                if !self.names.contains(&name) {
                    self.left_out.new.insert(name.clone());
                }
                if self.holds_by_name(&name) {
                    self.forget(&name); // wanted again: it stays cached, and is not stated, so that the server sends it
                } else if self.names.insert(name.clone()) && held {
                    self.requested.given(&name);
                } else {
                    self.requested.request(name);
                }
            }
            (Selector::Name(name), false) => {
                self.names.remove(&name);
                self.left_out.new.remove(&name);
                self.requested.forget(&name);
                self.second_request.answered(&name);
                if self.globs.remove(&name) {
                    self.forget_members(&name);
                    self.rejected.retain(|rejected| rejected.collection().as_ref() != Some(&name));
                    self.second_request.retain(|member| member.collection().as_ref() != Some(&name));
                }
                if self.globs.of(&name).is_none() {
                    self.forget(&name);
                }
                self.errors.remove(&name);
                if let Some(canonical) = self.aliases.remove(&name)
                    && !self.names.contains(&canonical)
                    && !self.aliases.values().any(|other| *other == canonical)
                {
                    self.forget(&canonical);
                }
                if !self.wire.subscribe.remove(&name) {
                    self.wire.unsubscribe.insert(name);
                }
            }
        }
    }

    /// Whether a name is wanted by itself and the server has given it.
    pub(crate) fn holds_by_name(&self, name: &Name) -> bool {
        self.names.contains(name) && self.requested.get(name).is_none()
    }

    pub(crate) fn record_delivery(&mut self, seen: Delivery) {
        self.habit.note(seen);
        if self.deliveries.last() != Some(&seen) {
            self.deliveries.push(seen); // until it is collected, the same again adds nothing
        }
        self.deliveries.drain(..self.deliveries.len().saturating_sub(2));
    }

    /// The stream has ended, and the server's state with it. What the server gave stays cached, with its versions.
    pub(crate) fn disconnect(&mut self, variant: Variant, rules: &ServerQuirks) {
        if self.progress.was_at_once() {
            self.record_delivery(Delivery::AtOnce);
        }
        if variant == Variant::Sotw || !rules.supports_initial_resource_versions {
            self.unconfirmed = self.versions.keys().cloned().collect();
        }
        self.globs.disconnect();
        self.request_rejected();
        self.rejected.disconnect(); // the server sends it again if it still exists
        self.errors.clear();
        self.wire.disconnect();
        self.requested.disconnect();
        self.recently_left = RecentlyLeft::default();
        self.second_request.disconnect();
        self.end_question.disconnect();
        if !self.second_request.is_empty() && self.class == Class::Wildcard {
            self.accepted.clear(); // with this version, the server would again have no reason to respond
        }
        self.progress = SetProgress::default();
        (self.written, self.poll_liveness) = (None, Liveness::default());
        self.first_answer = FirstAnswer::default();
    }

    /// Names that came on this opening and could not be read count as given. Those without a cached value are requested on the
    /// next.
    fn request_rejected(&mut self) {
        let unheld = |name: &&Name| !self.versions.contains_key(self.own_name(name)) && !self.globs.has(name);
        let rejected = |name: &&Name| self.rejected.may_be(name) && self.requested.get(name).is_none();
        let questions: Vec<_> = self.names.iter().filter(rejected).filter(unheld).cloned().collect();
        questions.into_iter().for_each(|name| self.requested.request(name));
    }

    /// Returns the server's own name of what is requested.
    fn own_name<'a>(&'a self, name: &'a Name) -> &'a Name {
        self.aliases.get(name).unwrap_or(name)
    }

    /// A poll for the type was answered, with or without changes.
    pub(crate) fn on_poll(&mut self, now: Moment) {
        self.poll_liveness.answered_at(now);
        self.first_answer = self.first_answer.after_response();
    }

    /// A poll for the type was not answered.
    pub(crate) fn on_poll_failed(&mut self, failure: PollFailure, now: Moment, limits: &Limits) {
        self.first_answer = self.first_answer.after_failure(failure, now, limits);
        self.poll_liveness = Liveness::default();
        self.requested.pause();
    }

    pub(crate) fn is_polled(&self) -> bool {
        self.poll_liveness.is_proven()
    }

    pub(crate) fn written(&mut self, now: Moment, rules: &ServerQuirks, limits: &Limits) {
        if self.wire.opened {
            self.written.get_or_insert(now);
            self.second_request.written(now);
            self.end_question.written(now);
            self.recently_left.written(now, limits.resource_timer);
        }
        let lasting = match rules.on_resource_timeout {
            quirks::OnResourceTimeout::Absent => limits.resource_timer,
            quirks::OnResourceTimeout::TransientError => limits.resource_timer * 2,
            quirks::OnResourceTimeout::Unknown => return,
        };
        // Collections have no timer: only the server knows what they contain (COLL-20).
        let globs = &self.globs;
        self.requested.written(now, lasting, |name| !globs.has(name));
    }

    pub(crate) fn next_deadline(&self, others: OtherTypes, limits: &Limits) -> Option<Moment> {
        let later = |at: &Moment| *at > self.judged_at;
        let second = self.second_request.ends_at(self.progress.growth(), others.news, limits);
        let first =
            self.first_silence_ends_at(others.come_in_until, limits).filter(|_| !self.second_request.has_looked());
        let settles = self.progress.settles_at(limits).filter(|_| self.has_sets());
        let ends = [self.end_question.ends_at(limits), self.end_question.given_up_at(limits)];
        let soon = self.quiet_of_all_at(others, limits).filter(|_| self.wildcard && !self.second_request.has_looked());
        let silence = [second, first, settles, soon].into_iter().chain(ends).flatten().filter(later).min();
        earliest(silence, earliest(self.wire.next_deadline(), self.requested.next_deadline(self.judged_at)))
    }

    /// Until when the sets of the type count as coming in, if any has begun.
    pub(crate) fn comes_in_until(&self, limits: &Limits) -> Option<Moment> {
        self.progress.news().filter(|_| self.has_sets()).map(|news| news + limits.settle_stated)
    }

    pub(super) fn has_sets(&self) -> bool {
        self.wildcard || self.globs.len() > 0
    }

    /// Whether it is known on this opening what the server has of a name: a resource that was sent or confirmed, one that could
    /// not be read, or an error.
    pub(crate) fn is_confirmed(&self, name: &Name) -> bool {
        let own = self.own_name(name);
        let given = self.versions.contains_key(own) && !self.unconfirmed.contains(own);
        given || self.rejected.may_be(name) || self.errors.contains_key(name)
    }

    pub(crate) fn wanted(&self, name: &Name) -> Selector {
        match self.class {
            Class::Wildcard => Selector::Wildcard,
            Class::Named => Selector::Name(name.clone()),
        }
    }
}
