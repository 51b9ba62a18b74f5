//! Forms of numbers, sizes and durations, each with its bounds.

use std::time::Duration;

use serde_json::{Value as Json, json};

use super::scalar::{ValueError, or_text, scalar_form, text_like};
use crate::config::yaml::Scalar;

/// A number, at least 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::config) struct Count(pub(crate) usize);

/// A number, at least 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::config) struct Positive(pub(crate) usize);

/// The number of a user or group of this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::config) struct UserNumber(pub(crate) u32);

/// The number of a protobuf field, or 0 for none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::config) struct FieldNumber(pub(crate) u32);

/// A number of bytes, at least 1: `67108864` or `64MiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::config) struct Size(pub(crate) usize);

/// Any duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::config) struct Wait(pub(crate) Duration);

/// A duration of at least [`SHORTEST`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::config) struct Pause(pub(crate) Duration);

/// The time between repetitions, or `0s` for never.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::config) struct Interval(pub(crate) Option<Duration>);

/// A share in hundredths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::config) struct Percent(pub(crate) u8);

/// The factor from one wait to the next.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::config) struct Factor(pub(crate) f64);

/// A number from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::config) struct Jitter(pub(crate) f64);

scalar_form!(
    Count,
    "integer",
    |scalar| {
        let number = whole(scalar).ok_or_else(|| ValueError::new("number", scalar, "a whole number of 0 or more"))?;
        countable(number, scalar).map(Count)
    },
    or_text(json!({ "type": "integer", "minimum": 0, "maximum": MAX_COUNT }), "[0-9]+"),
    |count| count.0.into()
);

scalar_form!(
    Positive,
    "integer",
    |scalar| {
        let number = whole(scalar).filter(|number| *number > 0);
        let number = number.ok_or_else(|| ValueError::new("number", scalar, "a whole number of 1 or more"))?;
        countable(number, scalar).map(Positive)
    },
    or_text(json!({ "type": "integer", "minimum": 1, "maximum": MAX_COUNT }), "0*[1-9][0-9]*"),
    |number| number.0.into()
);

scalar_form!(
    FieldNumber,
    "integer",
    |scalar| {
        let number = whole(scalar).and_then(|number| u32::try_from(number).ok()).filter(|number| *number <= MAX_FIELD);
        let expected = || format!("0 for none, or a number up to {MAX_FIELD}");
        number.map(FieldNumber).ok_or_else(|| ValueError::new("field number", scalar, expected()))
    },
    or_text(json!({ "type": "integer", "minimum": 0, "maximum": MAX_FIELD }), "[0-9]+")
);

scalar_form!(
    UserNumber,
    "integer",
    |scalar| {
        let number = whole(scalar).and_then(|number| u32::try_from(number).ok());
        number.map(UserNumber).ok_or_else(|| ValueError::new("number of a user or group", scalar, "one such as 1000"))
    },
    or_text(json!({ "type": "integer", "minimum": 0, "maximum": u32::MAX }), "[0-9]+")
);

scalar_form!(
    Size,
    "bytes",
    |scalar| {
        Size::of(scalar)
            .map(Size)
            .ok_or_else(|| ValueError::new("size", scalar, "a number of bytes above 0, such as 67108864 or 64MiB"))
    },
    or_text(json!({ "type": "integer", "minimum": 1 }), &Size::pattern()),
    |size| size_text(size.0).into()
);

scalar_form!(Wait, "duration", |scalar| duration(scalar).map(Wait), duration_schema(), |wait| time_text(wait.0));

scalar_form!(
    Pause,
    "duration",
    |scalar| match duration(scalar)? {
        time if time < SHORTEST => Err(ValueError::new("duration", scalar, "10ms or more")),
        time => Ok(Pause(time)),
    },
    text_like(DURATION),
    |pause| time_text(pause.0)
);

