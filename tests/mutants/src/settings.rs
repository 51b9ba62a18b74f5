//! The settings in mutants.yaml.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::tree::within;

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The folders of the sources in the core and the relay, each with the percentage of mutants that tests should catch.
    pub areas: BTreeMap<String, u32>,
    pub except: Vec<String>,
    pub programs: Vec<Program>,
    pub leave_out: Vec<String>,
    pub environment: BTreeMap<String, String>,
    /// The same for the tests that have to notice a planted fault.
    pub environment_of_planted: BTreeMap<String, String>,
    pub jobs: usize,
    pub memory_mib: u64,
    pub timeout: Timeout,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// `weir` or `weir_core` for the tests beside the code, otherwise a file or folder of `tests/` or `core/tests/`.
    pub name: String,
    #[serde(default)]
    pub waits: bool,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Timeout {
    pub seconds: u64,
    pub times: u32,
}

impl Timeout {
    /// Returns the limit for what takes so long without a mutant.
    pub fn of(self, took: Duration) -> Duration {
        Duration::from_secs(self.seconds) + took * self.times
    }
}

impl Settings {
    pub fn read(root: &Path) -> Result<Self> {
        let path = root.join("tests/mutants/mutants.yaml");
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        serde_saphyr::from_str(&text).with_context(|| path.display().to_string())
    }

    /// Returns the area of a file. `None`: the file may not be changed.
    pub fn area(&self, file: &str) -> Option<&str> {
        let file = within(file)?;
        let excepted = self.except.iter().any(|except| file == except || file.ends_with(&format!("/{except}")));
        let (area, _) = self.areas.get_key_value(file.split('/').next()?)?;
        (!excepted).then_some(area)
    }
}

impl Program {
    /// Whether the program has the tests that are beside the code.
    pub fn is_beside_code(&self) -> bool {
        ["weir", "weir_core"].contains(&self.name.as_str())
    }

    /// Whether the program has tests of the core. They do not need the relay.
    pub fn is_of_core(&self, root: &Path) -> bool {
        let of_core = |end| root.join(format!("core/tests/{}{end}", self.name)).exists();
        self.name == "weir_core" || ["", ".rs"].into_iter().any(of_core)
    }
}
