//! The headers of a client that are part of the key of its view. The servers of that view are sent the values; everything else uses keyed hashes.

use std::sync::Arc;

use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use http::{HeaderMap, HeaderValue};
use weir_core::xds::{HeaderHashes, HeaderName, KeyRule};

use super::redaction::Redaction;
use super::shown_values::{InUse, ShownValues};

/// The headers of a client that are part of the key. The values are marked as sensitive: they are not printed, and HPACK does not keep them.
#[derive(Debug, Clone, Default)]
pub struct KeyHeaders {
    values: Arc<[(http::HeaderName, HeaderValue)]>,
    hashes: HeaderHashes,
    /// The key of the view has headers, even if the client has sent none.
    are_in_key: bool,
}

impl KeyHeaders {
    /// Returns the hashes, which are part of the key.
    pub(crate) fn hashes(&self) -> &HeaderHashes {
        &self.hashes
    }

    /// Adds the headers to those that a server is sent.
    pub(crate) fn show_in(&self, headers: &mut HeaderMap) {
        for (name, value) in self.values.iter() {
            headers.insert(name.clone(), value.clone()); // a name may be in the key twice
        }
    }

    /// Returns how many bytes the values have.
    pub(crate) fn bytes(&self) -> usize {
        self.values.iter().map(|(_, value)| value.len()).sum()
    }

    /// Whether a server that refuses the shown headers refuses this view alone.
    pub(crate) fn are_in_key(&self) -> bool {
        self.are_in_key
    }

    /// Returns what removes these values, and all others that the server is shown, from texts of a server.
    pub(crate) fn redaction(&self, shown: &ShownValues) -> Redaction {
        Redaction::of(self.values()).and(shown)
    }

    /// Removes these values from texts that other views get of the server too, until the result is dropped.
    pub(crate) fn keep_in(&self, shown: &ShownValues) -> InUse {
        shown.keep(self.values().cloned().collect())
    }

    fn values(&self) -> impl Iterator<Item = &HeaderValue> {
        self.values.iter().map(|(_, value)| value)
    }
}

#[cfg(test)]
impl KeyHeaders {
    /// What a client shows in one header.
    pub(crate) fn of_one(name: &'static str, value: &'static str) -> Self {
        let field = weir_core::xds::KeyField::parse(&format!("header.{name}")).unwrap();
        let given =
            [(name, value)].map(|(name, value)| (http::HeaderName::from_static(name), HeaderValue::from_static(value)));
        HeaderHasher::random().unwrap().take(&KeyRule::of(vec![field]), &given.into_iter().collect()).unwrap()
    }
}

/// Why the headers of a call cannot be part of a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UnfitHeaders {
    #[error("header {0} occurs more than once: expected one value, since it is in views.key")]
    Repeated(HeaderName),
    #[error("headers in views.key too long: {0} bytes together, the limit is {limit}", limit = LONGEST)]
    TooLong(usize),
}

/// Makes the hashes, under a secret key.
#[derive(Debug, Clone)]
pub(crate) struct HeaderHasher {
    key: hmac::Key,
    is_lasting: bool,
}

/// The system provides no random numbers.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the system has no random numbers")]
pub(crate) struct NoRandomness;

impl HeaderHasher {
    /// Returns a hasher with a key that only this process has.
    pub(crate) fn random() -> Result<Self, NoRandomness> {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new()).map_err(|_| NoRandomness)?;
        Ok(Self { key, is_lasting: false })
    }

    /// Returns a hasher with a key that later processes have, too.
    pub(crate) fn lasting(secret: &[u8]) -> Self {
        Self { key: hmac::Key::new(hmac::HMAC_SHA256, secret), is_lasting: true }
    }

    /// Whether a later process makes the same hashes.
    pub(crate) fn is_lasting(&self) -> bool {
        self.is_lasting
    }

    /// Returns an identifier of the key that reveals nothing of it.
    pub(crate) fn id(&self) -> String {
        self.hash("", b"") // no header has an empty name
    }

    /// Takes the headers of the key from those of a call.
    pub(crate) fn take(&self, rule: &KeyRule, given: &HeaderMap) -> Result<KeyHeaders, UnfitHeaders> {
        let (mut values, mut hashes) = (Vec::new(), Vec::new());
        for name in rule.headers() {
            let Ok(known) = http::HeaderName::from_bytes(name.as_str().as_bytes()) else { continue };
            let mut all = given.get_all(&known).iter();
            let Some(mut value) = all.next().cloned() else { continue };
            if all.next().is_some() {
                return Err(UnfitHeaders::Repeated(name.clone()));
            }
            value.set_sensitive(true);
            hashes.push((name.clone(), self.hash(name.as_str(), value.as_bytes())));
            values.push((known, value));
        }
        let are_in_key = rule.headers().next().is_some();
        let headers = KeyHeaders { values: values.into(), hashes: HeaderHashes::of(hashes), are_in_key };
        match headers.bytes() {
            bytes if bytes > LONGEST => Err(UnfitHeaders::TooLong(bytes)),
            _ => Ok(headers),
        }
    }

    /// Returns the hash of the value of a header, as text.
    fn hash(&self, name: &str, value: &[u8]) -> String {
        let mut context = hmac::Context::with_key(&self.key);
        for part in [name.as_bytes(), value] {
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part);
        }
        context.sign().as_ref().iter().take(HASH_BYTES).map(|byte| format!("{byte:02x}")).collect()
    }
}

