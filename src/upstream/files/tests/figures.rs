//! How long files take to load.

use super::*;

/// `cargo test --release --lib -- --ignored --nocapture figures_of_loading`: how long the first look takes. For comparison: reading the same bytes
/// from the disk, and parsing them in the plainest way.
#[test]
#[ignore = "it prints times for docs/record/performance.md, and asserts nothing; run it by the command above"]
fn figures_of_loading() {
    use prost::Message;

    let body = |number: u32| {
        let json = serde_json::json!({
            "@type": format!("type.googleapis.com/{CLUSTER}"), "name": format!("cluster-{number:06}"), "type": "EDS",
            "connectTimeout": "0.250s", "lbPolicy": "ROUND_ROBIN", "edsClusterConfig": {"edsConfig": {"ads": {}}},
            "circuitBreakers": {"thresholds": [{"maxConnections": 1024, "maxRequests": 4096}]},
            "metadata": {"filterMetadata": {"example": {"team": "payments", "tier": "one", "number": number}}},
        });
        (json.clone(), transcoded(&json))
    };
    for (files, each) in [(100, 1_000), (10_000, 10)] {
        let (json, binary) = (Folder::new(), Folder::new());
        for file in 0..files {
            let bodies: Vec<_> = (0..each).map(|number| body(file * each + number)).collect();
            let list: Vec<_> = bodies.iter().map(|(json, _)| json).collect();
            fs::write(json.at(&format!("{file}.json")), serde_json::to_vec(&list).unwrap()).unwrap();
            let any = |value: &bytes::Bytes| weir_core::proto::Any {
                type_url: format!("type.googleapis.com/{CLUSTER}"),
                value: value.clone(),
            };
            let resources = bodies.iter().map(|(_, bytes)| any(bytes)).collect();
            let response = weir_core::proto::discovery::DiscoveryResponse { resources, ..Default::default() };
            fs::write(binary.at(&format!("{file}.pb")), response.encode_to_vec()).unwrap();
        }
        for (name, folder) in [("json", &json), ("pb", &binary)] {
            let all = || fs::read_dir(&folder.0).unwrap().map(|entry| fs::read(entry.unwrap().path()).unwrap());
            let start = Instant::now();
            let bytes: usize = all().map(|bytes| bytes.len()).sum();
            let reading = start.elapsed();
            let start = Instant::now();
            let count: usize = all()
                .map(|bytes| match name {
                    "json" => serde_json::from_slice::<Vec<serde_json::Value>>(&bytes).unwrap().len(),
                    _ => weir_core::proto::discovery::DiscoveryResponse::decode(&*bytes).unwrap().resources.len(),
                })
                .sum();
            let plainly = start.elapsed();
            let mut loader = loader(FilesOptions { file_bytes: 64 << 20, ..folder.options() });
            let start = Instant::now();
            let SourceState::Ready(snapshot) = loader.look().loaded.state else { panic!("not there") };
            let loading = start.elapsed();
            assert_eq!(snapshot.resources(), count);
            std::thread::sleep(Duration::from_secs(4)); // until time stamps can be trusted
            loader.look();
            let start = Instant::now();
            loader.look();
            let nothing = start.elapsed();
            let mut changed = fs::read(folder.at(&format!("0.{name}"))).unwrap();
            let at = changed.windows(8).position(|bytes| bytes == b"payments").unwrap();
            changed[at] = b'P';
            fs::write(folder.at(".new"), changed).unwrap();
            fs::rename(folder.at(".new"), folder.at(&format!("0.{name}"))).unwrap();
            let start = Instant::now();
            loader.look();
            let one = start.elapsed();
            println!(
                "{count} resources in {files} .{name} files of {bytes} bytes: read {reading:?}, parsed plainly {plainly:?}, \
                 loaded {loading:?}; looked at again {nothing:?}, with one file new {one:?}"
            );
        }
    }
}

fn transcoded(json: &serde_json::Value) -> bytes::Bytes {
    use crate::transcode::{Strictness, Transcoder};
    let mut json = json.clone();
    json.as_object_mut().unwrap().remove("@type");
    Transcoder::envoy().from_json(CLUSTER, &json, Strictness::Strict).unwrap()
}
