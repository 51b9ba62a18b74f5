//! One observation of a problem.

use serde::Serialize;

use super::kind::ProblemKind;

/// A problem as it is seen now.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sighting {
    pub(crate) kind: ProblemKind,
    /// Distinguishes it from other problems of its kind, and stays the same while it lasts.
    pub(crate) group: String,
    /// The subject: a server, a type, a limit, a file.
    pub(crate) subject: String,
    /// The reason, in the words of the server, the client or the system.
    pub(crate) reason: String,
    pub(crate) servers: CountedSample,
    /// The names of the views, made from the fields of their keys.
    pub(crate) views: CountedSample,
    /// How often it has happened, or how many cases there are; 0 if neither has a meaning here.
    pub(crate) times: u64,
    /// The number of concerned client streams, as far as it is known.
    pub(crate) clients: usize,
    /// Names of resources.
    pub(crate) names: CountedSample,
    /// The effect on clients.
    pub(crate) noticed: &'static str,
    /// The command that shows more.
    pub(crate) next: Vec<String>,
}

/// The first few of some things, and how many there are.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct CountedSample {
    pub(crate) count: usize,
    pub(crate) first: Vec<String>,
}

impl CountedSample {
    /// Adds an item that was not added before.
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
    /// Returns a sighting that is the only one of its subject.
    pub(crate) fn new(kind: ProblemKind, subject: impl Into<String>, reason: impl Into<String>) -> Self {
        let subject = subject.into();
        Self {
            kind,
            group: subject.clone(),
            subject,
            reason: shortened(reason.into()),
            servers: CountedSample::default(),
            views: CountedSample::default(),
            times: 0,
            clients: 0,
            names: CountedSample::default(),
            noticed: "",
            next: Vec::new(),
        }
    }

    /// Sets the effect on clients, and the command that shows more.
    pub(crate) fn with(mut self, noticed: &'static str, next: &[&str]) -> Self {
        self.say(noticed, next);
        self
    }

    /// Sets the same in a sighting to which others are added.
    pub(crate) fn say(&mut self, noticed: &'static str, next: &[&str]) {
        self.noticed = noticed;
        self.next = next.iter().map(ToString::to_string).collect();
    }
}

/// Returns a text of at most [`LONGEST`] characters: peers decide how long their texts are.
pub(crate) fn shortened(mut text: String) -> String {
    if let Some((at, _)) = text.char_indices().nth(LONGEST) {
        text.truncate(at);
        text.push('…');
    }
    text
}

const LONGEST: usize = 300;
/// How many of the items are listed.
const FIRST: usize = 5;
