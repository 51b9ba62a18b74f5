//! Since when the words of each server are held, or were held until its stream ended. The latest is found without visiting single words.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::protocol::moment::Moment;
use crate::protocol::visits::visit;

/// The number of words of each server, by the time from which they count. None of the numbers is zero.
#[derive(Debug, Default)]
pub(super) struct Ages(BTreeMap<u16, BTreeMap<Moment, usize>>);

impl Ages {
    pub(super) fn add(&mut self, server: u16, since: Moment) {
        *self.0.entry(server).or_default().entry(since).or_default() += 1;
    }

    pub(super) fn remove(&mut self, server: u16, since: Moment) {
        let Some(ages) = self.0.get_mut(&server) else { return };
        if let Some(count) = ages.get_mut(&since) {
            *count -= 1;
            if *count == 0 {
                ages.remove(&since);
            }
        }
        if ages.is_empty() {
            self.0.remove(&server);
        }
    }

    /// Returns when the last word of each server is released, if each is held for `time`.
    pub(super) fn ends(&self, time: Duration) -> BTreeMap<u16, Moment> {
        let latest = self.0.iter().inspect(|_| visit());
        latest.filter_map(|(server, ages)| Some((*server, *ages.last_key_value()?.0 + time))).collect()
    }
}
