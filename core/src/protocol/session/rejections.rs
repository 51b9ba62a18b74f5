//! Which replies of one type the client has rejected, and what it has accepted since: how one resource relates to them, for operators.
//!
//! The standing NACK may end earlier: without suspects it ends with any newer reply that the client accepts, even one without the rejected resources.

use std::sync::Arc;

use super::nack_reason::MOST_QUOTED;
use super::reply::SentReply;
use super::standing_nack::InRejected;
use crate::protocol::moment::Moment;
use crate::protocol::reply_names::ReplyNames;
use crate::protocol::view::{Revision, TableEntry};
use crate::xds::{Name, Type};

/// The rejected replies that have something the client has not accepted since, in the order of their nonces.
#[derive(Debug, Clone, Default)]
pub(super) struct Rejections(Vec<Rejection>);

/// A rejected reply.
#[derive(Debug, Clone)]
struct Rejection {
    reply: SentReply,
    /// Redacted and escaped.
    reason: Arc<str>,
    at: Moment,
    /// The names that it has. `None` if it is a full set, or if they are not known.
    names: Option<ReplyNames>,
    /// The only resource in it.
    only: Option<Name>,
    /// The resources that the reason quotes.
    quoted: Vec<Name>,
    /// Which of its names are in newer replies that the client accepted.
    accepted: ReplyNames,
    /// Up to which revision the client had accepted everything, or may have, when it rejected this reply.
    accepted_before: Revision,
    /// Resources of this reply and of older ones merged into it that are known to be rejected.
    known: Vec<Name>,
    /// No older reply is merged into this one, and everything that was accepted since is known.
    is_exact: bool,
}

/// A resource that the client was sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct SentResource<'a> {
    pub(super) name: &'a Name,
    /// Its name in replies, if that may differ and is known.
    pub(super) own_name: Option<&'a Name>,
    /// Its name in replies may differ.
    pub(super) is_alias: bool,
    /// At which revision the version that the client was sent last changed. Zero if that is not known.
    pub(super) changed: Revision,
}

/// How a resource relates to what the client rejects.
#[derive(Debug, Clone, Copy)]
pub(super) struct RejectedIn<'a> {
    pub(super) of: InRejected,
    /// The reason of the rejected reply. Empty if it is not known which reply that is.
    pub(super) reason: &'a str,
    pub(super) since: Moment,
}

/// A rejected reply, as it is shown beside a resource in it.
#[derive(Debug, Clone, Copy)]
pub struct RejectedReply<'a> {
    /// The reply. `None` if it is one of several.
    pub reply: Option<SentReply>,
    /// The client's reason. Empty if it is not known which one.
    pub reason: &'a str,
    /// When the client rejected it; the latest time, if it is one of several.
    pub at: Moment,
}

impl Rejections {
    /// Adds a rejected reply. `accepted` is the newest reply accepted by then. If it is newer than the rejected one, what it had is not known any more.
    pub(super) fn reject(
        &mut self,
        reply: SentReply,
        names: Option<ReplyNames>,
        only: Option<Name>,
        (reason, at): (Arc<str>, Moment),
        accepted: Option<SentReply>,
    ) {
        let is_late = accepted.is_some_and(|accepted| accepted.nonce > reply.nonce);
        let other = accepted.filter(|accepted| accepted.nonce != reply.nonce);
        let accepted_before = other.map_or(Revision::ZERO, |accepted| accepted.revision);
        if let Some(known) = self.of_nonce(reply.nonce) {
            known.reason = reason;
            return; // the client rejects it once more
        }
        if self.0.len() == MOST_REJECTIONS {
            let oldest = self.0.remove(0);
            self.0[0].absorb(oldest);
        }
        let only = only.filter(|_| !is_late);
        let (quoted, known, accepted) = (Vec::new(), Vec::new(), ReplyNames::default());
        let is_exact = !is_late;
        let new = Rejection { reply, reason, at, names, only, quoted, accepted, accepted_before, known, is_exact };
        let place = self.0.partition_point(|of| of.reply.nonce < reply.nonce);
        self.0.insert(place, new);
    }

    /// Records that the client accepted a reply.
    pub(super) fn accept(&mut self, accepted: SentReply, names: Option<&ReplyNames>) {
        self.0.retain_mut(|of| {
            if of.reply.nonce > accepted.nonce {
                return true;
            }
            if let Some(names) = names {
                of.accept(names);
            }
            !accepted.is_full_set && !of.is_accepted()
        });
    }

