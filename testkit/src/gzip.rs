//! Messages that peers compress, and what they claim about them.

use std::io::{Read, Write};

use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use flate2::{Compress, Compression, FlushCompress};

pub fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}

pub fn gunzip(compressed: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    GzDecoder::new(compressed).read_to_end(&mut plain).unwrap();
    plain
}

/// Returns compressed zeros: this many MiB in a thousandth of the bytes. `stated`: the size that the end claims. The checksum is wrong.
pub fn bomb(mebibytes: usize, stated: u32) -> Vec<u8> {
    let mut part = Vec::with_capacity(1 << 16);
    let mut compress = Compress::new(Compression::best(), false);
    compress.compress_vec(&vec![0; 1 << 20], &mut part, FlushCompress::Full).unwrap();
    assert_eq!(compress.total_in(), 1 << 20);
    const HEAD: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 2, 255];
    /// An empty last block, and a checksum.
    const END: [u8; 6] = [3, 0, 0, 0, 0, 0];
    [&HEAD[..], &part.repeat(mebibytes), &END, &stated.to_le_bytes()].concat()
}

/// Returns a gRPC message with this flag.
pub fn framed(flag: u8, message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[flag][..], &length, message].concat()
}
