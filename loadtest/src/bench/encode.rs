//! Encodes responses and requests.

use super::resources::{Resources, put};
use crate::wire::Variant;

/// Returns a response with these resources, each with the round in which it last changed.
pub fn response(
    resources: &Resources,
    variant: Variant,
    changed: impl IntoIterator<Item = (usize, u32)>,
    version: &str,
    nonce: &str,
) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out, 1, version.as_bytes());
    let url = resources.kind.type_url().as_bytes();
    for (index, round) in changed {
        let mut any = Vec::with_capacity(resources.size + 128);
        put(&mut any, 1, url);
        put(&mut any, 2, &resources.body(index, round));
        match variant {
            Variant::Sotw => put(&mut out, 2, &any),
            Variant::Delta => {
                let mut wrapper = Vec::with_capacity(any.len() + 64);
                put(&mut wrapper, 1, version_of(round).as_bytes());
                put(&mut wrapper, 2, &any);
                put(&mut wrapper, 3, resources.name(index).as_bytes());
                put(&mut out, 2, &wrapper);
            }
        }
    }
    put(&mut out, 4, url);
    put(&mut out, 5, nonce.as_bytes());
    out
}

/// Returns the version of a resource that last changed in this round.
pub fn version_of(round: u32) -> String {
    format!("v{round:x}")
}

/// Returns a message with the gRPC prefix.
pub fn framed(message: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(message.len() + 5);
    out.push(0);
    out.extend_from_slice(&u32::try_from(message.len()).expect("a message is below 4 GiB").to_be_bytes());
    out.extend_from_slice(message);
    out
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use weir_core::proto::discovery::{DeltaDiscoveryResponse, DiscoveryResponse};

    use super::super::resources::{Kind, round_of};
    use super::*;

    #[test]
    fn what_is_encoded_by_hand_is_what_the_messages_say() {
        let resources = Resources { kind: Kind::Endpoints, count: 9, size: 200 };
        let bytes = response(&resources, Variant::Sotw, [(3, 1), (4, 2)], "7", "n");
        let sotw = DiscoveryResponse::decode(&bytes[..]).unwrap();
        assert_eq!((sotw.version_info.as_str(), sotw.nonce.as_str(), sotw.resources.len()), ("7", "n", 2));
        assert_eq!(sotw.encode_to_vec(), bytes);
        let bytes = response(&resources, Variant::Delta, [(3, 1), (4, 2)], "7", "n");
        let delta = DeltaDiscoveryResponse::decode(&bytes[..]).unwrap();
        assert_eq!((delta.resources[1].name.as_str(), delta.resources[1].version.as_str()), ("resource-000004", "v2"));
        assert_eq!(round_of(&delta.resources[1].resource.as_ref().unwrap().value), Some(2));
        assert_eq!(framed(&bytes)[..5], [0, 0, 0, (bytes.len() >> 8) as u8, bytes.len() as u8]);
    }
}
