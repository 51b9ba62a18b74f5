//! What a server's silence about one type means: what is requested a second time, and what is concluded in the end.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::liveness::SilenceVerdict;
use super::quirks::{self, ServerQuirks};
use super::second_request::{OpenQuestion, Unseen};
use super::type_subscription::{OtherTypes, TimerContext, TypeSubscription};
use crate::proto::code::UNAVAILABLE;
use crate::protocol::faults::Fault;
use crate::protocol::limits::Limits;
use crate::protocol::moment::Moment;
use crate::protocol::view::{
    Class, Completeness, Entry, Evidence, NamedError, Origin, Presence, Selector, Update, View,
};
use crate::protocol::visits::visit;
use crate::xds::{Name, Type};

impl TypeSubscription {
    /// Handles due timers. A silence counts only if the server was alive and could have responded.
    pub(crate) fn on_time(&mut self, turn: &mut TimerContext) -> Vec<Update> {
        self.judged_at = turn.now;
        let speaks = turn.at.origin_for(&Selector::Wildcard).is_some();
        if !self.wire.opened && self.wildcard && speaks && turn.at.view.seeks_set(turn.kind) {
            // A client needs the set. In SotW a server that has nothing new would not send it to one that states its version.
            self.accepted.clear();
        }
        let mut updates = Vec::new();
        if !turn.receiving && self.progress.settle(turn.now, turn.limits) && !turn.quirks.signals_completion {
            updates.extend(self.completeness_updates(turn.kind, Completeness::Settled));
            self.progress.complete |= self.wildcard && turn.limits.faults.has(Fault::FirstQuietIsTheEnd);
        }
        self.expire(turn, &mut updates);
        if turn.is_outdated {
            return updates;
        }
        self.conclude_polls(turn, &mut updates);
        self.conclude_end(turn, &mut updates);
        self.conclude_question(turn, &mut updates);
        self.conclude_second_silence(turn, &mut updates);
        updates
    }

    /// How much is known of `*`, and of each collection that the server has sent something of.
    pub(super) fn completeness_updates(&self, kind: &Type, completeness: Completeness) -> Vec<Update> {
        let wildcard = self.wildcard.then_some(Selector::Wildcard);
        let globs = self.globs.begun().cloned().map(Selector::Name);
        let of = wildcard.into_iter().chain(globs);
        of.map(|of| Update::Progress { kind: kind.clone(), of, completeness }).collect()
    }

    /// Handles requested names about which the server was silent for the resource timer (XLAT-15).
    pub(super) fn expire(&mut self, turn: &mut TimerContext, updates: &mut Vec<Update>) {
        let liveness = if turn.quirks.per_type_liveness { &mut self.poll_liveness } else { &mut *turn.liveness };
        let (now, receiving) = (turn.now, turn.receiving);
        let mut judge = |end| if receiving { SilenceVerdict::Unproven } else { liveness.judge(end, now) };
        while let Some(name) = self.requested.next_silent(now, &mut judge) {
            self.second_request.recheck_name(&name); // a client may hold it
            let kind = turn.kind.clone();
            updates.push(match turn.quirks.on_resource_timeout {
                quirks::OnResourceTimeout::TransientError | quirks::OnResourceTimeout::Unknown => {
                    let error = NamedError { code: UNAVAILABLE, message: "the control plane does not answer".into() };
                    self.requested.request(name.clone());
                    let error = Arc::new(error);
                    self.errors.insert(name.clone(), error.clone());
                    Update::Error { kind, key: name, error }
                }
                quirks::OnResourceTimeout::Absent => {
                    self.errors.remove(&name);
                    match turn.quirks.per_type_liveness {
                        // Each poll is answered in full: the server does not have what the response lacks.
                        true => turn.quirks.reported_absence(&kind, Class::Named, name),
                        false => Update::Absent { kind, class: Class::Named, key: name, evidence: Evidence::Silence },
                    }
                }
            });
        }
    }

