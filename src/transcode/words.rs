//! The texts for numbers and bytes in proto3 JSON.

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use prost_types::{Duration, Timestamp};

const SECONDS_OF_10000_YEARS: i64 = 315_576_000_000;
const YEAR_1: i64 = -62_135_596_800;
const YEAR_9999_ENDS: i64 = 253_402_300_799;
const SECOND: i32 = 1_000_000_000;

const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

pub(super) fn base64_of(bytes: &[u8]) -> String {
    BASE64.encode(bytes)
}

/// Decodes base64 of either alphabet, with or without padding.
pub(super) fn bytes_of(text: &str) -> Option<Vec<u8>> {
    if text.contains(['-', '_']) {
        return BASE64.decode(text.replace('-', "+").replace('_', "/")).ok();
    }
    BASE64.decode(text).ok()
}

pub(super) fn duration_text(seconds: i64, nanos: i32) -> Option<String> {
    let in_range = (-SECONDS_OF_10000_YEARS..=SECONDS_OF_10000_YEARS).contains(&seconds);
    let one_sign = (seconds >= 0 || nanos <= 0) && (seconds <= 0 || nanos >= 0);
    (in_range && one_sign && (-SECOND < nanos && nanos < SECOND)).then(|| Duration { seconds, nanos }.to_string())
}

/// Parses `[-]digits[.digits]s`, with up to nine digits after the point.
pub(super) fn duration_of(text: &str) -> Option<(i64, i32)> {
    let number = text.strip_suffix('s')?;
    let (sign, number) = match number.strip_prefix('-') {
        Some(number) => (-1, number),
        None => (1, number),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let digits =
        |text: &str, limit: usize| (1..=limit).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole, 12) || !digits(fraction, 9) {
        return None;
    }
    let seconds = sign * whole.parse::<i64>().ok()?;
    let nanos = i32::try_from(sign).ok()? * format!("{fraction:0<9}").parse::<i32>().ok()?;
    (seconds.abs() <= SECONDS_OF_10000_YEARS).then_some((seconds, nanos))
}

pub(super) fn timestamp_text(seconds: i64, nanos: i32) -> Option<String> {
    let in_range = (YEAR_1..=YEAR_9999_ENDS).contains(&seconds) && (0..SECOND).contains(&nanos);
    in_range.then(|| Timestamp { seconds, nanos }.to_string())
}

pub(super) fn timestamp_of(text: &str) -> Option<(i64, i32)> {
    // Longer texts are not timestamps, so they are not parsed.
    let Timestamp { seconds, nanos } = Some(text).filter(|text| text.len() <= 64)?.parse().ok()?;
    timestamp_text(seconds, nanos)?;
    Some((seconds, nanos))
}

/// Returns `fooBar.baz,qux` for the paths `foo_bar.baz` and `qux`; `None` if the result cannot be converted back.
pub(super) fn field_mask_text(paths: &[String]) -> Option<String> {
    let camel: Vec<String> = paths.iter().map(|path| camel_case(path)).collect();
    let text = camel.join(",");
    (field_mask_of(&text).as_deref() == Some(paths)).then_some(text)
}

pub(super) fn field_mask_of(text: &str) -> Option<Vec<String>> {
    if text.is_empty() {
        return Some(Vec::new());
    }
    text.split(',').map(|path| (!path.is_empty() && !path.contains('_')).then(|| snake_case(path))).collect()
}

fn camel_case(path: &str) -> String {
    let mut text = String::with_capacity(path.len());
    let mut upper = false;
    for letter in path.chars() {
        if letter == '_' {
            upper = true;
            continue;
        }
        text.push(if upper { letter.to_ascii_uppercase() } else { letter });
        upper = false;
    }
    text
}

fn snake_case(path: &str) -> String {
    let mut text = String::with_capacity(path.len() + 4);
    for letter in path.chars() {
        if letter.is_ascii_uppercase() {
            text.push('_');
        }
        text.push(letter.to_ascii_lowercase());
    }
    text
}

