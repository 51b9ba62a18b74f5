//! What a server's silence about one type means: what is requested a second time, and what is concluded at the end.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::ViewContext;
use super::opening::{Opening, SilenceVerdict};
use super::parts::{SubscriptionParts, absence};
use super::quirks::{OnResourceTimeout, ServerQuirks};
use super::second_request::{OpenQuestion, Unseen};
use crate::proto::code::UNAVAILABLE;
use crate::protocol::moment::Moment;
use crate::protocol::upstream::options::UpstreamOptions;
use crate::protocol::view::{
    Class, Completeness, Evidence, NamedError, Origin, Presence, Selector, TableEntry, Update,
};
use crate::protocol::visits::visit;
use crate::xds::{Name, Type};

/// What a subscription needs to handle its timers.
pub(super) struct TimerContext<'a> {
    pub(crate) kind: &'a Type,
    pub(crate) at: &'a ViewContext<'a>,
    pub(crate) quirks: &'a ServerQuirks,
    pub(crate) options: &'a UpstreamOptions,
    pub(crate) opening: &'a mut Opening,
    pub(crate) others: OtherTypes,
    pub(crate) now: Moment,
}

/// What a type needs to know of the other types on its stream: sets of different types arrive one after another.
#[derive(Debug, Clone, Copy)]
pub(super) struct OtherTypes {
    /// No type that has had a response counts as finished before this.
    pub(crate) come_in_until: Moment,
    /// No type counts as quiet before this.
    pub(crate) fresh_until: Moment,
    /// When new content of any type last came.
    pub(crate) news: Option<Moment>,
}

/// Handles due timers. A silence counts only if the server was alive and could have responded.
pub(super) fn conclude(parts: &mut SubscriptionParts, context: &mut TimerContext) -> Vec<Update> {
    let is_receiving = context.opening.is_receiving();
    if !parts.wire.is_opened() && needs_set(parts, context) {
        // A client needs the set. If the request stated its version, a SotW server that has nothing new would not send it.
        parts.given.clear_accepted();
    }
    let mut updates = Vec::new();
    if !is_receiving && parts.progress.settle(context.now, context.options) && !context.quirks.is_hub() {
        updates.extend(parts.wanted.completeness_updates(context.kind, Completeness::Settled));
    }
    expire(parts, context, &mut updates);
    // If this opening has stated versions that no longer count, the server's silence shows nothing about those resources.
    if !context.opening.is_outdated() {
        conclude_polls(parts, context, &mut updates);
        conclude_end(parts, context, &mut updates);
        conclude_question(parts, context, &mut updates);
        conclude_second_silence(parts, context, &mut updates);
    }
    updates
}

/// Whether a client needs the whole set from this server.
fn needs_set(parts: &SubscriptionParts, context: &TimerContext) -> bool {
    let speaks = || context.at.origin_for(&Selector::Wildcard).is_some();
    parts.wanted.has_wildcard() && context.at.view.sought().has_set(context.kind) && speaks()
}

/// Handles requested names about which the server was silent for the resource timer (XLAT-15). One client may request a hundred thousand names,
/// so only some are handled before other work has its turn.
fn expire(parts: &mut SubscriptionParts, context: &mut TimerContext, updates: &mut Vec<Update>) {
    let (quirks, opening, now) = (context.quirks, &mut *context.opening, context.now);
    // What a polled server has sent without a readable name may be any of them.
    let is_in_doubt = quirks.per_type_liveness && parts.rejected.unnamed().is_some();
    let mut judge = |end| match quirks.per_type_liveness {
        _ if opening.is_receiving() || is_in_doubt => SilenceVerdict::Unproven,
        true => parts.poll_liveness.judge(end, now),
        false => opening.judge(end, now),
    };
    for _ in 0..AT_ONCE {
        let Some(name) = parts.names.next_silent(now, &mut judge) else { return parts.names.note_behind(false) };
        parts.second_request.recheck_name(&name); // a client may hold the name
        let kind = context.kind.clone();
        updates.push(match quirks.on_resource_timeout {
            OnResourceTimeout::TransientError | OnResourceTimeout::Unknown => {
                let error = NamedError { code: UNAVAILABLE, message: "the control plane does not answer".into() };
                parts.names.request(name.clone());
                let error = Arc::new(error);
                parts.rejected.insert_error(name.clone(), error.clone());
                Update::Error { kind, key: name, error }
            }
            OnResourceTimeout::Absent => {
                parts.rejected.remove_error(&name);
                match quirks.per_type_liveness {
                    // Each poll is answered in full: the server does not have what the response lacks.
                    true => quirks.reported_absence(&kind, Class::Named, name),
                    false => Update::Absent { kind, class: Class::Named, key: name, evidence: Evidence::Silence },
                }
            }
        });
    }
    parts.names.note_behind(true);
}

