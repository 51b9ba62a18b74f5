//! Compression of what peers send: how it is named, and inflating it.

mod inflater;

use http::{HeaderMap, HeaderValue};
use weir_core::xds::truncate;

pub(crate) use self::inflater::{InflateError, Inflater};

/// How a peer says that its messages are encoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Encoding {
    Identity,
    Gzip,
    /// The name of an encoding that is not supported, cut if it is long.
    Other(String),
}

impl Encoding {
    /// Returns the encoding that a header names. Without the header nothing is encoded.
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

    fn other(name: &[u8]) -> Self {
        Self::Other(truncate(&String::from_utf8_lossy(name), NAME_BYTES))
    }
}

/// Names the encoding of the messages of a gRPC stream whose flag says that they are compressed.
pub(crate) const GRPC_ENCODING: &str = "grpc-encoding";
/// Names the encodings that a gRPC peer reads.
pub(crate) const GRPC_ACCEPT_ENCODING: &str = "grpc-accept-encoding";
/// What is read of clients, for this header or HTTP's own.
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
}
