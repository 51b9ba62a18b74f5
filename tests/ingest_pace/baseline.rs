//! The unavoidable cost: reading the same responses from the connection, and hashing each body in them.

use std::net::SocketAddr;

use bytes::Bytes;
use prost::Message;
use tokio::sync::mpsc;
use tonic::Request;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Endpoint;
use weir_core::proto::discovery::DiscoveryRequest;
use weir_core::proto::node::Node;
use xxhash_rust::xxh3::xxh3_128;

use super::plane::CDS;
use super::relay::used;
use weir_testkit::raw::Raw;

/// Subscribes with this node cluster, and returns the processor times between consecutive responses.
pub fn start(server: SocketAddr, cluster: &'static str) -> mpsc::UnboundedReceiver<f64> {
    let (sender, receiver) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        let task = std::fs::read_link("/proc/thread-self").unwrap();
        let thread = format!("/proc/{}", task.display());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let window = Some(1 << 20); // as in the relay
            let endpoint = Endpoint::from_shared(format!("http://{server}")).unwrap();
            let endpoint = endpoint.initial_stream_window_size(window).initial_connection_window_size(window);
            let mut grpc = tonic::client::Grpc::new(endpoint.connect().await.unwrap());
            grpc = grpc.max_decoding_message_size(usize::MAX);
            grpc.ready().await.unwrap();
            let node = Node { cluster: cluster.into(), ..Node::default() };
            let request = DiscoveryRequest {
                type_url: CDS.into(),
                node: Some(node.encode_to_vec().into()),
                ..Default::default()
            };
            let (requests, queue) = mpsc::unbounded_channel();
            requests.send(Bytes::from(request.encode_to_vec())).unwrap();
            let call = Request::new(tokio_stream::wrappers::UnboundedReceiverStream::new(queue));
            let mut responses = grpc.streaming(call, PathAndQuery::from_static(PATH), Raw).await.unwrap().into_inner();
            let mut before = used(&thread);
            while let Ok(Some(message)) = responses.message().await {
                let hashed = hash_bodies(&message);
                drop(message);
                assert!(hashed > 0);
                let now = used(&thread);
                if sender.send(now - before).is_err() {
                    return;
                }
                before = now;
            }
        });
    });
    receiver
}

/// Finds the bodies and hashes them.
fn hash_bodies(message: &[u8]) -> usize {
    let resources = fields(message, 2);
    let bodies = resources.filter_map(|resource| fields(resource, 2).next());
    bodies.map(xxh3_128).map(std::hint::black_box).count()
}

/// Returns the length-delimited fields with this number. These messages have no other fields.
fn fields(mut rest: &[u8], number: u64) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        while !rest.is_empty() {
            let tag = prost::encoding::decode_varint(&mut rest).unwrap();
            let length = prost::encoding::decode_varint(&mut rest).unwrap() as usize;
            let value;
            (value, rest) = rest.split_at(length);
            if tag == number << 3 | 2 {
                return Some(value);
            }
        }
        None
    })
}

const PATH: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";
