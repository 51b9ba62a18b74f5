//! Upstream streams of load reports over gRPC: messages pass as bytes and are not decoded.

use std::future::Future;
use std::pin::Pin;

use bytes::{BufMut, Bytes};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Request as Call, Status};
use weir_core::proto::code;
use weir_core::protocol::upstream::BackoffTimes;
use weir_core::xds::LOADS_PATH;

use super::ads::{AdsConnector, Connected};
use super::error_chain::chain;
use super::wire_message::WireMessage;
use crate::relay::{LoadConnector, LoadEnd, LoadLink, Redaction};

/// Opens streams of load reports. They share connections among themselves.
pub(crate) struct LoadsConnector {
    /// By index in the plan; None for sources that accept no load reports.
    servers: Vec<Option<AdsConnector>>,
}

impl LoadsConnector {
    pub(crate) fn new(servers: Vec<Option<AdsConnector>>) -> Self {
        Self { servers }
    }
}

impl LoadConnector for LoadsConnector {
    fn carry(&self, server: usize, link: LoadLink) -> Pin<Box<dyn Future<Output = LoadEnd> + Send>> {
        let server = self.servers[server].as_ref().map(|server| server.of_tenant(link.tenant.as_deref()).clone());
        let headers = link.headers.clone();
        Box::pin(async move {
            let of_server = server.clone();
            let carried = match server {
                Some(server) => {
                    let _in_use = server.keep(&headers);
                    carry(server, link).await
                }
                None => listen_to_nothing(link).await,
            };
            match carried {
                Ok(()) => LoadEnd::Said { code: code::OK, message: String::new() },
                Err(status) => {
                    let redaction = of_server.map(|server| server.redaction(&headers)).unwrap_or_default();
                    end_of(&status, &redaction)
                }
            }
        })
    }

    fn backoff(&self, server: usize) -> BackoffTimes {
        self.servers[server].as_ref().map_or_else(BackoffTimes::default, AdsConnector::backoff)
    }
}

/// Keeps a stream of load reports open without a response. Files accept no load reports, and a client that receives no response reports nothing. If
/// the stream were rejected, clients would reconnect for as long as files are the only source.
async fn listen_to_nothing(mut link: LoadLink) -> Result<(), Status> {
    while link.reports.recv().await.is_some() {} // discarded: no reports were requested
    Ok(())
}

async fn carry(server: AdsConnector, link: LoadLink) -> Result<(), Status> {
    let LoadLink { tenant: _, headers, first, reports, answers } = link;
    let Connected { slot, served: _served, channel, metadata } = server.connect_for_loads(&headers).await?;
    let until_sent = slot.clone();
    let mut grpc = server.limited(channel);
    grpc.ready().await.map_err(|error| Status::unavailable(chain(&error)))?;
    let reports = tokio_stream::once(first).chain(ReceiverStream::new(reports)).map(move |report| {
        let _open = &until_sent;
        report
    });
    let mut call = Call::new(reports);
    *call.metadata_mut() = metadata;
    let mut stream = grpc.streaming(call, PathAndQuery::from_static(LOADS_PATH), Raw).await?.into_inner();
    while let Some(answer) = stream.message().await? {
        let answer = answer.content(server.message_bytes()).await?;
        if answers.send(answer).await.is_err() {
            break; // the receiver has ended
        }
    }
    Ok(())
}

/// Returns how a stream has ended, without the values that the server was shown.
fn end_of(status: &Status, redaction: &Redaction) -> LoadEnd {
    // A status with a source was made locally, not sent by the server.
    match std::error::Error::source(status) {
        Some(source) => LoadEnd::Unreachable(redaction.apply(chain(source))),
        None => {
            let message = redaction.apply(status.message().into());
            LoadEnd::Said { code: status.code() as i32, message }
        }
    }
}

/// Encodes and decodes messages as raw bytes. Those of responses may be compressed.
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = WireMessage;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        into.put(message);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = WireMessage;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<WireMessage>, Status> {
        Ok(Some(WireMessage::decode(from)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relay::{KeyHeaders, ShownValues};

    #[test]
    fn the_end_of_a_stream_does_not_quote_what_the_server_was_shown() {
        let redaction = KeyHeaders::of_one("x-token", "hush-hush").redaction(&ShownValues::default());
        let said = end_of(&Status::permission_denied("no rights: hush-hush"), &redaction);
        assert_eq!(said.to_string(), "gRPC status 7: no rights: [redacted]");
        let mut broken = Status::unavailable("broken");
        broken.set_source(std::sync::Arc::new(std::io::Error::other("GOAWAY: hush-hush")));
        assert_eq!(end_of(&broken, &redaction).to_string(), "GOAWAY: [redacted]");
    }
}
