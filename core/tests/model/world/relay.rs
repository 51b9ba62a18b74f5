//! The relay between the control plane and its sessions.

use super::*;

impl World {
    pub fn connect_upstream(&mut self, key: u8) -> bool {
        let rig = &mut self.units[usize::from(key)];
        let mut any = false;
        let count = rig.upstream.streams_mut().len();
        rig.links.resize_with(count.max(rig.links.len()), Link::default);
        for (at, stream) in rig.upstream.streams_mut().iter_mut().enumerate() {
            if rig.links[at].open.is_none() && stream.is_wanted() {
                any = true;
                let late = std::mem::take(&mut rig.links[at].late);
                let epoch = stream.opened();
                rig.links[at] = Link { open: Some(epoch), late, ..Link::default() };
                self.coverage.note_if(at == 1, Event::SecondUpstreamStream);
                let sotw = stream.variant() == Variant::Sotw;
                self.coverage.note(if sotw { Event::SotwUpstream } else { Event::DeltaUpstream });
            }
        }
        any
    }

    // ---- the relay

    /// Reads up to `how_many` responses from each stream, and publishes once for all of them.
    pub fn relay_reads(&mut self, key: u8, how_many: usize, publish: bool) -> Result<bool, String> {
        let now = self.now;
        let mut any = false;
        let rig = &mut self.units[usize::from(key)];
        for (at, link) in rig.links.iter_mut().enumerate() {
            for _ in 0..how_many {
                let (Some(epoch), Some(mut sent)) = (link.open, link.server.out.pop_front()) else { break };
                any = true;
                // The response may be from a time when the name was not subscribed.
                sent.requested.retain(|name| {
                    let left = link.left_at.get(&(sent.kind, name.clone()));
                    left.is_none_or(|left| now - *left >= Duration::from_secs(15))
                });
                self.coverage.note_if(self.pieces && sent.wildcard && !sent.last_piece, Event::InitialSetInPieces);
                for content in &sent.set {
                    link.asked_at.remove(&(content.kind, content.name.clone()));
                }
                if !(sent.wildcard && link.unread_stars.contains(&sent.kind)) {
                    rig.log.push(Entry::Said { sent: Box::new(sent.clone()), at: now });
                }
                rig.responses_since_publication += 1;
                let said = self.trace.then(|| {
                    let names: Vec<_> = sent.set.iter().map(|content| &content.name).collect();
                    format!("unit {key}: the server says {:?} {names:?} -{:?}", sent.kind, sent.gone)
                });
                let updates = rig.upstream.streams_mut()[at].on_response(epoch, sent.response, &self.store, self.now);
                if let Some(said) = said {
                    println!("{said}: {updates:?}");
                }
                rig.view.apply(updates, now);
                ensure(link.server.nacked == 0, || "a good response was refused".into())?;
            }
        }
        self.settle(key, publish)?;
        Ok(any)
    }

    /// Delivers late messages of an abandoned stream.
    pub fn late_messages(&mut self, key: u8) {
        let now = self.now;
        let rig = &mut self.units[usize::from(key)];
        for (at, link) in rig.links.iter_mut().enumerate() {
            for (epoch, sent) in std::mem::take(&mut link.late) {
                self.coverage.note(Event::LateMessage);
                let updates = rig.upstream.streams_mut()[at].on_response(epoch, sent.response, &self.store, self.now);
                rig.view.apply(updates, now);
            }
        }
    }

    /// Sends changes of interest upstream, publishes, and wakes the sessions concerned.
    pub fn settle(&mut self, key: u8, publish: bool) -> Result<(), String> {
        let rig = &mut self.units[usize::from(key)];
        for change in rig.view.take_upstream_changes() {
            let kind = Kind::of(&change.kind);
            let name = match &change.selector {
                Selector::Wildcard => None,
                Selector::Name(name) => Some(name.to_string()),
            };
            for link in rig.links.iter_mut().filter(|_| name.is_none()) {
                let is_again = change.on && link.wanted_stars.contains(&kind);
                link.unread_stars.retain(|other| *other != kind);
                link.unread_stars.extend(is_again.then_some(kind));
            }
            if !change.on {
                self.coverage.note(Event::InterestExpired);
                rig.forgotten.push((kind, name.clone()));
            } else if rig.forgotten.contains(&(kind, name.clone())) {
                self.coverage.note(Event::Refetched);
            }
            rig.log.push(Entry::Wanted { kind, name, on: change.on });
            rig.upstream.want(change, false);
        }
        self.send_requests(key);
        self.let_judge(key)?;
        self.send_requests(key);
        if publish {
            self.publish(key);
        }
        Ok(())
    }

