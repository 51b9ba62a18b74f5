//! A NACK that stands: until the client accepts a newer reply that has what it may be about.
//!
//! It concerns a whole reply and names the bad resource in its text alone, and the client may use the others (DELTA-51, SOTW-18). So the
//! resources that the text quotes are *suspected*, and the one of a reply that had no other. A newer reply that the client accepts ends the
//! suspicion of the resources in it; a full set has them all. Without suspects, any newer reply that the client accepts ends the NACK.

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

/// The NACK of a client that has accepted nothing newer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StandingNack {
    /// The reply that was NACKed, the latest of several.
    pub reply: SentReply,
    /// Redacted and escaped.
    pub reason: Arc<str>,
    /// When it came.
    pub at: Moment,
    /// When the first of the NACKs came that stand.
    pub since: Moment,
    suspects: Vec<Suspect>,
    /// What the replies have that were NACKed. None if one is a full set, or if that is not known.
    names: Option<ReplyNames>,
}

/// How a resource stands to what a client rejects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InRejected {
    /// The reason quotes it.
    Quoted,
    /// It was in a rejected reply that had no other resource.
    Alone,
    /// It was in a rejected reply among others. The reason may quote some of those.
    Among {
        /// The reason quotes others.
        quotes_others: bool,
    },
    /// It may have been in a rejected reply.
    Unknown,
    /// It was in none.
    Not {
        /// A reply that may have it is unanswered; if none is, the client has accepted what it was sent of it.
        is_pending: bool,
    },
}

/// A resource that a NACK may be about.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Suspect {
    name: Name,
    /// The text of the NACK quotes it; if not, it was alone in the reply.
    is_quoted: bool,
    /// The newer replies that had it, the latest few.
    sent_in: Vec<u64>,
}

impl StandingNack {
    pub(super) fn new(reply: SentReply, names: Option<ReplyNames>, reason: Arc<str>, at: Moment) -> Self {
        Self { reply, reason, at, since: at, suspects: Vec::new(), names }
    }

    pub(super) fn nacked(&self) -> Nacked {
        Nacked { version: self.reply.version, reason: self.reason.clone() }
    }

    /// Takes over what stands of an earlier NACK.
    pub(super) fn after(self, earlier: Self) -> Self {
        let names = match (self.names, earlier.names) {
            (None, names) if earlier.reply == self.reply => names, // it is rejected once more
            (newer, names) => newer.zip(names).map(|(newer, names)| newer.and(&names)),
        };
        if earlier.reply.nonce > self.reply.nonce {
            let Self { reply, reason, at, suspects, .. } = earlier; // this is a late one
            return Self { reply, reason, at, since: earlier.since.min(self.since), suspects, names };
        }
        Self { since: earlier.since, suspects: earlier.suspects, names, ..self }
    }

    /// Returns the resources that it may be about.
    pub fn suspects(&self) -> impl Iterator<Item = &Name> {
        self.suspects.iter().map(|suspect| &suspect.name)
    }

    /// Returns what else the rejected replies have.
    pub fn others_in_reply(&self) -> impl Iterator<Item = &Name> {
        let first = self.names.iter().flat_map(|names| names.first());
        first.filter(|name| self.suspects.iter().all(|suspect| suspect.name != **name))
    }

    /// Suspects a resource that the reason quotes and that last changed at a revision. `later` are the replies after the NACKed one that were
    /// sent by then: those from a snapshot with that change had the resource too.
    pub(super) fn suspect(&mut self, name: &Name, changed: Revision, later: impl Iterator<Item = SentReply>) {
        let nacked = self.reply;
        let changed_later = changed > nacked.revision;
        let had_it = |reply: &SentReply| reply.is_full_set || changed_later && changed <= reply.revision;
        let sent_in =
            later.filter(|reply| reply.nonce > nacked.nonce && had_it(reply)).map(|reply| reply.nonce).collect();
        self.add(Suspect { name: name.clone(), is_quoted: true, sent_in });
    }

    /// Suspects the resource that the NACKed reply had alone. `sent_in` are the unanswered replies with it.
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

    /// Notes which suspected resources a newer reply has.
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

    /// Notes that the client accepted a reply. Returns whether the NACK still stands.
    pub(super) fn stands_after(&mut self, accepted: SentReply, names: Option<&ReplyNames>) -> bool {
        self.suspects.retain(|suspect| !suspect.sent_in.contains(&accepted.nonce));
        if accepted.nonce > self.reply.nonce
            && let Some((own, accepted)) = self.names.as_mut().zip(names)
        {
            own.without(accepted);
        }
        accepted.nonce <= self.reply.nonce || !self.suspects.is_empty() && !accepted.is_full_set
    }

    /// Ends suspicions of resources that the client no longer wants. Returns whether the NACK still stands. If it requests `aliases`, what was
    /// alone in a reply need not have the name by which the client wants it, so its end does not end the NACK.
    pub(super) fn stands_for(&mut self, aliases: bool, wants: impl Fn(&Name) -> bool) -> bool {
        let had_some = self.suspects.iter().any(|suspect| suspect.is_quoted || !aliases);
        self.suspects.retain(|suspect| wants(&suspect.name));
        !(had_some && self.suspects.is_empty())
    }
}

const MOST_SUSPECTS: usize = 8;

#[cfg(test)]
mod tests;
