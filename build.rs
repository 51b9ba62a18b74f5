//! Compiles our own `.proto` files with protox, so that nobody needs protoc.

use std::path::{Path, PathBuf};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    println!("cargo:rustc-env=WEIR_TARGET={}", std::env::var("TARGET")?);
    // A build from an archive knows no commit, so whoever builds says it.
    println!("cargo:rerun-if-env-changed=WEIR_COMMIT");
    let commit = std::env::var("WEIR_COMMIT").ok().filter(|commit| !commit.is_empty());
    println!("cargo:rustc-env=WEIR_COMMIT={}", commit.as_deref().unwrap_or("unknown"));
    let descriptors = protox::compile(["proto/status.proto"], ["proto"])?;
    let mut config = prost_build::Config::new();
    config
        .bytes(["."])
        .btree_map(["."])
        .extern_path(".google.protobuf.Any", "weir_core::proto::Any")
        .out_dir(PathBuf::from(std::env::var("OUT_DIR")?))
        .compile_fds(descriptors)?;
    supplement()
}

/// Descriptors of a few messages that the descriptor asset of src/transcode lacks.
fn supplement() -> Result<(), Box<dyn std::error::Error>> {
    let folder = PathBuf::from("proto/supplement");
    let mut compiler = protox::Compiler::new(["proto/supplement", "proto/supplement-imports"])?;
    compiler.include_imports(false).open_files(protos(&folder)?)?;
    let file = PathBuf::from(std::env::var("OUT_DIR")?).join("supplement.binpb");
    std::fs::write(file, compiler.encode_file_descriptor_set())?;
    Ok(())
}

fn protos(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            files.extend(protos(&path)?);
        } else {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
