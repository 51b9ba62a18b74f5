//! What things cost, in bytes of the allocator. `tests/process/memory.rs` fails if one of them is off by a fifth.

/// The program without any peer.
pub(crate) const PROGRAM: usize = 8 << 20;
/// Lines of the log that nobody reads, at most.
pub(crate) const LOG_QUEUE: usize = 4 << 20;
/// A connection without TLS, with its buffers.
pub(crate) const CONNECTION: usize = 39 << 10;
/// What TLS adds to a connection.
pub(crate) const TLS: usize = 10 << 10;
/// A TLS handshake in progress, with its task.
pub(crate) const HANDSHAKE: usize = 20 << 10;
/// What the kernel keeps for a connection at rest.
pub(crate) const SOCKET: usize = 4 << 10;
/// What a connection keeps of encoded replies that its client does not read.
pub(crate) const UNSENT: usize = 40 << 10;
/// What the kernel keeps of such replies besides, once its buffers are full.
pub(crate) const UNSENT_IN_KERNEL: usize = 396 << 10;
/// A stream that has sent nothing.
pub(crate) const STREAM: usize = 3700;
/// The session of a stream, without names.
pub(crate) const SESSION: usize = 3750;
/// What a view knows of a client that servers may be shown, besides its node.
pub(crate) const MEMBER: usize = 600;
/// A name of a session, besides its text.
pub(crate) const NAME: usize = 160;
/// What a name costs besides, in its view and towards its server, as long as its resource is not there.
pub(crate) const UNSENT_NAME: usize = 700;
/// A view, with its streams to servers.
pub(crate) const VIEW: usize = 64 << 10;
/// A view with load reports, with its stream to a server.
pub(crate) const POOL: usize = 36 << 10;
/// A stream of load reports that is passed on, with the stream to a server.
pub(crate) const PASSED_ON: usize = 30 << 10;
/// How many copies of its key a view has.
pub(crate) const KEYS_OF_VIEW: usize = 4;
/// A resource in a table of a view, besides its body.
pub(crate) const TABLE_ENTRY: usize = 400;
/// A subscription that lingers, with its name.
pub(crate) const LINGERING: usize = 850;
/// What is remembered of a resource for which there was no room.
pub(crate) const WITHOUT_ROOM: usize = 150;

/// Returns what a client costs with so many streams, each with so many names whose resources it has.
pub(crate) const fn client(streams: usize, names_of_each: usize) -> usize {
    CONNECTION + SOCKET + streams * (STREAM + SESSION + names(names_of_each, 0, 30 * names_of_each))
}

/// Returns what the names of a session cost. `unsent` of them were sent nothing; the texts of all have so many bytes.
pub(crate) const fn names(names: usize, unsent: usize, bytes: usize) -> usize {
    names * NAME + unsent * UNSENT_NAME + bytes
}
