//! The header of the PROXY protocol, versions 1 and 2: the statements of a balancer about the connection that it forwards.
//!
//! Only addresses are read. Other fields, such as the name in a client's certificate, are skipped: they never count as an identity.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// Where a connection began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// At the balancer itself, for example for a health check, or the balancer does not say.
    Balancer,
    /// At this client.
    Client(SocketAddr),
}

/// A complete header, or an incomplete one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Header {
    /// More bytes are needed.
    Incomplete,
    Complete {
        origin: Origin,
        /// The length of the header. The bytes after it are the client's.
        length: usize,
    },
}

/// Why bytes are not a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum HeaderError {
    #[error("the first bytes are no PROXY header")]
    Missing,
    #[error("invalid PROXY header of version 1: expected PROXY, TCP4, TCP6 or UNKNOWN, two addresses and two ports")]
    Line,
    #[error("PROXY header too long: expected at most {0} bytes")]
    TooLong(usize),
    #[error("invalid PROXY header of version 2: unknown version or command {0:#04x}")]
    Command(u8),
    #[error("invalid PROXY header of version 2: unknown family or protocol {0:#04x}; expected TCP")]
    Family(u8),
    #[error("invalid PROXY header of version 2: {0} bytes are too few for its addresses")]
    TooShort(usize),
}

/// Parses a header at the start of the bytes that have arrived.
pub(super) fn parse(bytes: &[u8]) -> Result<Header, HeaderError> {
    match is_header(bytes) {
        Some(true) if bytes.starts_with(LINE_START) => line(bytes),
        Some(true) => binary(bytes),
        Some(false) => Err(HeaderError::Missing),
        None => Ok(Header::Incomplete),
    }
}

/// Whether a connection begins with a header. `None`: more bytes are needed.
pub(super) fn is_header(bytes: &[u8]) -> Option<bool> {
    let starts = [LINE_START, SIGNATURE];
    if starts.iter().any(|start| bytes.starts_with(start)) {
        return Some(true);
    }
    if starts.iter().any(|start| start.starts_with(bytes)) { None } else { Some(false) }
}

/// Version 1: one line of text.
fn line(bytes: &[u8]) -> Result<Header, HeaderError> {
    let within = &bytes[..bytes.len().min(LONGEST_LINE)];
    let Some(end) = within.windows(2).position(|pair| pair == b"\r\n") else {
        return if within.len() < LONGEST_LINE {
            Ok(Header::Incomplete)
        } else {
            Err(HeaderError::TooLong(LONGEST_LINE))
        };
    };
    let text = std::str::from_utf8(&bytes[LINE_START.len()..end]).map_err(|_| HeaderError::Line)?;
    let origin = origin_of_line(text).ok_or(HeaderError::Line)?;
    Ok(Header::Complete { origin, length: end + 2 })
}

fn origin_of_line(text: &str) -> Option<Origin> {
    let mut words = text.split(' ');
    let from = match words.next()? {
        "UNKNOWN" => return Some(Origin::Balancer), // the rest of the line is ignored
        "TCP4" => addresses::<Ipv4Addr>(&mut words)?,
        "TCP6" => addresses::<Ipv6Addr>(&mut words)?,
        _ => return None,
    };
    let (own, _) = (port(words.next()?)?, port(words.next()?)?);
    words.next().is_none().then_some(Origin::Client(SocketAddr::new(from, own)))
}

/// Returns the first of two addresses of one family.
fn addresses<'t, A: FromStr + Into<IpAddr>>(words: &mut impl Iterator<Item = &'t str>) -> Option<IpAddr> {
    let (from, _to) = (words.next()?.parse::<A>().ok()?, words.next()?.parse::<A>().ok()?);
    Some(from.into())
}

fn port(word: &str) -> Option<u16> {
    let is_plain = word == "0" || !word.starts_with(['0', '+']);
    word.parse().ok().filter(|_| is_plain)
}

/// Version 2: a signature, a command, a family, the length of the rest, two addresses, and fields that are skipped.
fn binary(bytes: &[u8]) -> Result<Header, HeaderError> {
    let &[command, family, high, low, ref rest @ ..] = &bytes[SIGNATURE.len()..] else { return Ok(Header::Incomplete) };
    if !matches!(command, LOCAL | PROXY) {
        return Err(HeaderError::Command(command));
    }
    let (addresses, length) = (address_bytes(family)?, usize::from(u16::from_be_bytes([high, low])));
    if FIXED_BYTES + length > LONGEST {
        return Err(HeaderError::TooLong(LONGEST));
    }
    if command == PROXY && length < addresses {
        return Err(HeaderError::TooShort(length));
    }
    let Some(rest) = rest.get(..length) else { return Ok(Header::Incomplete) };
    let origin = if command == PROXY { origin_of(family, rest) } else { Origin::Balancer };
    Ok(Header::Complete { origin, length: FIXED_BYTES + length })
}

