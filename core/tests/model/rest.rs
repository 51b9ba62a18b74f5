//! The end of a history: everything runs until nothing changes any more, and then the final states are checked.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use weir_core::protocol::moment::Moment;
use weir_core::protocol::session::Variant;
use weir_core::protocol::view::Class;

use crate::client::{Reaction, Return};
use crate::content::{Kind, ensure, table};
use crate::coverage::Event;
use crate::world::{KEYS, Pulled, World};

impl World {
    /// Runs everything until nothing changes any more, and no timer is left.
    pub fn quiesce(&mut self) -> Result<(), String> {
        for _ in 0..2_000 {
            if self.run_until_still()? {
                continue;
            }
            let deadline = self.next_deadline()?;
            if self.units.iter().any(|rig| rig.sought) {
                continue; // the search for a deadline may cause requests too
            }
            let Some(deadline) = deadline else { return self.check_rest() };
            let by = if deadline > self.now { deadline - self.now } else { Duration::from_micros(1) };
            self.advance(by)?;
        }
        Err("it never goes quiet".into())
    }

    fn run_until_still(&mut self) -> Result<bool, String> {
        let mut any = false;
        for key in 0..KEYS {
            any |= std::mem::take(&mut self.units[usize::from(key)].sought);
            self.settle(key, true)?;
            any |= self.connect_upstream(key);
            self.settle(key, true)?;
            any |= self.origin_reads(key, usize::MAX);
            any |= self.relay_reads(key, usize::MAX, true)?;
        }
        for at in 0..self.clients.len() {
            if self.clients[at].ended {
                let node = self.clients[at].judge.key;
                self.reconnect(at, node, Return::TrueVersions)?;
                any = true;
            }
            while self.session_reads(at)? {
                any = true;
            }
            any |= !self.clients[at].interest.is_empty();
            self.count_interest(at)?;
            while !matches!(self.pull(at)?, Pulled::Nothing(_)) {
                any = true;
            }
            while self.process(at, Reaction::Ack) {
                any = true;
            }
        }
        Ok(any)
    }

    fn next_deadline(&mut self) -> Result<Option<Moment>, String> {
        let mut deadlines = Vec::new();
        for rig in &mut self.units {
            deadlines.extend(rig.view.next_deadline());
            deadlines.extend(rig.upstream.streams_mut().iter().filter_map(|stream| stream.next_deadline()));
        }
        for at in 0..self.clients.len() {
            match self.pull(at)? {
                Pulled::Nothing(deadline) => deadlines.extend(deadline),
                Pulled::Ended | Pulled::Reply => deadlines.push(self.now),
            }
        }
        Ok(deadlines.into_iter().min())
    }

    fn check_rest(&mut self) -> Result<(), String> {
        for client in self.clients.iter().filter(|client| !client.stalled) {
            let rig = &mut self.units[usize::from(client.key)];
            let state = rig.view.snapshot().clone();
            let view = rig.view(&state).clone();
            let at_rest = client.judge.at_rest(&client.held, &view, self.now);
            let skipped = Kind::ALL.into_iter().any(|kind| client.judge.skipped(kind));
            self.coverage.note_if(skipped && client.variant == Variant::Sotw, Event::SkippedBecauseVersionsAgree);
            at_rest.map_err(|fault| format!("{:?} {:?} client: {fault}", client.profile, client.variant))?;
        }
        self.check_truth()
    }

    /// Checks that the relay has what the control plane has, as far as the protocol can show that.
    fn check_truth(&self) -> Result<(), String> {
        for (client, truth) in self.clients.iter().map(|client| (client, &self.truths[usize::from(client.key)])) {
            for kind in client.judge.kinds().filter(|_| !client.stalled) {
                let Some(wants) = client.judge.wants(kind) else { continue };
                for name in wants.names.iter().filter(|_| !wants.wildcard) {
                    let Some(true_one) = truth.of(kind, false).get(name) else { continue };
                    let held = client.held.get(&(kind, name.clone()));
                    let equal = held.is_some_and(|held| held.body() == true_one.body());
                    ensure(equal, || format!("{name} is {true_one:?} and the client has {held:?}"))?;
                }
            }
        }
        let mut bodies: BTreeMap<(Kind, Vec<u8>), *const weir_core::xds::Body> = BTreeMap::new();
        for rig in &self.units {
            for (kind, class) in Kind::ALL.into_iter().flat_map(|kind| [(kind, Class::Wildcard), (kind, Class::Named)])
            {
                let table = rig.view.snapshot().resources(&table().resolve(kind.url()), class);
                for (_, resource) in table.iter().flat_map(|table| table.additions(Default::default())) {
                    let at = Arc::as_ptr(&resource.body);
                    let known = *bodies.entry((kind, resource.body.bytes().to_vec())).or_insert(at);
                    ensure(known == at, || format!("the bytes of {} are held twice", resource.name))?;
                }
            }
        }
        Ok(())
    }
}
