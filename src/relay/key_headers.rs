//! The headers of a client that are in the key of its view: the values, for the servers of that view, and keyed hashes for everything else.

use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use http::{HeaderMap, HeaderValue};
use std::sync::Arc;
use weir_core::xds::{HeaderHashes, KeyRule};

/// What a client has shown of the headers in the key. The values are marked as sensitive: nothing prints them, and HPACK does not keep them.
#[derive(Debug, Clone, Default)]
pub struct KeyHeaders {
    values: Arc<[(http::HeaderName, HeaderValue)]>,
    hashes: HeaderHashes,
}

impl KeyHeaders {
    /// Returns the hashes, which are what is in the key.
    pub(crate) fn hashes(&self) -> &HeaderHashes {
        &self.hashes
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    /// Adds them to what a server is shown.
    pub(crate) fn show_in(&self, headers: &mut HeaderMap) {
        for (name, value) in self.values.iter() {
            headers.append(name.clone(), value.clone());
        }
    }

    /// Returns a text of a server without the values, which it may quote.
    pub(crate) fn without_values(&self, text: String) -> String {
        self.values
            .iter()
            .filter_map(|(_, value)| value.to_str().ok())
            .filter(|value| !value.is_empty())
            .fold(text, |text, value| if text.contains(value) { text.replace(value, "[redacted]") } else { text })
    }
}

/// Makes the hashes, under a key that this process alone has.
#[derive(Debug, Clone)]
pub(crate) struct HeaderHasher(hmac::Key);

/// The system has no random numbers.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the system has no random numbers")]
pub(crate) struct NoRandomness;

impl HeaderHasher {
    /// Returns one with a key of its own, taken at random.
    pub(crate) fn random() -> Result<Self, NoRandomness> {
        hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new()).map(Self).map_err(|_| NoRandomness)
    }

    /// Takes the headers in the key from those of a call.
    pub(crate) fn take(&self, rule: &KeyRule, given: &HeaderMap) -> KeyHeaders {
        let (mut values, mut hashes) = (Vec::new(), Vec::new());
        for name in rule.headers() {
            let Ok(known) = http::HeaderName::from_bytes(name.as_str().as_bytes()) else { continue };
            let before = values.len();
            for value in given.get_all(&known) {
                let mut value = value.clone();
                value.set_sensitive(true);
                values.push((known.clone(), value));
            }
            if values.len() > before {
                hashes.push((name.clone(), self.hash(name.as_str(), &values[before..])));
            }
        }
        KeyHeaders { values: values.into(), hashes: HeaderHashes::of(hashes) }
    }

    /// Returns the hash of all values of a header, as text.
    fn hash(&self, name: &str, values: &[(http::HeaderName, HeaderValue)]) -> String {
        let mut context = hmac::Context::with_key(&self.0);
        for part in std::iter::once(name.as_bytes()).chain(values.iter().map(|(_, value)| value.as_bytes())) {
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part);
        }
        context.sign().as_ref().iter().take(HASH_BYTES).map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Enough for no two values to have one hash.
const HASH_BYTES: usize = 16;

#[cfg(test)]
mod tests {
    use weir_core::xds::KeyField;

    use super::*;

    fn given(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        pairs.iter().for_each(|(name, value)| drop(headers.append(*name, HeaderValue::from_static(value))));
        headers
    }

    #[test]
    fn a_value_has_one_hash_in_a_process_and_another_in_the_next_one() {
        let rule = KeyRule::of(vec![KeyField::parse("header.x-token").unwrap()]);
        let (hasher, other) = (HeaderHasher::random().unwrap(), HeaderHasher::random().unwrap());
        let hash = |hasher: &HeaderHasher, pairs| hasher.take(&rule, &given(pairs)).hashes().clone();
        let one = hash(&hasher, &[("x-token", "a"), ("x-other", "z")]);
        assert_eq!(one, hash(&hasher, &[("x-token", "a")]));
        assert_ne!(one, hash(&other, &[("x-token", "a")]));
        assert_ne!(one, hash(&hasher, &[("x-token", "b")]));
        assert_ne!(hash(&hasher, &[("x-token", "ab")]), hash(&hasher, &[("x-token", "a"), ("x-token", "b")]));
        assert!(hash(&hasher, &[("x-other", "a")]).is_empty());
    }

    #[test]
    fn a_value_is_shown_to_servers_and_to_nobody_else() {
        let rule = KeyRule::of(vec![KeyField::parse("header.x-token").unwrap()]);
        let hasher = HeaderHasher::random().unwrap();
        let headers = hasher.take(&rule, &given(&[("x-token", "hush-hush")]));
        assert!(!format!("{headers:?} {hasher:?}").contains("hush"), "{headers:?}");
        let mut shown = HeaderMap::new();
        headers.show_in(&mut shown);
        assert_eq!(shown["x-token"], "hush-hush");
        assert!(shown["x-token"].is_sensitive());
        assert_eq!(headers.without_values("no hush-hush here".into()), "no [redacted] here");
    }
}