    /// If the type is polled, each response answers all that is requested: what other servers sent and it lacks is absent.
    pub(super) fn conclude_polls(&mut self, turn: &TimerContext, updates: &mut Vec<Update>) {
        let end = self
            .first_silence_ends_at(turn.others.come_in_until, turn.limits)
            .filter(|_| turn.quirks.per_type_liveness);
        let Some(end) = end.filter(|_| !self.second_request.has_looked()) else { return };
        if self.poll_liveness.judge(end, turn.now) == SilenceVerdict::Proven {
            let gone = match self.second_request.unseen() {
                None => self.unconfirmed_present(turn),
                Some(unseen) => {
                    let silent = unseen.silent.iter();
                    silent.filter(|name| self.is_unconfirmed_present(name, turn)).cloned().collect()
                }
            };
            self.second_request.looked(turn.at.view.sought_generation());
            self.report_absent(gone, turn, updates);
        }
    }

    /// Once the set of `*` is complete, cached resources that the server has not sent are absent.
    pub(super) fn conclude_end(&mut self, turn: &TimerContext, updates: &mut Vec<Update>) {
        if !self.progress.complete || self.progress.concluded || turn.at.view.is_gated(turn.kind) {
            return;
        }
        self.progress.concluded = true;
        let mut gone = self.unconfirmed_present(turn);
        gone.append(&mut self.second_request.conclude_all());
        self.report_absent(gone, turn, updates);
        updates.extend(self.completeness_updates(turn.kind, Completeness::Complete));
    }

    /// Once the server has answered the question for the end of `*`, and nothing speaks against it, the set has ended. That removes
    /// nothing: single names are judged by their own answers.
    fn conclude_question(&mut self, turn: &mut TimerContext, updates: &mut Vec<Update>) {
        let unanswered = !self.second_request.names.is_empty() || !self.unconfirmed.is_empty();
        let unreadable = turn.receiving || self.rejected.unnamed.is_some();
        let is_partial = self.progress.is_marked_partial() || self.progress.repeats;
        let in_doubt = unanswered || unreadable || is_partial || !self.wildcard || !self.can_ask_for_end(turn.quirks);
        match self.end_question.ends_at(turn.limits).filter(|_| !in_doubt) {
            Some(end) if turn.liveness.judge(end, turn.now) == SilenceVerdict::Proven => {
                self.end_question.end();
                self.second_request.conclude();
                updates.extend(self.completeness_updates(turn.kind, Completeness::Complete));
            }
            Some(_) => {}
            None if self.end_question.given_up_at(turn.limits).is_some_and(|at| at <= turn.now) => {
                self.end_question.give_up();
                self.second_request.recheck();
            }
            None => {}
        }
    }

    /// Once the second silence has lasted long enough, what was requested a second time is absent.
    pub(super) fn conclude_second_silence(&mut self, turn: &mut TimerContext, updates: &mut Vec<Update>) {
        let Some(end) = self.second_request.ends_at(self.progress.growth(), turn.others.news, turn.limits) else {
            return;
        };
        let is_relay = turn.is_relay && !turn.limits.faults.has(Fault::SilentRelayIsSilentServer);
        let says_itself = is_relay || self.progress.is_marked_partial();
        let unfinished = turn.receiving || self.rejected.unnamed.is_some() || says_itself;
        if unfinished || turn.liveness.judge(end, turn.now) != SilenceVerdict::Proven {
            return;
        }
        let OpenQuestion { names, set } = self.second_request.conclude();
        if turn.limits.faults.has(Fault::IgnoredDeletionIsNoAnswer) {
            let deleting = ServerQuirks { ignore_deletions: false, ..turn.quirks.clone() };
            updates.extend(names.into_iter().map(|name| self.absence(turn.kind, name, &deleting)));
        } else {
            self.report_absent(names, turn, updates);
        }
        if set {
            updates.extend(self.completeness_updates(turn.kind, Completeness::Complete));
        }
    }

    pub(super) fn report_absent(&mut self, names: BTreeSet<Name>, turn: &TimerContext, updates: &mut Vec<Update>) {
        updates.extend(names.into_iter().map(|name| self.absence(turn.kind, name, turn.quirks)));
    }

    /// When a silent server has had the time to send what it has.
    pub(super) fn first_silence_ends_at(&self, not_before: Moment, limits: &Limits) -> Option<Moment> {
        let requested = self.written? + limits.resource_timer;
        let quiet = self.progress.quiet_at(limits).map(|quiet| quiet.max(not_before));
        Some(match (self.class, quiet) {
            (Class::Wildcard, Some(quiet)) => quiet,
            (_, quiet) => quiet.map_or(requested, |quiet| quiet.max(requested)),
        })
    }

