//! Whether there is room again for resources that servers have and that were rejected for want of memory.

use std::time::Duration;

use weir_core::protocol::view::Scarcity;

use crate::memory::Memory;

/// What a view has no room for.
#[derive(Debug, Default)]
pub(super) struct LackedRoom {
    /// The most bytes that streams rejected together since all names had room.
    bytes: usize,
    /// There still is too little.
    is_lacking: bool,
}

/// How often to check whether rejected resources have room, if nothing else happens.
pub(super) const ROOM_CHECK: Duration = Duration::from_secs(2);

impl LackedRoom {
    /// Takes how many names have no room, and how many bytes the streams have rejected since they were opened. Returns whether there is room:
    /// memory alone decides that. A stream that was opened again has rejected nothing yet, and files have no stream.
    pub(super) fn note(&mut self, names: usize, rejected: usize, memory: &Memory) -> bool {
        let is_any = names > 0 || rejected > 0;
        self.bytes = if is_any { self.bytes.max(rejected) } else { 0 };
        // The size of what files have is not known here: there has to be room for more than a few resources.
        let wanted = if is_any && self.bytes == 0 { memory.budget() } else { self.bytes };
        let has_room = memory.has_room_for_resources(wanted);
        self.is_lacking = is_any && !has_room;
        has_room
    }

    pub(super) fn is_lacking(&self) -> bool {
        self.is_lacking
    }
}

/// Returns how scarce memory is for what is new.
pub(super) fn scarcity(memory: &Memory) -> Scarcity {
    match () {
        () if memory.is_full() => Scarcity::Full,
        () if memory.is_scarce() => Scarcity::Some,
        () => Scarcity::None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::memory::{Budget, MemorySetting};

    #[test]
    fn memory_has_room_or_not_whether_a_stream_was_opened_again_or_not() {
        let memory = Memory::new(Budget::on(MemorySetting::Bytes(100 << 20), None), Arc::default(), Arc::default());
        let held = memory.common();
        let hold = |bytes: usize| {
            held.set(bytes.saturating_sub(12 << 20)); // so much is used without it
            held.tell();
        };
        let mut lacked = LackedRoom::default();
        assert!(lacked.note(0, 0, &memory) && !lacked.is_lacking());
        hold(94 << 20);
        assert!(!lacked.note(1, 2 << 20, &memory) && lacked.is_lacking());
        assert!(!lacked.note(1, 0, &memory) && lacked.is_lacking(), "its stream was opened again");
        hold(92 << 20);
        assert!(lacked.note(1, 0, &memory) && !lacked.is_lacking());
        assert!(!LackedRoom::default().note(1, 0, &memory), "a file has it, and may be larger");
        hold(94 << 20);
        assert!(!lacked.note(1, 0, &memory), "it still has none");
        assert!(lacked.note(0, 0, &memory) && !lacked.is_lacking(), "all have room");
    }
}