/// Concludes the absences of a polled type. Each response answers all that is requested, so a cached resource that is unconfirmed is absent. An
/// entry without a readable name may be that of any such resource.
fn conclude_polls(parts: &mut SubscriptionParts, context: &TimerContext, updates: &mut Vec<Update>) {
    let end = first_silence_ends_at(parts, context).filter(|_| context.quirks.per_type_liveness);
    let is_to_look = !parts.second_request.has_looked() && parts.rejected.unnamed().is_none();
    let Some(end) = end.filter(|_| is_to_look) else { return };
    if parts.poll_liveness.judge(end, context.now) == SilenceVerdict::Proven {
        let gone = match parts.second_request.unseen() {
            None => unconfirmed_present(parts, context),
            Some(unseen) => {
                let silent = unseen.silent.iter();
                silent.filter(|name| is_unconfirmed_present(parts, name, context)).cloned().collect()
            }
        };
        // The last response may be from the time between two requests for a name.
        let is_open = |name: &Name| parts.names.is_recently_left(name, context.now);
        let (open, gone): (BTreeSet<_>, BTreeSet<_>) = gone.into_iter().partition(is_open);
        parts.second_request.looked(context.at.view.sought().generation());
        open.iter().for_each(|name| parts.second_request.recheck_name(name));
        report_absent(parts, gone, context, updates);
    }
}

/// Concludes the absences of a complete set of `*`: cached resources that the server has not sent do not exist.
fn conclude_end(parts: &mut SubscriptionParts, context: &TimerContext, updates: &mut Vec<Update>) {
    if !parts.progress.is_to_conclude() {
        return;
    }
    parts.progress.conclude();
    let mut gone = unconfirmed_present(parts, context);
    gone.append(&mut parts.second_request.conclude_all());
    report_absent(parts, gone, context, updates);
    updates.extend(parts.wanted.completeness_updates(context.kind, Completeness::Complete));
}

/// Ends the set of `*` when the server has answered the question for its end, and nothing speaks against that. This removes nothing: single
/// names are judged by their own answers.
fn conclude_question(parts: &mut SubscriptionParts, context: &mut TimerContext, updates: &mut Vec<Update>) {
    let unanswered = !parts.second_request.names().is_empty() || !parts.given.unconfirmed().is_empty();
    let unreadable = context.opening.is_receiving() || parts.rejected.unnamed().is_some();
    let is_partial = parts.progress.is_marked_partial() || parts.progress.repeats();
    let may_show_end = parts.wanted.has_wildcard() && parts.deliveries.may_show_end(context.quirks);
    let in_doubt = unanswered || unreadable || is_partial || !may_show_end;
    match parts.end_question.ends_at(context.options).filter(|_| !in_doubt) {
        Some(end) if context.opening.judge(end, context.now) == SilenceVerdict::Proven => {
            parts.end_question.end();
            parts.second_request.conclude();
            updates.extend(parts.wanted.completeness_updates(context.kind, Completeness::Complete));
        }
        Some(_) => {}
        None if parts.end_question.given_up_at(context.options).is_some_and(|at| at <= context.now) => {
            parts.end_question.give_up();
            parts.second_request.recheck();
        }
        None => {}
    }
}

/// Concludes the absence of what was requested a second time, when the second silence has lasted long enough.
fn conclude_second_silence(parts: &mut SubscriptionParts, context: &mut TimerContext, updates: &mut Vec<Update>) {
    let (growth, options) = (parts.progress.growth(), context.options);
    let Some(end) = parts.second_request.ends_at(growth, context.others.news, options) else { return };
    let says_itself = context.opening.is_relay() || parts.progress.is_marked_partial();
    let unfinished = context.opening.is_receiving() || parts.rejected.unnamed().is_some() || says_itself;
    if unfinished || context.opening.judge(end, context.now) != SilenceVerdict::Proven {
        return;
    }
    let OpenQuestion { names, set } = parts.second_request.conclude();
    report_absent(parts, names, context, updates);
    if set {
        updates.extend(parts.wanted.completeness_updates(context.kind, Completeness::Complete));
    }
}

