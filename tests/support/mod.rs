//! What tests of the program have in common: the program itself, its control plane, its clients, and requests of operators.
#![allow(dead_code)] // each test binary uses its own part of it

pub mod admin;
#[path = "../relay/client.rs"]
pub mod client;
pub mod folder;
pub mod gzip;
#[path = "../relay/last_errors.rs"]
pub mod last_errors;
#[path = "../relay/load_plane.rs"]
pub mod load_plane;
pub mod one_cluster;
#[path = "../relay/plane.rs"]
pub mod plane;
pub mod program;
