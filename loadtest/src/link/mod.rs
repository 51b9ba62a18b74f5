//! A lean gRPC client: one HTTP/2 connection with any number of streams, driven by the task that owns it.
//!
//! ```no_run
//! # async fn example() -> Result<(), weir_loadtest::link::LinkError> {
//! use weir_loadtest::link::{Event, Link, LinkOptions, scan, ADS_DELTA};
//!
//! let address: std::net::SocketAddr = "127.0.0.1:18000".parse().unwrap();
//! let mut link = Link::open(address, &LinkOptions::default()).await?;
//! let stream = link.start(ADS_DELTA);
//! link.send(stream, scan::delta_subscribe("type.googleapis.com/envoy.config.cluster.v3.Cluster", None, &["*"]));
//! loop {
//!     match link.next().await {
//!         Event::Message(stream, message) => {
//!             let seen = scan::delta(&message).expect("a response");
//!             link.send(stream, scan::delta_ack(&seen));
//!         }
//!         Event::Ended(_, status) => println!("{status}"),
//!         Event::Closed(reason) => break println!("{reason}"),
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Nothing runs in the background: the connection reads and writes while [`Link::next`] is awaited. A message is the chunks that
//! came in, which are slices of the received buffers; [`Message::into_bytes`] joins them. [`scan`] reads the version and the nonce of
//! a response without its resources.

mod connection;
mod first_bytes;
mod message;
mod options;
pub mod scan;
mod socket;
mod stream;

pub use connection::{Event, Link};
pub use message::{Message, Reader};
pub use options::{LinkError, LinkOptions, Tls};
pub use socket::{Target, connect};
pub use stream::Status;

pub const ADS_SOTW: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";
pub const ADS_DELTA: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";

/// Index of a stream in its connection, from zero. It is reused after the stream has ended.
pub type StreamId = usize;
