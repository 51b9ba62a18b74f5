//! Whether a server could serve a client that comes now, before there is any: it takes a connection, and says so if it has a word for that.
//!
//! What comes of it is no evidence for any ladder. A server that says that it serves nobody is like one that rejects streams: other addresses of
//! its name come first the next time.

use std::time::Duration;

use http::uri::PathAndQuery;
use prost::Message;
use tokio::time::timeout;
use tonic::transport::Channel;
use tonic::{Code, Request as Call, Status};

use super::super::error_chain::{chain, with_causes};
use super::super::server::LifeMethod;
use super::AdsConnector;
use super::codec::RawResponses;
use super::life_call::HEALTH_PATH;
use super::stream::is_of_server;

/// Asks about the server as a whole, by an empty service.
#[derive(Clone, PartialEq, ::prost::Message)]
struct Question {}

#[derive(Clone, PartialEq, ::prost::Message)]
struct Health {
    #[prost(int32, tag = "1")]
    status: i32,
}

const SERVING: i32 = 1;
const NOT_SERVING: i32 = 2;

/// Asks the server once. Its connection is kept for the first stream.
pub(super) async fn ask(connector: &AdsConnector, keep: Duration) -> Result<(), String> {
    let reason = |status: Status| with_causes(status.message().to_owned(), &status);
    let metadata = connector.metadata().await.map_err(reason)?; // without it, no stream could be opened
    let (slot, channel) = connector.pool.slot(0).await.map_err(reason)?;
    if connector.life().method != LifeMethod::None {
        let mut call = Call::new(Question {});
        *call.metadata_mut() = metadata;
        let limit = connector.life().timeout;
        let late = || Status::deadline_exceeded(format!("no answer within {}", humantime::format_duration(limit)));
        let answer = timeout(limit, health(connector, channel, call)).await.unwrap_or_else(|_| Err(late()));
        if let Err(reason) = judge(answer) {
            slot.is_silent(); // the next question is for another address, if there is one
            return Err(reason);
        }
    }
    slot.keep(keep);
    Ok(())
}

async fn health(connector: &AdsConnector, channel: Channel, call: Call<Question>) -> Result<i32, Status> {
    let mut grpc = connector.limited(channel);
    grpc.ready().await.map_err(|error| Status::unavailable(chain(&error)))?;
    let answer = grpc.unary(call, PathAndQuery::from_static(HEALTH_PATH), RawResponses::<Question>::default()).await?;
    let message = answer.into_inner().content(connector.message_bytes()).await?;
    let health = Health::decode(message).map_err(|error| Status::internal(error.to_string()))?;
    Ok(health.status)
}

/// Says why the server could not serve a client, if that is so. One that cannot be asked could: it has taken the connection.
fn judge(answer: Result<i32, Status>) -> Result<(), String> {
    match answer {
        Ok(SERVING) => Ok(()),
        Ok(NOT_SERVING) => Err("its health check says NOT_SERVING".into()),
        Ok(other) => Err(format!("its health check says {other}: expected SERVING")),
        Err(status) => match status.code() {
            // It has no such service, or does not say it to everyone.
            Code::Unimplemented | Code::NotFound | Code::PermissionDenied | Code::Unauthenticated => Ok(()),
            Code::Unavailable | Code::DeadlineExceeded | Code::ResourceExhausted | Code::Cancelled => failed(&status),
            _ if is_of_server(&status) => Ok(()),
            _ => failed(&status),
        },
    }
}

fn failed(status: &Status) -> Result<(), String> {
    let said = with_causes(format!("{:?}: {}", status.code(), status.message()), status);
    Err(format!("no answer to a health check: {said}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_has_the_word_has_to_say_serving_and_one_without_it_does_not() {
        assert_eq!(judge(Ok(SERVING)), Ok(()));
        for status in [0, NOT_SERVING, 3, 7] {
            assert!(judge(Ok(status)).is_err(), "{status}");
        }
        for code in [Code::Unimplemented, Code::NotFound, Code::PermissionDenied, Code::Unauthenticated, Code::Internal] {
            assert_eq!(judge(Err(Status::new(code, ""))), Ok(()), "{code:?}");
        }
        for code in [Code::Unavailable, Code::DeadlineExceeded, Code::ResourceExhausted] {
            let reason = judge(Err(Status::new(code, "no server behind it"))).unwrap_err();
            assert_eq!(reason, format!("no answer to a health check: {code:?}: no server behind it"));
        }
    }
}
