//! The parts of a node that may form a key, with their names in the configuration.

use std::fmt;

use prost_types::value::Kind;

use super::headers::HeaderName;
use super::id_parts::IdPart;
use super::paths;
use crate::proto::node::{Locality, Node};

/// A part of a node that may be in the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyField {
    /// `node.id`.
    Id,
    /// One part of `node.id`.
    IdPart(IdPart),
    /// `node.cluster`.
    Cluster,
    /// All of `node.locality`.
    Locality,
    /// `node.locality.region`.
    Region,
    /// `node.locality.zone`.
    Zone,
    /// `node.locality.sub_zone`.
    SubZone,
    /// All of `node.metadata`.
    Metadata,
    /// All of `node.metadata` except the values at these paths of keys.
    MetadataExcept(Vec<Vec<String>>),
    /// One value in the metadata, by its path of keys.
    MetadataPath(Vec<String>),
    /// The name and version fields of the user agent.
    UserAgent,
    /// `node.extensions`.
    Extensions,
    /// `node.client_features`.
    ClientFeatures,
    /// `node.listening_addresses`.
    ListeningAddresses,
    /// `node.dynamic_parameters`.
    DynamicParameters,
    /// Fields that this build does not know (WIRE-7).
    Unknown,
    /// The tenant that the client's identity belongs to. Relays state the tenant in the metadata that they send.
    Tenant,
    /// A header that the client sends with its stream.
    Header(HeaderName),
}

/// The parts of a node by their names in the configuration.
const FIELD_NAMES: [(&str, KeyField); 14] = [
    ("id", KeyField::Id),
    ("cluster", KeyField::Cluster),
    ("locality", KeyField::Locality),
    ("locality.region", KeyField::Region),
    ("locality.zone", KeyField::Zone),
    ("locality.sub_zone", KeyField::SubZone),
    ("metadata", KeyField::Metadata),
    ("user_agent", KeyField::UserAgent),
    ("extensions", KeyField::Extensions),
    ("client_features", KeyField::ClientFeatures),
    ("listening_addresses", KeyField::ListeningAddresses),
    ("dynamic_parameters", KeyField::DynamicParameters),
    ("unknown", KeyField::Unknown),
    ("tenant", KeyField::Tenant),
];

impl KeyField {
    /// Reads a field by its name in the configuration.
    pub fn parse(text: &str) -> Option<Self> {
        if let Some((_, field)) = FIELD_NAMES.iter().find(|(name, _)| *name == text) {
            return Some(field.clone());
        }
        if let Some(name) = text.strip_prefix(HEADER) {
            return HeaderName::parse(name).ok().map(Self::Header);
        }
        let keys = Self::metadata_path(text).filter(|_| text.starts_with(METADATA))?;
        match keys.as_slice() {
            [first, path @ ..] if first == METADATA && !path.is_empty() => Some(Self::MetadataPath(path.to_vec())),
            _ => None,
        }
    }

    /// Reads the path of a value in the metadata: keys with points between them, such as `LABELS.app`. A key that has points itself is in
    /// brackets and quotes: `LABELS["app.kubernetes.io/name"]`.
    pub fn metadata_path(text: &str) -> Option<Vec<String>> {
        paths::parse(text)
    }

    /// Returns a path as [`Self::metadata_path`] reads it.
    pub fn path_text(path: &[String]) -> String {
        let mut text = String::new();
        path.iter().for_each(|key| Self::push_key(&mut text, key));
        text
    }

    /// Adds a key to the text of a path.
    pub fn push_key(path: &mut String, key: &str) {
        paths::push(path, key);
    }

    /// Returns the field of all metadata except the values at these paths, whose order does not count.
    pub fn metadata_except(mut paths: Vec<Vec<String>>) -> Self {
        paths.sort_unstable();
        paths.dedup();
        Self::MetadataExcept(paths)
    }

    /// Whether the field is the id or a part of it.
    pub fn is_of_id(&self) -> bool {
        matches!(self, Self::Id | Self::IdPart(_))
    }

    /// Returns the names of all fields, for the error about an unknown name.
    pub fn all_names() -> String {
        FIELD_NAMES
            .iter()
            .map(|(name, _)| *name)
            .chain(["metadata.<path>", "header.<name>"])
            .collect::<Vec<_>>()
            .join(", ")
    }

    /// Whether the field's value is one text, which a rule can permit.
    pub fn is_text(&self) -> bool {
        use KeyField::*;
        matches!(self, Id | Cluster | Region | Zone | SubZone | MetadataPath(_))
    }

    /// Returns the field's value, if that is a text. Missing fields outside of the metadata are empty.
    pub(in crate::xds) fn text_in(&self, node: &Node) -> Option<String> {
        let of_place = |part: fn(&Locality) -> &String| {
            Some(node.locality.as_ref().map(|place| part(place).clone()).unwrap_or_default())
        };
        match self {
            Self::Id => Some(node.id.clone()),
            Self::Cluster => Some(node.cluster.clone()),
            Self::Region => of_place(|place| &place.region),
            Self::Zone => of_place(|place| &place.zone),
            Self::SubZone => of_place(|place| &place.sub_zone),
            Self::MetadataPath(path) => {
                let (last, parents) = path.split_last()?;
                let mut object = node.metadata.as_ref()?;
                for key in parents {
                    object = match &object.fields.get(key)?.kind {
                        Some(Kind::StructValue(inner)) => inner,
                        _ => return None,
                    };
                }
                match &object.fields.get(last)?.kind {
                    Some(Kind::StringValue(text)) => Some(text.clone()),
                    _ => None,
                }
            }
            _ => None,
        }
    }
}

impl fmt::Display for KeyField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MetadataPath(path) => {
                let mut text = METADATA.to_owned();
                path.iter().for_each(|key| Self::push_key(&mut text, key));
                return f.write_str(&text);
            }
            Self::Header(name) => return write!(f, "{HEADER}{name}"),
            Self::IdPart(part) => {
                return write!(f, "id part {} of {}", part.number(), quoted(part.separator()));
            }
            Self::MetadataExcept(paths) => {
                let paths: Vec<_> = paths.iter().map(|path| quoted(&Self::path_text(path))).collect();
                return write!(f, "metadata except {}", paths.join(", "));
            }
            _ => {}
        }
        let name = FIELD_NAMES.iter().find(|(_, field)| field == self).map(|(name, _)| *name);
        f.write_str(name.unwrap_or_default())
    }
}

/// Returns a text as the configuration has it, in quotes if it has a space, comma, quotation mark or backslash, or is not all visible ASCII.
fn quoted(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"\"\\,".contains(&byte);
    if text.bytes().all(is_plain) { text.to_owned() } else { format!("{text:?}") }
}

const HEADER: &str = "header.";
const METADATA: &str = "metadata";
