//! Limits of one request, checked before it is decoded: a decoded empty name takes twelve times its encoded bytes.

use weir_core::protocol::session::Variant;
use weir_core::xds::wire::{Field, Value, fields};

use super::slot::Status;
use crate::limit::{Limit, LimitCounters};

/// The limits for one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestLimits {
    /// The number of names and of versions by name together.
    pub(crate) entries: usize,
    /// The bytes of one name with its version or its parameters, and those of a type URL.
    pub(crate) name_bytes: usize,
    pub(crate) node_bytes: usize,
}

impl RequestLimits {
    /// Returns the limits that `limits.request_entries`, `limits.name_bytes` and `limits.node_bytes` stand for.
    pub const fn new(entries: usize, name_bytes: usize, node_bytes: usize) -> Self {
        Self { entries, name_bytes, node_bytes }
    }

    /// Checks the length of a type URL: sessions keep it, and replies repeat it beside each resource.
    pub(super) fn check_type_url(self, bytes: usize, counters: &LimitCounters) -> Result<(), Status> {
        let most = self.name_bytes.max(USUAL_URL_BYTES);
        if bytes <= most {
            return Ok(());
        }
        Err(too_large(Limit::NameBytes, &format!("a type URL of {bytes} bytes"), most, counters))
    }
}

/// The type and the names that a request subscribes to, and its sizes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Subscribed<'m> {
    /// The number of names of all kinds and versions.
    pub(super) entries: usize,
    /// The bytes of the node.
    pub(super) node: usize,
    pub(super) names: usize,
    /// The bytes of the texts of the names.
    pub(super) bytes: usize,
    /// The URL of the type, as the client spells it.
    pub(super) type_url: &'m str,
}

/// Checks an encoded request, and returns what it subscribes to. Rejects entries encoded as numbers: the decoder would read numbers as entries in
/// a map field.
pub(super) fn check<'m>(
    message: &'m [u8],
    variant: Variant,
    limits: RequestLimits,
    counters: &LimitCounters,
) -> Result<Subscribed<'m>, Status> {
    let exceeded = |limit: Limit, what: &str, most: usize| Err(too_large(limit, what, most, counters));
    let (mut entries, mut subscribed) = (0_usize, Subscribed::default());
    for field in fields(message) {
        let Some(Field { number, value, .. }) = field else { return Err(unreadable()) };
        let Value::Bytes(bytes) = value else {
            if is_entry(variant, number) {
                return Err(unreadable());
            }
            continue;
        };
        if is_node(variant, number) {
            subscribed.node += bytes.len();
        }
        if is_node(variant, number) && bytes.len() > limits.node_bytes {
            return exceeded(Limit::NodeBytes, &format!("a node of {} bytes", bytes.len()), limits.node_bytes);
        }
        if is_subscribed(variant, number) {
            subscribed.names += 1;
            subscribed.bytes += bytes.len();
        }
        if is_type_url(variant, number) {
            limits.check_type_url(bytes.len(), counters)?;
            subscribed.type_url = std::str::from_utf8(bytes).map_err(|_| unreadable())?;
        }
        if is_entry(variant, number) {
            entries += 1;
            if bytes.len() > limits.name_bytes {
                return exceeded(Limit::NameBytes, &format!("a name of {} bytes", bytes.len()), limits.name_bytes);
            }
        }
    }
    if entries > limits.entries {
        return exceeded(Limit::RequestEntries, &format!("{entries} names and versions"), limits.entries);
    }
    Ok(Subscribed { entries, ..subscribed })
}

/// Returns the status for a request that cannot be parsed.
pub(super) fn unreadable() -> Status {
    Status::invalid("invalid request: expected a discovery request")
}

fn too_large(limit: Limit, what: &str, most: usize, counters: &LimitCounters) -> Status {
    counters.reached(limit);
    Status::exhausted(format!("request too large: {what}, the limit is {most} ({})", limit.key()))
}

fn is_node(variant: Variant, number: u32) -> bool {
    match variant {
        Variant::Sotw => number == 2,
        Variant::Delta => number == 1,
    }
}

fn is_type_url(variant: Variant, number: u32) -> bool {
    match variant {
        Variant::Sotw => number == 4,
        Variant::Delta => number == 2,
    }
}

/// Whether the field has a name, a locator, or an initial version by name.
fn is_entry(variant: Variant, number: u32) -> bool {
    match variant {
        Variant::Sotw => matches!(number, 3 | 7),
        Variant::Delta => matches!(number, 3 | 4 | 5 | 8 | 9),
    }
}

fn is_subscribed(variant: Variant, number: u32) -> bool {
    match variant {
        Variant::Sotw => matches!(number, 3 | 7),
        Variant::Delta => matches!(number, 3 | 8),
    }
}

/// Type URLs of this length are accepted, however short names have to be: known ones have less than a hundred bytes.
const USUAL_URL_BYTES: usize = 256;

#[cfg(test)]
mod tests {
    use prost::Message;
    use weir_core::proto::discovery::{DeltaDiscoveryRequest, DiscoveryRequest, ResourceLocator};

    use super::*;

    const LIMITS: RequestLimits = RequestLimits { entries: 3, name_bytes: 10, node_bytes: 20 };

    fn names<const N: usize>(names: [&str; N]) -> Vec<String> {
        names.map(String::from).to_vec()
    }

    fn judged(message: &impl Message, variant: Variant) -> Option<String> {
        let counters = LimitCounters::default();
        let status = check(&message.encode_to_vec(), variant, LIMITS, &counters).err();
        let counted: u64 = counters.counts().map(|(_, count)| count).sum();
        assert_eq!(counted, u64::from(status.is_some()));
        status.map(|status| status.message)
    }

