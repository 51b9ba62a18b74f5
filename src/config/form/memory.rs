//! The form of `limits.memory`: a size, or a share of the available memory.

use serde_json::json;

use super::number::{Size, size_text};
use super::scalar::{ValueError, or_text, scalar_form};
use crate::config::yaml::Scalar;
use crate::memory::MemorySetting;

/// A number of bytes, or a share such as `75%`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::config) struct MemoryAmount(pub(crate) MemorySetting);

scalar_form!(
    MemoryAmount,
    "bytes, or a share such as `75%`",
    |scalar| {
        let amount = percent(scalar).map(MemorySetting::Percent).or_else(|| Size::of(scalar).map(MemorySetting::Bytes));
        let expected = "a share of 1% to 100%, or a number of bytes such as 2GiB";
        amount.map(MemoryAmount).ok_or_else(|| ValueError::new("memory", scalar, expected))
    },
    or_text(json!({ "type": "integer", "minimum": 1 }), &format!("0*([1-9][0-9]?|100)%|{}", Size::pattern())),
    |amount| match amount.0 {
        MemorySetting::Bytes(bytes) => size_text(bytes).into(),
        MemorySetting::Percent(percent) => format!("{percent}%").into(),
    }
);

impl From<MemorySetting> for MemoryAmount {
    fn from(setting: MemorySetting) -> Self {
        Self(setting)
    }
}

fn percent(scalar: &Scalar) -> Option<u8> {
    let Scalar::Text(text) = scalar else { return None };
    text.strip_suffix('%')?.parse().ok().filter(|percent| (1..=100).contains(percent))
}
