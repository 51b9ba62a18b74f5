//! What is known of the configuration file, for pages and metrics: what is in use, and how the last attempt to read it again went.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use serde_json::Value as Json;

/// One for the process.
#[derive(Debug)]
pub(crate) struct ConfigStatus(Mutex<ConfigFacts>);

#[derive(Debug, Clone)]
pub(crate) struct ConfigFacts {
    pub(crate) file: PathBuf,
    /// SHA-256 of the file that is in use.
    pub(crate) sha256: String,
    /// The configuration in use, as operators may see it.
    pub(crate) config: Json,
    /// What the command line says in place of the file.
    pub(crate) command_line: Json,
    /// When the file in use was read.
    pub(crate) read: SystemTime,
    /// Keys whose change in the file needs a restart.
    pub(crate) pending: Vec<String>,
    /// Why the file was not taken the last time.
    pub(crate) error: Option<String>,
    /// How often the file was read again and taken, and how often it was not.
    pub(crate) reloads: u64,
    pub(crate) failures: u64,
}

impl ConfigStatus {
    pub(crate) fn new(facts: ConfigFacts) -> Self {
        Self(Mutex::new(facts))
    }

    pub(crate) fn get(&self) -> ConfigFacts {
        self.facts().clone()
    }

    /// Notes that the file was taken.
    pub(crate) fn taken(&self, sha256: String, config: Json, pending: Vec<String>) {
        let mut facts = self.facts();
        (facts.sha256, facts.config, facts.pending) = (sha256, config, pending);
        (facts.read, facts.error) = (SystemTime::now(), None);
        facts.reloads += 1;
    }

    /// Notes that the file was not taken.
    pub(crate) fn failed(&self, error: &str) {
        let mut facts = self.facts();
        facts.error = Some(error.to_owned());
        facts.failures += 1;
    }

    fn facts(&self) -> MutexGuard<'_, ConfigFacts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
