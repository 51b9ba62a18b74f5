//! What is gone for a client, told after everything that is new; in SotW only types of full state have a way to say so.

use std::collections::HashSet;

use super::client::Variant;
use super::reply::Draft;
use super::subscription::{Pending, Subscription};
use super::{Attempt, ReplyContext};
use crate::protocol::faults::Fault;
use crate::protocol::set_mark::SetMark;
use crate::protocol::view::{Class, Completeness, Lookup, Presence, ResourceTable};
use crate::xds::{Name, SetVersion, Type};

impl Subscription {
    pub(super) fn removals(&mut self, kind: &Type, view: &ReplyContext) -> Attempt {
        if view.client.variant == Variant::Sotw {
            if let Some(progress) = self.wildcard.as_mut().and_then(|star| star.progress.as_mut()) {
                progress.record_all_sent(view.state.revision);
            }
            return Attempt::Nothing;
        }
        let mut draft = Draft::default();
        let mut said = HashSet::new();
        self.remove_owed(kind, view, &mut draft, &mut said);
        self.remove_of_star(kind, view, &mut draft, &mut said);
        let unjudged = self.judge_stated(kind, view, &mut draft, &said);
        let empty_answer = self.owes_empty_answer(kind, view);
        let told_all = draft.is_empty() && !unjudged;
        let (mark, is_news) = self.note_set_mark(kind, view, told_all);
        draft.set = mark;
        if !draft.is_empty() || empty_answer || told_all && is_news {
            self.sent = Some(SetVersion::EMPTY); // delta has no version of a set; this says that the client holds something
            return Attempt::Ready(draft.into());
        }
        if unjudged { Attempt::Unknown } else { Attempt::Nothing }
    }

    /// How much of `*` a relay has been told by the next reply, and whether it was told something else before.
    pub(super) fn note_set_mark(
        &mut self,
        kind: &Type,
        view: &ReplyContext,
        told_all: bool,
    ) -> (Option<SetMark>, bool) {
        let readable = view.state.resources(kind, Class::Wildcard).is_some_and(ResourceTable::is_readable);
        let whole = self.is_wildcard_complete(kind, view) && readable;
        let marked = view.client.relay && view.client.variant == Variant::Delta;
        let star = self.wildcard.as_mut().filter(|star| marked && star.progress.is_some() && star.under.is_none());
        let Some(star) = star else { return (None, false) };
        let complete = whole && (told_all || star.told_complete);
        let before = std::mem::replace(&mut star.told_complete, complete);
        (Some(if complete { SetMark::Complete } else { SetMark::Partial }), before != complete)
    }

    fn remove_owed(&mut self, kind: &Type, view: &ReplyContext, draft: &mut Draft, said: &mut HashSet<Name>) {
        let mark = view.state.revision;
        let ripe = |owed: &Pending| {
            owed.asked || owed.changed_by(mark) || owed.forced_resend.is_some_and(|due| due <= view.now)
        };
        let gone = |name: &Name| matches!(self.known(kind, name, view), Lookup::Absent(_));
        let ready: Vec<_> =
            self.pending.iter().filter(|(name, owed)| ripe(owed) && gone(name)).map(|(name, _)| name.clone()).collect();
        for name in ready {
            let Some(owed) = self.pending.get(&name).copied().filter(|_| draft.bytes < view.limits.reply_bytes) else {
                break;
            };
            let held = self.names.get(&name).is_none_or(|told| told.client_may_hold());
            if let Lookup::Absent(last) = self.known(kind, &name, view)
                && (held || owed.asked || owed.forced_resend.is_some())
                && said.insert(last.map_or(&name, |last| &last.name).clone())
            {
                draft.add_removed(name.clone(), last);
            }
            if let Some((seq, error)) = self.unsent_error(kind, &name, view) {
                draft.add_error(name.clone(), error); // not found, or not allowed: why it is gone (XLAT-21)
                self.record_error_sent(&name, seq);
            }
            self.record_sent(&name, SetVersion::EMPTY);
            match owed.after(mark) {
                Some(still) => drop(self.pending.insert(name.clone(), still)),
                None => drop(self.pending.remove(&name)),
            }
            self.drop_gone_member(&name);
        }
    }

