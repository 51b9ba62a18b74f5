//! The descriptors: Envoy's as an embedded file, a few more from `proto/supplement`, and the operator's.

use std::collections::{BTreeMap, HashSet};
use std::io::Read;

use bytes::Bytes;
use prost_reflect::{DescriptorPool, MessageDescriptor, Value};
use weir_core::xds::wire;

use super::TranscodeError;

/// A gzipped FileDescriptorSet. `tests/descriptors.rs` creates it and checks whether it is current; NOTICE names its sources.
const ENVOY: &[u8] = include_bytes!("envoy.binpb.gz");
const SUPPLEMENT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/supplement.binpb"));

const FILE: u32 = 1; // FileDescriptorSet.file
const NAME: u32 = 1; // FileDescriptorProto.name

/// Returns the embedded descriptors and the operator's. A file that both have is the operator's, which may be newer, except for protobuf's own files:
/// the special JSON forms depend on these.
pub(super) fn load(operator: &[Bytes]) -> Result<DescriptorPool, TranscodeError> {
    let mut envoy = Vec::new();
    flate2::read::GzDecoder::new(ENVOY).read_to_end(&mut envoy).map_err(|error| {
        TranscodeError::Descriptors(format!("the embedded descriptors cannot be unpacked: {error}"))
    })?;
    let mut files = BTreeMap::new();
    add(&mut files, SUPPLEMENT, "the supplement", |_| true)?;
    add(&mut files, &envoy, "the embedded descriptors", |_| true)?;
    for (number, set) in operator.iter().enumerate() {
        let whose = format!("descriptor set {}", number + 1);
        add(&mut files, set, &whose, |name| !name.starts_with("google/protobuf/"))?;
    }
    let merged: Vec<u8> = files.into_values().flatten().copied().collect();
    DescriptorPool::decode(merged.as_slice()).map_err(|error| {
        let hint = if operator.is_empty() {
            ""
        } else {
            " (where a descriptor set has other versions of Envoy's files, leave its imports out or give it all of Envoy's)"
        };
        TranscodeError::Descriptors(format!("the descriptors do not fit together: {error}{hint}"))
    })
}

/// Adds the files of a set as raw bytes, by name, so that unknown options are kept.
fn add<'a>(
    files: &mut BTreeMap<&'a str, &'a [u8]>,
    set: &'a [u8],
    whose: &str,
    wanted: impl Fn(&str) -> bool,
) -> Result<(), TranscodeError> {
    let broken = || TranscodeError::Descriptors(format!("{whose} is no FileDescriptorSet"));
    for field in wire::fields(set) {
        let field = field.ok_or_else(broken)?;
        let wire::Field { number: FILE, value: wire::Value::Bytes(file), raw } = field else { return Err(broken()) };
        let name = wire::last_text(file, NAME).ok_or_else(broken)?;
        if wanted(name) {
            files.insert(name, raw);
        }
    }
    Ok(())
}

/// Returns the full names of the fields with the option `udpa.annotations.sensitive`.
pub(super) fn sensitive(pool: &DescriptorPool) -> HashSet<String> {
    let Some(mark) = pool.all_extensions().find(|extension| extension.full_name() == "udpa.annotations.sensitive")
    else {
        return HashSet::new();
    };
    let marked = |message: MessageDescriptor| {
        let fields = message.fields().filter(|field| *field.options().get_extension(&mark) == Value::Bool(true));
        fields.map(|field| field.full_name().to_owned()).collect::<Vec<_>>()
    };
    pool.all_messages().flat_map(marked).collect()
}
