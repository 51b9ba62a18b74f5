//! A set of one cluster whose content is its version: how a control plane sends it, and how a client receives it.

use tokio::time::timeout;
use weir_core::proto::discovery::{DiscoveryRequest, DiscoveryResponse};
use weir_core::proto::{Any, Response};

use crate::client::Client;
use crate::plane::Stream;
pub use crate::resources::CDS;
use crate::wait::PATIENCE;

pub fn send(stream: &Stream, version: &str) {
    let mut value = vec![0x0a, 1, b'a', 0xc2, 0x3e, version.len() as u8];
    value.extend(version.bytes());
    stream.respond(&Response::Sotw(DiscoveryResponse {
        version_info: version.into(),
        nonce: version.into(),
        type_url: CDS.into(),
        resources: vec![Any { type_url: CDS.into(), value: value.into() }],
        ..DiscoveryResponse::default()
    }));
}

pub async fn receives(client: &mut Client, version: &str) {
    let Client::Sotw(requests, replies) = client else { unreachable!() };
    let reply = timeout(PATIENCE, replies.message()).await.expect("no reply").unwrap().unwrap();
    assert!(reply.resources[0].value.ends_with(version.as_bytes()), "{reply:?}");
    let ack = DiscoveryRequest { type_url: CDS.into(), response_nonce: reply.nonce, ..DiscoveryRequest::default() };
    requests.send(DiscoveryRequest { version_info: reply.version_info, ..ack }).unwrap();
}