fn address_bytes(family: u8) -> Result<usize, HeaderError> {
    match family {
        UNSPECIFIED => Ok(0),
        TCP4 => Ok(12),
        TCP6 => Ok(36),
        UNIX_STREAM => Ok(216),
        other => Err(HeaderError::Family(other)),
    }
}

/// Reads the first of two addresses, and the first of two ports after them.
fn origin_of(family: u8, rest: &[u8]) -> Origin {
    let (from, port) = match family {
        TCP4 => (rest.first_chunk().map(|bytes: &[u8; 4]| IpAddr::from(*bytes)), rest.get(8..10)),
        TCP6 => (rest.first_chunk().map(|bytes: &[u8; 16]| IpAddr::from(*bytes)), rest.get(32..34)),
        _ => (None, None),
    };
    match (from, port) {
        (Some(from), Some(&[high, low])) => Origin::Client(SocketAddr::new(from, u16::from_be_bytes([high, low]))),
        _ => Origin::Balancer,
    }
}

const LINE_START: &[u8] = b"PROXY ";
/// The longest line of version 1 by the protocol, with its end.
const LONGEST_LINE: usize = 107;
const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// The signature, the command, the family and the length.
const FIXED_BYTES: usize = 16;
/// Enough for a client's certificate beside the addresses. The length field would allow 64 KiB.
const LONGEST: usize = 4096;
/// The command for the balancer's own connections, with version 2 in the upper half of the byte.
const LOCAL: u8 = 0x20;
const PROXY: u8 = 0x21;
const UNSPECIFIED: u8 = 0x00;
const TCP4: u8 = 0x11;
const TCP6: u8 = 0x21;
const UNIX_STREAM: u8 = 0x31;

#[cfg(test)]
mod tests {
    use super::*;

    fn from_client(address: &str, length: usize) -> Result<Header, HeaderError> {
        Ok(Header::Complete { origin: Origin::Client(address.parse().unwrap()), length })
    }

    fn from_balancer(length: usize) -> Result<Header, HeaderError> {
        Ok(Header::Complete { origin: Origin::Balancer, length })
    }

    /// Returns a header of version 2.
    fn header(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let length = (rest.len() as u16).to_be_bytes();
        [SIGNATURE, &[command, family], &length, rest].concat()
    }

    const V4: [u8; 12] = [10, 1, 2, 3, 10, 9, 9, 9, 0x12, 0x67, 0x46, 0x50];

    #[test]
    fn a_line_has_the_address_of_the_client() {
        for (line, address) in [
            ("PROXY TCP4 10.1.2.3 10.9.9.9 4711 18000\r\n", "10.1.2.3:4711"),
            ("PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n", "255.255.255.255:65535"),
            ("PROXY TCP6 2001:db8::1 ::1 4711 0\r\n", "[2001:db8::1]:4711"),
        ] {
            let more = format!("{line}PRI * HTTP/2.0\r\n");
            assert_eq!(parse(more.as_bytes()), from_client(address, line.len()), "{line}");
        }
        assert_eq!(parse(b"PROXY UNKNOWN\r\nx"), from_balancer(15));
        assert_eq!(parse(b"PROXY UNKNOWN ffff::1 whatever\r\n"), from_balancer(32));
    }

    #[test]
    fn a_line_of_another_form_is_an_error() {
        for line in [
            "PROXY \r\n",
            "PROXY TCP4\r\n",
            "PROXY TCP4 10.1.2.3 10.9.9.9 4711\r\n",
            "PROXY TCP4 10.1.2.3 10.9.9.9 4711 65536\r\n",
            "PROXY TCP4 10.1.2.3 10.9.9.9 4711 18000 \r\n",
            "PROXY TCP4 10.1.2.3 10.9.9.9 4711 18000 more\r\n",
            "PROXY TCP4  10.1.2.3 10.9.9.9 4711 18000\r\n",
            "PROXY TCP4 10.1.2.3 ::1 4711 18000\r\n",
            "PROXY TCP6 10.1.2.3 10.9.9.9 4711 18000\r\n",
            "PROXY TCP4 010.1.2.3 10.9.9.9 4711 18000\r\n",
            "PROXY TCP4 10.1.2.3 10.9.9.9 04711 18000\r\n",
            "PROXY TCP4 10.1.2.3 10.9.9.9 +4711 18000\r\n",
            "PROXY tcp4 10.1.2.3 10.9.9.9 4711 18000\r\n",
            "PROXY UNKNOWNS\r\n",
            "PROXY TCP4 10.1.2.3 10.9.9.9 4711 18000\n\r\n",
        ] {
            assert_eq!(parse(line.as_bytes()), Err(HeaderError::Line), "{line:?}");
        }
        assert_eq!(parse(b"PROXY \xff\r\n"), Err(HeaderError::Line));
    }

