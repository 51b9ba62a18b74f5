//! The subscription to the control plane.

use std::sync::Arc;

use anyhow::Context;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Endpoint;
use tonic_prost::ProstCodec;

use super::Snapshot;
use super::messages::{DeltaDiscoveryRequest, DeltaDiscoveryResponse};

/// Waits for the first response. The returned future publishes the following ones.
pub async fn subscribe(
    uri: &str,
    type_url: &str,
    publish: watch::Sender<Snapshot>,
) -> anyhow::Result<impl Future<Output = anyhow::Result<()>> + use<>> {
    let channel = Endpoint::from_shared(uri.to_owned())?.connect().await.context("cannot reach the control plane")?;
    let mut grpc = Grpc::new(channel).max_decoding_message_size(usize::MAX);
    grpc.ready().await?;
    let (requests, queue) = mpsc::channel(4);
    let first = DeltaDiscoveryRequest {
        type_url: type_url.to_owned(),
        resource_names_subscribe: vec!["*".into()],
        ..Default::default()
    };
    requests.send(first).await?;
    let codec = ProstCodec::<DeltaDiscoveryRequest, DeltaDiscoveryResponse>::default();
    let path = PathAndQuery::from_static(crate::link::ADS_DELTA);
    let call = tonic::Request::new(ReceiverStream::new(queue));
    let mut responses = grpc.streaming(call, path, codec).await?.into_inner();
    let first = responses.message().await?.context("the control plane ended the stream")?;
    apply(&publish, first, &requests).await?;
    Ok(async move {
        while let Some(response) = responses.message().await? {
            apply(&publish, response, &requests).await?;
        }
        Ok(())
    })
}

async fn apply(
    publish: &watch::Sender<Snapshot>,
    response: DeltaDiscoveryResponse,
    requests: &mpsc::Sender<DeltaDiscoveryRequest>,
) -> anyhow::Result<()> {
    let DeltaDiscoveryResponse { resources, type_url, nonce, removed_resources, .. } = response;
    publish.send_modify(|snapshot| {
        let contents = Arc::make_mut(snapshot);
        contents.version += 1;
        for name in removed_resources {
            contents.resources.remove(&name);
        }
        contents.resources.extend(resources.into_iter().map(|resource| (resource.name.clone(), Arc::new(resource))));
    });
    let ack = DeltaDiscoveryRequest { type_url, response_nonce: nonce, ..Default::default() };
    Ok(requests.send(ack).await?)
}
