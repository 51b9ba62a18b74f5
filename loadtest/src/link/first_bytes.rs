//! What a server that was asked without TLS began with.

use std::sync::{Arc, OnceLock};

/// The first bytes of a connection. They say which protocol a server speaks that does not speak HTTP/2.
#[derive(Debug, Clone, Default)]
pub struct FirstBytes(Arc<OnceLock<[u8; LENGTH]>>);

impl FirstBytes {
    /// Keeps the first bytes of the first piece that arrived.
    pub fn note(&self, bytes: &[u8]) {
        if self.0.get().is_none()
            && let Some(first) = bytes.first_chunk()
        {
            let _ = self.0.set(*first); // nothing else sets it
        }
    }

    /// Adds to the reason for which a connection ended what is wrong with the address, if the first bytes say that.
    pub fn explain(&self, reason: &str) -> String {
        match self.0.get() {
            Some([0x15 | 0x16, 0x03, ..]) => "the server expects TLS: use https:// and --tls-ca".into(),
            Some(b"HTTP/") => "the server speaks HTTP/1.1 and not gRPC; is this an admin address?".into(),
            Some(_) => reason.into(),
            None => format!("{reason} before the server sent anything; does it expect TLS (https://)?"),
        }
    }
}

const LENGTH: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bytes_say_what_a_server_speaks() {
        let explained = |pieces: &[&[u8]]| {
            let first = FirstBytes::default();
            pieces.iter().for_each(|piece| first.note(piece));
            first.explain("closed")
        };
        let alert: &[u8] = &[0x15, 3, 3, 0, 2, 2, 10];
        assert_eq!(explained(&[alert]), "the server expects TLS: use https:// and --tls-ca");
        assert!(explained(&[b"HTTP/1.1 400 Bad Request"]).contains("is this an admin address?"));
        let settings: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
        assert_eq!(explained(&[settings, alert]), "closed", "a later piece says nothing");
        assert_eq!(explained(&[]), "closed before the server sent anything; does it expect TLS (https://)?");
    }
}