/// Parses a whole number, also as `1e3` or `5.0`.
pub(super) fn integer_of(text: &str) -> Option<i128> {
    text.parse::<i128>().ok().or_else(|| whole(float_of(text)?))
}

/// Converts a float that is a whole number and within the exact range.
pub(super) fn whole(number: f64) -> Option<i128> {
    (number.fract() == 0.0 && number.abs() < 1e20).then_some(number as i128)
}

/// Parses a JSON number, or one of the three words for special values.
pub(super) fn float_of(text: &str) -> Option<f64> {
    match text {
        "NaN" => Some(f64::NAN),
        "Infinity" => Some(f64::INFINITY),
        "-Infinity" => Some(f64::NEG_INFINITY),
        _ if text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E')) => {
            text.parse::<f64>().ok().filter(|number| number.is_finite())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    #[test]
    fn durations_have_one_unit_and_one_sign() {
        for (text, parts) in
            [("1s", (1, 0)), ("-1.5s", (-1, -500_000_000)), ("0.000000001s", (0, 1)), ("-0.25s", (0, -250_000_000))]
        {
            assert_eq!(duration_of(text), Some(parts), "{text}");
        }
        for text in
            ["1", "s", "1.s", ".5s", "1m", "1.0000000001s", "+1s", "--1s", "1 s", "315576000001s", "9999999999999s", ""]
        {
            assert_eq!(duration_of(text), None, "{text}");
        }
        assert_eq!(duration_text(1, -1), None);
        assert_eq!(duration_text(i64::MIN, 0), None);
        assert_eq!(duration_text(0, i32::MIN), None);
    }

    #[test]
    fn timestamps_are_rfc_3339_between_the_years_1_and_9999() {
        assert_eq!(timestamp_text(0, 0).as_deref(), Some("1970-01-01T00:00:00Z"));
        assert_eq!(timestamp_of("2026-11-20T15:00:00.5+01:00"), Some((1_795_183_200, 500_000_000)));
        assert_eq!(timestamp_text(i64::MAX, 0), None);
        assert_eq!(timestamp_of("yesterday"), None);
    }

    #[test]
    fn field_masks_that_cannot_come_back_are_rejected() {
        assert_eq!(field_mask_text(&["foo_bar.baz".into(), "qux".into()]).as_deref(), Some("fooBar.baz,qux"));
        assert_eq!(field_mask_text(&["fooBar".into()]), None);
        assert_eq!(field_mask_of("foo_bar"), None);
        assert_eq!(field_mask_of(""), Some(vec![]));
    }

    #[test]
    fn base64_of_either_alphabet() {
        let bytes = [0xfb, 0xff, 0xfe, 1];
        for text in ["+//+AQ==", "-__-AQ==", "+//+AQ", "-__-AQ"] {
            assert_eq!(bytes_of(text).as_deref(), Some(&bytes[..]), "{text}");
        }
        assert_eq!(bytes_of("no base64!"), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, rng_seed: RngSeed::Fixed(1), ..Default::default() })]
        #[test]
        fn what_is_written_reads_back(seconds in -400_000_000_000i64..400_000_000_000, nanos in -1_100_000_000..1_100_000_000i32) {
            if let Some(text) = duration_text(seconds, nanos) {
                prop_assert_eq!(duration_of(&text), Some((seconds, nanos)));
            }
            if let Some(text) = timestamp_text(seconds, nanos) {
                prop_assert_eq!(timestamp_of(&text), Some((seconds, nanos)));
            }
        }

        #[test]
        fn no_text_panics(text in "[-+0-9.:TZsa-f]{0,40}|\\PC{0,20}") {
            let _ = (duration_of(&text), timestamp_of(&text), field_mask_of(&text), integer_of(&text), bytes_of(&text));
        }
    }
}
