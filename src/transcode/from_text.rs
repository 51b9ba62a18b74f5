//! Proto text to messages, with prost-reflect's parser. Depth and missing descriptors are checked before it runs, and lines are found afterwards.

use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor};

use super::error::{Outcome, Problem};
use super::{MAX_DEPTH, type_name};

pub(super) fn parse(pool: &DescriptorPool, descriptor: MessageDescriptor, text: &str) -> Outcome<DynamicMessage> {
    look_over(pool, text)?;
    DynamicMessage::parse_text_format(descriptor, text).map_err(|error| {
        let line = offset_of(&error).map(|offset| line_at(text, offset));
        Problem { line, ..Problem::new(error.to_string()) }
    })
}

/// Checks depth and types: the parser recurses at each brace, and does not report a missing descriptor.
fn look_over(pool: &DescriptorPool, text: &str) -> Outcome<()> {
    let bytes = text.as_bytes();
    let (mut at, mut line, mut depth) = (0, 1, 0usize);
    while let Some(&byte) = bytes.get(at) {
        at += 1;
        match byte {
            b'\n' => line += 1,
            b'#' => at += length_until(&bytes[at..], |byte| byte == b'\n'),
            b'"' | b'\'' => at = end_of_string(bytes, at, byte),
            b'{' | b'<' => {
                depth += 1;
                if depth > MAX_DEPTH {
                    let reason = format!("it is nested deeper than {MAX_DEPTH} messages");
                    return Err(Problem { line: Some(line), ..Problem::new(reason) });
                }
            }
            b'}' | b'>' => depth = depth.saturating_sub(1),
            b'[' => {
                let inside = &text[at..at + length_until(&bytes[at..], |byte| !is_of_type_url(byte))];
                let url: String = inside.split_ascii_whitespace().collect();
                let name = type_name(&url);
                if url.contains('/') && pool.get_message_by_name(name).is_none() {
                    return Err(Problem { line: Some(line), ..Problem::unknown_type(name) });
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn is_of_type_url(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte.is_ascii_whitespace() || matches!(byte, b'.' | b'_' | b'-' | b'/')
}

fn length_until(bytes: &[u8], is_end: impl Fn(u8) -> bool) -> usize {
    bytes.iter().position(|byte| is_end(*byte)).unwrap_or(bytes.len())
}

/// Returns the position after the closing quote. A string ends no later than its line.
fn end_of_string(bytes: &[u8], mut at: usize, quote: u8) -> usize {
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'\n' => return at,
            b'\\' if bytes.get(at + 1).is_some_and(|next| *next != b'\n') => at += 2,
            _ if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    at
}

/// Returns the position of an error. The parser shows it only in its debug form, so only the line number in a message depends on it.
fn offset_of(error: &prost_reflect::text_format::ParseError) -> Option<usize> {
    let debug = format!("{error:?}");
    let (_, span) = debug.rsplit_once("span: ")?;
    span.split("..").next()?.parse().ok()
}

fn line_at(text: &str, offset: usize) -> u64 {
    1 + text.bytes().take(offset).filter(|byte| *byte == b'\n').count() as u64
}