    /// Records that the reason quotes a resource. Returns `false` if the rejected reply is known not to have it.
    pub(super) fn quote(&mut self, nonce: u64, of: &SentResource) -> bool {
        let Some(rejection) = self.of_nonce(nonce) else { return true };
        if rejection.names.as_ref().is_some_and(|names| of.is_in(names) == Some(false)) {
            return false;
        }
        if !rejection.quoted.contains(of.name) && rejection.quoted.len() < MOST_QUOTED {
            rejection.quoted.push(of.name.clone());
        }
        true
    }

    /// Returns how a resource relates to the rejected reply that says most about it, the newest of several. `None` if it is in no rejected reply.
    pub(super) fn of(&self, of: &SentResource) -> Option<RejectedIn<'_>> {
        let newest_first = self.0.iter().rev().map(|rejection| rejection.of(of));
        newest_first.filter(|found| !matches!(found.of, InRejected::Not { .. })).min_by_key(|found| match found.of {
            InRejected::Quoted | InRejected::Alone => 0,
            InRejected::Among { .. } => 1,
            InRejected::Unknown | InRejected::Not { .. } => 2,
        })
    }

    /// Returns the newest rejected reply that has a resource in its present version, unless the client accepted it before or since, or may have.
    /// If a reply was accepted since (`accepted` is the newest), a reason that quotes resources, and is kept whole, is about those alone.
    pub(super) fn rejecting(&self, of: &SentResource, accepted: Option<SentReply>) -> Option<RejectedReply<'_>> {
        self.0.iter().rev().filter(|rejection| rejection.reply.revision >= of.changed).find_map(|rejection| {
            let is_followed = accepted.is_some_and(|accepted| accepted.nonce > rejection.reply.nonce);
            let is_about_all = rejection.quoted.is_empty() || !is_followed || rejection.may_be_cut();
            let is_left = of.is_in(&rejection.accepted) == Some(false);
            let is_known = || rejection.known.iter().any(|name| of.is(name));
            let RejectedIn { of: found, reason, since } = rejection.of(of);
            let is_rejected = match found {
                InRejected::Quoted | InRejected::Alone => true,
                InRejected::Among { .. } => is_about_all,
                InRejected::Unknown if is_left && is_known() => true,
                InRejected::Unknown => is_left && is_about_all && rejection.accepted_before < of.changed,
                InRejected::Not { .. } => false,
            };
            let reply = rejection.is_known_to_be_of(found).then_some(rejection.reply);
            is_rejected.then_some(RejectedReply { reply, reason, at: since })
        })
    }

    /// Returns the resources that are known to be in rejected replies, those of the newest reply first.
    pub(super) fn named(&self) -> impl Iterator<Item = &Name> {
        self.0.iter().rev().flat_map(|of| of.names.iter().flat_map(|names| names.first()).chain(&of.quoted))
    }

    /// Returns the revision of the newest rejected reply whose resources are not all known, if there is one.
    pub(super) fn unnamed_up_to(&self) -> Option<Revision> {
        let mut newest_first = self.0.iter().rev();
        let found = newest_first.find(|of| of.names.as_ref().is_none_or(|names| !names.is_complete()));
        found.map(|of| of.reply.revision)
    }

    /// Records that the client wants nothing of the type any more.
    pub(super) fn forget_all(&mut self) {
        self.0 = Vec::new();
    }

    fn of_nonce(&mut self, nonce: u64) -> Option<&mut Rejection> {
        self.0.iter_mut().find(|of| of.reply.nonce == nonce)
    }
}

impl Rejection {
    fn accept(&mut self, names: &ReplyNames) {
        let own = self.names.as_ref();
        let may_have = |name: &Name| own.is_none_or(|own| own.has(name) != Some(false));
        self.accepted = std::mem::take(&mut self.accepted).and_those(names, may_have);
    }

    fn is_accepted(&self) -> bool {
        self.names.as_ref().is_some_and(|names| names.are_all_in(&self.accepted))
    }

    /// Whether the reason may quote more resources than are known. Of a long reason only a part is read, and secrets in it are replaced. And
    /// words that are no resources count towards the limit of quoted names.
    fn may_be_cut(&self) -> bool {
        self.reason.len() > SURELY_WHOLE || self.quoted.len() > SURELY_ALL
    }

