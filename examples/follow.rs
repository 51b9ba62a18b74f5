//! Follows a type at an xDS server, and prints each change of its resources:
//!
//! `cargo run --example follow http://127.0.0.1:18000 type.googleapis.com/envoy.config.cluster.v3.Cluster`

use anyhow::Context;
use prost::Message;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Request;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Endpoint;
use tonic_prost::ProstCodec;
use weir_core::proto::discovery::{DeltaDiscoveryRequest, DeltaDiscoveryResponse};
use weir_core::proto::node::Node;

const METHOD: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let server = arguments.next().context("the first argument is a server")?;
    let type_url = arguments.next().context("the second argument is the URL of a type")?;

    let mut grpc = Grpc::new(Endpoint::from_shared(server)?.connect().await?);
    grpc.ready().await?;
    let (requests, stream) = mpsc::channel(1);
    // A first request without names is for all resources of the type.
    let node = Node { id: "follow".into(), cluster: "example".into(), ..Node::default() };
    let node = Some(node.encode_to_vec().into());
    requests.send(DeltaDiscoveryRequest { node, type_url: type_url.clone(), ..Default::default() }).await?;
    let codec: ProstCodec<DeltaDiscoveryRequest, DeltaDiscoveryResponse> = ProstCodec::default();
    let call = Request::new(ReceiverStream::new(stream));
    let mut responses = grpc.streaming(call, PathAndQuery::from_static(METHOD), codec).await?.into_inner();

    while let Some(response) = responses.message().await? {
        for resource in &response.resources {
            println!("set      {} {}", resource.name, resource.version);
        }
        for name in &response.removed_resources {
            println!("removed  {name}");
        }
        let (type_url, response_nonce) = (type_url.clone(), response.nonce);
        requests.send(DeltaDiscoveryRequest { type_url, response_nonce, ..Default::default() }).await?;
    }
    Ok(())
}