    #[test]
    fn a_line_ends_within_107_bytes() {
        let long = |length: usize| format!("PROXY UNKNOWN {:1$}\r\n", "", length - 16);
        assert_eq!(parse(long(107).as_bytes()), from_balancer(107));
        assert_eq!(parse(long(108).as_bytes()), Err(HeaderError::TooLong(107)));
        assert_eq!(parse(&long(108).as_bytes()[..106]), Ok(Header::Incomplete));
        assert_eq!(parse(&long(108).as_bytes()[..107]), Err(HeaderError::TooLong(107)));
    }

    #[test]
    fn a_binary_header_has_the_address_of_the_client_and_the_rest_is_skipped() {
        assert_eq!(parse(&header(PROXY, TCP4, &V4)), from_client("10.1.2.3:4711", 28));
        let with_name = [V4.as_slice(), &[2, 0, 1, b'x'], &[0xff; 40]].concat();
        assert_eq!(parse(&header(PROXY, TCP4, &with_name)), from_client("10.1.2.3:4711", 28 + 44));
        let v6 = [Ipv6Addr::from_str("2001:db8::1").unwrap().octets(), [0; 16]].concat();
        let v6 = [v6.as_slice(), &[0x12, 0x67, 0, 0]].concat();
        assert_eq!(parse(&header(PROXY, TCP6, &v6)), from_client("[2001:db8::1]:4711", 52));
        for own in [
            header(LOCAL, UNSPECIFIED, &[]),
            header(LOCAL, TCP4, &V4),
            header(LOCAL, TCP4, &[]),
            header(PROXY, UNSPECIFIED, &V4),
            header(PROXY, UNIX_STREAM, &[7; 216]),
        ] {
            assert_eq!(parse(&own), from_balancer(own.len()), "{own:?}");
        }
    }

    #[test]
    fn a_binary_header_of_another_form_is_an_error() {
        for command in [0x00, 0x01, 0x11, 0x22, 0x2f, 0x31] {
            assert_eq!(parse(&header(command, TCP4, &V4)), Err(HeaderError::Command(command)));
        }
        for family in [0x01, 0x10, 0x12, 0x22, 0x32, 0x41] {
            assert_eq!(parse(&header(PROXY, family, &[0; 300])), Err(HeaderError::Family(family)));
        }
        assert_eq!(parse(&header(PROXY, TCP4, &V4[..11])), Err(HeaderError::TooShort(11)));
        assert_eq!(parse(&header(PROXY, TCP6, &[0; 35])), Err(HeaderError::TooShort(35)));
        let long = header(PROXY, TCP4, &[0; LONGEST - FIXED_BYTES]);
        assert!(matches!(parse(&long), Ok(Header::Complete { length: LONGEST, .. })));
        let longer = header(PROXY, TCP4, &[0; LONGEST - FIXED_BYTES + 1]);
        assert_eq!(parse(&longer[..FIXED_BYTES]), Err(HeaderError::TooLong(LONGEST)), "known by its length");
    }

    #[test]
    fn what_clients_send_first_without_a_balancer_is_no_header() {
        for first in
            ["PRI * HTTP/2.0\r\n", "POST /v3/discovery:clusters HTTP/1.1\r\n", "PROXYX", "\r\n\r\nGET", "\x16\x03\x01"]
        {
            assert_eq!(parse(first.as_bytes()), Err(HeaderError::Missing), "{first:?}");
        }
        for first in ["", "P", "PROXY", "\r\n\r\n\0\r\nQUIT"] {
            assert_eq!(parse(first.as_bytes()), Ok(Header::Incomplete), "{first:?}");
        }
    }

    #[test]
    fn a_header_in_pieces_is_complete_with_its_last_byte() {
        for whole in [header(PROXY, TCP4, &V4), b"PROXY TCP4 10.1.2.3 10.9.9.9 4711 18000\r\n".to_vec()] {
            for end in 0..whole.len() {
                assert_eq!(parse(&whole[..end]), Ok(Header::Incomplete), "{end} of {whole:?}");
            }
            assert_eq!(parse(&whole), from_client("10.1.2.3:4711", whole.len()));
        }
    }
}
