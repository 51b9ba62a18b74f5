//! The state of the configuration file for pages and metrics: the configuration in use, and the result of the last attempt to read the file again.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use serde_json::Value as Json;

/// The status, of which the process has one.
#[derive(Debug)]
pub(crate) struct ConfigStatus(Mutex<ConfigFacts>);

#[derive(Debug, Clone)]
pub(crate) struct ConfigFacts {
    pub(crate) file: PathBuf,
    /// SHA-256 of the file that is in use.
    pub(crate) sha256: String,
    /// The configuration in use, as operators may see it.
    pub(crate) config: Arc<Json>,
    /// SHA-256 of the bootstrap, if the servers come from one.
    pub(crate) bootstrap: Option<String>,
    /// The values that the command line sets in place of the file's.
    pub(crate) command_line: Json,
    /// When the file in use was read.
    pub(crate) read: SystemTime,
    /// Keys whose change in the file needs a restart.
    pub(crate) pending: Vec<String>,
    /// Why the file was not applied the last time.
    pub(crate) error: Option<String>,
    /// How often the file was read again and applied, and how often it was not applied.
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

    /// Records that the file was applied.
    pub(crate) fn taken(&self, sha256: String, bootstrap: Option<String>, config: Json, pending: Vec<String>) {
        let mut facts = self.facts();
        (facts.sha256, facts.config, facts.bootstrap, facts.pending) = (sha256, config.into(), bootstrap, pending);
        (facts.read, facts.error) = (SystemTime::now(), None);
        facts.reloads += 1;
    }

    /// Records that the file was not applied. Returns whether the reason differs from the last one.
    pub(crate) fn failed(&self, error: &str) -> bool {
        let mut facts = self.facts();
        facts.failures += 1;
        let before = facts.error.replace(error.to_owned());
        before.as_deref() != Some(error)
    }

    fn facts(&self) -> MutexGuard<'_, ConfigFacts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_file_that_was_not_taken_changes_nothing_but_the_reason_which_ends_when_one_is_taken() {
        let facts = ConfigFacts {
            file: "relay.yaml".into(),
            sha256: "first".into(),
            config: json!(1).into(),
            bootstrap: None,
            command_line: json!({"listen": "x"}),
            read: SystemTime::UNIX_EPOCH,
            pending: Vec::new(),
            error: None,
            reloads: 0,
            failures: 0,
        };
        let status = ConfigStatus::new(facts);
        let all = |status: &ConfigStatus| {
            let ConfigFacts { sha256, config, pending, error, reloads, failures, .. } = status.get();
            (sha256, config, pending, error, (reloads, failures))
        };
        for round in 1..=2 {
            let (sha256, config, pending, ..) = all(&status);
            let read = status.get().read;
            for attempt in 1..=2 {
                assert!(status.failed(&format!("bad {attempt}")), "each reason is another");
                let error = Some(format!("bad {attempt}"));
                let expected =
                    (sha256.clone(), config.clone(), pending.clone(), error, (round - 1, 2 * round + attempt - 2));
                assert_eq!(all(&status), expected);
            }
            assert_eq!(status.get().read, read, "when the file in use was read");
            status.taken(format!("next {round}"), None, json!(round), vec!["types".into()]);
            let expected =
                (format!("next {round}"), Arc::new(json!(round)), vec!["types".into()], None, (round, 2 * round));
            assert_eq!(all(&status), expected);
            assert!(status.get().read > read);
        }
        status.taken("last".into(), None, json!(3), Vec::new());
        assert_eq!(status.get().pending, Vec::<String>::new());
        assert_eq!((status.get().command_line, status.get().file), (json!({"listen": "x"}), "relay.yaml".into()));
    }
}
