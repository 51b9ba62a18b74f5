//! Accepts connections of operators and probes, also when the process may open no more files.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;

use crate::open_files::{self, Spare};
use crate::relay::LogPace;

pub(super) struct Listener {
    listener: TcpListener,
    places: Arc<Semaphore>,
    spare: Arc<Spare>,
    failed: LogPace,
}

impl Listener {
    /// `connections` is how many may be open at a time; `spare` has files for some of them in any case.
    pub(crate) fn new(listener: TcpListener, connections: usize, spare: Arc<Spare>) -> Self {
        let places = Arc::new(Semaphore::new(connections));
        Self { listener, places, spare, failed: LogPace::once_a_minute() }
    }

    /// Returns the next connection, with its place. Dropping the future loses none.
    pub(crate) async fn accept(&mut self) -> (TcpStream, OwnedSemaphorePermit) {
        let Ok(place) = self.places.clone().acquire_owned().await else { return std::future::pending().await };
        loop {
            let complete = self.spare.refill(); // an earlier connection may have ended
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                () = sleep(PAUSE), if !complete => continue,
            };
            match accepted {
                Ok((stream, _)) => return (stream, place),
                Err(error) if open_files::is_exhausted(&error) && self.spare.release() => {}
                Err(error) => {
                    if let Some(unlogged) = self.failed.line(Instant::now()) {
                        tracing::error!(%error, unlogged, "cannot accept admin connections");
                    }
                    sleep(PAUSE).await;
                }
            }
        }
    }
}

const PAUSE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn connections_beyond_the_limit_wait_for_one_that_ends() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut listener = Listener::new(listener, 2, Spare::new(0));
        let mut clients = Vec::new();
        for _ in 0..3 {
            clients.push(TcpStream::connect(address).await.unwrap());
        }
        let first = listener.accept().await;
        let _second = listener.accept().await;
        assert!(timeout(Duration::from_millis(20), listener.accept()).await.is_err());
        drop(first);
        drop(timeout(Duration::from_secs(20), listener.accept()).await.expect("the third is not accepted"));
    }
}
