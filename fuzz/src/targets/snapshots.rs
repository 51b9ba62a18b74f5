//! Snapshots of any content, with a hash that is right.

use weir::inputs::MemoryStateFile;
use xxhash_rust::xxh3::xxh3_64;

/// What is accepted becomes a file that can be read, or is said to be unusable.
pub fn snapshots(data: &[u8]) {
    let file = empty_file();
    let accepted = file.import(&framed(data));
    assert!(accepted.is_ok() || !data.is_empty(), "the frame is right: {accepted:?}");
    if accepted.is_err() {
        return;
    }
    if let Some(again) = file.export().expect("memory has no faults") {
        empty_file().import(&again).expect("what was written can be read");
    }
}

fn empty_file() -> MemoryStateFile {
    MemoryStateFile::new().expect("an empty file is usable")
}

/// Returns a snapshot with this content.
fn framed(content: &[u8]) -> Vec<u8> {
    let content = [HEADER, content].concat();
    let hash = xxh3_64(&content);
    [&content[..], &[0; 4], &hash.to_le_bytes()].concat()
}

const HEADER: &[u8] = b"weir snapshot 1\n";
