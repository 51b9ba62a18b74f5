//! The edge towards control planes: connects, carries requests and responses, and decides nothing.

mod ads;
mod plan;
mod server;

pub use ads::AdsConnector;
pub use plan::{AuthorityPlan, Lists, Plan};
pub use server::{AdsServer, OwnCertificate, TlsFiles};