/// How many bytes the values of one call may have together.
const LONGEST: usize = 4 << 10;
/// So many bytes that no two values have the same hash.
const HASH_BYTES: usize = 16;

#[cfg(test)]
mod tests {
    use weir_core::xds::KeyField;

    use super::*;

    fn given(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    /// What a client shows in these headers, of which all with these names are in the key.
    fn showing(values: &[(&'static str, &[u8])]) -> Result<KeyHeaders, UnfitHeaders> {
        let field = |(name, _): &(&str, &[u8])| KeyField::parse(&format!("header.{name}")).unwrap();
        let mut headers = HeaderMap::new();
        for (name, value) in values {
            headers.append(*name, HeaderValue::from_bytes(value).unwrap());
        }
        let mut fields: Vec<_> = values.iter().map(field).collect();
        fields.dedup();
        HeaderHasher::random().unwrap().take(&KeyRule::of(fields), &headers)
    }

    #[test]
    fn a_value_has_one_hash_in_a_process_and_another_in_the_next_one_unless_that_has_its_key() {
        let rule = KeyRule::of(vec![KeyField::parse("header.x-token").unwrap()]);
        let (hasher, other) = (HeaderHasher::random().unwrap(), HeaderHasher::random().unwrap());
        let hash = |hasher: &HeaderHasher, pairs| hasher.take(&rule, &given(pairs)).unwrap().hashes().clone();
        let one = hash(&hasher, &[("x-token", "a"), ("x-other", "z")]);
        assert_eq!(one, hash(&hasher, &[("x-token", "a")]));
        assert_ne!(one, hash(&other, &[("x-token", "a")]));
        assert_ne!(one, hash(&hasher, &[("x-token", "b")]));
        assert!(hash(&hasher, &[("x-other", "a")]).is_empty());
        let (lasting, later) = (HeaderHasher::lasting(b"secret"), HeaderHasher::lasting(b"secret"));
        assert_eq!(hash(&lasting, &[("x-token", "a")]), hash(&later, &[("x-token", "a")]));
        assert_ne!(hash(&lasting, &[("x-token", "a")]), hash(&HeaderHasher::lasting(b"other"), &[("x-token", "a")]));
        assert_eq!(lasting.id(), later.id());
        assert_ne!(lasting.id(), HeaderHasher::lasting(b"other").id());
    }

    #[test]
    fn a_value_is_shown_to_servers_and_to_nobody_else() {
        let rule = KeyRule::of(vec![KeyField::parse("header.x-token").unwrap()]);
        let hasher = HeaderHasher::random().unwrap();
        let headers = hasher.take(&rule, &given(&[("x-token", "hush-hush")])).unwrap();
        assert!(!format!("{headers:?} {hasher:?}").contains("hush"), "{headers:?}");
        let mut shown = HeaderMap::new();
        headers.show_in(&mut shown);
        assert_eq!(shown["x-token"], "hush-hush");
        assert!(shown["x-token"].is_sensitive());
        let shown = ShownValues::default();
        shown.add(&HeaderValue::from_static("own"));
        let plain = headers.redaction(&shown).apply("no hush-hush here, and no own".into());
        assert_eq!(plain, "no [redacted] here, and no [redacted]");
    }

    #[test]
    fn a_call_has_one_value_of_each_header_and_no_more_bytes_than_the_limit() {
        assert_eq!(
            showing(&[("x-a", b"1"), ("x-a", b"2")]).unwrap_err().to_string(),
            "header x-a occurs more than once: expected one value, since it is in views.key"
        );
        let half = [b'x'; LONGEST / 2];
        assert_eq!(showing(&[("x-a", &half), ("x-b", &half)]).unwrap().bytes(), 4096);
        let more = [b'x'; LONGEST / 2 + 1];
        assert_eq!(
            showing(&[("x-a", &half), ("x-b", &more)]).unwrap_err().to_string(),
            "headers in views.key too long: 4097 bytes together, the limit is 4096"
        );
    }
}
