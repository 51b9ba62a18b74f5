//! The form of log lines that are not events of `tracing`: lines about the log itself, and panics.

use std::fmt::Write;

use serde_json::{Map, Value};
use tracing::Level;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

/// The form of log lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// Text for people.
    #[default]
    Text,
    /// One object a line.
    Json,
}

impl LogFormat {
    /// Returns a line as `tracing` would write it. Texts of peers in the fields cannot begin a line of their own.
    pub(super) fn line<const N: usize>(self, level: Level, message: &str, fields: [(&str, Value); N]) -> String {
        let mut time = String::new();
        let _ = SystemTime.format_time(&mut Writer::new(&mut time)); // writing to a String does not fail
        match self {
            Self::Text => {
                let mut line = format!("{time} {level:>5} {TARGET}: {message}");
                for (name, value) in fields {
                    let _ = write!(line, " {name}={value}");
                }
                line + "\n"
            }
            Self::Json => {
                let own = [("timestamp", time), ("level", level.to_string()), ("target", TARGET.into())];
                let own = own.into_iter().chain([("message", message.to_owned())]);
                let own = own.map(|(name, text)| (name.to_owned(), text.into()));
                let fields = fields.into_iter().map(|(name, value)| (name.to_owned(), value));
                Value::Object(own.chain(fields).collect::<Map<_, _>>()).to_string() + "\n"
            }
        }
    }

    /// Returns the beginning of a line of more than `longest` bytes, with a note that it was cut. The result has at most `longest` bytes.
    pub(super) fn cut(self, line: &[u8], longest: usize) -> String {
        // Inside a JSON field the line takes at most twice its bytes, because its control characters are escaped already.
        let room = longest.saturating_sub(MARK);
        let kept = if self == Self::Json { room / 2 } else { room };
        let beginning = String::from_utf8_lossy(&line[..kept.min(line.len())]);
        let beginning = beginning.trim_end_matches(char::REPLACEMENT_CHARACTER); // the rest of a character that was cut
        match self {
            Self::Text => format!("{beginning} (cut; {} bytes)\n", line.len()),
            Self::Json => {
                self.line(Level::WARN, "log line cut", [("bytes", line.len().into()), ("line", beginning.into())])
            }
        }
    }
}

const TARGET: &str = "weir::telemetry::log";
/// The largest size of the note.
const MARK: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_log_itself_have_the_form_of_the_others() {
        let fields = || [("lines", 5.into()), ("error", "a\nb".into())];
        let text = LogFormat::Text.line(Level::WARN, "dropped", fields());
        let (time, rest) = text.split_once(' ').unwrap();
        assert!(time.len() == 27 && time.ends_with('Z'), "{time}");
        assert_eq!(rest, " WARN weir::telemetry::log: dropped lines=5 error=\"a\\nb\"\n");

        let line = LogFormat::Json.line(Level::ERROR, "dropped", fields());
        let json: Value = serde_json::from_str(&line).unwrap();
        assert_eq!((line.lines().count(), &json["level"], &json["message"]), (1, &"ERROR".into(), &"dropped".into()));
        assert_eq!((&json["lines"], &json["error"]), (&5.into(), &"a\nb".into()));
    }

    #[test]
    fn a_line_that_is_cut_says_so_and_is_still_an_object() {
        let cut = LogFormat::Text.cut("ä".repeat(1000).as_bytes(), 1001);
        assert!(cut.starts_with("ää") && cut.ends_with("ä (cut; 2000 bytes)\n") && cut.len() <= 1001, "{cut}");

        let line = format!("{{\"message\":\"{}\"}}", "\\\"".repeat(1000));
        let cut = LogFormat::Json.cut(line.as_bytes(), 1000);
        let json: Value = serde_json::from_str(&cut).unwrap();
        assert!(cut.len() <= 1000 && cut.ends_with('\n'), "{cut}");
        assert_eq!((&json["message"], &json["bytes"]), (&"log line cut".into(), &line.len().into()));
        assert!(json["line"].as_str().is_some_and(|kept| line.starts_with(kept) && kept.len() > 300), "{cut}");
    }
}
