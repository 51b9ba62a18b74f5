//! The edge towards control planes: connects, carries requests and responses, and decides nothing.

mod ads;

pub use ads::{AdsConnector, AdsServer};
