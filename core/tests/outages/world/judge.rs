//! What must hold at every moment, and what must hold at the end.

use std::collections::BTreeSet;
use std::time::Duration;

use weir_core::protocol::ladder::LadderState;
use weir_core::protocol::sources::StreamId;
use weir_core::protocol::view::{AbsenceEvidence, Class, Lookup, Presence};

use super::{Link, NAMES, SERVERS, World};
use crate::support::{CDS, EDS};

impl Link {
    /// Checks that a server is tried more and more seldom while it gives no response, whether its streams open or not.
    pub(super) fn judge_wait(&mut self, answered: bool, lived: Duration, wait: Duration) -> Result<(), String> {
        const LONGEST: f64 = 120.0;
        let has_lasted = lived.as_secs_f64() >= LONGEST;
        self.fruitless = if answered || has_lasted { 0 } else { self.fruitless + 1 };
        let least = if self.fruitless > 0 { 1.6_f64.powi(self.fruitless - 1).min(LONGEST) } else { 0.0 };
        let is_patient = wait.as_secs_f64() >= least - 1e-3;
        is_patient
            .then_some(())
            .ok_or_else(|| format!("is tried after {wait:?}, without a response for {} attempts", self.fruitless))
    }
}

impl World {
    /// Records what the active server lacks, which clients may then lose, and what any server lacks.
    pub(super) fn note_lacks(&mut self) {
        for what in NAMES.iter().flat_map(|name| [(CDS, *name), (EDS, *name)]) {
            // The update about a resource that the server got may not have arrived yet.
            let said = |server| self.said_gone.contains(&(server, what.0.to_owned(), what.1.to_owned()));
            let lacks = |server: usize| !self.servers[server].content.contains_key(&what) || said(server);
            let lacked = match self.last {
                LadderState::Active(server) | LadderState::Trying(server) | LadderState::Cached(server) => {
                    lacks(server)
                }
                LadderState::Idle | LadderState::Down => false,
            };
            if lacked {
                self.lacked.insert(what, self.now);
            }
            if (0..SERVERS).any(lacks) {
                self.ever_lacked.insert(what);
            }
        }
    }

    /// Checks that no client loses what the active server has had since the client holds it.
    pub(super) fn judge_losses(&mut self) -> Result<(), String> {
        for holder in &mut self.holders {
            for (what, since) in holder.listen(&mut self.view, self.now) {
                if self.lacked.get(&what).is_none_or(|lacked| *lacked < since) {
                    return Err(format!("{what:?} was taken from {:?}, and {:?} has it", holder.id, self.last));
                }
            }
        }
        Ok(())
    }

    /// Whether a name is absent for clients that hold it too, and not only by a server's silence.
    fn is_said_absent(&self, (url, name): (&str, &str)) -> bool {
        let entry = self.view.tables().entry(&self.table.resolve(url), Class::Named, &name.into());
        entry.is_some_and(|entry| {
            matches!(entry.presence, Presence::Absent(_)) && entry.absence == AbsenceEvidence::Reported
        })
    }

    /// Checks that silence counts only if the server was alive to respond.
    pub(super) fn judge_silence(&mut self) {
        let kind = self.table.resolve(EDS);
        let silent = NAMES.map(|name| (EDS, name)).into_iter().filter(|(_, name)| {
            let entry = self.view.tables().entry(&kind, Class::Named, &(*name).into());
            entry.is_some_and(|of| matches!(of.presence, Presence::Absent(_)) && of.absence == AbsenceEvidence::Silence)
        });
        let silent: BTreeSet<_> = silent.collect();
        let standing = self.sources.ladders().next().map_or(LadderState::Idle, |ladder| ladder.state);
        let is_there = match standing {
            LadderState::Active(server) => self.servers[server].health.answers_calls(),
            _ => self.servers.iter().any(|server| server.health.answers_calls()),
        };
        if let Some(what) = silent.difference(&self.silent).next().filter(|_| !is_there) {
            self.wrong.get_or_insert(format!("{what:?} is gone by the silence of {standing:?}, which is hung"));
        }
        self.silent = silent;
    }

    /// Checks that clients without state get their first set with the first response of a server that sends complete sets.
    fn judge_waiting(&self) -> Result<(), String> {
        let LadderState::Active(server) = self.last else { return Ok(()) };
        let has_said =
            |(id, link): (&StreamId, &Link)| id.server == server && link.up.is_some() && link.clusters_at.is_some();
        if self.cutters.contains(&server) || !self.links.iter().any(has_said) {
            return Ok(());
        }
        match self.holders.iter().find(|holder| holder.came_with_nothing && !holder.answered) {
            Some(holder) => Err(format!("{:?} holds nothing and waits, and {server} has said what it has", holder.id)),
            None => Ok(()),
        }
    }

    pub(super) fn judge(&mut self, held: &[(&'static str, &'static str)]) -> Result<(), String> {
        for what in held.iter().filter(|what| self.wanted.contains(*what)) {
            if self.known(*what).is_unknown() {
                return Err(format!("{what:?} was known and is not any more"));
            }
        }
        for what in &self.wanted {
            if self.is_said_absent(*what) && !self.ever_lacked.contains(what) {
                return Err(format!("{what:?} is said to be absent, and every server has always had it"));
            }
        }
        self.judge_waiting()?;
        if let Some(wrong) = self.wrong.take() {
            return Err(wrong);
        }
        let too_soon = self.returned.is_some_and(|returned| self.now - returned < self.hold_down);
        if too_soon && matches!(self.last, LadderState::Trying(1..)) && self.hold_down > Duration::ZERO {
            return Err(format!("{:?} so soon after a return", self.last));
        }
        Ok(())
    }

    /// Whether the first server reports its set. Some servers do not report an empty set, and a set without any response does not count as
    /// empty: a control plane that is not ready yet looks the same.
    pub(super) fn says_a_set(&self) -> bool {
        let first = &self.servers[0];
        first.habit.says_nothing_is_new || first.content.keys().any(|(url, _)| *url == CDS)
    }

    pub(super) fn judge_peace(&self) -> Result<(), String> {
        if self.last != LadderState::Active(0) {
            return Err(format!("all servers are up, and the ladder stands at {:?}", self.last));
        }
        for (url, name) in self.wanted.iter().filter(|(_, name)| *name != "*") {
            let right = match (self.servers[0].content.get(&(*url, *name)), self.known((url, name))) {
                (Some(content), Lookup::Present(resource)) => resource.body.bytes().ends_with(&[*content as u8]),
                (None, Lookup::Absent(_)) => true,
                _ => false,
            };
            if !right {
                return Err(format!("{url} {name} is {:?}, not what the first server has", self.known((url, name))));
            }
        }
        let kind = self.table.resolve(CDS);
        let held: BTreeSet<_> = self.view.tables().wildcard_names(&kind).map(|name| name.as_str().to_owned()).collect();
        let own = self.servers[0].content.keys().filter(|(url, _)| *url == CDS);
        let own: BTreeSet<_> = own.map(|(_, name)| (*name).to_owned()).collect();
        if held != own {
            return Err(format!("the set is {held:?}, and the first server has {own:?}"));
        }
        for holder in &self.holders {
            let clusters: BTreeSet<_> =
                holder.holds.keys().filter(|(url, _)| *url == CDS).map(|(_, name)| (*name).to_owned()).collect();
            if clusters != own && self.says_a_set() {
                return Err(format!("{:?} holds {clusters:?}, and the first server has {own:?}", holder.id));
            }
        }
        Ok(())
    }
}
