//! What is gone for a client, told after everything that is new; in SotW only types of full state have a way to say so.

use std::collections::HashSet;

use super::client::Variant;
use super::reply::Draft;
use super::subscription::{Owed, Subscription};
use super::{Attempt, ReplyContext};
use crate::protocol::faults::Fault;
use crate::protocol::set_mark::SetMark;
use crate::protocol::unit::{Class, Fill, Known, Presence, Shelf};
use crate::xds::{Name, SetVersion, Type};

impl Subscription {
    pub(super) fn removals(&mut self, kind: &Type, view: &ReplyContext) -> Attempt {
        if view.client.variant == Variant::Sotw {
            if let Some(progress) = self.star.as_mut().and_then(|star| star.progress.as_mut()) {
                progress.told_everything(view.state.mark);
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
    pub(super) fn note_set_mark(&mut self, kind: &Type, view: &ReplyContext, told_all: bool) -> (Option<SetMark>, bool) {
        let readable = view.state.shelf(kind, Class::Star).is_some_and(Shelf::is_readable);
        let whole = self.star_is_whole(kind, view) && readable;
        let marked = view.client.relay && view.client.variant == Variant::Delta;
        let star = self.star.as_mut().filter(|star| marked && star.progress.is_some() && star.under.is_none());
        let Some(star) = star else { return (None, false) };
        let complete = whole && (told_all || star.told_complete);
        let before = std::mem::replace(&mut star.told_complete, complete);
        (Some(if complete { SetMark::Complete } else { SetMark::Partial }), before != complete)
    }

    fn remove_owed(&mut self, kind: &Type, view: &ReplyContext, draft: &mut Draft, said: &mut HashSet<Name>) {
        let mark = view.state.mark;
        let ripe = |owed: &Owed| owed.asked || owed.changed_by(mark) || owed.forced.is_some_and(|due| due <= view.now);
        let gone = |name: &Name| matches!(self.known(kind, name, view), Known::Gone(_));
        let ready: Vec<_> =
            self.owed.iter().filter(|(name, owed)| ripe(owed) && gone(name)).map(|(name, _)| name.clone()).collect();
        for name in ready {
            let Some(owed) = self.owed.get(&name).copied().filter(|_| draft.bytes < view.limits.reply_bytes) else {
                break;
            };
            let held = self.names.get(&name).is_none_or(|told| told.may_hold());
            if let Known::Gone(last) = self.known(kind, &name, view)
                && (held || owed.asked || owed.forced.is_some())
                && said.insert(last.map_or(&name, |last| &last.name).clone())
            {
                draft.add_removed(name.clone(), last);
            }
            if let Some((seq, error)) = self.untold_error(kind, &name, view) {
                draft.add_error(name.clone(), error); // not found, or not allowed: why it is gone (XLAT-21)
                self.told_error(&name, seq);
            }
            self.note(&name, SetVersion::EMPTY);
            match owed.after(mark) {
                Some(still) => drop(self.owed.insert(name.clone(), still)),
                None => drop(self.owed.remove(&name)),
            }
            self.drop_gone_member(&name);
        }
    }

    fn remove_of_star(&mut self, kind: &Type, view: &ReplyContext, draft: &mut Draft, said: &mut HashSet<Name>) {
        let Self { star: Some(star), names, .. } = self else { return };
        let Some(shelf) = view.state.shelf(kind, Class::Star) else { return };
        let Some(mut progress) = star.progress.take() else { return };
        let mut gone = Vec::new();
        let mut exhausted = true;
        for (name, entry) in shelf.removals(progress.removals()) {
            if draft.bytes >= view.limits.reply_bytes {
                exhausted = false;
                break;
            }
            let never_told = !progress.may_hold(entry);
            // A name asked for by itself goes by what upstream says to that name.
            let by_name = names.get(name).is_some_and(|told| match view.state.known(kind, Class::Named, name) {
                Known::Here(_) => true,
                Known::Unknown => !told.member,
                Known::Gone(_) => false,
            });
            if !never_told && !by_name && star.covers(name) && said.insert(name.clone()) {
                let Presence::Gone(last) = &entry.presence else { continue };
                draft.add_removed(name.clone(), last.as_ref());
                if let Some(stated) = &mut star.stated {
                    stated.outdated.insert(name.clone());
                }
                gone.push(name);
            }
            progress.told_removals_to(entry.changed);
        }
        if exhausted {
            progress.told_everything(view.state.mark);
        }
        star.progress = Some(progress);
        for name in gone {
            self.note(name, SetVersion::EMPTY);
        }
    }

    /// What the client said it holds is removed if it is known to be gone: by a word on the present opening, or by the known end of
    /// all there is (DELTA-13, DELTA-16). Whether something of it is not known.
    fn judge_stated(&mut self, kind: &Type, view: &ReplyContext, draft: &mut Draft, said: &HashSet<Name>) -> bool {
        let fill = self.star_fill(kind, view);
        let hasty = view.limits.faults.has(Fault::JudgeStatedWhileCold);
        let whole = fill == Fill::Whole || hasty;
        let Some(star) = &mut self.star else { return false };
        let Some(mut stated) = star.stated.take() else { return false };
        let shelf = view.state.shelf(kind, Class::Star);
        let nothing_new = stated.judged_at == Some((view.state.mark, fill));
        if !hasty && (fill < Fill::Settled || shelf.is_none() || nothing_new) || draft.bytes >= view.limits.reply_bytes
        {
            star.stated = Some(stated);
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
            let here = entry.is_some_and(|entry| matches!(entry.presence, Presence::Here(_)));
            let gone = shelf.zip(entry).is_some_and(|(shelf, entry)| shelf.is_evidently_gone(entry));
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
            star.told_additions(view.state.mark);
            self.stated = false;
            return false;
        }
        if draft.bytes < view.limits.reply_bytes {
            stated.judged_at = Some((view.state.mark, fill));
        }
        star.stated = Some(stated);
        true
    }

    /// The first answer to `*` is given even if there is nothing to say: the client's start waits for it (DELTA-21).
    fn owes_empty_answer(&mut self, kind: &Type, view: &ReplyContext) -> bool {
        if !self.star.as_ref().is_some_and(|star| star.first) || self.star_fill(kind, view) < Fill::Begun {
            return false;
        }
        if let Some(star) = &mut self.star {
            star.first = false;
            star.told_additions(view.state.mark);
        }
        true
    }
}
