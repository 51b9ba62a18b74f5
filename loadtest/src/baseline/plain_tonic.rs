//! The straightforward way to write a server: tonic, a task for each stream, and a message that is cloned and encoded for each client.
//!
//! It subscribes to all resources of the control plane, in delta, and sends each client the resources that it subscribes to.

mod messages;
mod serve;
mod upstream;

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::watch;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

use crate::bench::Kind;

#[derive(Debug, clap::Args)]
pub struct PlainTonic {
    #[arg(long, value_enum)]
    kind: Kind,
    /// The control plane, as http://ADDRESS
    #[arg(long)]
    upstream: String,
}

/// The latest resources by name.
type Snapshot = Arc<Contents>;

#[derive(Debug, Clone, Default)]
struct Contents {
    version: u64,
    resources: BTreeMap<String, Arc<messages::Resource>>,
}

impl PlainTonic {
    pub async fn run(self) -> anyhow::Result<()> {
        let (publish, snapshots) = watch::channel(Snapshot::default());
        let subscription = upstream::subscribe(&self.upstream, self.kind.type_url(), publish).await?;
        let listener = super::listen()?;
        super::print_address(listener.local_addr()?);
        let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
        let server = Server::builder().add_service(serve::Ads::new(snapshots)).serve_with_incoming(incoming);
        tokio::select! {
            ended = server => Ok(ended?),
            ended = subscription => ended,
        }
    }
}
