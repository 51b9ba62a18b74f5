//! Reads a page of the admin address whose lines, in JSON, follow over time.

use bytes::{Buf, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::Value;
use tokio::task::JoinHandle;

/// The lines. Dropping them ends the connection.
pub(super) struct AdminLines {
    body: Incoming,
    read: BytesMut,
    /// The task of the connection.
    driver: JoinHandle<()>,
}

/// Why a line cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum LineError {
    #[error("{0}")]
    Lost(#[from] hyper::Error),
    #[error("not a relay: {0}")]
    NoJson(#[from] serde_json::Error),
    #[error("a line has more than {LONGEST} bytes")]
    TooLong,
}

impl AdminLines {
    pub(super) fn of(body: Incoming, driver: JoinHandle<()>) -> Self {
        Self { body, read: BytesMut::new(), driver }
    }

    /// Returns the next line; `None` at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Value>, LineError> {
        let mut searched = 0;
        loop {
            if let Some(end) = self.read[searched..].iter().position(|byte| *byte == b'\n') {
                let line = self.read.split_to(searched + end);
                self.read.advance(1);
                return Ok(Some(serde_json::from_slice(&line)?));
            }
            searched = self.read.len();
            if searched > LONGEST {
                return Err(LineError::TooLong);
            }
            let Some(frame) = self.body.frame().await else { return Ok(None) };
            if let Ok(data) = frame?.into_data() {
                self.read.extend_from_slice(&data);
            }
        }
    }
}

impl Drop for AdminLines {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

const LONGEST: usize = 256 << 20;
