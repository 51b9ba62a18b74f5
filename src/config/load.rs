//! Reads a file and returns a configuration, or everything that is wrong with it.
//!
//! The file is parsed to a tree ([`yaml`]), environment variables are substituted in its values, the tree is read by its forms ([`raw`],
//! [`form`](super::form)), and the result is checked ([`checker`](super::checker)). Each step continues after a fault as far as possible,
//! so that all faults are reported at once.

use std::path::{Path, PathBuf};

use super::checked::Config;
use super::checker::Checker;
use super::diagnostic::{Diagnostic, Diagnostics};
use super::files;
use super::form::{Form, Reader};
use super::raw;
use super::shown::ShownConfig;
use super::yaml::{self, Node};

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read {}: {}", path.display(), files::cause(error))]
    Unreadable { path: PathBuf, error: std::io::Error },
    #[error("{}", listed(.0))]
    Faults(Vec<Diagnostic>),
}

/// The result of reviewing a configuration.
#[derive(Debug)]
pub(crate) struct Review {
    /// None if the relay could not start with it.
    pub(crate) config: Option<Config>,
    /// The faults, and files that the relay could not use.
    pub(crate) faults: Vec<Diagnostic>,
    pub(crate) warnings: Vec<Diagnostic>,
}

impl Config {
    /// Reads and checks a configuration file. An error lists everything that is wrong with it.
    pub fn from_file(path: &Path) -> Result<Self, ConfigError> {
        Self::parse(path, &read(path)?)
    }

    /// Checks a configuration whose text was read from `path`. Relative paths in it start at its folder.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        Self::parse_in(path, text, &variable)
    }

    /// Parses a configuration with these environment variables.
    pub(super) fn parse_in(
        path: &Path,
        text: &str,
        environment: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, ConfigError> {
        let Review { config, faults, warnings } = review(path, text, environment, false);
        let config = config.ok_or(ConfigError::Faults(faults))?;
        Ok(Self { warnings, ..config })
    }

    /// Reviews a configuration as `weir check` does: with the files that it names, which a relay can start without.
    pub(crate) fn review(path: &Path) -> Result<Review, ConfigError> {
        Ok(review(path, &read(path)?, &variable, true))
    }
}

pub(super) fn read(path: &Path) -> Result<String, ConfigError> {
    std::fs::read_to_string(path).map_err(|error| ConfigError::Unreadable { path: path.into(), error })
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

pub(super) fn review(
    path: &Path,
    text: &str,
    environment: &dyn Fn(&str) -> Option<String>,
    opens_files: bool,
) -> Review {
    let mut found = Diagnostics::of(path);
    let tree = yaml::read(text, &mut found);
    review_read(path, text, tree, Checker { found, environment, opens_files })
}

/// Reviews a tree that was made of the text.
pub(super) fn review_tree(path: &Path, text: &str, tree: Node) -> Review {
    let checker = Checker { found: Diagnostics::of(path), environment: &variable, opens_files: false };
    review_read(path, text, Some(tree), checker)
}

fn review_read(path: &Path, text: &str, tree: Option<Node>, mut checker: Checker<'_>) -> Review {
    let mut shown = ShownConfig::empty_of(path, text);
    let written = tree.clone().unwrap_or_default();
    let raw = tree.and_then(|mut tree| {
        shown = std::mem::take(&mut shown).with_tree(&tree);
        yaml::expand(&mut tree, checker.environment, &mut checker.found);
        raw::Root::read(&tree, &mut Reader::new(&mut checker.found, raw::Root::schema))
    });
    let config = raw.and_then(|raw| checker.config(&raw));
    let Diagnostics { mut faults, unusable, warnings, .. } = checker.found;
    let config = config.filter(|_| faults.is_empty()).map(|config| Config { shown, tree: written, ..config });
    faults.extend(unusable);
    faults.sort_by_key(|fault| (fault.path != path, fault.line, fault.column)); // each step goes through the whole file
    Review { config, faults, warnings }
}

fn listed(faults: &[Diagnostic]) -> String {
    faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}
