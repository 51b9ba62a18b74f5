//! Durations in files, as a number with a unit: `500ms`, `10s`.

use std::time::Duration;

use serde::{Deserialize, Deserializer, de};

pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    humantime::parse_duration(&text)
        .map_err(|_| de::Error::custom(format!("invalid duration {text:?}: expected a number with a unit")))
}

/// The same for optional durations.
pub mod optional {
    use std::time::Duration;

    use serde::Deserializer;

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        super::deserialize(deserializer).map(Some)
    }
}
