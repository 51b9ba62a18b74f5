//! Forms of text: plain text, names, paths, node fields.

use std::fmt;
use std::path::PathBuf;

use serde_json::json;
use weir_core::xds::{HeaderName, KeyField};

use super::scalar::{ValueError, scalar_form, text_like};
use crate::config::secrets::{REDACTED, is_secret};
use crate::config::yaml::Scalar;
use crate::tls::is_trust_domain;

/// Text that is not empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::config) struct Name(pub(crate) String);

/// The name of a variable. An operator may have written the secret itself in its place.
#[derive(Clone, PartialEq, Eq)]
pub(in crate::config) struct VariableName(pub(crate) String);

impl fmt::Debug for VariableName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("VariableName")
    }
}

/// Text that may be a secret: neither messages nor pages show it.
#[derive(Clone, PartialEq, Eq)]
pub(in crate::config) struct Hidden(pub(crate) String);

impl fmt::Debug for Hidden {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Hidden")
    }
}

/// The name of a SPIFFE trust domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::config) struct TrustDomainName(pub(crate) String);

/// The path of a file or folder, as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::config) struct FilePath(pub(crate) PathBuf);

/// The path of a value in the metadata of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::config) struct MetadataPath(pub(crate) Vec<String>);

scalar_form!(String, "text", |scalar| text("text", scalar).map(String::from), json!({ "type": "string" }), |text| {
    text.as_str().into()
});

scalar_form!(
    Name,
    "name",
    |scalar| filled("name", scalar).map(|text| Name(text.into())),
    json!({ "type": "string", "minLength": 1 })
);

scalar_form!(
    FilePath,
    "path",
    |scalar| match filled("path", scalar)? {
        text if is_secret(text) => Err(ValueError::new("path", scalar, "the path of a file that has this in it")),
        text => Ok(FilePath(text.into())),
    },
    json!({ "type": "string", "minLength": 1 })
);

scalar_form!(
    Hidden,
    "text",
    |scalar| unquoted(scalar).map(Hidden),
    json!({ "type": "string", "minLength": 1, "writeOnly": true })
);

scalar_form!(
    VariableName,
    "name",
    |scalar| unquoted(scalar).map(VariableName),
    json!({ "type": "string", "minLength": 1 })
);

scalar_form!(
    TrustDomainName,
    "name",
    |scalar| {
        let name = text("trust domain", scalar)?;
        let expected = "a name such as prod.example: small letters, digits, points, hyphens and underscores";
        match is_trust_domain(name) {
            true => Ok(TrustDomainName(name.into())),
            false => Err(ValueError::new("trust domain", scalar, expected)),
        }
    },
    text_like("[a-z0-9._-]{1,255}")
);

scalar_form!(
    MetadataPath,
    "path",
    |scalar| {
        let path = KeyField::metadata_path(text("path", scalar)?);
        path.map(MetadataPath).ok_or_else(|| ValueError::new("path", scalar, EXPECTED_PATH))
    },
    text_like(&format!("({PLAIN_KEY}|{QUOTED_KEY})(\\.{PLAIN_KEY}|{QUOTED_KEY})*"))
);

scalar_form!(
    KeyField,
    "field",
    |scalar| {
        let expected = || format!("one of {}", KeyField::all_names());
        let header = scalar_text(scalar).and_then(|text| text.strip_prefix("header."));
        if let Some(fault) = header.and_then(|name| HeaderName::parse(name).err()) {
            return Err(ValueError::new("header", scalar, fault.to_string()));
        }
        let is_path =
            scalar_text(scalar).is_some_and(|text| text.starts_with("metadata.") || text.starts_with("metadata["));
        if is_path && scalar_text(scalar).and_then(KeyField::parse).is_none() {
            return Err(ValueError::new("path", scalar, EXPECTED_PATH));
        }
        KeyField::parse(text("part of a node", scalar)?)
            .ok_or_else(|| ValueError::new("part of a node", scalar, expected()))
    },
    text_like(
        r"id|cluster|locality(\.(region|zone|sub_zone))?|metadata([.\[].+)?|user_agent|extensions|client_features|listening_addresses|dynamic_parameters|unknown|tenant|header\.[a-z0-9._-]+"
    )
);

const EXPECTED_PATH: &str = "keys with points between them, such as NAME or LABELS.hash; a key that has points is in brackets and quotes: \
                             LABELS[\"app.example/hash\"]";
/// A key in a path, up to the next dot or to a bracket before a quote.
const PLAIN_KEY: &str = r#"(([^.\[]|\[+[^."\[])+\[*|\[+)"#;
/// A key in a path, in brackets and quotes.
const QUOTED_KEY: &str = r#"\["([^"\\]|\\["\\])*"\]"#;

/// Returns the text of a scalar. YAML reads some plain words as numbers, which loses their spelling, for example of `007`.
pub(super) fn text<'s>(what: &'static str, scalar: &'s Scalar) -> Result<&'s str, ValueError> {
    match scalar {
        Scalar::Text(text) => Ok(text),
        Scalar::Null => Err(ValueError::new(what, scalar, "text")),
        scalar => Err(ValueError::new(what, scalar, format!("text; quotes make it text: \"{scalar}\""))),
    }
}

/// Returns a text that a message must not quote.
fn unquoted(scalar: &Scalar) -> Result<String, ValueError> {
    match scalar {
        Scalar::Text(text) if !text.is_empty() => Ok(text.clone()),
        _ => Err(ValueError::new("value", &Scalar::Text(REDACTED.into()), "text in quotes that is not empty")),
    }
}

fn scalar_text(scalar: &Scalar) -> Option<&str> {
    if let Scalar::Text(text) = scalar { Some(text) } else { None }
}

fn filled<'s>(what: &'static str, scalar: &'s Scalar) -> Result<&'s str, ValueError> {
    match text(what, scalar)? {
        "" => Err(ValueError::new(what, scalar, "text that is not empty")),
        text => Ok(text),
    }
}
