//! The edge towards control planes: connects, carries requests and responses, and decides nothing.

mod ads;
mod dial;
mod loads;
mod plan;
mod server;
mod tls;
mod token;

pub use ads::AdsConnector;
pub use loads::LoadsConnector;
pub use plan::{AuthorityPlan, Lists, Plan};
pub use server::{AdsServer, OwnCertificate, TlsFiles};
