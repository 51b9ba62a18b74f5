//! Encryption of data on disk: AES-256-GCM-SIV, with a key from a file. Each record is bound to the place for which it was written.

use std::fmt;
use std::path::Path;

use anyhow::{Context, bail};
use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, Nonce, RandomizedNonceKey};
use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::records::DamagedRecord;
use crate::file_access;

/// A key of 256 bits, and the key of hashes that is derived from it.
pub(crate) struct SealingKey(RandomizedNonceKey, hmac::Tag);

impl fmt::Debug for SealingKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("SealingKey")
    }
}

impl SealingKey {
    /// Reads a file with 32 bytes, either raw or in base64 or hexadecimal.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let bytes = file_access::read_blocking(path, file_access::LIMIT)
            .with_context(|| format!("cannot read {}", path.display()))?;
        Self::parse(&bytes)
    }

    /// Parses the contents of such a file.
    pub(crate) fn parse(file: &[u8]) -> anyhow::Result<Self> {
        let text = file.trim_ascii();
        let key = match (file.len(), text.len()) {
            (LENGTH, _) => file.to_vec(),
            (_, 64) => from_hexadecimal(text).context("64 characters that are not hexadecimal")?,
            (_, _) => STANDARD.decode(text).context("neither 32 bytes nor base64 nor hexadecimal")?,
        };
        if key.len() != LENGTH {
            bail!("a key has 32 bytes, and not {}", key.len());
        }
        let of_hashes = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), OF_HASHES);
        let key = RandomizedNonceKey::new(&AES_256_GCM_SIV, &key).context("not a usable key")?;
        Ok(Self(key, of_hashes))
    }

    /// Returns the secret for hashes of values that are not on disk themselves.
    pub(crate) fn of_hashes(&self) -> &[u8] {
        self.1.as_ref()
    }

    /// Returns encrypted bytes that are bound to `place`: they can be decrypted only with the same place.
    pub(super) fn seal(&self, place: &[u8], plain: &[u8]) -> anyhow::Result<Vec<u8>> {
        let mut sealed = plain.to_vec();
        let nonce = self.0.seal_in_place_append_tag(Aad::from(place), &mut sealed).context("cannot encrypt")?;
        Ok([&nonce.as_ref()[..], &sealed].concat())
    }

    /// Returns what was encrypted for a place.
    pub(super) fn open(&self, place: &[u8], sealed: &[u8]) -> Result<Vec<u8>, DamagedRecord> {
        let (nonce, sealed) = sealed.split_first_chunk::<NONCE>().ok_or(DamagedRecord)?;
        let mut bytes = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let length = self.0.open_in_place(nonce, Aad::from(place), &mut bytes).map_err(|_| DamagedRecord)?.len();
        bytes.truncate(length);
        Ok(bytes)
    }
}

fn from_hexadecimal(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    text.chunks_exact(2).map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?)).collect()
}

/// The purpose of the key of hashes, so that another key from the same file would differ.
const OF_HASHES: &[u8] = b"weir: hashes of headers";
const LENGTH: usize = 32;
const NONCE: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sealed_opens_with_its_key_at_its_place_and_nowhere_else() {
        let key = SealingKey::parse(&[7; 32]).unwrap();
        let sealed = key.seal(b"here", b"a private key").unwrap();
        assert!(!sealed.windows(7).any(|bytes| bytes == b"private"));
        assert_eq!(key.open(b"here", &sealed).unwrap(), b"a private key");
        assert_eq!(key.open(b"there", &sealed), Err(DamagedRecord));
        assert_eq!(SealingKey::parse(&[8; 32]).unwrap().open(b"here", &sealed), Err(DamagedRecord));
        for bit in 0..sealed.len() * 8 {
            let mut bad = sealed.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(key.open(b"here", &bad), Err(DamagedRecord), "bit {bit}");
        }
        assert_eq!(key.open(b"here", &sealed[..5]), Err(DamagedRecord));
        assert_ne!(sealed, key.seal(b"here", b"a private key").unwrap(), "the nonce is another");
    }

    #[test]
    fn a_key_is_read_in_three_forms_and_nothing_else() {
        let sealed = SealingKey::parse(&[0xab; 32]).unwrap().seal(b"", b"text").unwrap();
        for file in [format!("{}\n", "ab".repeat(32)), format!("{}\n", STANDARD.encode([0xab; 32]))] {
            assert_eq!(SealingKey::parse(file.as_bytes()).unwrap().open(b"", &sealed).unwrap(), b"text");
        }
        for file in ["", "short", &"zz".repeat(32), &STANDARD.encode([1; 16])] {
            assert!(SealingKey::parse(file.as_bytes()).is_err(), "{file:?}");
        }
    }
}
