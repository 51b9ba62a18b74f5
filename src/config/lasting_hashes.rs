//! Hashes of headers in the key that stay the same when the process restarts.

use anyhow::Context;

use super::load::Config;
use crate::relay::HeaderHasher;
use crate::state::SealingKey;

/// Makes the hashes of headers in the key depend on `state.key` alone, if that is set, so that they outlast the process.
pub(crate) fn with_lasting_hashes(mut config: Config) -> anyhow::Result<Config> {
    let key = config.state.as_ref().and_then(|state| state.key.as_deref());
    if let (Some(hasher), Some(path)) = (&mut config.views.header_hasher, key) {
        *hasher = HeaderHasher::lasting(SealingKey::read(path).context("state.key")?.of_hashes());
    }
    Ok(config)
}
