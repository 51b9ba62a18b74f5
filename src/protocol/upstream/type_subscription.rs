//! One type on one upstream stream: what is subscribed, what the server has sent of it, and what may be concluded from that.

mod findings;
mod versions;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::ViewContext;
use super::delivery::{Delivery, DeliveryHabit};
use super::globs::Globs;
use super::liveness::Liveness;
use super::quirks::{self, ServerQuirks};
use super::recently_left::RecentlyLeft;
use super::rejected::Rejected;
use super::requested_names::RequestedNames;
use super::second_request::SecondRequest;
use super::set_progress::SetProgress;
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
    /// Those of them that stand for a whole collection.
    pub(crate) globs: Globs,
    /// Names and versions as this server gave them (UP-12), told back to it on a new stream.
    pub(crate) versions: BTreeMap<Name, String>,
    /// Those of them that it has to say again on this opening, or are not confirmed: it was told nothing of them.
    pub(crate) unconfirmed: BTreeSet<Name>,
    /// Those of them that have an end. They are not stated on a new stream: what may have died is to be sent again.
    pub(crate) with_ttl: BTreeSet<Name>,
    /// What was requested by an alias, with the name that the server has for it (DELTA-22).
    pub(crate) aliases: BTreeMap<Name, Name>,
    pub(crate) misnamed: u64,
    /// The last SotW version that was taken.
    pub(crate) accepted: String,
    /// Wanted names that the server has not given on this opening.
    pub(crate) requested: RequestedNames,
    pub(crate) recently_left: RecentlyLeft,
    pub(crate) progress: SetProgress,
    habit: DeliveryHabit,
    /// What that was learnt from, for others who talk to this server.
    pub(crate) deliveries: Vec<Delivery>,
    /// Others have seen the server send this in pieces.
    pub(crate) in_pieces_for_others: bool,
    pub(crate) second_request: SecondRequest,
    pub(crate) rejected: Rejected,
    /// What the server has reported last of wanted names on this opening, and nothing of them since.
    pub(crate) errors: BTreeMap<Name, Arc<NamedError>>,
    pub(crate) wire: Wire,
    /// When the first request of this opening was written.
    pub(crate) written: Option<Moment>,
    /// Where each type is polled for by itself: what its polls prove.
    pub(crate) poll_liveness: Liveness,
    /// Up to here time has done its work.
    pub(crate) judged_at: Moment,
}

/// What is at hand while time is let do its work.
pub(super) struct TimerContext<'a> {
    pub(crate) kind: &'a Type,
    pub(crate) at: &'a ViewContext<'a>,
    pub(crate) quirks: &'a ServerQuirks,
    pub(crate) limits: &'a Limits,
    pub(crate) liveness: &'a mut Liveness,
    /// A message is coming in, so that the server is not silent.
    pub(crate) receiving: bool,
    pub(crate) others: OtherTypes,
    pub(crate) now: Moment,
}

