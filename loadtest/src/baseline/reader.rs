//! Measures the cost of receiving complete sets and hashing each body once: the least work that a relay has to do.

use std::net::SocketAddr;

use anyhow::{Context, bail};
use bytes::Bytes;
use prost::Message;
use weir_core::proto::discovery::DiscoveryResponse;
use xxhash_rust::xxh3::xxh3_128;

use crate::bench::Kind;
use crate::link::{ADS_SOTW, Event, Link, LinkOptions, scan};

#[derive(Debug, clap::Args)]
pub struct Reader {
    #[arg(long, value_enum)]
    kind: Kind,
    /// Address of the control plane
    #[arg(long)]
    upstream: SocketAddr,
}

impl Reader {
    pub async fn run(self) -> anyhow::Result<()> {
        let options = LinkOptions { max_message: 1 << 30, ..LinkOptions::default() };
        let mut link = Link::open(self.upstream, &options).await.context("cannot reach the control plane")?;
        let stream = link.start(ADS_SOTW);
        link.send(stream, scan::sotw_subscribe(self.kind.type_url(), None, &[]));
        let mut is_ready = false;
        loop {
            let message = match link.next().await {
                Event::Message(_, message) => message,
                Event::Ended(_, status) => bail!("the control plane ended the stream: {status}"),
                Event::Closed(_) => return Ok(()),
            };
            let scanned = scan::sotw(&message).context("a malformed response")?;
            let bytes: Bytes = message.into_bytes();
            let response = DiscoveryResponse::decode(bytes)?;
            let sum = response.resources.iter().fold(0, |sum, any| sum ^ xxh3_128(&any.value));
            std::hint::black_box(sum);
            link.send(stream, scan::sotw_ack(&scanned, &[]));
            if !is_ready {
                super::print_address(self.upstream);
                is_ready = true;
            }
        }
    }
}
