//! A NACK that stands. It ends when the client accepts a newer reply with the resources that the NACK may be about.
//!
//! A NACK concerns a whole reply and names the bad resource in its text only; the client may use the other resources (DELTA-51, SOTW-18). So the
//! resources that the text quotes are *suspected*. If the reply had only one resource, that one is suspected too. A newer reply that the client
//! accepts clears the resources in it; a full set clears all. Without suspects, any newer accepted reply ends the NACK.

use std::sync::Arc;

use super::reply::{Reply, SentReply};
use crate::protocol::moment::Moment;
use crate::protocol::reply_names::ReplyNames;
use crate::protocol::view::Revision;
use crate::xds::{Name, SetVersion};

/// What a client NACKs, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nacked {
    /// The version of the reply.
    pub version: SetVersion,
    /// Redacted and escaped.
    pub reason: Arc<str>,
}

/// The NACK of a client that has accepted nothing newer that would end it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StandingNack {
    /// The reply that the client NACKed, the newest of several.
    pub reply: SentReply,
    /// Redacted and escaped.
    pub reason: Arc<str>,
    /// When this NACK came.
    pub at: Moment,
    /// When the first of the standing NACKs came.
    pub since: Moment,
    suspects: Vec<Suspect>,
    /// The names in the NACKed replies. `None` if one of them is a full set, or if its names are not known.
    names: Option<ReplyNames>,
}

/// How a resource relates to what a client rejects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InRejected {
    /// The reason quotes the resource.
    Quoted,
    /// The resource was the only one in a rejected reply.
    Alone,
    /// The resource was in a rejected reply with others, some of which the reason may quote.
    Among {
        /// The reason quotes other resources.
        quotes_others: bool,
    },
    /// The resource may have been in a rejected reply.
    Unknown,
    /// The resource was in no rejected reply, or was accepted or sent again since.
    Not {
        /// A reply that may have the resource is unanswered. Otherwise the client has accepted what it was sent of it.
        is_pending: bool,
    },
}

/// A resource that a NACK may be about.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Suspect {
    name: Name,
    /// Whether the text of the NACK quotes the resource. Otherwise it was the only one in the reply.
    is_quoted: bool,
    /// The nonces of newer replies with the resource, the latest few.
    sent_in: Vec<u64>,
}

impl StandingNack {
    pub(super) fn new(reply: SentReply, names: Option<ReplyNames>, reason: Arc<str>, at: Moment) -> Self {
        Self { reply, reason, at, since: at, suspects: Vec::new(), names }
    }

    pub(super) fn nacked(&self) -> Nacked {
        Nacked { version: self.reply.version, reason: self.reason.clone() }
    }

    /// Takes over what still stands of an earlier NACK.
    pub(super) fn after(self, earlier: Self) -> Self {
        let names = match (self.names, earlier.names) {
            (None, names) if earlier.reply == self.reply => names, // the client rejects the same reply again
            (newer, names) => newer.zip(names).map(|(newer, names)| newer.and(&names)),
        };
        if earlier.reply.nonce > self.reply.nonce {
            let Self { reply, reason, at, suspects, .. } = earlier; // `self` is a late NACK
            return Self { reply, reason, at, since: earlier.since.min(self.since), suspects, names };
        }
        Self { since: earlier.since, suspects: earlier.suspects, names, ..self }
    }

    /// Returns the resources that the NACK may be about.
    pub fn suspects(&self) -> impl Iterator<Item = &Name> {
        self.suspects.iter().map(|suspect| &suspect.name)
    }

    /// Returns the other resources in the rejected replies, as far as they are known.
    pub fn others_in_reply(&self) -> impl Iterator<Item = &Name> {
        let first = self.names.iter().flat_map(|names| names.first());
        first.filter(|name| self.suspects.iter().all(|suspect| suspect.name != **name))
    }

    /// Suspects a resource that the reason quotes and that last changed at revision `changed`. `later` are the replies that were sent after the
    /// NACKed one. Those from a snapshot with that change had the resource too.
    pub(super) fn suspect(&mut self, name: &Name, changed: Revision, later: impl Iterator<Item = SentReply>) {
        let nacked = self.reply;
        let changed_later = changed > nacked.revision;
        let had_it = |reply: &SentReply| reply.is_full_set || changed_later && changed <= reply.revision;
        let sent_in =
            later.filter(|reply| reply.nonce > nacked.nonce && had_it(reply)).map(|reply| reply.nonce).collect();
        self.add(Suspect { name: name.clone(), is_quoted: true, sent_in });
    }

    /// Suspects the only resource of the NACKed reply. `sent_in` are the unanswered replies with it.
    pub(super) fn suspect_only(&mut self, name: Name, mut sent_in: Vec<u64>) {
        sent_in.retain(|nonce| *nonce > self.reply.nonce);
        self.add(Suspect { name, is_quoted: false, sent_in });
    }

    fn add(&mut self, suspect: Suspect) {
        self.suspects.retain(|known| known.name != suspect.name);
        if self.suspects.len() == MOST_SUSPECTS {
            self.suspects.remove(0);
        }
        self.suspects.push(suspect);
    }

    /// Records which suspects are in a newer reply.
    pub(super) fn note_sent(&mut self, sent: SentReply, reply: &Reply, most: usize) {
        let has = |name: &Name| {
            let names = reply.resources.iter().map(|resource| &resource.name).chain(&reply.removed);
            names.chain(reply.constrained.iter().map(|(name, _)| name)).any(|had| had == name)
        };
        for suspect in &mut self.suspects {
            if sent.is_full_set || has(&suspect.name) {
                if suspect.sent_in.len() == most {
                    suspect.sent_in.remove(0);
                }
                suspect.sent_in.push(sent.nonce);
            }
        }
    }

    /// Records that the client accepted a reply. Returns whether the NACK still stands.
    pub(super) fn stands_after(&mut self, accepted: SentReply, names: Option<&ReplyNames>) -> bool {
        self.suspects.retain(|suspect| !suspect.sent_in.contains(&accepted.nonce));
        if accepted.nonce > self.reply.nonce
            && let Some((own, accepted)) = self.names.as_mut().zip(names)
        {
            own.without(accepted);
        }
        accepted.nonce <= self.reply.nonce || !self.suspects.is_empty() && !accepted.is_full_set
    }

    /// Clears suspects that the client no longer wants. Returns whether the NACK still stands. With `aliases`, the client may want the only resource of
    /// a reply by another name, so the NACK does not end when that resource is no longer suspected.
    pub(super) fn stands_for(&mut self, aliases: bool, wants: impl Fn(&Name) -> bool) -> bool {
        let had_some = self.suspects.iter().any(|suspect| suspect.is_quoted || !aliases);
        self.suspects.retain(|suspect| wants(&suspect.name));
        !(had_some && self.suspects.is_empty())
    }
}

const MOST_SUSPECTS: usize = 8;

#[cfg(test)]
mod tests;
