//! Hostile clients, one behaviour after another, and what honest clients of the same server notice.
//!
//! An honest client is connected before a behaviour begins. It receives changes all the time and ACKs them; new clients connect one after another.
//! A client of the control plane itself receives the same changes, so that the control plane's own time does not count against the server.
//! [`run`] compares their times, and the memory of the server's process, before, during and after the behaviour, and judges them.

mod behaviour;
mod connections;
mod container;
mod crowd;
mod floods;
mod frames;
mod garbage;
mod health;
mod honest;
mod keys;
mod mix;
mod names;
mod offender;
mod options;
mod outcome;
mod readers;
mod requests;
mod run;
mod sources;
mod stage;
mod streams;
mod table;
mod times;

pub use behaviour::Behaviour;
pub use options::Options;
pub use outcome::{Outcome, Report};
pub use run::{command, run};
