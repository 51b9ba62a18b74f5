//! Which replies of one type the client has rejected, and what it has accepted since: how one resource stands to them, for operators.
//!
//! The NACK that stands ends earlier, with any newer reply that is accepted if no resource is suspected. That reply need not have what was rejected.

use std::sync::Arc;

use super::nack_reason::MOST_QUOTED;
use super::reply::SentReply;
use super::standing_nack::InRejected;
use crate::protocol::moment::Moment;
use crate::protocol::reply_names::ReplyNames;
use crate::protocol::view::{Entry, Revision};
use crate::xds::{Name, Type};

/// The rejected replies of which something is not accepted, in the order of their nonces.
#[derive(Debug, Clone, Default)]
pub(super) struct Rejections(Vec<Rejection>);

/// A rejected reply.
#[derive(Debug, Clone)]
struct Rejection {
    reply: SentReply,
    /// Redacted and escaped.
    reason: Arc<str>,
    at: Moment,
    /// What it has. None if it is a full set, or if that is not known.
    names: Option<ReplyNames>,
    /// The resource that it has alone.
    only: Option<Name>,
    /// What the reason quotes.
    quoted: Vec<Name>,
    /// What of it newer replies have that were accepted.
    accepted: ReplyNames,
    /// Up to which revision the client had accepted everything, or may have, when it rejected this.
    accepted_before: Revision,
    /// Resources of those that are mixed into it, and of its own, that are known to be rejected.
    known: Vec<Name>,
    /// Nothing else is mixed into it, and all that was accepted since is known.
    is_exact: bool,
}

/// A resource that the client was sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct SentResource<'a> {
    pub(super) name: &'a Name,
    /// Its name in replies, if that may be another and is known.
    pub(super) own_name: Option<&'a Name>,
    /// Its name in replies may be another.
    pub(super) is_alias: bool,
    /// When what the client was sent last changed. Zero if that is not known.
    pub(super) changed: Revision,
}

/// How a resource stands to what the client rejects.
#[derive(Debug, Clone, Copy)]
pub(super) struct RejectedIn<'a> {
    pub(super) of: InRejected,
    /// The reason of the reply that it is about. Empty if it is not known which one that is.
    pub(super) reason: &'a str,
    pub(super) since: Moment,
}

/// A reply that a client rejected, as it is shown beside a resource in it.
#[derive(Debug, Clone, Copy)]
pub struct RejectedReply<'a> {
    /// Which one. None if that is one of several.
    pub reply: Option<SentReply>,
    /// The words of the client. Empty if it is not known which they are.
    pub reason: &'a str,
    /// When the client rejected it; the latest time, if it is one of several.
    pub at: Moment,
}

impl Rejections {
    /// Adds a rejected reply. `accepted` is the newest one that was accepted by then: of one newer than this, the names are forgotten.
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
            return; // it is rejected once more
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

    /// Notes that the client accepted a reply.
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

    /// Notes that the reason quotes a resource. Returns `false` if the rejected reply is known not to have it.
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

