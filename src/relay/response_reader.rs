//! Reads responses for the view task, so that a large response delays neither that view nor others.
//!
//! The task of a link reads a response in slices, and other tasks run in between. Applying the response is a single step, in which the view task
//! keeps a worker of the runtime busy. So only some of the workers may have a large response at a time, from its first slice until it is applied.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use weir_core::protocol::upstream::{
    ReceivedResponse, RecentSets, ResponseMessage, ResponseParser, UnreadableResponse,
};
use weir_core::xds::{BodyStore, TypeTable};

/// State for reading that all views share.
#[derive(Debug, Clone)]
pub(crate) struct ResponseReaders {
    table: Arc<TypeTable>,
    store: Arc<BodyStore>,
    turns: Arc<Semaphore>,
}

/// Reads the responses of one link.
#[derive(Debug)]
pub struct ResponseReader {
    shared: ResponseReaders,
    /// The sets that were read last; they survive reconnects.
    recent: Mutex<RecentSets>,
}

/// The turn of a large response, which ends when this is dropped.
pub type Turn = OwnedSemaphorePermit;

impl ResponseReaders {
    pub(crate) fn new(table: Arc<TypeTable>, store: Arc<BodyStore>) -> Self {
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        Self { table, store, turns: Arc::new(Semaphore::new((workers / 2).max(1))) }
    }

    pub(crate) fn reader(&self) -> ResponseReader {
        ResponseReader { shared: self.clone(), recent: Mutex::default() }
    }
}

impl ResponseReader {
    /// Whether a response of so many bytes waits for its turn.
    pub(super) fn is_large(bytes: usize) -> bool {
        bytes > LARGE
    }

    /// Waits for the turn of a large response.
    pub(super) async fn turn(&self) -> Option<Turn> {
        self.shared.turns.clone().acquire_owned().await.ok() // never closed
    }

    /// Reads a response. Cancelling it loses only the memory of the last sets.
    pub(super) async fn read(&self, message: ResponseMessage) -> Result<ReceivedResponse, UnreadableResponse> {
        let mut recent = std::mem::take(&mut *self.recent.lock().unwrap_or_else(PoisonError::into_inner));
        let mut parser = ResponseParser::new(message, &self.shared.table, &mut recent)?;
        while parser.step(&self.shared.store, SLICE)? {
            tokio::task::yield_now().await;
        }
        let response = parser.finish(&mut recent);
        *self.recent.lock().unwrap_or_else(PoisonError::into_inner) = recent;
        Ok(response)
    }
}

/// Bytes that are read before other tasks run. To hash, copy and store them takes a fraction of a millisecond.
const SLICE: usize = 256 << 10;
/// Smaller responses are read and applied in about the time that waiting for a turn would take.
const LARGE: usize = 4 * SLICE;

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use bytes::Bytes;
    use futures_util::FutureExt;
    use prost::Message;
    use weir_core::proto::Any;
    use weir_core::proto::discovery::DiscoveryResponse;
    use weir_core::protocol::session::Variant;
    use weir_core::protocol::sources::StreamId;

    use super::super::link::{Link, LinkEvent, LinkId, LinkReport};
    use super::super::link_channel::{ReportReceiver, report_channel};
    use super::*;

    const CDS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";

    /// A response of about this many bytes.
    fn response(bytes: usize) -> ResponseMessage {
        const ONE: usize = 1 << 14;
        let any = |number: usize| {
            let mut value = Vec::new();
            prost::encoding::string::encode(1, &number.to_string(), &mut value);
            prost::encoding::string::encode(28, &"x".repeat(ONE), &mut value);
            Any { type_url: CDS.into(), value: value.into() }
        };
        let resources = (0..bytes / ONE).map(any).collect();
        let response = DiscoveryResponse { resources, type_url: CDS.into(), ..Default::default() };
        ResponseMessage::Encoded(Variant::Sotw, Bytes::from(response.encode_to_vec()))
    }

    fn readers(turns: usize) -> ResponseReaders {
        let shared = ResponseReaders::new(Arc::new(TypeTable::new()), Arc::default());
        ResponseReaders { turns: Arc::new(Semaphore::new(turns)), ..shared }
    }

    fn link(readers: &ResponseReaders) -> (Link, ReportReceiver<LinkReport>) {
        let (reports, receiver) = report_channel(4);
        let id = LinkId { stream: StreamId { server: 0, at: 0 }, serial: 0 };
        (
            Link {
                id,
                variant: None,
                tenant: None,
                headers: Default::default(),
                reports,
                reader: Some(readers.reader()),
                follows_another: false,
            },
            receiver,
        )
    }

    #[tokio::test]
    async fn others_work_while_a_large_response_is_read() {
        const SLICES: usize = 40;
        let (reader, order) = (readers(1).reader(), Mutex::new(Vec::new()));
        let large = async {
            reader.read(response(SLICES * SLICE)).await.unwrap();
            order.lock().unwrap().push("large");
        };
        let other = async {
            for _ in 0..SLICES / 2 {
                tokio::task::yield_now().await;
            }
            order.lock().unwrap().push("other");
        };
        tokio::join!(large, other); // polled in turn, on one thread
        assert_eq!(*order.lock().unwrap(), ["other", "large"]);
    }

    #[tokio::test]
    async fn a_large_response_waits_for_those_before_it_to_be_applied_and_a_small_one_does_not() {
        let readers = readers(1);
        let ((one, mut reports), (other, _others)) = (link(&readers), link(&readers));
        let first = one.read(response(2 * LARGE)).await.unwrap();
        assert!(
            matches!(reports.try_next().unwrap().report.event, LinkEvent::Receiving),
            "so that it is not taken for silent"
        );
        let mut second = Box::pin(other.read(response(2 * LARGE)));
        assert!(second.as_mut().now_or_never().is_none());
        assert!(matches!(
            one.read(response(SLICE / 2)).now_or_never(),
            Some(Ok(LinkEvent::Received { turn: None, .. }))
        ));
        for _ in 0..100 {
            assert!(second.as_mut().now_or_never().is_none(), "the first is not applied");
        }
        drop(first);
        assert!(matches!(second.await, Ok(LinkEvent::Received { turn: Some(_), .. })));
    }
}
