//! The last messages of a client, abbreviated.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use crate::kind::Kind;
use crate::subscription::{Name, Response};

#[derive(Debug, Clone)]
pub enum Note {
    Connected,
    Ended(String),
    Subscribed(Kind, usize),
    Acked(Kind),
    Nacked(Kind),
    Received(Box<Received>),
}

/// A response without its resources.
#[derive(Debug, Clone)]
pub struct Received {
    kind: Option<Kind>,
    version: String,
    nonce: String,
    resources: usize,
    removed: usize,
    first: Option<Name>,
    newest: u64,
    size: usize,
}

impl Note {
    pub fn received(response: &Response) -> Self {
        Self::Received(Box::new(Received {
            kind: response.kind(),
            version: response.version.clone(),
            nonce: response.nonce.clone(),
            resources: response.entries.len(),
            removed: response.removed.len(),
            first: response.entries.first().map(|entry| &entry.name).or(response.removed.first()).cloned(),
            newest: response.newest().map_or(0, |stamp| stamp.update),
            size: response.size,
        }))
    }
}

#[derive(Debug, Default)]
pub struct History {
    notes: VecDeque<(Duration, Note)>,
}

impl History {
    /// Adds a message that came at this time after the client's start.
    pub fn push(&mut self, at: Duration, note: Note) {
        if self.notes.len() == KEPT {
            self.notes.pop_front();
        }
        self.notes.push_back((at, note));
    }

    pub fn lines(&self) -> Vec<String> {
        self.notes.iter().map(|(at, note)| format!("{:>9.3} {note}", at.as_secs_f64())).collect()
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connected => f.write_str("connected"),
            Self::Ended(reason) => write!(f, "ended: {reason}"),
            Self::Subscribed(kind, 0) => write!(f, "-> {} subscribes", kind.word()),
            Self::Subscribed(kind, names) => write!(f, "-> {} subscribes to {names} names", kind.word()),
            Self::Acked(kind) => write!(f, "-> {} ACK", kind.word()),
            Self::Nacked(kind) => write!(f, "-> {} NACK", kind.word()),
            Self::Received(received) => received.fmt(f),
        }
    }
}

impl fmt::Display for Received {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind.map_or("other type", Kind::word);
        write!(f, "<- {kind} version={} nonce={} resources={}", self.version, self.nonce, self.resources)?;
        if self.removed > 0 {
            write!(f, " removed={}", self.removed)?;
        }
        if let Some(first) = &self.first {
            write!(f, " first={first}")?;
        }
        if self.newest > 0 {
            write!(f, " update={}", self.newest)?;
        }
        write!(f, " bytes={}", self.size)
    }
}

const KEPT: usize = 64;
