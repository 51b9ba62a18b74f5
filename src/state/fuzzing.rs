//! Snapshots of any content, with a hash that is right.

use redb::backends::InMemoryBackend;

use super::file::{self, FileFault};
use super::load::Stored;
use super::portable;

/// What is accepted becomes a file that can be read, or is said to be unusable.
pub(crate) fn snapshots(data: &[u8]) {
    let snapshot = portable::with_frame(data);
    let Ok(database) = file::open_on(InMemoryBackend::new(), false) else { panic!("an empty file is usable") };
    if portable::read(&mut &*snapshot, &database, None).is_err() {
        return;
    }
    match Stored::read(&database, None) {
        Ok(stored) => {
            let mut again = Vec::new();
            portable::write(&stored, true, &mut again).expect("a vector takes everything");
            let Ok(database) = file::open_on(InMemoryBackend::new(), false) else { panic!("an empty file is usable") };
            portable::read(&mut &*again, &database, None).expect("what was written can be read");
        }
        Err(fault) => assert!(matches!(fault, FileFault::Unusable(_)), "{fault}"),
    }
}
