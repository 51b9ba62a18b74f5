//! `weir release`: lets go removals that the brakes of a running relay hold.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use clap::{ArgGroup, Args};
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::TokioIo;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::{note, show};

/// Lets go removals that brakes hold, as a running relay shows them at /brakes
///
/// The generation is that of /brakes: what was held later stays held. Exit code: 0 if anything was released, 1 if nothing was.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("of").required(true)))]
pub struct Release {
    /// The relay's admin socket (admin.socket)
    #[arg(long, value_name = "PATH")]
    socket: PathBuf,
    /// Release nothing that was held after this one
    #[arg(long, value_name = "NUMBER")]
    generation: u64,
    /// Release what is held in this view, named as at /brakes
    #[arg(long, group = "of")]
    view: Option<String>,
    /// Release what this server has removed in all views, named as at /brakes
    #[arg(long, group = "of")]
    server: Option<String>,
    /// Only of this type, such as clusters
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,
}

impl Release {
    /// Sends the release and prints the result.
    pub async fn run(self) -> ExitCode {
        match timeout(TIMEOUT, self.send()).await {
            Ok(Ok((true, result))) => match show(&result) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => failed(&format!("cannot write: {error}")),
            },
            Ok(Ok((false, reason))) => failed(reason.trim_end()),
            Ok(Err(error)) => failed(&format!("cannot reach {}: {error}", self.socket.display())),
            Err(_) => failed(&format!("no response from {}", self.socket.display())),
        }
    }

    /// Returns whether anything was released, and the text of the response.
    async fn send(&self) -> Result<(bool, String), Box<dyn std::error::Error>> {
        let stream = UnixStream::connect(&self.socket).await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let driver = tokio::spawn(connection);
        let request = Request::post(self.path()).header(http::header::HOST, "localhost").body(Empty::<Bytes>::new())?;
        let response = sender.send_request(request).await?;
        let released = response.status().is_success();
        let body = response.into_body().collect().await?.to_bytes();
        driver.abort();
        Ok((released, String::from_utf8_lossy(&body).into_owned()))
    }

    fn path(&self) -> String {
        let given = [("view", &self.view), ("server", &self.server), ("type", &self.kind)];
        let given = given.into_iter().filter_map(|(key, value)| Some((key, value.as_ref()?)));
        let encode = |value: &str| utf8_percent_encode(value, NON_ALPHANUMERIC).to_string();
        let pairs: String = given.map(|(key, value)| format!("&{key}={}", encode(value))).collect();
        format!("/brakes/release?generation={}{pairs}", self.generation)
    }
}

fn failed(reason: &str) -> ExitCode {
    note(&format!("weir release: {reason}"));
    ExitCode::FAILURE
}

const TIMEOUT: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_encoded() {
        let release = Release {
            socket: "/run/weir.sock".into(),
            generation: 7,
            view: Some("cluster=a&b +c".into()),
            server: None,
            kind: Some("clusters".into()),
        };
        assert_eq!(release.path(), "/brakes/release?generation=7&view=cluster%3Da%26b%20%2Bc&type=clusters");
    }
}