/// What the types of one stream mean to one another: they come one after the other.
#[derive(Debug, Clone, Copy)]
pub(super) struct OtherTypes {
    /// None is taken to be at its end before this.
    pub(crate) come_in_until: Moment,
    /// When something of any of them was last said for the first time.
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
            rejected: Rejected::default(),
            errors: BTreeMap::new(),
            wire: Wire::default(),
            written: None,
            poll_liveness: Liveness::default(),
            judged_at: Moment::START,
        }
    }

    pub(crate) fn is_wanted(&self) -> bool {
        self.wildcard || !self.names.is_empty()
    }

    /// Whether the server has something to say that it has not said.
    pub(crate) fn is_waiting(&self) -> bool {
        let of_wildcard = self.wildcard && self.versions.is_empty() && self.accepted.is_empty();
        of_wildcard || self.requested.is_any_waiting()
    }

    /// Whether the server has spoken of all that is wanted on this opening, or had the time to: one that goes by what it is told has
    /// nothing to say where nothing is new.
    pub(crate) fn has_answered_all(&self) -> bool {
        let had_time = self.poll_liveness.is_proven() || self.second_request.has_looked();
        (!self.wildcard || self.progress.has_response() || had_time) && !self.requested.is_any_waiting()
    }

    /// Whether nothing of it is wanted, and the server was told so and has had time for its last words.
    pub(crate) fn is_over(&self, now: Moment, limits: &Limits) -> bool {
        let sent = self.wire.is_acked() && now >= self.wire.last_sent_at() + limits.resource_timer;
        !self.is_wanted() && (sent || !self.wire.opened)
    }

    /// What is held of another server is in the first request like everything; later it is a question like any other.
    pub(crate) fn want(&mut self, wanted: Selector, on: bool, held: bool) {
        if self.wildcard && on && wanted == Selector::Wildcard {
            return; // what there is to say of a set comes by itself
        }
        self.wire.changed = true;
        match (wanted, on) {
            (Selector::Wildcard, true) => {
                self.wildcard = true;
                self.progress = SetProgress::again(self.wire.opened);
                self.forget_versions(); // an answer to the last words of an earlier `*` may have come since
            }
            (Selector::Wildcard, false) => {
                self.wildcard = false;
                self.wire.star_dropped = self.wire.star_told;
                self.forget_versions();
            }
            (Selector::Name(name), true) => {
                // What came with a collection is there: silence about it, once it is requested by itself, says nothing.
                let given = self.versions.contains_key(&name) && self.globs.of(&name).is_some();
                let held = given || held && !self.wire.opened;
                self.wire.subscribe.insert(name.clone());
                self.globs.insert(&name);
                if self.holds_by_name(&name) {
                    self.forget(&name); // once more: it stays held, and the server is not told so, lest it leaves it out
                } else if self.names.insert(name.clone()) && held {
                    self.requested.given(&name);
                } else {
                    self.requested.request(name);
                }
            }
            (Selector::Name(name), false) => {
                self.names.remove(&name);
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

    /// A name that is wanted by itself and was not left unanswered.
    pub(crate) fn holds_by_name(&self, name: &Name) -> bool {
        self.names.contains(name) && self.requested.get(name).is_none()
    }

    pub(crate) fn record_delivery(&mut self, seen: Delivery) {
        self.habit.note(seen);
        if self.deliveries.last() != Some(&seen) {
            self.deliveries.push(seen); // told soon, and before that more of the same is no news
        }
        self.deliveries.drain(..self.deliveries.len().saturating_sub(2));
    }

    /// The server knows nothing of us any more; what it once gave stays, with its versions.
    pub(crate) fn disconnect(&mut self, variant: Variant, rules: &ServerQuirks) {
        if self.progress.was_at_once() {
            self.record_delivery(Delivery::AtOnce);
        }
        if variant == Variant::Sotw || !rules.supports_initial_resource_versions {
            self.unconfirmed = self.versions.keys().cloned().collect();
        }
        self.globs.disconnect();
        self.request_rejected();
        self.rejected.disconnect(); // it comes again, if it is there still
        self.errors.clear();
        self.wire.disconnect();
        self.requested.disconnect();
        self.recently_left = RecentlyLeft::default();
        self.second_request.disconnect();
        if !self.second_request.is_empty() && self.class == Class::Wildcard {
            self.accepted.clear(); // told of it, the server would have no more reason to speak than before
        }
        self.progress = SetProgress::default();
        (self.written, self.poll_liveness) = (None, Liveness::default());
    }

    /// What came on this opening and could not be read was given, and nothing is held of it: it is a question on the next.
    fn request_rejected(&mut self) {
        let unheld = |name: &&Name| !self.versions.contains_key(self.own_name(name)) && !self.globs.has(name);
        let rejected = |name: &&Name| self.rejected.may_be(name) && self.requested.get(name).is_none();
        let questions: Vec<_> = self.names.iter().filter(rejected).filter(unheld).cloned().collect();
        questions.into_iter().for_each(|name| self.requested.request(name));
    }

    /// The name that the server has for what is requested.
    fn own_name<'a>(&'a self, name: &'a Name) -> &'a Name {
        self.aliases.get(name).unwrap_or(name)
    }

    /// A poll for the type was answered, be it with nothing new.
    pub(crate) fn on_poll(&mut self, now: Moment) {
        self.poll_liveness.answered_at(now);
    }

    /// A poll for the type was not answered.
    pub(crate) fn on_poll_failed(&mut self) {
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
            self.recently_left.written(now, limits.resource_timer);
        }
        let lasting = match rules.on_resource_timeout {
            quirks::OnResourceTimeout::Absent => limits.resource_timer,
            quirks::OnResourceTimeout::TransientError => limits.resource_timer * 2,
            quirks::OnResourceTimeout::Unknown => return,
        };
        // How much there is in a collection only the server can say (COLL-20).
        let globs = &self.globs;
        self.requested.written(now, lasting, |name| !globs.has(name));
    }

    pub(crate) fn next_deadline(&self, others: OtherTypes, limits: &Limits) -> Option<Moment> {
        let later = |at: &Moment| *at > self.judged_at;
        let second = self.second_request.ends_at(self.progress.growth(), others.news, limits);
        let first =
            self.first_silence_ends_at(others.come_in_until, limits).filter(|_| !self.second_request.has_looked());
        let settles = self.progress.settles_at(limits).filter(|_| self.has_sets());
        let silence = [second, first, settles].into_iter().flatten().filter(later).min();
        earliest(silence, earliest(self.wire.next_deadline(), self.requested.next_deadline(self.judged_at)))
    }

    /// Until when the type is coming in, if it is.
    pub(crate) fn comes_in_until(&self, limits: &Limits) -> Option<Moment> {
        self.progress.news().filter(|_| self.has_sets()).map(|news| news + limits.settle_stated)
    }

    fn has_sets(&self) -> bool {
        self.wildcard || self.globs.len() > 0
    }

    /// Whether what the server has of a name is known on this opening: it was sent, or confirmed, or came and could not be read.
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
