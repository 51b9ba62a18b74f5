//! Asks a server at the start, before there is a client, whether it could serve one. The server could if it takes a connection and, where it has a
//! health check, reports that it serves.
//!
//! The answer is no evidence for any ladder. A server that reports that it does not serve is treated like one that rejects streams: the next time,
//! other addresses of its name come first.

use std::time::Duration;

use http::uri::PathAndQuery;
use prost::Message;
use tokio::time::timeout;
use tonic::metadata::MetadataMap;
use tonic::transport::Channel;
use tonic::{Code, Request as Call, Status};

use super::super::error_chain::{chain, with_causes};
use super::super::server::{AdsServer, LifeMethod};
use super::AdsConnector;
use super::codec::RawResponses;
use super::life_call::{is_there, names_gateway};
use super::methods::HEALTH_PATH;
use super::stream::is_of_server;
use crate::relay::KeyHeaders;

/// A health check of the server as a whole: the name of the service is empty.
#[derive(Clone, PartialEq, ::prost::Message)]
struct Question {}

#[derive(Clone, PartialEq, ::prost::Message)]
struct Health {
    #[prost(int32, tag = "1")]
    status: i32,
}

const SERVING: i32 = 1;
const NOT_SERVING: i32 = 2;

/// Asks the server with its own credentials, and if that fails, with those for one of its tenants. If the server has no credentials of its own,
/// those of the tenant come first.
pub(super) async fn ask_in_turn(connector: &AdsConnector, attempt: usize, keep: Duration) -> Result<(), String> {
    let AdsServer { tls, tokens, headers, .. } = &*connector.server;
    let has_own = !(tokens.is_empty() && headers.is_empty()) || tls.as_ref().is_some_and(|tls| tls.own.is_some());
    let of_tenant =
        connector.of_tenants.get(attempt % connector.of_tenants.len().max(1)).map(|(_, of_tenant)| of_tenant);
    let (first, second) = match of_tenant {
        Some(of_tenant) if has_own => (connector, Some(of_tenant)),
        Some(of_tenant) => (of_tenant, Some(connector)),
        None => (connector, None),
    };
    let asked = match (ask(first, keep).await, second) {
        (Err(reason), Some(second)) => ask(second, keep).await.map_err(|_| reason),
        (answer, _) => answer,
    };
    asked.map_err(|reason| first.redaction(&KeyHeaders::default()).apply(reason))
}

/// Asks the server once. Its connection is kept for the first stream.
async fn ask(connector: &AdsConnector, keep: Duration) -> Result<(), String> {
    let reason = |status: Status| with_causes(status.message().to_owned(), &status);
    let metadata = connector.metadata().await.map_err(reason)?; // without it, no stream could be opened
    let (slot, channel) = connector.pool.slot(0).await.map_err(reason)?;
    if !slot.is_shared() {
        connector.shared.reached(); // views that wait to try again do so now
    }
    if connector.life().method != LifeMethod::None
        && let Err(reason) = question(connector, channel, metadata).await
    {
        if !slot.is_shared() {
            slot.is_silent(); // the next question is for another address, if there is one
        }
        return Err(reason);
    }
    slot.keep(keep);
    Ok(())
}

/// Asks by a health check. If a gateway may have answered it, asks by a call on a path that gateways route like discovery.
async fn question(connector: &AdsConnector, mut channel: Channel, metadata: MetadataMap) -> Result<(), String> {
    let limit = connector.life().timeout;
    let mut call = Call::new(Question {});
    *call.metadata_mut() = metadata.clone();
    let late = || Status::deadline_exceeded(format!("no answer within {}", humantime::format_duration(limit)));
    let answer = timeout(limit, health(connector, channel.clone(), call)).await.unwrap_or_else(|_| Err(late()));
    match judge(answer) {
        Judged::Serving => Ok(()),
        Judged::Not(reason) => Err(reason),
        Judged::Unknown(said) => {
            let there = is_there(&mut channel, metadata, limit, connector.server.judges_clients).await;
            there.map_err(|reason| format!("no answer to a health check: {said}; nor to a call: {reason}"))
        }
    }
}

