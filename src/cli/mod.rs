//! The commands of the program beside the relay.

mod admin;
pub mod brakes;
pub mod check;
pub mod compare;
pub mod dangling;
mod diff;
mod endpoint;
pub mod explain;
pub mod get;
pub mod key;
pub mod nacks;
mod node_json;
mod output;
mod printer;
mod query_args;
mod query_state;
pub mod release;
pub mod reload;
pub mod snapshot;
pub mod split;
pub mod status;
mod summary;
mod table;
pub mod top;
mod view_words;
pub mod watch;
mod xds_client;

use std::io::{self, Write};

/// The exit code of a command that found something: a fault, or that what was asked for is not so.
pub const FOUND: u8 = 1;
/// The exit code of a command that could not ask.
pub const CANNOT_ASK: u8 = 2;

/// Prints to stderr why a command does not end with 0, a line for each reason.
pub fn error(reasons: &str) {
    reasons.lines().for_each(|reason| say("error", reason));
}

/// Prints to stderr what is probably not intended.
pub fn warning(what: &str) {
    say("warning", what);
}

/// Prints progress to stderr.
pub fn note(what: &str) {
    say("note", what);
}

/// A closed stderr is ignored.
fn say(kind: &str, what: &str) {
    let _ = writeln!(io::stderr(), "{kind}: {what}");
}

/// Prints output to stdout. The reader may have closed the pipe.
pub fn show(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Returns clients' text without what would control a terminal.
fn printable(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { char::REPLACEMENT_CHARACTER } else { letter }).collect()
}

/// Returns a time as people read it: `0.4s`, `12s`, `3m 5s`.
fn seconds(seconds: f64) -> String {
    match seconds {
        ..10.0 => format!("{seconds:.1}s"),
        _ => humantime::format_duration(std::time::Duration::from_secs(seconds as u64)).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::seconds;

    #[test]
    fn a_time_has_a_fraction_below_ten_seconds_and_none_above() {
        for (given, shown) in
            [(0.0, "0.0s"), (0.44, "0.4s"), (9.9, "9.9s"), (10.0, "10s"), (12.9, "12s"), (185.2, "3m 5s")]
        {
            assert_eq!(seconds(given), shown);
        }
    }
}