    /// Returns how a resource stands to the reply that says most about it, the newest of several. None if it is in no rejected reply.
    pub(super) fn of(&self, of: &SentResource) -> Option<RejectedIn<'_>> {
        let newest_first = self.0.iter().rev().map(|rejection| rejection.of(of));
        newest_first.filter(|found| !matches!(found.of, InRejected::Not { .. })).min_by_key(|found| match found.of {
            InRejected::Quoted | InRejected::Alone => 0,
            InRejected::Among { .. } => 1,
            InRejected::Unknown | InRejected::Not { .. } => 2,
        })
    }

    /// Returns the newest rejected reply that has a resource as it is now, unless the client accepted it before or since, or may have. `accepted`
    /// is the newest reply that it accepted: after one, a reason that quotes resources and is kept whole is about those alone.
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

    /// Returns the resources of which it is known that they are in rejected replies, those of the newest first.
    pub(super) fn named(&self) -> impl Iterator<Item = &Name> {
        self.0.iter().rev().flat_map(|of| of.names.iter().flat_map(|names| names.first()).chain(&of.quoted))
    }

    /// Returns the revision of the newest rejected reply of which not all resources are known, if there is one.
    pub(super) fn unnamed_up_to(&self) -> Option<Revision> {
        let mut newest_first = self.0.iter().rev();
        let found = newest_first.find(|of| of.names.as_ref().is_none_or(|names| !names.is_complete()));
        found.map(|of| of.reply.revision)
    }

    /// The client wants nothing of the type any more.
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

    /// Whether the reason may quote more than is known of it. Of a long one a part is read, of which little may be left without secrets; and words
    /// that are no resources take places of those that are.
    fn may_be_cut(&self) -> bool {
        self.reason.len() > SURELY_WHOLE || self.quoted.len() > SURELY_ALL
    }

    /// Takes over what is left of an earlier one. Of most of that no more is known than that it may be rejected.
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

    /// Returns the resources that are known to be rejected with it, and not to be accepted since.
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
            // It was sent again since, in a reply that may be an accepted one.
            (_, None) if has_changed => InRejected::Not { is_pending: false },
            _ if is_quoted() => InRejected::Quoted,
            _ if is_alone() => InRejected::Alone,
            (Some(true), Some(false)) if self.is_exact => InRejected::Among { quotes_others: !self.quoted.is_empty() },
            _ => InRejected::Unknown,
        };
        let reason: &str = if self.is_known_to_be_of(found) { &self.reason } else { "" };
        RejectedIn { of: found, reason, since: self.at }
    }

    /// Whether it is this reply that a resource was in which is found to stand to it so, and none that is mixed into it.
    fn is_known_to_be_of(&self, found: InRejected) -> bool {
        self.is_exact || matches!(found, InRejected::Quoted | InRejected::Alone)
    }
}

impl<'a> SentResource<'a> {
    /// Returns that of an entry. Where aliases are requested, replies have the resource's own name.
    pub(super) fn of(kind: &Type, name: &'a Name, entry: Option<&'a Entry>, changed: Revision) -> Self {
        let is_alias = kind.info().by_alias;
        let own_name = entry.and_then(Entry::resource).map(|resource| &resource.name).filter(|_| is_alias);
        Self { name, own_name, is_alias, changed }
    }

    pub(super) fn quoted(kind: &Type, name: &'a Name, entry: Option<&'a Entry>) -> Self {
        Self::of(kind, name, entry, entry.map(|entry| entry.changed).unwrap_or_default())
    }

    /// Whether it has this name.
    fn is(&self, name: &Name) -> bool {
        self.name == name || self.own_name == Some(name)
    }

    /// Whether it is among those of a reply. None if that is not known.
    pub(super) fn is_in(&self, names: &ReplyNames) -> Option<bool> {
        match (names.has(self.name), self.own_name.map(|own| names.has(own))) {
            (Some(true), _) | (_, Some(Some(true))) => Some(true),
            (Some(false), Some(Some(false))) => Some(false),
            (Some(false), None) if !self.is_alias => Some(false),
            _ => None,
        }
    }
}

/// How many rejected replies are told apart.
const MOST_REJECTIONS: usize = 8;
/// A reason that is no longer than this, and quotes no more, is whole.
const SURELY_WHOLE: usize = 1024;
const SURELY_ALL: usize = 16;
/// How many resources are known to be rejected of those that are told apart no more.
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

    /// A client rejects a reply with one resource, which has the name of the nonce.
    fn reject(rejections: &mut Rejections, nonce: u64, accepted: Option<SentReply>) {
        let only = Some(nonce.to_string().into());
        let words = (format!("no {nonce}").into(), Moment::START);
        rejections.reject(reply(nonce), Some(names(nonce..nonce + 1)), only, words, accepted);
    }

    /// Which reply with a resource that the client has since a reply is shown as rejected, and with which reason.
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
