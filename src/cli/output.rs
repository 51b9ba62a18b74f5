//! The form in which a command shows a relay's answer, and the exit code for it.

use std::fmt::Display;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use serde_json::Value;

use super::{CANNOT_ASK, FOUND, error, json_text, show};

#[derive(Debug, Args)]
pub(super) struct OutputArgs {
    /// Form of the output: a text for people, or JSON
    #[arg(short = 'o', long = "output", value_name = "FORM", value_enum, default_value = "table")]
    form: Form,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    Table,
    Json,
}

impl OutputArgs {
    /// Returns a page in the chosen form.
    pub(super) fn of(&self, page: &Value, text: impl FnOnce() -> String) -> String {
        match self.form {
            Form::Table => text(),
            Form::Json => json_text(page),
        }
    }

    pub(super) fn is_json(&self) -> bool {
        self.form == Form::Json
    }
}

/// Prints the answer, or why there is none. The exit code says whether the command has found something.
pub(super) fn finish<E: Display>(answer: Result<(String, bool), E>) -> ExitCode {
    let (text, found) = match answer {
        Ok(answer) => answer,
        Err(fault) => {
            error(&fault.to_string());
            return ExitCode::from(CANNOT_ASK);
        }
    };
    if let Err(fault) = show(&text) {
        error(&format!("cannot write: {fault}"));
        return ExitCode::from(CANNOT_ASK);
    }
    if found { ExitCode::from(FOUND) } else { ExitCode::SUCCESS }
}
