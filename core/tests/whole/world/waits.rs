//! What waits in all tiers, by the relays' own lists: nothing waits for longer than it may.

use weir_core::protocol::wait::{Wait, WaitList};

use super::World;

impl World {
    /// Returns everything that waits, with its owner.
    fn waits(&self) -> Vec<(String, Wait)> {
        let mut all = Vec::new();
        for (number, tier) in self.tiers.iter().enumerate() {
            let mut list = WaitList::keeping(MANY);
            tier.sources.add_waits(&tier.view, self.now, &mut list);
            tier.view.holds().add_waits(self.now, &mut list);
            all.extend(list.into_oldest().into_iter().map(|wait| (format!("tier {number}"), wait)));
            for (session, seat) in &tier.seats {
                let mut list = WaitList::keeping(MANY);
                seat.session.add_waits(self.now, &mut list);
                let owner = format!("tier {number}, {session:?} of {:?}", seat.holder);
                all.extend(list.into_oldest().into_iter().map(|wait| (owner.clone(), wait)));
            }
        }
        all
    }

    /// Checks that no wait lasts longer than it may, once faults have ended.
    pub fn judge_waits(&mut self) {
        let beyond = self.waits().into_iter().find(|(_, wait)| wait.is_beyond());
        if let Some((owner, wait)) = beyond {
            self.wrong(|| format!("{owner} waits beyond its bound: {}", text(&wait)));
        }
    }

    /// Prints what waits.
    pub fn tell_waits(&self) {
        for (owner, wait) in self.waits() {
            self.tell(|_| format!("{owner} waits: {}", text(&wait)));
        }
    }
}

fn text(wait: &Wait) -> String {
    let kind = wait.subject.kind.as_ref().map_or("", |kind| kind.name().rsplit_once('.').map_or("", |(_, name)| name));
    format!("{:?} {:?} of {:?}, {kind} {:?}", wait.kind, wait.age, wait.bound, wait.subject.of)
}

/// More waits than there are in any history.
const MANY: usize = 1000;