scalar_form!(
    Interval,
    "duration",
    |scalar| match duration(scalar)? {
        Duration::ZERO => Ok(Interval(None)),
        time if time < SHORTEST => Err(ValueError::new("duration", scalar, "10ms or more, or 0s for never")),
        time => Ok(Interval(Some(time))),
    },
    duration_schema(),
    |interval| time_text(interval.0.unwrap_or_default())
);

scalar_form!(
    Percent,
    "integer, 1 to 100",
    |scalar| {
        let percent = whole(scalar).filter(|percent| (1..=100).contains(percent));
        percent
            .map(|percent| Percent(percent as u8))
            .ok_or_else(|| ValueError::new("percentage", scalar, "a whole number from 1 to 100"))
    },
    or_text(json!({ "type": "integer", "minimum": 1, "maximum": 100 }), "[0-9]+"),
    |percent| percent.0.into()
);

scalar_form!(
    Factor,
    "number, 1 to 100",
    |scalar| {
        let factor = number(scalar).filter(|factor| (1.0..=100.0).contains(factor));
        factor.map(Factor).ok_or_else(|| ValueError::new("factor", scalar, "a number from 1 to 100"))
    },
    or_text(json!({ "type": "number", "minimum": 1, "maximum": 100 }), r"[0-9]+(\.[0-9]+)?"),
    |factor| factor.0.into()
);

scalar_form!(
    Jitter,
    "number, 0 to 1",
    |scalar| {
        let jitter = number(scalar).filter(|jitter| (0.0..=1.0).contains(jitter));
        jitter.map(Jitter).ok_or_else(|| ValueError::new("jitter", scalar, "a number from 0 to 1"))
    },
    or_text(json!({ "type": "number", "minimum": 0, "maximum": 1 }), r"[01](\.[0-9]+)?"),
    |jitter| jitter.0.into()
);

/// Returns the number of bytes that a text of the command line stands for.
pub fn size(text: &str) -> Result<usize, String> {
    let scalar = text.parse().map_or_else(|_| Scalar::Text(text.into()), Scalar::Integer);
    Size::of(&scalar).ok_or_else(|| "expected a number of bytes above 0, such as 67108864 or 64MiB".into())
}

impl Size {
    /// Returns the number of bytes that a value stands for.
    pub(super) fn of(scalar: &Scalar) -> Option<usize> {
        whole(scalar).or_else(|| with_unit(scalar)).filter(|bytes| *bytes > 0)
    }

    /// Returns the pattern of texts with a unit that are sizes.
    pub(super) fn pattern() -> String {
        format!("[0-9]+ ?({})?", unit_names())
    }
}

/// A form of a number: of bytes, or of things.
pub(in crate::config) trait Counted {
    const IS_SIZE: bool;

    fn amount(&self) -> usize;
}

/// Implements `Counted` for forms.
macro_rules! counted {
    ($($form:ident: $is_size:literal),+) => {
        $(impl Counted for $form {
            const IS_SIZE: bool = $is_size;

            fn amount(&self) -> usize {
                self.0
            }
        })+
    };
}
counted!(Count: false, Positive: false, Size: true);

fn whole(scalar: &Scalar) -> Option<usize> {
    match scalar {
        Scalar::Integer(number) => usize::try_from(*number).ok(),
        // For example `1e6`; within the exact range of floats.
        Scalar::Float(number) if number.fract() == 0.0 && (0.0..9e15).contains(number) => Some(*number as usize),
        Scalar::Text(text) if text.bytes().all(|byte| byte.is_ascii_digit()) => text.parse().ok(),
        _ => None,
    }
}

fn countable(number: usize, scalar: &Scalar) -> Result<usize, ValueError> {
    let expected = || format!("a whole number of at most {MAX_COUNT}");
    (number <= MAX_COUNT).then_some(number).ok_or_else(|| ValueError::new("number", scalar, expected()))
}

fn number(scalar: &Scalar) -> Option<f64> {
    match scalar {
        Scalar::Integer(number) => Some(*number as f64),
        Scalar::Float(number) => Some(*number),
        Scalar::Text(text) => text.parse().ok(),
        _ => None,
    }
}