    /// Merges an earlier rejected reply into this one. For most of its resources all that remains known is that they may be rejected.
    fn absorb(&mut self, earlier: Self) {
        self.known =
            earlier.known_to_be_rejected().chain(self.known_to_be_rejected()).take(MOST_KNOWN).cloned().collect();
        let left = earlier.names.map(|mut names| {
            names.without(&earlier.accepted);
            names
        });
        self.names = self.names.take().zip(left).map(|(own, left)| own.and(&left));
        self.is_exact = false;
    }

    /// Returns the resources that are known to be rejected with this reply, and not accepted since.
    fn known_to_be_rejected(&self) -> impl Iterator<Item = &Name> {
        let are_all_meant = self.is_exact && self.quoted.is_empty();
        let first = self.names.iter().flat_map(|names| names.first()).filter(move |_| are_all_meant);
        let all = first.chain(&self.quoted).chain(&self.only).chain(&self.known);
        all.filter(|name| self.accepted.has(name) == Some(false))
    }

    fn of(&self, of: &SentResource) -> RejectedIn<'_> {
        let is_in = self.names.as_ref().and_then(|names| of.is_in(names));
        let is_accepted = of.is_in(&self.accepted);
        let has_changed = of.changed > self.reply.revision;
        let is_quoted = || self.quoted.iter().any(|name| of.is(name));
        let is_alone = || self.only.as_ref().is_some_and(|only| of.is(only));
        let found = match (is_in, is_accepted) {
            (Some(false), _) | (_, Some(true)) => InRejected::Not { is_pending: false },
            // It was sent again since, in a reply that the client may have accepted.
            (_, None) if has_changed => InRejected::Not { is_pending: false },
            _ if is_quoted() => InRejected::Quoted,
            _ if is_alone() => InRejected::Alone,
            (Some(true), Some(false)) if self.is_exact => InRejected::Among { quotes_others: !self.quoted.is_empty() },
            _ => InRejected::Unknown,
        };
        let reason: &str = if self.is_known_to_be_of(found) { &self.reason } else { "" };
        RejectedIn { of: found, reason, since: self.at }
    }

    /// Whether a resource with this relation is known to have been in this reply itself, and not in an older one that was merged into it.
    fn is_known_to_be_of(&self, found: InRejected) -> bool {
        self.is_exact || matches!(found, InRejected::Quoted | InRejected::Alone)
    }
}

impl<'a> SentResource<'a> {
    /// Describes an entry that the client was sent. Where clients request aliases, replies have the resource's own name.
    pub(super) fn of(kind: &Type, name: &'a Name, entry: Option<&'a TableEntry>, changed: Revision) -> Self {
        let is_alias = kind.info().by_alias;
        let own_name = entry.and_then(TableEntry::resource).map(|resource| &resource.name).filter(|_| is_alias);
        Self { name, own_name, is_alias, changed }
    }

    pub(super) fn quoted(kind: &Type, name: &'a Name, entry: Option<&'a TableEntry>) -> Self {
        Self::of(kind, name, entry, entry.map(|entry| entry.changed).unwrap_or_default())
    }

    /// Whether the resource has this name.
    fn is(&self, name: &Name) -> bool {
        self.name == name || self.own_name == Some(name)
    }

    /// Whether the resource is among the names of a reply. `None` if that is not known.
    pub(super) fn is_in(&self, names: &ReplyNames) -> Option<bool> {
        match (names.has(self.name), self.own_name.map(|own| names.has(own))) {
            (Some(true), _) | (_, Some(Some(true))) => Some(true),
            (Some(false), Some(Some(false))) => Some(false),
            (Some(false), None) if !self.is_alias => Some(false),
            _ => None,
        }
    }
}