    /// When the end of the set may be asked for because a client needs it, on a new opening: after a short quiet, the first time and the
    /// second.
    fn end_is_asked_at(&self, turn: &TimerContext) -> Option<Moment> {
        let view = turn.at.view;
        let needs_end = self.wildcard && view.seeks_set(turn.kind) && turn.at.origin_for(&Selector::Wildcard).is_some();
        let may_ask = self.second_request.may_ask_at_once(self.end_question.has_grown()) && !self.progress.repeats;
        let is_off = turn.limits.faults.has(Fault::EndIsNotAsked);
        let is_silent = !self.progress.has_response() && self.states_version(turn.kind);
        let may_ask = needs_end && may_ask && (is_silent || self.can_ask_for_end(turn.quirks)) && !is_off;
        self.quiet_of_all_at(turn.others, turn.limits).filter(|_| may_ask)
    }

    /// When a server that sends nothing more, of no type, has been quiet for a moment.
    pub(super) fn quiet_of_all_at(&self, others: OtherTypes, limits: &Limits) -> Option<Moment> {
        let since = self.progress.news().or(self.written.filter(|_| !self.accepted.is_empty()));
        since.map(|since| (since + limits.settle_fresh).max(others.fresh_until))
    }

    /// Whether this opening has stated the version of a whole set, so that a SotW server is silent if it has nothing new.
    fn states_version(&self, kind: &Type) -> bool {
        kind.info().full_state && !self.accepted.is_empty()
    }

    /// Finds what to request from the server a second time, on a new opening.
    pub(crate) fn plan_second_request(&mut self, turn: &mut TimerContext) {
        let generation = turn.at.view.sought_generation();
        if !self.second_request.is_to_look(generation) {
            return;
        }
        let silence = self.first_silence_ends_at(turn.others.come_in_until, turn.limits).filter(|end| *end <= turn.now);
        let soon = self.end_is_asked_at(turn).filter(|end| *end <= turn.now);
        let Some(end) = soon.or(silence) else { return };
        let nobody_says =
            turn.quirks.on_resource_timeout == quirks::OnResourceTimeout::Unknown && !turn.quirks.signals_completion;
        if nobody_says
            || turn.quirks.per_type_liveness
            || turn.receiving
            || !self.is_wanted()
            || turn.at.view.is_gated(turn.kind)
        {
            return;
        }
        let at_once = soon.is_some() && self.is_to_ask_for_set(turn);
        if silence.is_none() && !at_once {
            return; // too early for anything else
        }
        let repeats = self.progress.repeats && !turn.is_relay;
        if silence.is_some() && repeats && !turn.limits.faults.has(Fault::RepeatingConfirmsAll) {
            // The server has not confirmed what it has not sent again by now.
            let unsent = std::mem::take(&mut self.progress.to_be_repeated).into_iter();
            self.unconfirmed.extend(unsent.filter(|name| self.versions.contains_key(name)));
        }
        let question = self.second_request.without_asked(self.unanswered_claims(turn));
        if silence.is_some() && self.second_request.is_empty() {
            self.progress.stated.clear(); // it has answered what it was first asked
        }
        if question.is_empty() {
            self.second_request.looked(generation);
        } else if turn.quirks.signals_completion || turn.liveness.judge(end, turn.now) == SilenceVerdict::Proven {
            // A source that signals completion is within the process, and so alive.
            self.second_request.looked(generation);
            self.second_request.ask_next(question, at_once);
        }
    }

    /// Another set is requested again on a new opening: so is this one, if clients need it and its end is not known.
    pub(super) fn ask_for_set_too(&mut self, is_sought: bool) {
        let known = self.is_at_end() || self.progress.is_marked_partial() || !self.progress.has_response();
        let asks = self.second_request.set || self.second_request.is_to_ask_for_set();
        if self.wildcard && is_sought && !known && !asks && !self.second_request.has_requested_enough() {
            self.second_request.ask_next(OpenQuestion { names: BTreeSet::new(), set: true }, false);
        }
    }

