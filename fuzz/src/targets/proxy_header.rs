//! The header of the PROXY protocol.

use std::net::SocketAddr;

use weir::inputs::read_proxy_header;

/// Reads the first bytes of a connection as a header. Checks that more bytes do not change a result, that no more bytes are awaited than the
/// longest header has, and that a header made from the address that was read gives the same address.
pub fn proxy_header(data: &[u8]) {
    let judged = (0..=data.len()).map(|end| (end, read_proxy_header(&data[..end])));
    let judged = judged.skip_while(|(_, read)| *read == Ok(None));
    let first = judged.clone().next();
    let Some((end, read)) = first else { return assert!(data.len() < LONGEST, "{} bytes awaited", data.len()) };
    for (more, other) in judged.take(64) {
        assert_eq!(other, read, "after {end} and after {more} bytes");
    }
    let Ok(Some((client, length))) = read else { return };
    assert!(length == end && length <= LONGEST, "{length} bytes of {end}");
    let Some(client) = client else { return };
    for stated in [line(client), binary(client)] {
        let header = (Some(client), stated.len());
        assert_eq!(read_proxy_header(&stated), Ok(Some(header)), "{stated:?}");
    }
}

fn line(client: SocketAddr) -> Vec<u8> {
    let (family, address) = (if client.is_ipv4() { "TCP4" } else { "TCP6" }, client.ip());
    format!("PROXY {family} {address} {address} {} 0\r\n", client.port()).into_bytes()
}

fn binary(client: SocketAddr) -> Vec<u8> {
    let (family, address) = match client {
        SocketAddr::V4(address) => (0x11, address.ip().octets().to_vec()),
        SocketAddr::V6(address) => (0x21, address.ip().octets().to_vec()),
    };
    let ports = [client.port().to_be_bytes(), [0, 0]].concat();
    let length = (2 * address.len() + ports.len()) as u8;
    [b"\r\n\r\n\0\r\nQUIT\n\x21".as_slice(), &[family, 0, length], &address, &address, &ports].concat()
}

/// How many bytes a header may have.
const LONGEST: usize = 4096;
