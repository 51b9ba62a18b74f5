//! Runs of clients, origin and relay that a file describes.

pub mod duration;
