//! The sessions of the relay: what they read, count and send.

use super::*;

impl World {
    // ---- clients

    /// Lets the relay read one request of a client.
    pub fn session_reads(&mut self, at: usize) -> Result<bool, String> {
        let now = self.now;
        let client = &mut self.clients[at];
        let Some(request) = client.requests.pop_front().filter(|_| !client.ended) else { return Ok(false) };
        self.coverage.steps += 1;
        match &request {
            Request::Sotw(request) => {
                let kind = Kind::ALL.into_iter().find(|kind| kind.url() == request.type_url).unwrap();
                let before = client.judge.wants(kind).cloned().unwrap_or_default();
                client.judge.on_sotw(kind, &request.resource_names, &request.version_info);
                let after = client.judge.wants(kind).cloned().unwrap_or_default();
                let left = before.wildcard && !after.wildcard && !after.names.is_empty();
                self.coverage.note_if(left, Event::LeftStarKeepingNames);
            }
            Request::Delta(request) => {
                let kind = Kind::ALL.into_iter().find(|kind| kind.url() == request.type_url).unwrap();
                let off = &request.resource_names_unsubscribe;
                let before = client.judge.wants(kind).cloned().unwrap_or_default();
                let under_star = before.wildcard && off.iter().any(|name| before.names.contains(name));
                self.coverage.note_if(under_star, Event::UnsubscribedUnderStar);
                let (on, stated) = (&request.resource_names_subscribe, &request.initial_resource_versions);
                client.judge.on_delta(kind, on, off, stated);
                let cold = !self.units[usize::from(client.key)].is_known(kind);
                self.coverage.note_if(!stated.is_empty() && cold, Event::ReconnectWhileCold);
            }
        }
        let (url, answered) = match &request {
            Request::Sotw(request) => (&request.type_url, request.response_nonce.parse()),
            Request::Delta(request) => (&request.type_url, request.response_nonce.parse()),
        };
        if let Ok(nonce) = answered {
            let kind = Kind::ALL.into_iter().find(|kind| kind.url() == *url).unwrap();
            client.judge.on_answer(kind, nonce);
        }
        client.read_inbox();
        match client.session.on_request(request, now) {
            Some(Ack::Ack { stale: true, .. }) => self.coverage.note(Event::StaleAnswer),
            Some(Ack::Nack { stale, .. }) => {
                self.coverage.note(Event::Nack);
                self.coverage.note_if(stale, Event::NackInTheMiddle);
            }
            _ => {}
        }
        self.carry_interest(at)?;
        Ok(true)
    }

    /// Sends interest to the view. It arrives now, or when the history decides.
    pub(super) fn carry_interest(&mut self, at: usize) -> Result<(), String> {
        let client = &mut self.clients[at];
        let changes = client.session.take_interest();
        if !changes.is_empty() {
            client.interest.push_back((client.id, client.key, changes));
        }
        if self.slow_interest { Ok(()) } else { self.count_interest(at) }
    }

    pub fn count_interest(&mut self, at: usize) -> Result<(), String> {
        let now = self.now;
        while let Some((id, key, changes)) = self.clients[at].interest.pop_front() {
            for change in changes {
                self.units[usize::from(key)].view.change_interest(id, change, now);
            }
            self.settle(key, true)?;
            if self.clients[at].id == id {
                self.clients[at].read_inbox();
                self.clients[at].session.on_interest_applied();
            }
        }
        Ok(())
    }

    /// Makes the relay's next reply, if the client can receive it.
    pub fn pull(&mut self, at: usize) -> Result<Pulled, String> {
        let client = &mut self.clients[at];
        if client.stalled || client.ended {
            return Ok(Pulled::Nothing(None));
        }
        let rig = &mut self.units[usize::from(client.key)];
        let state = rig.view.snapshot().clone();
        let before = rig.leases.count();
        let working_on = client.session.leased_revision();
        client.judge.on_poll(rig.view(&state), self.now);
        client.read_inbox();
        let step = client.bounded.poll(&mut client.session, &state, &mut rig.leases, self.now);
        let claims = client.session.take_claims();
        self.coverage.note_if(!claims.is_empty(), Event::Claimed);
        if !claims.is_empty() {
            if self.trace {
                println!("client {at} claims {claims:?}");
            }
            rig.view.add_claims(client.id, claims);
            rig.sought = true;
        }
        match step {
            Step::Reply(reply) => {
                let limit = self.options.view.leased_states;
                let joined = working_on.is_none() && reply.revision < state.revision && before >= limit;
                self.coverage.note_if(joined, Event::LeaseJoined);
                self.coverage.note_if(working_on.is_some_and(|mark| mark < reply.revision), Event::LeaseRevoked);
                ensure(rig.leases.count() <= limit, || format!("more states are kept alive than {limit}"))?;
                let orderly = rig.orderly;
                let (view, log) = rig.view_and_log_at(mark_of(&reply));
                self.coverage.replies += 1;
                if self.trace {
                    let names: Vec<_> = reply.resources.iter().map(|resource| &resource.name).collect();
                    println!(
                        "client {at}: {:?} {:?} {names:?} -{:?}",
                        reply.revision,
                        reply.kind.name(),
                        reply.removed
                    );
                }
                let judged = client.judge.on_reply(&reply, log, view, orderly, self.now, &mut self.coverage);
                judged.map_err(|fault| {
                    let names: Vec<_> = reply.resources.iter().map(|resource| &resource.name).collect();
                    format!("{fault} (client {at}, {:?}: {names:?} -{:?})", reply.revision, reply.removed)
                })?;
                client.replies.push_back(*reply);
                let footprint = client.session.footprint();
                let nonces = self.options.session.answers * client.judge.kinds().count();
                ensure(footprint.answers <= nonces, || format!("a session keeps {footprint:?}"))?;
                let kept = footprint.names + footprint.pending + footprint.stated;
                let allowed = 3 * client.judge.allowance() + 8;
                ensure(kept <= allowed, || format!("a session keeps {footprint:?} where {allowed} were asked for"))?;
                Ok(Pulled::Reply)
            }
            Step::Idle(deadline) => {
                self.coverage.note_if(client.session.holds_routing(), Event::RoutingHeld);
                let (view, log) = rig.view_and_log(&state);
                client.judge.on_idle(view, log, self.now);
                Ok(Pulled::Nothing(deadline))
            }
            Step::End(end) => {
                self.coverage.note(Event::BehindHorizon);
                ensure(end == CloseReason::HistoryExpired, || format!("a stream was ended: {end:?}"))?;
                client.ended = true;
                Ok(Pulled::Ended)
            }
        }
    }
}

pub enum Pulled {
    Reply,
    Nothing(Option<Moment>),
    Ended,
}
