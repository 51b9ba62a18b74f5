//! The state on disk.

use std::time::Duration;

use super::checker::Checker;
use super::form::Located;
use super::{files, raw};
use crate::state::StateOptions;

pub(super) fn check(raw: &Option<Located<raw::State>>, keep: Duration, checker: &mut Checker) -> Option<StateOptions> {
    let raw = raw.as_ref()?;
    // The relay itself writes this file, so only its folder is checked.
    let path = raw.path.0.as_ref().map(|file| {
        let path = checker.path(file);
        checker.look(&file.place, || files::look_at_folder(&path));
        path
    });
    let key = raw.key.as_ref().map(|key| checker.file(key, files::look_at_sealing_key));
    if let Some(given) = raw.max_age.as_ref().filter(|given| given.0.is_zero()) {
        checker.fault(&given.place, "invalid duration 0s: expected more; without max_age there is no limit");
    }
    Some(StateOptions {
        path: path?,
        key,
        max_age: raw.max_age.as_ref().map(|age| age.0),
        when_older: raw.when_older.value,
        serve_without_secrets: raw.serve_without_secrets.value,
        keep,
    })
}
