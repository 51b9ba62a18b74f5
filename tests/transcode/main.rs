//! Conversions of messages between bytes and JSON, YAML and text: round trips of every top-level type, errors and their positions, limits, and
//! hostile input.

mod documents;
mod faults;
mod hostile;
mod limits;
mod round_trips;

use std::path::Path;

use serde_json::Value;
use weir::transcode::type_name;

/// One message: its type, and its JSON without `@type`.
pub struct Sample {
    pub file: String,
    pub message: String,
    pub json: Value,
}

/// Returns the messages of `corpus/`. Their JSON is exactly what the transcoder writes, so a round trip has to return it unchanged.
pub fn corpus() -> Vec<Sample> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcode/corpus");
    let mut paths: Vec<_> =
        std::fs::read_dir(folder).expect("the corpus is there").map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let read = |path: &std::path::PathBuf| {
        let mut json: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).expect("a sample is JSON");
        let type_url = json.as_object_mut().unwrap().remove("@type").expect("a sample has a type");
        let file = path.file_name().unwrap().to_string_lossy().into_owned();
        Sample { file, message: type_name(type_url.as_str().unwrap()).to_owned(), json }
    };
    let samples: Vec<_> = paths.iter().map(read).collect();
    assert!(samples.len() >= 18, "the corpus lacks files");
    samples
}
