//! The edge towards control planes and files: connects, reads, carries requests and responses, and decides nothing.

mod ads;
mod dial;
mod files;
mod loads;
mod plan;
mod rest;
mod server;
mod tls;
mod token;

pub use ads::AdsConnector;
pub use files::{FilesConnector, FilesOptions, FilesReport, FilesSource, Parser};
pub use loads::LoadsConnector;
pub use plan::{AuthorityPlan, FilesServer, Lists, Plan, SourcePlan};
pub use rest::{RestConnector, RestServer};
pub use server::{AdsServer, Keepalive, LifeTimes, OwnCertificate, TlsFiles};
