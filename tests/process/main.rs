//! The program as it is built, in a process of its own. These tests mostly wait for it, so they are one program, and run beside each other.

#[path = "../support/sixteen_threads.rs"]
mod sixteen_threads;

#[cfg(target_os = "linux")]
mod bombs;
mod command_line;
mod conformance;
mod first_minute;
#[cfg(target_os = "linux")]
mod hangs;
mod hung_disk;
mod kill;
mod memory;
mod open_files;
mod program;
mod restart_in_place;
mod scenarios;
mod secrets;
mod unread_log;

/// The program.
const WEIR: &str = env!("CARGO_BIN_EXE_weir");

/// Locked by each test that measures or keeps the processors busy, so that these tests run one at a time.
static HEAVY: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
