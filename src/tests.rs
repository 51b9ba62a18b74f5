//! What the tests of several parts use: the lines that a test's own subscriber of logs has written.

use std::io;
use std::sync::{Arc, Mutex};

#[derive(Debug, Clone, Default)]
pub(crate) struct WrittenLines(Arc<Mutex<Vec<u8>>>);

impl WrittenLines {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    /// Returns how many lines contain this.
    pub(crate) fn count(&self, part: &str) -> usize {
        self.text().lines().filter(|line| line.contains(part)).count()
    }
}

impl io::Write for WrittenLines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