fn with_unit(scalar: &Scalar) -> Option<usize> {
    let Scalar::Text(text) = scalar else { return None };
    let (digits, unit) = text.split_at(text.find(|letter: char| !letter.is_ascii_digit())?);
    let unit = unit.strip_prefix(' ').unwrap_or(unit);
    let (_, bytes) = UNITS.iter().find(|(name, _)| *name == unit)?;
    usize::try_from(digits.parse::<u64>().ok()?.checked_mul(*bytes)?).ok()
}

/// Returns a size as an operator would write it: in the largest unit that divides it.
pub(crate) fn size_text(bytes: usize) -> String {
    let units = UNITS.iter().rev().filter(|(name, unit)| name.ends_with("iB") && *unit > 1);
    let fits = |(_, unit): &&(&str, u64)| bytes > 0 && (bytes as u64).is_multiple_of(*unit);
    let found = units.clone().find(fits);
    found.map_or_else(
        || if bytes == 0 { "0".to_owned() } else { format!("{bytes}B") },
        |(name, unit)| format!("{}{name}", bytes as u64 / unit),
    )
}

fn time_text(time: Duration) -> Json {
    humantime::format_duration(time).to_string().into()
}

/// Returns this many KiB.
pub(in crate::config) const fn kib(count: usize) -> usize {
    count << 10
}

/// Returns this many MiB.
pub(in crate::config) const fn mib(count: usize) -> usize {
    count << 20
}

/// Returns this many milliseconds.
pub(in crate::config) const fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// Returns this many seconds.
pub(in crate::config) const fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// Returns this many minutes.
pub(in crate::config) const fn minutes(count: u64) -> Duration {
    Duration::from_secs(60 * count)
}

/// Implements the conversion from the type in which defaults are written.
macro_rules! made_of {
    ($($form:ident: $value:ty),+) => {
        $(impl From<$value> for $form {
            fn from(value: $value) -> Self {
                Self(value)
            }
        })+
    };
}
made_of!(Count: usize, Positive: usize, Size: usize, Wait: Duration, Pause: Duration, Percent: u8, Factor: f64, Jitter: f64);

impl From<Duration> for Interval {
    fn from(time: Duration) -> Self {
        Self((!time.is_zero()).then_some(time))
    }
}

fn unit_names() -> String {
    UNITS.map(|(name, _)| name).join("|")
}

fn duration(scalar: &Scalar) -> Result<Duration, ValueError> {
    let time = match scalar {
        Scalar::Integer(0) => Some(Duration::ZERO),
        Scalar::Text(text) => humantime::parse_duration(text).ok(),
        _ => None,
    };
    let time = time.ok_or_else(|| ValueError::new("duration", scalar, "a number with a unit, such as 30s"))?;
    (time <= LONGEST).then_some(time).ok_or_else(|| ValueError::new("duration", scalar, "at most 100 years"))
}

fn duration_schema() -> serde_json::Value {
    or_text(json!({ "enum": [0] }), &format!("{DURATION}|0"))
}

/// The shortest pause: shorter ones would have no effect.
const SHORTEST: Duration = Duration::from_millis(10);
/// The longest duration: far longer ones cannot be added to the time of day.
const LONGEST: Duration = Duration::from_secs(100 * 366 * 24 * 3600);
const MAX_COUNT: usize = u32::MAX as usize;
const DURATION: &str = r" *([0-9]+(\.[0-9]+)? *[a-zA-Zµ]+ *)+";
const MAX_FIELD: u32 = (1 << 29) - 1;
const UNITS: [(&str, u64); 9] = [
    ("B", 1),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_shown_in_the_largest_unit_that_divides_it() {
        for (bytes, text) in [
            (0, "0"),
            (1000, "1000B"),
            (1024, "1KiB"),
            (1536, "1536B"),
            (64 << 20, "64MiB"),
            (3 << 30, "3GiB"),
            (1025 << 10, "1025KiB"),
        ] {
            assert_eq!(size_text(bytes), text);
        }
    }
}
