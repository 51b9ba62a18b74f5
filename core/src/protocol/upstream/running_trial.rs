//! A trial that is under way, and what it may show.

use std::collections::BTreeSet;

use crate::protocol::moment::Moment;
use crate::protocol::server_status::ServerStatus;
use crate::xds::Type;

/// A plain record.
#[derive(Debug)]
pub(super) struct RunningTrial {
    pub(super) serial: u64,
    pub(super) kinds: Vec<Type>,
    /// When its stream was opened.
    pub(super) begun: Option<Moment>,
}

/// What a trial has shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TrialEnd {
    /// The server has answered these of the requests, by their places, and left the stream open for long enough if that is not all.
    Taken(BTreeSet<usize>),
    /// The server has ended the stream of one type by this status, but not one of a type that it takes.
    Refused(ServerStatus),
    /// The server has ended the stream of several types.
    EndedForAny,
    /// There was no such stream, or it was lost, or the server may take no second stream.
    Lost,
}
