//! The resources of a benchmark: a number of one type, all of one size. Each body ends with the round in which it last changed, so that
//! clients can read the round without decoding the body.

use bytes::BufMut;

use crate::content::{CDS, EDS};

/// The resources of a benchmark's servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resources {
    pub kind: Kind,
    pub count: usize,
    /// Bytes of each body. A body is larger if its name needs more.
    pub size: usize,
}

/// The type of the resources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// Clusters, to which clients subscribe with `*`.
    Clusters,
    /// Endpoints, to which clients subscribe by name.
    Endpoints,
}

impl Kind {
    /// Returns the name of the type on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Self::Clusters => "clusters",
            Self::Endpoints => "endpoints",
        }
    }

    pub fn type_url(self) -> &'static str {
        match self {
            Self::Clusters => CDS,
            Self::Endpoints => EDS,
        }
    }
}

impl Resources {
    pub fn name(&self, index: usize) -> String {
        format!("resource-{index:06}")
    }

    /// Returns the index of a resource by its name, if it is one of these.
    pub fn index(&self, name: &str) -> Option<usize> {
        name.strip_prefix("resource-")?.parse().ok().filter(|index| *index < self.count)
    }

    /// Returns a cluster with a long `alt_stat_name`, or endpoints with a locality whose region is long. The encoding is canonical, so a
    /// server that decodes and encodes it gets the same bytes.
    pub fn body(&self, index: usize, round: u32) -> Vec<u8> {
        let mut body = Vec::with_capacity(self.size + 32);
        let name = self.name(index);
        put(&mut body, 1, name.as_bytes());
        let named = body.len();
        let filler = |nested: usize| {
            let room = self.size.saturating_sub(named + nested * BYTES_PER_LEVEL + MARK);
            let mut text = vec![b'x'; room];
            text.extend_from_slice(format!("{round:08x}").as_bytes());
            text
        };
        match self.kind {
            Kind::Clusters => put(&mut body, ALT_STAT_NAME, &filler(1)),
            Kind::Endpoints => {
                let (mut locality, mut group) = (Vec::new(), Vec::new());
                put(&mut locality, 1, &filler(3));
                put(&mut group, 1, &locality);
                put(&mut body, 2, &group);
            }
        }
        body
    }
}

/// Returns the round at the end of a body.
pub fn round_of(body: &[u8]) -> Option<u32> {
    let mark = body.get(body.len().checked_sub(MARK)?..)?;
    u32::from_str_radix(std::str::from_utf8(mark).ok()?, 16).ok()
}

/// Appends a field with these bytes.
pub fn put(out: &mut Vec<u8>, field: u32, bytes: &[u8]) {
    varint(out, u64::from(field << 3 | 2));
    varint(out, bytes.len() as u64);
    out.put_slice(bytes);
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// `envoy.config.cluster.v3.Cluster.alt_stat_name`
const ALT_STAT_NAME: u32 = 28;
const MARK: usize = 8;
/// Bytes of a tag and a length.
const BYTES_PER_LEVEL: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_has_its_size_and_ends_with_its_round() {
        for kind in [Kind::Clusters, Kind::Endpoints] {
            for size in [100, 1 << 10, 16 << 10, 1 << 20] {
                let resources = Resources { kind, count: 3, size };
                let body = resources.body(2, 0xBEEF);
                assert!(body.len().abs_diff(size) <= 12, "{kind:?}: {} for {size}", body.len());
                assert_eq!(round_of(&body), Some(0xBEEF));
                assert_ne!(body, resources.body(1, 0xBEEF));
            }
        }
        assert_eq!((round_of(b""), round_of(b"1234567"), round_of(b"no number")), (None, None, None));
    }

    #[test]
    fn names_lead_back_to_their_place() {
        let resources = Resources { kind: Kind::Clusters, count: 3, size: 100 };
        assert_eq!(resources.index(&resources.name(2)), Some(2));
        assert_eq!((resources.index("resource-000003"), resources.index("*")), (None, None));
    }
}
