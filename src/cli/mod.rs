//! The commands of the program other than the relay.

mod admin;
mod admin_lines;
mod again;
pub mod brakes;
pub mod check;
pub mod compare;
mod compare_server;
pub mod dangling;
mod diff;
mod differences;
mod endpoint;
pub mod explain;
pub mod get;
pub mod key;
mod listening;
pub mod manual;
pub mod nacks;
mod node_json;
mod output;
mod printer;
pub mod problems;
mod query_args;
mod query_state;
pub mod release;
pub mod reload;
mod screen;
pub mod snapshot;
pub mod split;
pub mod status;
mod summary;
mod table;
pub mod tap;
pub mod top;
mod view_words;
pub mod watch;
mod xds_client;

use std::io::{self, Write};

/// The exit code of a command with a finding: a fault, or a negative answer to its question.
pub const FOUND: u8 = 1;
/// The exit code of a command that could not do its work: what it needed could not be read, or did not answer.
pub const CANNOT_ASK: u8 = 2;

/// Prints to stderr why a command does not end with 0, a line for each reason.
pub fn error(reasons: &str) {
    reasons.lines().for_each(|reason| say("error", reason));
}

/// Prints to stderr a warning about what is probably not intended.
pub fn warning(what: &str) {
    say("warning", what);
}

/// Prints progress to stderr.
pub fn note(what: &str) {
    say("note", what);
}

/// Prints a line to stderr. A closed stderr is ignored.
fn say(kind: &str, what: &str) {
    let _ = writeln!(io::stderr(), "{kind}: {what}");
}

/// Prints output to stdout. The reader may have closed the pipe.
pub fn show(text: &str) -> io::Result<()> {
    show_more(text).map(|_| ())
}

/// Prints output that continues later. Returns whether the reader still reads it.
fn show_more(text: &str) -> io::Result<bool> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        written => written.map(|()| true),
    }
}

/// Returns a client's text without characters that control a terminal or reorder a line.
fn printable(text: &str) -> String {
    text.chars().map(|letter| if is_hostile(letter) { char::REPLACEMENT_CHARACTER } else { letter }).collect()
}

/// Returns a client's text on one line. The relay sends line breaks as `\n`; these become spaces.
fn one_line(text: &str) -> String {
    let words: Vec<_> = ["\\r", "\\n", "\\t"]
        .iter()
        .fold(text.to_owned(), |text, broken| text.replace(broken, " "))
        .split_whitespace()
        .map(printable)
        .collect();
    words.join(" ")
}

/// Returns a page as JSON without characters that control a terminal.
fn json_text(page: &serde_json::Value) -> String {
    harmless(&format!("{page:#}\n"))
}

/// Returns a page as JSON on one line, without characters that control a terminal.
fn json_line(page: &serde_json::Value) -> String {
    harmless(&format!("{page}\n"))
}

fn harmless(json: &str) -> String {
    let mut out = String::new();
    for letter in json.chars() {
        match is_hostile(letter) && letter != '\n' {
            true => out.push_str(&format!("\\u{:04x}", u32::from(letter))), // such characters occur only inside JSON strings
            false => out.push(letter),
        }
    }
    out
}

/// Whether a character controls a terminal, or is invisible and changes how others are shown.
fn is_hostile(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
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
    use super::{json_text, one_line, printable, seconds};

    #[test]
    fn what_would_control_a_terminal_is_not_printed_and_json_keeps_it_as_a_number() {
        let hostile = "a\u{1b}[2J\u{9b}\u{202e}b\u{200b}\u{feff}\u{e9}";
        assert_eq!(printable(hostile), "a\u{fffd}[2J\u{fffd}\u{fffd}b\u{fffd}\u{fffd}\u{e9}");
        let text = json_text(&serde_json::json!({"node": hostile}));
        assert_eq!(text, "{\n  \"node\": \"a\\u001b[2J\\u009b\\u202eb\\u200b\\ufeff\u{e9}\"\n}\n");
        let back: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(back["node"], hostile);
    }

    #[test]
    fn the_line_breaks_of_a_reason_are_spaces() {
        assert_eq!(one_line("bad\\ncluster:\\r\\n  \\tno \u{1b}x"), "bad cluster: no \u{fffd}x");
    }

    #[test]
    fn a_time_has_a_fraction_below_ten_seconds_and_none_above() {
        for (given, shown) in
            [(0.0, "0.0s"), (0.44, "0.4s"), (9.9, "9.9s"), (10.0, "10s"), (12.9, "12s"), (185.2, "3m 5s")]
        {
            assert_eq!(seconds(given), shown);
        }
    }
}