    /// Lets the streams judge silence, and makes their liveness calls. A call is answered if the stream is open. A stream that has to be
    /// reopened ends.
    pub(super) fn let_judge(&mut self, key: u8) -> Result<(), String> {
        let now = self.now;
        for at in 0..self.units[usize::from(key)].links.len() {
            for _ in 0..2 {
                let rig = &mut self.units[usize::from(key)];
                let (link, standpoint) = (&mut rig.links[at], ViewContext::single_server(&rig.view));
                let Some(epoch) = link.open else { break };
                let updates = rig.upstream.streams_mut()[at].on_time(&standpoint, now);
                for update in &updates {
                    let Update::Absent { kind, class, key: name, evidence: word } = update else { continue };
                    let (kind, name) = (Kind::of(kind), name.to_string());
                    let asked_at = link.asked_at.get(&(kind, name.clone()));
                    let waited = asked_at.is_some_and(|asked_at| now - *asked_at >= Duration::from_secs(15));
                    ensure(waited || *word == Evidence::Reported, || {
                        format!("{name} was held absent before its time")
                    })?;
                    self.coverage.note(Event::ResourceTimerFired);
                    self.coverage.note_if(*word == Evidence::Reported, Event::AskedTwice);
                    rig.log.push(match class {
                        Class::Named => Entry::TimedOut { kind, name },
                        Class::Wildcard => Entry::NotThere { kind, name, at: now },
                    });
                }
                rig.view.apply(updates, now);
                let stream = &mut rig.upstream.streams_mut()[at];
                // Everything that the server sent before it answered the call is read before the answer.
                let is_all_read = link.server.out.is_empty();
                if is_all_read && stream.take_liveness_call() {
                    stream.on_liveness_answer(epoch);
                }
            }
            if self.units[usize::from(key)]
                .upstream
                .streams_mut()
                .get_mut(at)
                .is_some_and(|stream| stream.take_reopen(now))
            {
                self.coverage.note(Event::OpenedAgain);
                self.kill_upstream(key, at);
                self.connect_upstream(key);
            }
        }
        Ok(())
    }

    pub(super) fn send_requests(&mut self, key: u8) {
        let now = self.now;
        let rig = &mut self.units[usize::from(key)];
        for (at, stream) in rig.upstream.streams_mut().iter_mut().enumerate() {
            while let Some(request) = stream.next_request(now) {
                let Some(link) = rig.links.get_mut(at) else { break };
                let rest = link.requests.back().is_some_and(|last| is_rest_of(&request, last));
                self.coverage.note_if(rest, Event::RequestSplit);
                self.coverage.note_if(states_little(&request, rig.max_request_bytes), Event::VersionsLeftOut);
                assert!(length(&request) <= rig.max_request_bytes, "{} bytes", length(&request));
                note_asked(link, &request, now);
                link.requests.push_back(request);
            }
            stream.written(now);
        }
    }

    pub(super) fn publish(&mut self, key: u8) {
        let rig = &mut self.units[usize::from(key)];
        let before = rig.view.snapshot().revision;
        let wakes = rig.view.publish();
        let merged = std::mem::take(&mut rig.responses_since_publication) > 1;
        self.coverage.note_if(merged, Event::StateMergedResponses);
        let state = rig.view.snapshot().clone();
        rig.note_publication(&state, before != state.revision);
        let differ = rig.view(&state).differs_by_class();
        self.coverage.note_if(differ, Event::StarAndNameDiffer);
        if self.trace {
            println!("unit {key} publishes {:?}: {:?}", state.revision, wakes.0);
        }
        for (session, marks) in wakes.0 {
            if let Some(client) = self.clients.iter_mut().find(|client| client.id == session) {
                client.inbox.extend(marks);
            }
        }
    }
}

fn length(request: &Request) -> usize {
    match request {
        Request::Sotw(request) => request.encoded_len(),
        Request::Delta(request) => request.encoded_len(),
    }
}

/// Whether both requests subscribe to names of one type, so that the second one has those that did not fit into the first.
fn is_rest_of(rest: &Request, first: &Request) -> bool {
    match (rest, first) {
        (Request::Delta(rest), Request::Delta(first)) => {
            let subscribes = |request: &DeltaDiscoveryRequest| !request.resource_names_subscribe.is_empty();
            rest.type_url == first.type_url && subscribes(rest) && subscribes(first) && rest.response_nonce.is_empty()
        }
        _ => false,
    }
}

/// Whether a request states versions and has no room for one more.
fn states_little(request: &Request, limit: usize) -> bool {
    matches!(request, Request::Delta(delta) if !delta.initial_resource_versions.is_empty() && length(request) + 16 > limit)
}
