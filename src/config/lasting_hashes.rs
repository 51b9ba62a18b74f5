//! Views with headers in the key, from one process to the next.

use anyhow::Context;

use super::load::Config;
use crate::relay::HeaderHasher;
use crate::state::SealingKey;

/// Gives headers in the key hashes that outlast the process, where there is a key for what is on disk.
pub(crate) fn with_lasting_hashes(mut config: Config) -> anyhow::Result<Config> {
    let key = config.state.as_ref().and_then(|state| state.key.as_deref());
    if let (Some(hasher), Some(path)) = (&mut config.views.header_hasher, key) {
        *hasher = HeaderHasher::lasting(SealingKey::read(path).context("state.key")?.of_hashes());
    }
    Ok(config)
}
