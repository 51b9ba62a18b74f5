//! Whether an assignment has a host that takes traffic, found in its encoded body.

use crate::xds::wire::{self, Value};

/// Whether any host of an assignment may take traffic. A host counts unless it is known to be unhealthy, draining or timed out. A reference
/// to hosts that are sent separately counts, and so does what cannot be read.
pub(crate) fn has_usable_host(assignment: &[u8]) -> bool {
    any(assignment, LOCALITIES, |locality| {
        let by_reference = [LEDS_CONFIG, ENDPOINT_LIST].into_iter().any(|field| any(locality, field, |_| true));
        by_reference || any(locality, LB_ENDPOINTS, is_usable)
    })
}

fn is_usable(host: &[u8]) -> bool {
    let mut health = 0;
    for field in wire::fields(host) {
        let Some(field) = field else { return true };
        if field.number == HEALTH_STATUS {
            health = field.varint().unwrap_or(health);
        }
    }
    ![UNHEALTHY, DRAINING, TIMEOUT].contains(&health)
}

/// Whether `is_meant` is true for a message in a field with this number, or the bytes are not a message.
fn any(message: &[u8], number: u32, is_meant: impl Fn(&[u8]) -> bool) -> bool {
    wire::fields(message).any(|field| match field {
        None => true,
        Some(field) => matches!(field.value, Value::Bytes(bytes) if field.number == number && is_meant(bytes)),
    })
}

const LOCALITIES: u32 = 2;
const LB_ENDPOINTS: u32 = 2;
const ENDPOINT_LIST: u32 = 7;
const LEDS_CONFIG: u32 = 8;
const HEALTH_STATUS: u32 = 2;
const UNHEALTHY: u64 = 2;
const DRAINING: u64 = 3;
const TIMEOUT: u64 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn field(number: u8, value: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, u8::try_from(value.len()).unwrap()], value].concat()
    }

    /// An assignment with one locality, with hosts of these states.
    fn assignment(health: &[u8]) -> Vec<u8> {
        let host = |health: &u8| field(2, &[&field(1, b"x")[..], &[0x10, *health]].concat());
        let hosts: Vec<u8> = health.iter().flat_map(host).collect();
        [field(1, b"web"), field(2, &hosts)].concat()
    }

    #[test]
    fn a_host_takes_traffic_unless_it_is_known_not_to() {
        for (health, expected) in [(0, true), (1, true), (2, false), (3, false), (4, false), (5, true), (6, true)] {
            assert_eq!(has_usable_host(&assignment(&[health])), expected, "{health}");
        }
        assert!(!has_usable_host(&assignment(&[2, 3, 4])) && has_usable_host(&assignment(&[2, 3, 1])));
        assert!(has_usable_host(&[field(2, &[]), field(2, &field(2, &field(1, b"x")))].concat()), "no status at all");
    }

    #[test]
    fn an_assignment_without_hosts_has_none() {
        assert!(!has_usable_host(&field(1, b"web")));
        assert!(!has_usable_host(&assignment(&[])));
        assert!(!has_usable_host(&[]));
    }

    #[test]
    fn what_is_not_known_may_take_traffic() {
        assert!(has_usable_host(&field(2, &field(8, &[]))), "hosts that come by LEDS");
        assert!(has_usable_host(&field(2, &field(7, &[]))), "a list of hosts");
        assert!(has_usable_host(&[0x12, 9]), "no message");
        assert!(has_usable_host(&field(2, &[0x12, 9])));
        assert!(has_usable_host(&field(2, &field(2, &[0x10]))), "half a number");
    }
}
