//! How a control plane behaves on its connections and towards calls, as values. Tests change the fields that they are about.

use http::HeaderMap;
use tokio_rustls::TlsAcceptor;
use weir_core::protocol::session::Variant;

/// The habits of a control plane.
#[derive(Clone)]
pub struct Habits {
    /// The variants that it serves.
    pub variants: &'static [Variant],
    /// How it answers calls that it does not serve, such as liveness calls.
    pub answers: Answers,
    /// The encoding that its responses state. The test decides which messages are encoded.
    pub encoding: Option<&'static str>,
    /// Whether it identifies itself as a relay.
    pub is_relay: bool,
    /// Decides by the headers of a call whether it is accepted.
    pub judge: Option<fn(&HeaderMap) -> bool>,
    pub tls: Option<TlsAcceptor>,
    /// The maximum of concurrent streams on a connection. `None`: any number.
    pub max_streams: Option<u32>,
    /// Whether the headers of a stream wait for its first message, as those of many servers do.
    pub late_headers: bool,
    /// The maximum of bytes in a request. A longer one ends its stream.
    pub max_request: Option<usize>,
    /// Whether it reads requests. If not, the relay can send no more of them than the window has room for, until the test waits for their end.
    pub reads: bool,
}

/// How calls are answered that are not served.
#[derive(Debug, Clone, Copy)]
pub enum Answers {
    Status(u16),
    /// Answers like an HTTP server without gRPC.
    Http(u16),
    /// Answers health checks with this serving status.
    Health(u8),
    /// Lets each call wait until the test releases it.
    Held,
    /// A gateway rejects the call with this status. The server answers empty streams with the other one; `None`: it ignores their end.
    Refused(u16, Option<u16>),
    /// Like `Refused`, by a gateway that has no route for the call and identifies itself.
    NoRoute(u16, Option<u16>),
    /// Like `Refused`, by a gateway that has no route for the call and says so.
    NoRouteInWords(u16, Option<u16>),
}

/// The limit of gRPC servers by default.
pub const GRPC_LIMIT: usize = 4 << 20;

/// The maximum of streams on a connection by default, which servers on hyper have.
const STREAMS: u32 = 200;
const UNIMPLEMENTED: u16 = 12;

impl Default for Habits {
    fn default() -> Self {
        Self {
            variants: &[Variant::Sotw, Variant::Delta],
            answers: Answers::Status(UNIMPLEMENTED),
            encoding: None,
            is_relay: false,
            judge: None,
            tls: None,
            max_streams: Some(STREAMS),
            late_headers: false,
            max_request: None,
            reads: true,
        }
    }
}

impl Answers {
    /// Returns how the server behind a gateway answers an empty stream, if there is a gateway.
    pub fn to_empty_stream(self) -> Option<Option<u16>> {
        match self {
            Self::Refused(_, answer) | Self::NoRoute(_, answer) | Self::NoRouteInWords(_, answer) => Some(answer),
            Self::Status(_) | Self::Http(_) | Self::Health(_) | Self::Held => None,
        }
    }
}
