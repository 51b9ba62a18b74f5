//! The file format: a header line, and then records, each a protobuf message after its length as a varint.
//!
//! | Field | Type | Holds |
//! |---|---|---|
//! | 1 | uint64 | nanoseconds since the first request |
//! | 2 | bool | whether it is a request; otherwise it is a response |
//! | 3 | bool | whether it is of the delta variant; otherwise it is SotW |
//! | 4 | bytes | the message as it was on the wire |

use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use prost::Message;

use crate::wire::Variant;

/// One message of a recording.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Recorded {
    #[prost(uint64, tag = "1")]
    pub nanos: u64,
    #[prost(bool, tag = "2")]
    pub is_request: bool,
    #[prost(bool, tag = "3")]
    pub is_delta: bool,
    #[prost(bytes = "bytes", tag = "4")]
    pub message: Bytes,
}

impl Recorded {
    pub fn at(&self) -> Duration {
        Duration::from_nanos(self.nanos)
    }

    pub fn variant(&self) -> Variant {
        if self.is_delta { Variant::Delta } else { Variant::Sotw }
    }
}

pub struct Writer {
    out: BufWriter<std::fs::File>,
}

impl Writer {
    pub fn create(path: &Path) -> anyhow::Result<Self> {
        let file = std::fs::File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
        let mut out = BufWriter::new(file);
        out.write_all(HEADER)?;
        Ok(Self { out })
    }

    pub fn write(&mut self, recorded: &Recorded) -> io::Result<()> {
        self.out.write_all(&recorded.encode_length_delimited_to_vec())
    }

    pub fn finish(mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Reads records one by one, so that a file may be larger than memory.
pub struct Reader {
    file: BufReader<std::fs::File>,
}

impl Reader {
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let file = std::fs::File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
        let mut file = BufReader::new(file);
        let mut header = Vec::new();
        (&mut file).take(HEADER.len() as u64).read_to_end(&mut header)?;
        ensure!(header == HEADER, "{} is not a recording of weir-loadtest", path.display());
        Ok(Self { file })
    }

    /// Returns the next record, or `None` at the end.
    pub fn read(&mut self) -> anyhow::Result<Option<Recorded>> {
        let Some(length) = self.length()? else { return Ok(None) };
        let mut bytes = Vec::new();
        (&mut self.file).take(length).read_to_end(&mut bytes)?;
        ensure!(bytes.len() as u64 == length, "the recording breaks off in a record");
        Ok(Some(Recorded::decode(Bytes::from(bytes)).context("invalid record")?))
    }

    fn length(&mut self) -> anyhow::Result<Option<u64>> {
        let mut length = 0;
        for shift in (0..).step_by(7).take(5) {
            let Some(byte) = self.file.fill_buf()?.first().copied() else {
                ensure!(shift == 0, "the recording breaks off in a length");
                return Ok(None);
            };
            self.file.consume(1);
            length |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(Some(length));
            }
        }
        bail!("invalid length of a record");
    }
}

const HEADER: &[u8] = b"weir-loadtest recording 1\n";
