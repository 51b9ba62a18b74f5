//! What the program does beside relaying.

pub mod check;
mod diff;
pub mod get;
pub mod key;
mod node_json;
mod printer;
mod query_args;
mod query_state;
pub mod watch;
mod xds_client;

use std::io::{self, Write};

/// Says what is wrong, or what goes on. Nobody may be reading, which is no reason to stop.
pub fn tell(what: &str) {
    let _ = writeln!(io::stderr(), "{what}");
}

/// Writes what was requested. Whoever reads may have had enough before the end.
pub fn show(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}
