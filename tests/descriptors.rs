//! The embedded descriptors: where they come from, and whether they are current.
//!
//! They are the FileDescriptorSet of the crate envoy-types, without source locations and comments. The lock file has that crate under a
//! target that does not exist. So cargo downloads it for `cargo metadata` and never compiles it.
//! To create the file again: `cargo test --test descriptors -- --ignored regenerate`.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use prost_reflect::prost::encoding::{WireType, encode_key, encode_varint};
use weir_core::xds::wire::{self, Value};

const SOURCE_CODE_INFO: u32 = 9; // of FileDescriptorProto

fn asset() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/transcode/envoy.binpb.gz")
}

/// The folder and the version of envoy-types in cargo's registry.
fn envoy_types() -> (PathBuf, String) {
    let mut cargo = Command::new(env!("CARGO"));
    let output =
        cargo.args(["metadata", "--format-version", "1", "--locked"]).current_dir(env!("CARGO_MANIFEST_DIR")).output();
    let output = output.expect("cargo runs");
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("cargo metadata is JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    let package = packages.iter().find(|package| package["name"] == "envoy-types").expect("envoy-types is locked");
    let text = |key: &str| package[key].as_str().expect("a string").to_owned();
    (Path::new(&text("manifest_path")).parent().expect("a folder").to_owned(), text("version"))
}

/// Returns the set without source locations. Everything else is unchanged, including unknown options.
fn stripped(set: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(set.len() / 2);
    for file in wire::fields(set) {
        let Value::Bytes(file) = file.expect("a FileDescriptorSet").value else {
            panic!("a FileDescriptorSet has files only")
        };
        let fields = wire::fields(file).map(|field| field.expect("a FileDescriptorProto"));
        let kept: Vec<u8> =
            fields.filter(|field| field.number != SOURCE_CODE_INFO).flat_map(|field| field.raw).copied().collect();
        encode_key(1, WireType::LengthDelimited, &mut out);
        encode_varint(kept.len() as u64, &mut out);
        out.extend_from_slice(&kept);
    }
    out
}

fn fresh() -> Vec<u8> {
    let (folder, _) = envoy_types();
    stripped(&std::fs::read(folder.join("src/generated/types.bin")).expect("envoy-types has a descriptor set"))
}

#[test]
fn the_asset_is_current() {
    let mut held = Vec::new();
    let packed = std::fs::File::open(asset()).expect("the asset is there");
    flate2::read::GzDecoder::new(packed).read_to_end(&mut held).expect("the asset is gzip");
    assert!(
        held == fresh(),
        "the asset is not what envoy-types has: make it anew, see the top of tests/descriptors.rs"
    );

    let notice = std::fs::read_to_string(asset().with_file_name("NOTICE")).expect("a notice lies beside the asset");
    let (_, version) = envoy_types();
    assert!(notice.contains(&format!("envoy-types {version}")), "NOTICE does not name envoy-types {version}");
}

#[test]
#[ignore = "writes the asset"]
fn regenerate() {
    let file = std::fs::File::create(asset()).expect("the asset can be written");
    let mut packed = flate2::GzBuilder::new().mtime(0).write(file, flate2::Compression::best());
    packed.write_all(&fresh()).expect("written");
    packed.finish().expect("written");
}

#[test]
fn what_clients_of_xds_meet_has_a_descriptor() {
    let transcoder = weir::transcode::Transcoder::envoy();
    for name in [
        "envoy.config.endpoint.v3.LbEndpointCollection",
        "envoy.config.listener.v3.ListenerCollection",
        "envoy.config.cluster.v3.ClusterCollection",
        "xds.core.v3.ResourceLocator",
        "xds.core.v3.ResourceName",
        "xds.core.v3.Resource",
        "xds.core.v3.CollectionEntry",
        "xds.type.v3.TypedStruct",
        "udpa.type.v1.TypedStruct",
        "xds.type.matcher.v3.Matcher",
        "xds.type.matcher.v3.CelMatcher",
        "xds.type.matcher.v3.IPMatcher",
        "xds.type.matcher.v3.ServerNameMatcher",
        "xds.type.matcher.v3.HttpAttributesCelMatchInput",
        "xds.type.matcher.v3.Int64RangeMatcher",
        "envoy.service.discovery.v3.DiscoveryRequest",
        "envoy.service.discovery.v3.DiscoveryResponse",
        "envoy.service.discovery.v3.DeltaDiscoveryRequest",
        "envoy.service.discovery.v3.DeltaDiscoveryResponse",
        "envoy.service.discovery.v3.Resource",
        "envoy.service.runtime.v3.Runtime",
        "envoy.extensions.transport_sockets.tls.v3.Secret",
        "envoy.config.route.v3.ScopedRouteConfiguration",
        "envoy.config.route.v3.VirtualHost",
        "envoy.config.core.v3.TypedExtensionConfig",
        "envoy.service.load_stats.v3.LoadStatsRequest",
        "envoy.service.load_stats.v3.LoadStatsResponse",
        "envoy.service.status.v3.ClientConfig",
    ] {
        assert!(transcoder.knows(name), "{name}");
    }
}
