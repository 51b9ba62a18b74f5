//! Nonces of one stream.

use std::collections::VecDeque;

/// The last nonces of a stream. The number is limited: a repeated nonce that is older goes unnoticed.
#[derive(Debug, Default)]
pub struct Nonces {
    recent: VecDeque<Box<str>>,
}

impl Nonces {
    pub fn see(&mut self, nonce: &str) -> Result<(), String> {
        if nonce.is_empty() {
            return Err("a response has no nonce".into());
        }
        if self.recent.iter().any(|seen| **seen == *nonce) {
            return Err(format!("the nonce {nonce:?} is that of an earlier response"));
        }
        if self.recent.len() == KEPT {
            self.recent.pop_front();
        }
        self.recent.push_back(nonce.into());
        Ok(())
    }
}

const KEPT: usize = 16;
