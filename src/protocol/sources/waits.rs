//! What waits for servers: on their streams, and in the ladders.

use super::Sources;
use crate::protocol::moment::Moment;
use crate::protocol::view::View;
use crate::protocol::wait::{WaitKind, WaitList, WaitSubject};

impl Sources {
    /// Adds what waits for servers.
    pub fn add_waits(&self, view: &View, now: Moment, list: &mut WaitList) {
        for (server, of) in self.servers.iter().enumerate() {
            let streams = of.upstream.iter().flat_map(|upstream| upstream.all());
            streams.for_each(|stream| stream.add_waits(server, view, now, list));
        }
        for (authority, ladder) in &self.ladders {
            if let Some((age, bound)) = ladder.wait(now) {
                list.add(WaitKind::Ladder, age, bound, || WaitSubject::authority(authority));
            }
        }
    }
}