    /// What clients hold, and the server has neither sent nor reported absent. What was looked at before on this opening becomes that only if
    /// the server is silent about it.
    pub(super) fn unanswered_claims(&self, turn: &TimerContext) -> OpenQuestion {
        let view = turn.at.view;
        let is_open = |name: &&Name| self.is_unanswered(name, turn);
        let names = match self.second_request.unseen() {
            None => {
                let mut names = self.unconfirmed_present(turn);
                names.extend(view.sought(turn.kind, self.class).filter(is_open).cloned());
                names.extend(self.unconfirmed_removed(view, turn.kind).filter(is_open).cloned());
                names
            }
            Some(Unseen { since, silent }) => {
                let claimed = view.sought_since(turn.kind, self.class, since).filter(is_open);
                let silent = silent.iter().filter(|name| self.is_silent_question(name, turn));
                claimed.chain(silent).cloned().collect()
            }
        };
        OpenQuestion { names, set: self.is_to_ask_for_set(turn) }
    }

    /// Whether a name is requested from this server, is not known on this opening, and has no timer that runs.
    fn is_unanswered(&self, name: &Name, turn: &TimerContext) -> bool {
        let wanted = self.wildcard || self.names.contains(name) || self.globs.of(name).is_some();
        let requested = wanted && !self.requested.is_waiting(name);
        requested && turn.at.origin_for(&self.wanted(name)).is_some() && !self.is_confirmed(name)
    }

    /// Whether a name about which the server was silent is claimed, or cached and not confirmed, or was removed by others.
    fn is_silent_question(&self, name: &Name, turn: &TimerContext) -> bool {
        let view = turn.at.view;
        let is_removed = || self.unconfirmed.contains(name) && self.is_missing(name, view, turn.kind);
        let is_held = view.is_sought(turn.kind, self.class, name) || is_removed();
        is_held && self.is_unanswered(name, turn) || self.is_unconfirmed_present(name, turn)
    }

    /// Whether a client needs the whole set, and it is to be requested again for that.
    fn is_to_ask_for_set(&self, turn: &TimerContext) -> bool {
        let view = turn.at.view;
        // A server that honors stated versions sends nothing once all it has is stated: until then the set is requested again.
        let requested = self.second_request.set
            && (self.progress.repeats || !self.progress.has_response() || self.second_request.has_requested_enough());
        let speaks = || turn.at.origin_for(&Selector::Wildcard).is_some();
        let is_asked = self.end_question.is_open(turn.now, turn.limits) || self.end_question.has_ended();
        let requested = requested || is_asked || self.progress.is_marked_partial();
        self.wildcard && !self.progress.complete && !requested && view.seeks_set(turn.kind) && speaks()
    }

    /// Names that this server gave, has not sent on this opening, and that other servers have removed meanwhile. Before that, it
    /// may have confirmed them by not sending them.
    pub(super) fn unconfirmed_removed<'a>(&'a self, view: &'a View, kind: &'a Type) -> impl Iterator<Item = &'a Name> {
        let all = self.unconfirmed.iter().inspect(|_| visit());
        all.filter(move |name| self.is_missing(name, view, kind) && !self.is_confirmed(name))
    }

    fn is_missing(&self, name: &Name, view: &View, kind: &Type) -> bool {
        view.entry(kind, self.class, name).is_none_or(|entry| !matches!(entry.presence, Presence::Present(_)))
    }

    /// Present names that this server has not confirmed on this opening, and that its silence may remove.
    pub(super) fn unconfirmed_present(&self, turn: &TimerContext) -> BTreeSet<Name> {
        if turn.quirks.ignore_deletions {
            return BTreeSet::new();
        }
        let here = turn.at.view.here(turn.kind, self.class);
        here.filter(|(name, entry)| self.is_unconfirmed(name, entry, turn)).map(|(name, _)| name.clone()).collect()
    }

    /// Whether a name is one of [`Self::unconfirmed_present`].
    fn is_unconfirmed_present(&self, name: &Name, turn: &TimerContext) -> bool {
        let entry = || turn.at.view.entry_here(turn.kind, self.class, name);
        !turn.quirks.ignore_deletions && entry().is_some_and(|entry| self.is_unconfirmed(name, entry, turn))
    }

    fn is_unconfirmed(&self, name: &Name, entry: &Entry, turn: &TimerContext) -> bool {
        let own = self.wildcard || self.names.contains(name) || self.globs.of(name).is_some();
        let speaks = |source: Origin| !(source.holds_missing && entry.origin.rank < source.rank);
        own && !self.is_confirmed(name)
            && !self.requested.is_waiting(name)
            && turn.at.origin_for(&self.wanted(name)).is_some_and(speaks)
    }
}
