//! Forms of the owner and the permissions of a file.

use serde_json::json;

use super::scalar::{ValueError, or_text, scalar_form, text_like};
use super::text::text;
use crate::config::yaml::Scalar;
use crate::downstream::Account;

/// Permissions in octal: `"0660"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::config) struct FileMode(pub(crate) u32);

scalar_form!(
    FileMode,
    "octal, in quotes",
    |scalar| {
        // Without quotes YAML would take it for a decimal number.
        let expected = "three octal digits in quotes, such as \"0660\"";
        let Scalar::Text(text) = scalar else { return Err(ValueError::new("mode", scalar, expected)) };
        let digits = if text.len() == 4 { text.strip_prefix('0').unwrap_or_default() } else { text };
        let is_octal = digits.len() == 3 && digits.bytes().all(|digit| (b'0'..=b'7').contains(&digit));
        let mode = u32::from_str_radix(digits, 8).ok().filter(|_| is_octal);
        mode.map(FileMode).ok_or_else(|| ValueError::new("mode", scalar, expected))
    },
    text_like("0?[0-7]{3}")
);

scalar_form!(
    Account,
    "name or number",
    |scalar| {
        let expected = "a name, or a number from 0 to 4294967294";
        let number = match scalar {
            Scalar::Integer(number) => Some(u32::try_from(*number).ok()),
            Scalar::Text(text) if text.bytes().all(|byte| byte.is_ascii_digit()) => Some(text.parse().ok()),
            _ => None,
        };
        match number {
            Some(Some(number)) if number < u32::MAX => Ok(Account::Number(number)),
            Some(_) => Err(ValueError::new("account", scalar, expected)),
            None => text("account", scalar).map(|name| Account::Name(name.into())),
        }
    },
    or_text(json!({ "type": "integer", "minimum": 0, "maximum": u32::MAX - 1 }), "[0-9]{1,9}|.*[^0-9].*")
);
