//! What is seen of a problem at one moment.

use serde::Serialize;

use super::kind::ProblemKind;

/// A problem as it is seen now.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sighting {
    pub(crate) kind: ProblemKind,
    /// What tells it from others of its kind, and stays the same while it lasts.
    pub(crate) group: String,
    /// What it is about: a server, a type, a limit, a file.
    pub(crate) subject: String,
    /// Why, in the words of the server, the client or the system.
    pub(crate) reason: String,
    pub(crate) servers: Several,
    /// By the words of their keys.
    pub(crate) views: Several,
    /// How often it has happened, or how many there are of it; 0 if that means nothing.
    pub(crate) times: u64,
    /// Client streams that are concerned, as far as that is known.
    pub(crate) clients: usize,
    /// Names of resources.
    pub(crate) names: Several,
    /// What clients notice of it.
    pub(crate) noticed: &'static str,
    /// What to type to see more.
    pub(crate) next: Vec<String>,
}

/// The first few of some things, and how many there are.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Several {
    pub(crate) count: usize,
    pub(crate) first: Vec<String>,
}

impl Several {
    /// Adds one that was not added before.
    pub(crate) fn add(&mut self, one: impl Into<String>) {
        self.count += 1;
        if self.first.len() < FIRST {
            self.first.push(one.into());
        }
    }

    pub(crate) fn of(all: impl IntoIterator<Item = String>) -> Self {
        let mut several = Self::default();
        all.into_iter().for_each(|one| several.add(one));
        several
    }
}

impl Sighting {
    /// One that is alone of its subject.
    pub(crate) fn new(kind: ProblemKind, subject: impl Into<String>, reason: impl Into<String>) -> Self {
        let subject = subject.into();
        Self {
            kind,
            group: subject.clone(),
            subject,
            reason: shortened(reason.into()),
            servers: Several::default(),
            views: Several::default(),
            times: 0,
            clients: 0,
            names: Several::default(),
            noticed: "",
            next: Vec::new(),
        }
    }

    /// Sets what clients notice, and the command that says more.
    pub(crate) fn with(mut self, noticed: &'static str, next: &[&str]) -> Self {
        self.say(noticed, next);
        self
    }

    /// The same of one that others are added to.
    pub(crate) fn say(&mut self, noticed: &'static str, next: &[&str]) {
        self.noticed = noticed;
        self.next = next.iter().map(ToString::to_string).collect();
    }
}

/// Returns a text of at most [`LONGEST`] letters: peers decide how long theirs are.
pub(crate) fn shortened(mut text: String) -> String {
    if let Some((at, _)) = text.char_indices().nth(LONGEST) {
        text.truncate(at);
        text.push('…');
    }
    text
}

const LONGEST: usize = 300;
/// How many of several things are named.
const FIRST: usize = 5;
