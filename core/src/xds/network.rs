//! Ranges of addresses.

use std::fmt;
use std::net::IpAddr;

/// A range of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    /// The length of the prefix.
    bits: u8,
}

impl Network {
    /// `10.0.0.0/8`, `::1/128`, or a single address.
    pub fn parse(text: &str) -> Option<Self> {
        let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address: IpAddr = address.parse().ok()?;
        let limit = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Some(limit), |bits| bits.parse().ok()).filter(|bits| *bits <= limit)?;
        Some(Self { address, bits })
    }

    /// Whether an address is in the network.
    pub fn contains(&self, peer: IpAddr) -> bool {
        match (self.address, peer.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(peer)) => {
                let shift = 32 - u32::from(self.bits);
                u64::from(u32::from(own)) >> shift == u64::from(u32::from(peer)) >> shift
            }
            (IpAddr::V6(own), IpAddr::V6(peer)) => {
                let differs = u128::from(own) ^ u128::from(peer);
                differs.leading_zeros() >= u32::from(self.bits)
            }
            _ => false,
        }
    }
}

impl Network {
    /// Returns the IPv4 form of a network of IPv4 addresses that are written as IPv6. No client is in such a network: its address counts as
    /// IPv4.
    pub fn as_mapped(&self) -> Option<Self> {
        let IpAddr::V6(address) = self.address else { return None };
        let bits = self.bits.checked_sub(96)?;
        address.to_ipv4_mapped().map(|address| Self { address: address.into(), bits })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = if self.address.is_ipv4() { 32 } else { 128 };
        match self.bits {
            bits if bits == all => self.address.fmt(f),
            bits => write!(f, "{}/{bits}", self.address),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_compared_by_their_leading_bits() {
        let within = |network: &str, peer: &str| Network::parse(network).unwrap().contains(peer.parse().unwrap());
        assert!(within("10.0.0.0/8", "10.255.0.1") && !within("10.0.0.0/8", "11.0.0.1"));
        assert!(within("0.0.0.0/0", "1.2.3.4") && !within("0.0.0.0/0", "::1"));
        assert!(within("10.0.0.7", "::ffff:10.0.0.7"), "an IPv4 peer on an IPv6 socket");
        assert!(within("fd00::/8", "fd12::1") && within("::/0", "fd12::1") && !within("fd00::/8", "fe80::1"));
        for text in ["10.0.0.0/33", "10.0.0/8", "", "::/129", "10.0.0.0/x"] {
            assert_eq!(Network::parse(text), None, "{text}");
        }
    }

    #[test]
    fn an_ipv4_network_in_the_form_of_ipv6_has_the_rest_of_its_prefix() {
        let mapped = |text: &str| Network::parse(text).unwrap().as_mapped().map(|network| network.to_string());
        assert_eq!(mapped("::ffff:10.0.0.0/104").as_deref(), Some("10.0.0.0/8"));
        assert_eq!(mapped("::ffff:10.0.0.7").as_deref(), Some("10.0.0.7"));
        assert_eq!(["::ffff:0:0/95", "fd00::/104", "10.0.0.0/8"].map(mapped), [None, None, None]);
    }

    #[test]
    fn a_prefix_of_ipv6_counts_to_its_last_bit() {
        let within = |network: &str, peer: &str| Network::parse(network).unwrap().contains(peer.parse().unwrap());
        assert!(within("fd00::/9", "fd7f::1") && !within("fd00::/9", "fd80::1"));
        assert!(within("fd00::1", "fd00::1") && !within("fd00::1", "fd00::2") && !within("fd00::/127", "fd00::2"));
        assert!(within("10.0.0.0/31", "10.0.0.1") && !within("10.0.0.0/31", "10.0.0.2"));
    }
}
