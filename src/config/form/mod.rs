//! The forms of values in the configuration. A form reads a value, reports every fault, and describes itself as JSON schema: what is
//! accepted and what `weir schema` prints come from one declaration.
//!
//! `section` declares the keys of a mapping. Every other form is a scalar, or built from forms.

mod account;
mod collection;
mod homes;
mod located;
mod memory;
mod network;
mod number;
pub(super) mod reader;
pub(super) mod row;
pub(super) mod scalar;
pub(super) mod section;
mod setting;
mod text;

pub(super) use account::FileMode;
pub(super) use collection::{Names, NonEmpty, OneOrMore, Unquoted};
pub(super) use located::{Field, Located, Needed};
pub(super) use memory::MemoryAmount;
pub(super) use network::{AdminAddress, HostName, ListenPlace, ProbesAddress, ServerSocket, ServerUri};
pub use number::size;
pub(crate) use number::size_text;
pub(super) use number::{
    Count, Counted, Factor, FieldNumber, Interval, Jitter, Pause, Percent, Positive, Size, UserNumber, Wait, kib, mib,
    millis, minutes, seconds,
};
pub(super) use reader::{Form, ValueReader};
pub(crate) use row::Applies;
#[cfg(test)]
pub(super) use row::Presence;
pub(super) use row::{Row, as_written};
pub(crate) use scalar::ValueError;
pub(super) use scalar::{words, words_for};
pub(super) use section::{Section, section};
pub(super) use setting::Setting;
pub(super) use text::{FilePath, Hidden, MetadataPath, Name, TrustDomainName, VariableName};

pub(crate) use network::server_uri;
pub use network::{admin_address, listen_address};
