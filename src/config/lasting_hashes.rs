//! Hashes of headers in the key that stay the same when the process restarts.

use anyhow::Context;

use super::load::Config;
use crate::relay::HeaderHasher;
use crate::state::SealingKey;

/// Gives the hashes of headers in the key a lasting secret, if the file on disk has a key.
pub(crate) fn with_lasting_hashes(mut config: Config) -> anyhow::Result<Config> {
    let key = config.state.as_ref().and_then(|state| state.key.as_deref());
    if let (Some(hasher), Some(path)) = (&mut config.views.header_hasher, key) {
        *hasher = HeaderHasher::lasting(SealingKey::read(path).context("state.key")?.of_hashes());
    }
    Ok(config)
}