    #[test]
    fn i10_a_request_with_too_many_entries_is_rejected_before_it_is_decoded() {
        let sotw = DiscoveryRequest { resource_names: names(["a", "b", "c"]), ..Default::default() };
        assert_eq!(judged(&sotw, Variant::Sotw), None);
        let sotw = DiscoveryRequest { resource_names: names(["", "", "", ""]), ..Default::default() };
        let text = judged(&sotw, Variant::Sotw).unwrap();
        assert_eq!(text, "request too large: 4 names and versions, the limit is 3 (limits.request_entries)");
        let delta = DeltaDiscoveryRequest {
            resource_names_subscribe: names(["a", "b"]),
            resource_names_unsubscribe: names(["c"]),
            initial_resource_versions: [("d".to_owned(), "1".to_owned())].into(),
            ..Default::default()
        };
        assert!(judged(&delta, Variant::Delta).unwrap().contains("4 names"));
        let locators = || vec![ResourceLocator::default(); 2];
        let sotw = DiscoveryRequest { resource_locators: [locators(), locators()].concat(), ..Default::default() };
        assert!(judged(&sotw, Variant::Sotw).unwrap().contains("4 names"));
        let delta = DeltaDiscoveryRequest {
            resource_locators_subscribe: locators(),
            resource_locators_unsubscribe: locators(),
            ..Default::default()
        };
        assert!(judged(&delta, Variant::Delta).unwrap().contains("4 names"));
    }

    #[test]
    fn i10_long_names_and_large_nodes_are_rejected() {
        let delta = |name: &str, node: usize| DeltaDiscoveryRequest {
            node: Some(vec![b'n'; node].into()),
            resource_names_subscribe: names([name]),
            ..Default::default()
        };
        assert_eq!(judged(&delta("0123456789", 20), Variant::Delta), None);
        assert!(judged(&delta("0123456789x", 20), Variant::Delta).unwrap().contains("limits.name_bytes"));
        assert!(judged(&delta("a", 21), Variant::Delta).unwrap().contains("limits.node_bytes"));
        let sotw = DiscoveryRequest { node: Some(vec![0; 21].into()), ..Default::default() };
        assert!(judged(&sotw, Variant::Sotw).unwrap().contains("a node of 21 bytes"));
    }

    #[test]
    fn i10_long_type_urls_are_rejected_and_long_versions_of_other_servers_are_not() {
        for (bytes, rejected) in [(256, false), (257, true)] {
            let type_url = "u".repeat(bytes);
            let version_info = "v".repeat(999);
            let sotw = DiscoveryRequest { type_url: type_url.clone(), version_info, ..Default::default() };
            let delta = DeltaDiscoveryRequest { type_url, ..Default::default() };
            let expected = "request too large: a type URL of 257 bytes, the limit is 256 (limits.name_bytes)";
            let expected = rejected.then(|| expected.to_owned());
            assert_eq!(judged(&sotw, Variant::Sotw), expected, "{bytes}");
            assert_eq!(judged(&delta, Variant::Delta), expected, "{bytes}");
        }
        let limits = RequestLimits { name_bytes: 300, ..LIMITS };
        let longer = DiscoveryRequest { type_url: "u".repeat(300), ..Default::default() }.encode_to_vec();
        assert!(check(&longer, Variant::Sotw, limits, &LimitCounters::default()).is_ok());
    }

    #[test]
    fn a_type_url_is_read_as_the_decoder_reads_it() {
        let url = |type_url: &str| DiscoveryRequest { type_url: type_url.into(), ..Default::default() }.encode_to_vec();
        let message = [url("a/b"), url("c/d")].concat();
        let subscribed = check(&message, Variant::Sotw, LIMITS, &LimitCounters::default()).unwrap();
        assert_eq!(DiscoveryRequest::decode(message.as_slice()).unwrap().type_url, subscribed.type_url);
        assert_eq!(status(&[0x22, 1, 0xff], Variant::Sotw), Some(unreadable()), "it is no text");
    }

    /// Checks an encoded request and returns the status, if any. No request here may count as one that reached a limit.
    fn status(message: &[u8], variant: Variant) -> Option<Status> {
        let counters = LimitCounters::default();
        let status = check(message, variant, LIMITS, &counters).err();
        assert_eq!(counters.counts().map(|(_, count)| count).sum::<u64>(), 0);
        status
    }

    #[test]
    fn bytes_that_are_no_message_are_rejected() {
        assert_eq!(status(&[0xff; 40], Variant::Delta), Some(unreadable()));
    }

    #[test]
    fn i10_no_names_hide_behind_a_group() {
        const GROUP: [u8; 2] = [15 << 3 | 3, 15 << 3 | 4];
        let request = DiscoveryRequest { resource_names: names(["", "", "", "", ""]), ..Default::default() };
        let message = [&GROUP[..], &request.encode_to_vec()].concat();
        assert_eq!(DiscoveryRequest::decode(message.as_slice()), Ok(request), "the decoder skips groups");
        let counters = LimitCounters::default();
        assert!(check(&message, Variant::Sotw, LIMITS, &counters).unwrap_err().message.contains("5 names"));
    }

    #[test]
    fn i10_no_versions_are_sent_as_numbers() {
        // Tags of 64-bit numbers, each with seven bytes and their length.
        let entry = |key: u8| [5 << 3 | 1, 7, 0x0a, 5, b'n', b'a', b'm', b'e', key];
        let message: Vec<u8> = (0..9).flat_map(entry).collect();
        let read = DeltaDiscoveryRequest::decode(message.as_slice()).unwrap();
        assert_eq!(read.initial_resource_versions.len(), 9, "the decoder does not look at the form of a map's entries");
        assert_eq!(status(&message, Variant::Delta), Some(unreadable()));
    }
}