    fn remove_of_star(&mut self, kind: &Type, view: &ReplyContext, draft: &mut Draft, said: &mut HashSet<Name>) {
        let Self { wildcard: Some(star), names, .. } = self else { return };
        let Some(shelf) = view.state.resources(kind, Class::Wildcard) else { return };
        let Some(mut progress) = star.progress.take() else { return };
        let mut gone = Vec::new();
        let mut exhausted = true;
        for (name, entry) in shelf.removals(progress.removals()) {
            if draft.bytes >= view.limits.reply_bytes {
                exhausted = false;
                break;
            }
            let never_told = !progress.client_may_hold(entry);
            // A name asked for by itself goes by what upstream says to that name.
            let by_name = names.get(name).is_some_and(|told| match view.state.lookup(kind, Class::Named, name) {
                Lookup::Present(_) => true,
                Lookup::Unknown => !told.member,
                Lookup::Absent(_) => false,
            });
            if !never_told && !by_name && star.covers(name) && said.insert(name.clone()) {
                let Presence::Absent(last) = &entry.presence else { continue };
                draft.add_removed(name.clone(), last.as_ref());
                if let Some(stated) = &mut star.initial_versions {
                    stated.outdated.insert(name.clone());
                }
                gone.push(name);
            }
            progress.record_removals_sent_to(entry.changed);
        }
        if exhausted {
            progress.record_all_sent(view.state.revision);
        }
        star.progress = Some(progress);
        for name in gone {
            self.record_sent(name, SetVersion::EMPTY);
        }
    }

    /// What the client said it holds is removed if it is known to be gone: by a word on the present opening, or by the known end of
    /// all there is (DELTA-13, DELTA-16). Whether something of it is not known.
    fn judge_stated(&mut self, kind: &Type, view: &ReplyContext, draft: &mut Draft, said: &HashSet<Name>) -> bool {
        let fill = self.wildcard_completeness(kind, view);
        let hasty = view.limits.faults.has(Fault::JudgeStatedWhileCold);
        let whole = fill == Completeness::Complete || hasty;
        let Some(star) = &mut self.wildcard else { return false };
        let Some(mut stated) = star.initial_versions.take() else { return false };
        let shelf = view.state.resources(kind, Class::Wildcard);
        let nothing_new = stated.judged_at == Some((view.state.revision, fill));
        if !hasty && (fill < Completeness::Settled || shelf.is_none() || nothing_new)
            || draft.bytes >= view.limits.reply_bytes
        {
            star.initial_versions = Some(stated);
            return true;
        }
        let mut unjudged: Vec<_> = stated.versions.keys().filter(|name| !stated.outdated.contains(*name)).collect();
        unjudged.sort_unstable();
        let (mut judged, mut left) = (Vec::new(), false);
        for name in unjudged {
            if draft.bytes >= view.limits.reply_bytes {
                left = true; // the rest comes with the next piece (DELTA-48)
                break;
            }
            let entry = shelf.and_then(|shelf| shelf.get(name));
            let here = entry.is_some_and(|entry| matches!(entry.presence, Presence::Present(_)));
            let gone = shelf.zip(entry).is_some_and(|(shelf, entry)| shelf.is_absent_by_evidence(entry));
            if self.names.contains_key(name) || here && whole {
                judged.push(name.clone());
            } else if !here && (whole || gone) {
                judged.push(name.clone());
                if !said.contains(name) {
                    draft.add_removed(name.clone(), None);
                }
            } else {
                left |= !here;
            }
        }
        let over = !left || whole && judged.len() + stated.outdated.len() >= stated.versions.len();
        stated.outdated.extend(judged);
        if over {
            star.record_additions_sent(view.state.revision);
            self.stated = false;
            return false;
        }
        if draft.bytes < view.limits.reply_bytes {
            stated.judged_at = Some((view.state.revision, fill));
        }
        star.initial_versions = Some(stated);
        true
    }

    /// The first answer to `*` is given even if there is nothing to say: the client's start waits for it (DELTA-21).
    fn owes_empty_answer(&mut self, kind: &Type, view: &ReplyContext) -> bool {
        if !self.wildcard.as_ref().is_some_and(|star| star.first)
            || self.wildcard_completeness(kind, view) < Completeness::FirstResponse
        {
            return false;
        }
        if let Some(star) = &mut self.wildcard {
            star.first = false;
            star.record_additions_sent(view.state.revision);
        }
        true
    }
}
