//! The commands of the program beside the relay.

pub mod check;
mod diff;
pub mod get;
pub mod key;
mod node_json;
mod printer;
mod query_args;
mod query_state;
pub mod release;
pub mod snapshot;
pub mod watch;
mod xds_client;

use std::io::{self, Write};

/// Prints an error or progress to stderr. A closed stderr is ignored.
pub fn note(what: &str) {
    let _ = writeln!(io::stderr(), "{what}");
}

/// Prints output to stdout. The reader may have closed the pipe.
pub fn show(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}
