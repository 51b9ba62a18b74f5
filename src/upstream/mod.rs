//! I/O towards control planes and files: connects, reads, carries requests and responses, and makes no decisions.

mod ads;
mod connection_pool;
mod dial;
mod error_chain;
mod files;
mod first_question;
mod frame_scan;
mod headers;
mod loads;
mod method_calls;
mod observed_socket;
mod own_headers;
mod plan;
mod proxy;
mod rest;
mod server;
mod tls;
mod token;
mod wire_message;

pub use ads::AdsConnector;
pub(crate) use dial::{DialError, DialLimits, Dialer, dial, read_tls};
pub(crate) use files::{FilesConnector, FilesOptions, FilesReport, FilesSource, Parser};
pub(crate) use first_question::FirstQuestion;
pub(crate) use headers::{HeaderSource, ServerHeader, header_value};
pub(crate) use loads::LoadsConnector;
pub(crate) use observed_socket::Socket;
pub(crate) use plan::{FilesServer, Lists};
pub use plan::{Plan, SourcePlan};
pub(crate) use proxy::{Proxy, ProxyCredentials, valid_credentials};
pub use rest::RestConnector;
pub(crate) use rest::{RestServer, inputs};
pub(crate) use server::{AdsServer, ConnectionAges, Keepalive, LifeMethod, LifeTimes, TenantCredentials};
pub(crate) use tls::{TlsFiles, TlsWords};
