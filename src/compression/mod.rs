//! Compression of messages: the names of encodings, inflating requests, and compressing a reply once for many clients.

mod inflater;
mod shared_gzip;

use http::{HeaderMap, HeaderValue};
use weir_core::xds::truncate;

pub(crate) use self::inflater::{InflateError, Inflater};
pub(crate) use self::shared_gzip::{END, START, SharedGzip, SharedSum};

/// Which replies are compressed for clients that accept it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Compression {
    #[default]
    Off,
    /// Those for which compression is worth its cost, by the number of clients that are sent them.
    Auto,
    /// All that become smaller.
    Always,
}

/// The encoding that a peer states for its messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Encoding {
    Identity,
    Gzip,
    /// The name of an encoding that is not supported, shortened if it is long.
    Other(String),
}

impl Encoding {
    /// Returns the encoding that a header names; `Identity` without the header.
    pub(crate) fn of(headers: &HeaderMap, name: &str) -> Self {
        let mut values = headers.get_all(name).iter().map(HeaderValue::as_bytes);
        match (values.next(), values.next()) {
            (None, _) => Self::Identity,
            (Some(only), None) if only.eq_ignore_ascii_case(b"identity") => Self::Identity,
            (Some(only), None) if [&b"gzip"[..], b"x-gzip"].iter().any(|name| only.eq_ignore_ascii_case(name)) => {
                Self::Gzip
            }
            (Some(only), None) => Self::other(only),
            (Some(first), Some(second)) => Self::other(&[first, b", ", second].concat()),
        }
    }

    /// Whether a header lists gzip among its names, each of which may have a weight.
    pub(crate) fn is_gzip_accepted(headers: &HeaderMap, name: &str) -> bool {
        let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).any(|entry| {
            let mut parts = entry.split(';').map(str::trim);
            let is_gzip = parts.next().is_some_and(|name| name.eq_ignore_ascii_case(GZIP));
            let weight = parts.find_map(|part| part.strip_prefix("q=")).map(str::parse::<f32>);
            is_gzip && weight.is_none_or(|weight| weight.is_ok_and(|weight| weight > 0.0))
        })
    }

    fn other(name: &[u8]) -> Self {
        Self::Other(truncate(&String::from_utf8_lossy(name), NAME_BYTES))
    }
}

/// The header with the encoding of those messages of a gRPC stream that are flagged as compressed.
pub(crate) const GRPC_ENCODING: &str = "grpc-encoding";
/// The header with the encodings that a gRPC peer can read.
pub(crate) const GRPC_ACCEPT_ENCODING: &str = "grpc-accept-encoding";
/// The name of the only supported encoding.
pub(crate) const GZIP: &str = "gzip";
/// The encodings that clients may use, for the gRPC header or HTTP's own.
pub(crate) const ACCEPTED: &str = "gzip, identity";
/// Longer names of encodings are cut.
const NAME_BYTES: usize = 64;

#[cfg(test)]
pub(crate) mod tests {
    use http::header::HeaderName;

    pub(crate) use super::inflater::tests::gzip;
    use super::*;

    #[test]
    fn an_encoding_is_what_its_header_names_and_others_are_known_by_name() {
        let of = |values: &[&str]| {
            let name = HeaderName::from_static(GRPC_ENCODING);
            let values = values.iter().map(|value| (name.clone(), HeaderValue::from_bytes(value.as_bytes()).unwrap()));
            Encoding::of(&values.collect(), GRPC_ENCODING)
        };
        let other = |name: &str| Encoding::Other(name.into());
        assert_eq!([of(&[]), of(&["identity"]), of(&["Identity"])], [const { Encoding::Identity }; 3]);
        assert_eq!([of(&["gzip"]), of(&["GZIP"])], [const { Encoding::Gzip }; 2]);
        assert_eq!([of(&["snappy"]), of(&["gzip, br"]), of(&[""])], [other("snappy"), other("gzip, br"), other("")]);
        assert_eq!(of(&["gzip", "gzip"]), other("gzip, gzip"), "twice compressed");
        assert_eq!(of(&["é".repeat(99).as_str()]), other(&"é".repeat(NAME_BYTES / 2)));
    }

    #[test]
    fn gzip_is_accepted_where_a_list_names_it_and_does_not_rule_it_out() {
        let accepted = |values: &[&str]| {
            let name = HeaderName::from_static(GRPC_ACCEPT_ENCODING);
            let values = values.iter().map(|value| (name.clone(), HeaderValue::from_bytes(value.as_bytes()).unwrap()));
            Encoding::is_gzip_accepted(&values.collect(), GRPC_ACCEPT_ENCODING)
        };
        for values in [&["gzip"][..], &["identity, deflate, gzip"], &["identity,GZIP;q=0.1"], &["br", "gzip"]] {
            assert!(accepted(values), "{values:?}");
        }
        for values in [&[][..], &["identity"], &["gzip;q=0"], &["gzip; q=0.0"], &["xgzip"], &["gzip;q=much"], &["é"]] {
            assert!(!accepted(values), "{values:?}");
        }
    }
}
