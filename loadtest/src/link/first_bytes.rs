//! The first bytes that a server sends.

use std::sync::{Arc, Mutex, PoisonError};

/// The layer below HTTP/2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    Tcp,
    Tls,
    Unix,
}

/// The first bytes of a connection. If a server does not speak HTTP/2, they show which protocol it speaks.
#[derive(Debug, Clone)]
pub struct FirstBytes {
    transport: Transport,
    bytes: Arc<Mutex<Vec<u8>>>,
    /// Whether all bytes that matter have arrived.
    is_full: bool,
}

impl FirstBytes {
    pub fn new(transport: Transport) -> Self {
        Self { transport, bytes: Arc::default(), is_full: false }
    }

    /// Stores the first bytes of a connection, in whatever pieces they arrive.
    pub fn note(&mut self, piece: &[u8]) {
        if self.is_full || piece.is_empty() {
            return;
        }
        let mut bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let room = LENGTH.saturating_sub(bytes.len());
        bytes.extend(piece.iter().take(room));
        self.is_full = bytes.len() >= LENGTH;
    }

    /// Adds to the reason for the end of a connection what is wrong with the address, if the first bytes show that.
    pub fn explain(&self, reason: &str) -> String {
        let bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        match (bytes.as_slice(), self.transport) {
            ([0x15 | 0x16, 0x03, ..], Transport::Tcp) => "the server expects TLS: use https:// and --tls-ca".into(),
            ([0x15 | 0x16, 0x03, ..], Transport::Unix) => "the server expects TLS, which unix: does not have".into(),
            (b"HTTP/", _) => "the server speaks HTTP/1.1 and not gRPC; is this an admin address?".into(),
            ([], Transport::Tcp) => format!("{reason} before the server sent anything; does it expect TLS (https://)?"),
            ([], _) => format!("{reason} before the server sent anything"),
            _ => reason.into(),
        }
    }
}

const LENGTH: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    fn explained(transport: Transport, pieces: &[&[u8]]) -> String {
        let mut first = FirstBytes::new(transport);
        let of_the_link = first.clone();
        pieces.iter().for_each(|piece| first.note(piece));
        of_the_link.explain("closed")
    }

    #[test]
    fn the_first_bytes_say_what_a_server_speaks() {
        let alert: &[u8] = &[0x15, 3, 3, 0, 2, 2, 10];
        assert_eq!(explained(Transport::Tcp, &[alert]), "the server expects TLS: use https:// and --tls-ca");
        assert_eq!(explained(Transport::Unix, &[alert]), "the server expects TLS, which unix: does not have");
        for transport in [Transport::Tcp, Transport::Tls, Transport::Unix] {
            for pieces in [&[b"HTTP/1.1 400 Bad Request".as_slice()][..], &[b"HT", b"", b"TP", b"/1.1 400"]] {
                assert!(explained(transport, pieces).contains("is this an admin address?"), "{transport:?} {pieces:?}");
            }
        }
        let settings: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
        assert_eq!(explained(Transport::Tcp, &[settings, alert]), "closed", "a later piece says nothing");
        assert_eq!(explained(Transport::Tcp, &[b"HT"]), "closed");
    }

    #[test]
    fn a_server_that_sends_nothing_may_expect_tls() {
        let expected = "closed before the server sent anything; does it expect TLS (https://)?";
        assert_eq!(explained(Transport::Tcp, &[]), expected);
        assert_eq!(explained(Transport::Tls, &[]), "closed before the server sent anything");
        assert_eq!(explained(Transport::Unix, &[b""]), "closed before the server sent anything");
    }
}
