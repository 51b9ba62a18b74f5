//! `weir snapshot`: what is in a state file, a copy of it, and a state file made from a copy. No relay may have the file open.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};

use super::{CANNOT_ASK, error, show};
use crate::state::offline;

/// Looks into a state file, copies it, or makes one from a copy. The relay that writes it has to be stopped.
#[derive(Debug, Args)]
pub struct Snapshot {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Prints as JSON what is in the file: views, servers, types and names.
    Show(StateFile),
    /// Copies everything but secrets into a new file, in clear.
    Export {
        #[command(flatten)]
        state: StateFile,
        /// Copies secrets too
        #[arg(long)]
        secrets: bool,
        /// The new file
        to: PathBuf,
    },
    /// Makes a state file from a copy. What is in it is served like any state: until servers have spoken.
    Import {
        #[command(flatten)]
        state: StateFile,
        /// The copy
        from: PathBuf,
    },
}

#[derive(Debug, Args)]
struct StateFile {
    /// The state file, as in state.path
    #[arg(long, value_name = "FILE")]
    state: PathBuf,
    /// Its key, as in state.key
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
}

/// Runs the command.
pub fn run(Snapshot { task }: &Snapshot) -> ExitCode {
    let done = match task {
        Task::Show(state) => offline::describe(&state.state, state.key()).and_then(|views| {
            let text = serde_json::to_string_pretty(&views)?;
            Ok(show(&format!("{text}\n"))?)
        }),
        Task::Export { state, secrets, to } => offline::export(&state.state, state.key(), *secrets, to),
        Task::Import { state, from } => offline::import(&state.state, state.key(), from),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            error(&format!("{fault:#}"));
            ExitCode::from(CANNOT_ASK)
        }
    }
}

impl StateFile {
    fn key(&self) -> Option<&Path> {
        self.key.as_deref()
    }
}
