//! A relay inside another program, such as a test of a client: it serves files on a free port, and ends when it is dropped.
//!
//! `cargo run --example embedded`; in a test, `#[tokio::test]` stands in the place of `#[tokio::main]`.

use std::net::SocketAddr;
use std::path::Path;

use prost::Message;
use tokio::task::JoinHandle;
use tonic::Request;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Endpoint;
use tonic_prost::ProstCodec;
use weir::app::App;
use weir::config::Config;
use weir_core::proto::discovery::{DiscoveryRequest, DiscoveryResponse};
use weir_core::proto::node::Node;

const METHOD: &str = "/envoy.service.cluster.v3.ClusterDiscoveryService/FetchClusters";

struct Relay {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Relay {
    /// Starts a relay whose resources are the files of a folder.
    async fn start(resources: &Path) -> anyhow::Result<Self> {
        let configuration = format!(
            "listen: [{{address: '127.0.0.1:0'}}]\nupstream: {{files: '{}'}}\nviews: {{key: [cluster]}}\n",
            resources.display()
        );
        let app = App::bind(Config::parse(Path::new("embedded.yaml"), &configuration)?).await?;
        let address = app.addresses()[0];
        Ok(Self { address, task: tokio::spawn(app.run_until(std::future::pending())) })
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let resources = concat!(env!("CARGO_MANIFEST_DIR"), "/config/demo/resources");
    let relay = Relay::start(Path::new(resources)).await?;

    // Any client: here a single call.
    let mut grpc = Grpc::new(Endpoint::from_shared(format!("http://{}", relay.address))?.connect().await?);
    grpc.ready().await?;
    let node = Node { id: "one".into(), cluster: "example".into(), ..Node::default() };
    let request = DiscoveryRequest { node: Some(node.encode_to_vec().into()), ..Default::default() };
    let codec: ProstCodec<DiscoveryRequest, DiscoveryResponse> = ProstCodec::default();
    let response = grpc.unary(Request::new(request), PathAndQuery::from_static(METHOD), codec).await?.into_inner();
    assert_eq!(response.resources.len(), 3, "blue, green and weir-demo");
    println!("{} clusters, version {}", response.resources.len(), response.version_info);
    Ok(())
}