/// How many rejected replies are kept apart.
const MOST_REJECTIONS: usize = 8;
/// A reason that is not longer than this, and does not quote more than `SURELY_ALL` names, is known in full.
const SURELY_WHOLE: usize = 1024;
const SURELY_ALL: usize = 16;
/// How many resources are kept that are known to be rejected in merged replies.
const MOST_KNOWN: usize = 64;

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::*;
    use crate::protocol::session::carried::ReplyAge;
    use crate::xds::SetVersion;

    fn reply(nonce: u64) -> SentReply {
        let (version, sent, carried) = (SetVersion::EMPTY, Moment::START, ReplyAge::default());
        SentReply { nonce, version, revision: revision(nonce), is_full_set: false, sent, carried }
    }

    fn revision(number: u64) -> Revision {
        (0..number).fold(Revision::ZERO, |before, _| before.next())
    }

    fn names(range: Range<u64>) -> ReplyNames {
        let names: Vec<Name> = range.map(|number| number.to_string().into()).collect();
        ReplyNames::of(names.iter())
    }

    /// The client rejects a reply with one resource, whose name is the nonce.
    fn reject(rejections: &mut Rejections, nonce: u64, accepted: Option<SentReply>) {
        let only = Some(nonce.to_string().into());
        let words = (format!("no {nonce}").into(), Moment::START);
        rejections.reject(reply(nonce), Some(names(nonce..nonce + 1)), only, words, accepted);
    }

    /// Returns which rejected reply is shown for a resource, and its reason. `since` is the revision at which the resource last changed.
    fn shown(
        rejections: &Rejections,
        (name, since): (u64, u64),
        accepted: Option<SentReply>,
    ) -> Option<(Option<u64>, String)> {
        let name = Name::from(name.to_string());
        let of = SentResource { name: &name, own_name: None, is_alias: false, changed: revision(since) };
        let found = rejections.rejecting(&of, accepted)?;
        Some((found.reply.map(|reply| reply.nonce), found.reason.to_owned()))
    }

    const MOST: u64 = MOST_REJECTIONS as u64;

    #[test]
    fn what_is_mixed_with_another_rejection_is_shown_without_the_words_of_that() {
        let mut rejections = Rejections::default();
        (1..=MOST + 1).for_each(|nonce| reject(&mut rejections, nonce, None));
        assert_eq!(shown(&rejections, (1, 1), None), Some((None, String::new())));
        for nonce in 2..=MOST + 1 {
            assert_eq!(shown(&rejections, (nonce, nonce), None), Some((Some(nonce), format!("no {nonce}"))));
        }
    }

    #[test]
    fn of_what_is_mixed_with_another_rejection_that_is_shown_which_was_known_to_be_rejected() {
        let mut rejections = Rejections::default();
        reject(&mut rejections, 1, None);
        let words = ("no".into(), Moment::START);
        rejections.reject(reply(2), Some(names(100..140)), None, words, None);
        let accepted = Some(reply(3));
        rejections.accept(reply(3), Some(&names(120..160)));
        (4..4 + MOST).for_each(|nonce| reject(&mut rejections, nonce, accepted));
        let unknown = Some((None, String::new()));
        assert_eq!(shown(&rejections, (1, 1), accepted), unknown, "it was alone");
        assert_eq!(shown(&rejections, (100, 2), accepted), unknown, "it is one of the first");
        assert_eq!(shown(&rejections, (119, 2), accepted), None, "of the others no more is known");
        assert_eq!(shown(&rejections, (139, 3), accepted), None, "it was in the accepted one");
    }

    #[test]
    fn a_late_nack_is_shown_of_nothing_that_a_newer_accepted_reply_may_have() {
        let mut rejections = Rejections::default();
        reject(&mut rejections, 1, Some(reply(2)));
        assert_eq!(shown(&rejections, (1, 1), Some(reply(2))), None);
    }

    #[test]
    fn what_is_requested_by_an_alias_is_looked_for_by_both_names_and_not_concluded_from_the_alias_alone() {
        let (alias, own, other) = (Name::from("r/alias"), Name::from("r/own"), Name::from("r/other"));
        let of = SentResource { name: &alias, own_name: Some(&own), is_alias: true, changed: Revision::ZERO };
        let unknown = SentResource { own_name: None, ..of };
        let (has_own, has_other) = (ReplyNames::of([&own].into_iter()), ReplyNames::of([&other].into_iter()));
        assert_eq!((of.is_in(&has_own), of.is_in(&has_other)), (Some(true), Some(false)));
        assert_eq!((unknown.is_in(&has_own), unknown.is_in(&ReplyNames::of([&alias].into_iter()))), (None, Some(true)));
        assert_eq!(SentResource { is_alias: false, ..unknown }.is_in(&has_own), Some(false));
    }
}
