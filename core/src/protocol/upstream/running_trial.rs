//! A trial that is under way, and what its end may show.

use std::collections::BTreeSet;

use crate::protocol::moment::Moment;
use crate::protocol::server_status::ServerStatus;
use crate::xds::Type;

/// A trial that is under way. A plain record.
#[derive(Debug)]
pub(super) struct RunningTrial {
    pub(super) serial: u64,
    pub(super) kinds: Vec<Type>,
    /// When the trial's stream was opened.
    pub(super) begun: Option<Moment>,
}

/// What a trial has shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TrialEnd {
    /// The server has answered the requests at these indexes. If these are not all, it has also left the stream open for long enough.
    Taken(BTreeSet<usize>),
    /// The server has ended the stream for one type with this status, but not a stream for a type that it takes.
    Refused(ServerStatus),
    /// The server has ended the stream for several types.
    EndedForAny,
    /// The trial had no stream, or its stream was lost, or the server may not take a second stream.
    Lost,
}