fn report_absent(
    parts: &mut SubscriptionParts,
    names: BTreeSet<Name>,
    context: &TimerContext,
    updates: &mut Vec<Update>,
) {
    updates.extend(names.into_iter().map(|name| absence(parts, context.kind, name, context.quirks)));
}

fn first_silence_ends_at(parts: &SubscriptionParts, context: &TimerContext) -> Option<Moment> {
    let (class, written, not_before) = (parts.wanted.class(), parts.wire.written(), context.others.come_in_until);
    parts.progress.first_silence_ends_at(class, written, not_before, context.options)
}

/// Returns when a new opening may ask for the end of the set because a client needs it: after a short quiet, once, and once more if the set has grown.
fn end_is_asked_at(parts: &SubscriptionParts, context: &TimerContext) -> Option<Moment> {
    let may_ask = parts.second_request.may_ask_at_once(parts.end_question.has_grown()) && !parts.progress.repeats();
    // If this opening has stated the version of a whole set, a SotW server that has nothing new is silent.
    let states_version = context.kind.info().full_state && !parts.given.accepted().is_empty();
    let is_silent = !parts.progress.has_response() && states_version;
    let may_ask = may_ask && needs_set(parts, context) && (is_silent || parts.deliveries.may_show_end(context.quirks));
    let written = parts.wire.written().filter(|_| !parts.given.accepted().is_empty());
    parts.progress.quiet_of_all_at(written, context.others.fresh_until, context.options).filter(|_| may_ask)
}

/// Finds what to request from the server a second time, on a new opening.
pub(super) fn plan_second_request(parts: &mut SubscriptionParts, context: &mut TimerContext) {
    let generation = context.at.view.sought().generation();
    if !parts.second_request.is_to_look(generation) {
        return;
    }
    let quirks = context.quirks;
    let silence = first_silence_ends_at(parts, context).filter(|end| *end <= context.now);
    let soon = end_is_asked_at(parts, context).filter(|end| *end <= context.now);
    let Some(end) = soon.or(silence) else { return };
    if quirks.per_type_liveness || context.opening.is_receiving() || !parts.is_read() {
        return;
    }
    let at_once = soon.is_some() && is_to_ask_for_set(parts, context);
    if silence.is_none() && !at_once {
        return; // too early for anything else
    }
    // There may be many names to request: they are not collected with each event while only the proof of life is missing.
    if parts.second_request.awaits_life(end) && !has_shown_life(context, end) {
        return;
    }
    let repeats = parts.progress.repeats() && !context.opening.is_relay();
    if silence.is_some() && repeats {
        // The server sends everything again, so what it has not sent by now is unconfirmed.
        parts.given.unconfirm(parts.progress.take_unrepeated().into_iter());
    }
    let question = parts.second_request.without_asked(unanswered_claims(parts, context));
    if silence.is_some() && parts.second_request.is_empty() {
        parts.progress.forget_stated(); // the server has answered what it was first asked
    }
    if question.is_empty() {
        parts.second_request.looked(generation);
    } else if has_shown_life(context, end) {
        parts.second_request.looked(generation);
        parts.second_request.ask_next(question, at_once);
    } else {
        parts.second_request.await_life(end);
    }
}

/// Whether the server has shown that it is alive since the end of a silence. The hub always is.
fn has_shown_life(context: &mut TimerContext, end: Moment) -> bool {
    context.quirks.is_hub() || context.opening.judge(end, context.now) == SilenceVerdict::Proven
}

/// Requests a set again together with another set, if some of it has come and it is not requested again already. The caller checks the need.
pub(super) fn ask_for_set_too(parts: &mut SubscriptionParts) {
    let is_due = !parts.progress.is_marked_partial() && parts.progress.has_response();
    let second_request = &mut parts.second_request;
    let asks = second_request.has_set() || second_request.is_to_ask_for_set();
    if is_due && !asks && !second_request.has_requested_enough() {
        second_request.ask_next(OpenQuestion { names: BTreeSet::new(), set: true }, false);
    }
}

/// Returns what clients hold and the server has neither sent nor reported absent. Names that were collected before on this opening are included
/// only if the server has been silent about them since.
fn unanswered_claims(parts: &SubscriptionParts, context: &TimerContext) -> OpenQuestion {
    let (view, kind, class) = (context.at.view, context.kind, parts.wanted.class());
    let is_open = |name: &&Name| is_unanswered(parts, name, context);
    let names = match parts.second_request.unseen() {
        None => {
            let mut names = unconfirmed_present(parts, context);
            names.extend(view.sought().names(kind, class).filter(is_open).cloned());
            names.extend(unconfirmed_removed(parts, context).filter(is_open).cloned());
            names
        }
        Some(Unseen { since, silent }) => {
            let claimed = view.sought().names_since(kind, class, since).filter(is_open);
            let silent = silent.iter().filter(|name| is_silent_question(parts, name, context));
            claimed.chain(silent).cloned().collect()
        }
    };
    OpenQuestion { names, set: is_to_ask_for_set(parts, context) }
}

