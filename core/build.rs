//! Compiles the messages of the protocol with protox, so that nobody needs protoc. They are defined in the root's `proto`.

use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=../proto");
    let files = ["discovery.proto", "loads.proto", "node.proto"];
    let descriptors = protox::compile(files, ["../proto"])?;
    prost_build::Config::new()
        .bytes(["."])
        .btree_map(["."])
        .extern_path(".google.protobuf.Any", "crate::proto::Any")
        .out_dir(PathBuf::from(std::env::var("OUT_DIR")?))
        .compile_fds(descriptors)?;
    Ok(())
}
