//! Compiles our own `.proto` files with protox, so that nobody needs protoc.

use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let files = ["proto/discovery.proto", "proto/loads.proto", "proto/node.proto"];
    let descriptors = protox::compile(files, ["proto"])?;
    let mut config = prost_build::Config::new();
    config
        .bytes(["."])
        .btree_map(["."])
        .extern_path(".google.protobuf.Any", "crate::proto::Any")
        .out_dir(PathBuf::from(std::env::var("OUT_DIR")?))
        .compile_fds(descriptors)?;
    Ok(())
}