async fn health(connector: &AdsConnector, channel: Channel, call: Call<Question>) -> Result<i32, Status> {
    let mut grpc = connector.limited(channel);
    grpc.ready().await.map_err(|error| Status::unavailable(chain(&error)))?;
    let answer = grpc.unary(call, PathAndQuery::from_static(HEALTH_PATH), RawResponses::<Question>::default()).await?;
    let message = answer.into_inner().content(connector.message_bytes()).await?;
    let health = Health::decode(message).map_err(|error| Status::internal(error.to_string()))?;
    Ok(health.status)
}

/// What an answer says of the server.
#[derive(Debug, PartialEq, Eq)]
enum Judged {
    /// It could serve a client: it says so, or it has taken the connection and has no health check.
    Serving,
    /// It could not serve a client, for this reason.
    Not(String),
    /// A gateway may have given this answer.
    Unknown(String),
}

fn judge(answer: Result<i32, Status>) -> Judged {
    let status = match answer {
        Ok(SERVING) => return Judged::Serving,
        Ok(NOT_SERVING) => return Judged::Not("its health check says NOT_SERVING".into()),
        Ok(other) => return Judged::Not(format!("its health check says {other}: expected SERVING")),
        Err(status) => status,
    };
    let said = with_causes(format!("{:?}: {}", status.code(), status.message()), &status);
    if !is_of_server(&status) || names_gateway(status.metadata().as_ref()) {
        return Judged::Unknown(said);
    }
    match status.code() {
        Code::Unavailable | Code::DeadlineExceeded | Code::ResourceExhausted | Code::Cancelled => Judged::Unknown(said),
        // A gateway that checks callers may have answered.
        Code::PermissionDenied | Code::Unauthenticated => Judged::Unknown(said),
        // The server does not have the health service.
        _ => Judged::Serving,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_envoy() -> http::HeaderMap {
        http::HeaderMap::from_iter([(http::header::SERVER, http::HeaderValue::from_static("envoy"))])
    }

    /// tonic's text for an answer that is not of gRPC.
    const NO_GRPC: &str = "grpc-status header missing, mapped from HTTP status code 404";

    #[test]
    fn a_server_that_has_the_word_has_to_say_serving_and_one_without_it_does_not() {
        assert_eq!(judge(Ok(SERVING)), Judged::Serving);
        for status in [0, NOT_SERVING, 3, 7] {
            assert!(matches!(judge(Ok(status)), Judged::Not(_)), "{status}");
        }
        for code in [Code::Unimplemented, Code::NotFound, Code::Internal] {
            assert_eq!(judge(Err(Status::new(code, ""))), Judged::Serving, "{code:?}");
        }
        let words = || MetadataMap::from_headers(of_envoy());
        let of_either = judge(Err(Status::with_metadata(Code::Unimplemented, "unknown service", words())));
        assert!(matches!(of_either, Judged::Unknown(_)), "gateways have texts of their own; a call decides");
        for code in [Code::Unavailable, Code::DeadlineExceeded, Code::Unauthenticated, Code::PermissionDenied] {
            let said = Judged::Unknown(format!("{code:?}: no server behind it"));
            assert_eq!(judge(Err(Status::new(code, "no server behind it"))), said, "a gateway may have said it");
        }
        for (code, message) in
            [(Code::Unimplemented, NO_GRPC), (Code::Unauthenticated, NO_GRPC), (Code::Unimplemented, "")]
        {
            let metadata = if message.is_empty() { of_envoy() } else { http::HeaderMap::new() };
            let status = Status::with_metadata(code, message, MetadataMap::from_headers(metadata));
            assert!(
                matches!(judge(Err(status)), Judged::Unknown(_)),
                "{code:?}: a gateway without a route has said it"
            );
        }
    }
}