/// Whether it is known on this opening what the server has under a name: a resource that was sent or confirmed, one that could not be read, or
/// an error.
fn is_confirmed(parts: &SubscriptionParts, name: &Name) -> bool {
    parts.given.is_confirmed(name) || parts.rejected.is_doubtful(name)
}

/// Whether a name is requested from this server, nothing is known of it on this opening, and it is not waiting for its timer.
fn is_unanswered(parts: &SubscriptionParts, name: &Name, context: &TimerContext) -> bool {
    let requested = parts.wanted.wants(name) && !parts.names.is_waiting(name);
    let speaks = || context.at.origin_for(&parts.wanted.selector_of(name)).is_some();
    requested && speaks() && !is_confirmed(parts, name)
}

/// Whether a name about which the server was silent is claimed, or cached and unconfirmed, or was removed by other servers.
fn is_silent_question(parts: &SubscriptionParts, name: &Name, context: &TimerContext) -> bool {
    let is_removed = || parts.given.is_unconfirmed(name) && is_missing(parts, name, context);
    let is_held = context.at.view.sought().has(context.kind, parts.wanted.class(), name) || is_removed();
    is_held && is_unanswered(parts, name, context) || is_unconfirmed_present(parts, name, context)
}

/// Whether a client needs the whole set, so that it has to be requested again.
fn is_to_ask_for_set(parts: &SubscriptionParts, context: &TimerContext) -> bool {
    let second_request = &parts.second_request;
    // A server that honors stated versions sends nothing once all that it has is stated. While it still sends something, the set is requested again.
    let is_due = parts.progress.repeats() || !parts.progress.has_response() || second_request.has_requested_enough();
    let requested = second_request.has_set() && is_due;
    let is_asked = parts.end_question.is_open(context.now, context.options) || parts.end_question.has_ended();
    let requested = requested || is_asked || parts.progress.is_marked_partial();
    !parts.progress.is_complete() && !requested && needs_set(parts, context)
}

/// Returns names that this server gave, has not sent on this opening, and that other servers have removed. Before they were removed, its
/// silence may have confirmed them.
fn unconfirmed_removed<'a>(parts: &'a SubscriptionParts, context: &'a TimerContext) -> impl Iterator<Item = &'a Name> {
    let all = parts.given.unconfirmed().iter().inspect(|_| visit());
    all.filter(move |name| is_missing(parts, name, context) && !is_confirmed(parts, name))
}

fn is_missing(parts: &SubscriptionParts, name: &Name, context: &TimerContext) -> bool {
    let entry = context.at.view.tables().entry(context.kind, parts.wanted.class(), name);
    entry.is_none_or(|entry| !matches!(entry.presence, Presence::Present(_)))
}

/// Returns present names that this server has not confirmed on this opening, and that its silence may remove.
fn unconfirmed_present(parts: &SubscriptionParts, context: &TimerContext) -> BTreeSet<Name> {
    if context.quirks.ignore_deletions {
        return BTreeSet::new();
    }
    let here = context.at.view.holds().here(context.kind, parts.wanted.class());
    here.filter(|(name, entry)| is_unconfirmed(parts, name, entry, context)).map(|(name, _)| name.clone()).collect()
}

/// Whether a name is one of [`unconfirmed_present`].
fn is_unconfirmed_present(parts: &SubscriptionParts, name: &Name, context: &TimerContext) -> bool {
    let entry = || context.at.view.holds().entry_here(context.kind, parts.wanted.class(), name);
    !context.quirks.ignore_deletions && entry().is_some_and(|entry| is_unconfirmed(parts, name, entry, context))
}

fn is_unconfirmed(parts: &SubscriptionParts, name: &Name, entry: &TableEntry, context: &TimerContext) -> bool {
    let speaks = |origin: Origin| !(origin.holds_missing && entry.origin.rank < origin.rank);
    parts.wanted.wants(name)
        && !is_confirmed(parts, name)
        && !parts.names.is_waiting(name)
        && context.at.origin_for(&parts.wanted.selector_of(name)).is_some_and(speaks)
}

/// How many timers of names are handled before other work has its turn.
const AT_ONCE: usize = 128;
