//! The small world: a control plane, one relay with a view for each of two nodes, and clients. Between them are queues that a history moves
//! by hand, and time is a number.

use std::sync::Arc;
use std::time::Duration;

use prost::Message;
use prost_types::{Struct, Value, value};
use weir::proto::Request;
use weir::proto::discovery::{DeltaDiscoveryRequest, DiscoveryRequest};
use weir::proto::node::Node;
use weir::protocol::faults::{Fault, Faults};
use weir::protocol::limits::Limits;
use weir::protocol::moment::Moment;
use weir::protocol::session::{Ack, Client, CloseReason, Identity, Session, Step, Variant};
use weir::protocol::upstream::ViewContext;
use weir::protocol::view::{Class, Evidence, Selector, SessionId, Update};
use weir::xds::{BodyStore, KeyField, KeyRule, SharingKey};

use crate::client::{Pretend, Profile, Reaction, Return};
use crate::content::{Content, Kind, ensure, table};
use crate::coverage::{Coverage, Event};
use crate::oracle::Judge;
use crate::origin::Truth;
use crate::rig::{Link, UnitRig, mark_of, note_asked};
use crate::view::{Entry, ModelView};

pub const KEYS: u8 = 2;

pub struct World {
    pub now: Moment,
    pub truths: Vec<Truth>,
    pub units: Vec<UnitRig>,
    pub clients: Vec<Pretend>,
    pub serial: u64,
    pub pieces: bool,
    pub slow_interest: bool,
    /// Prints each reply: `WEIR_TRACE=1`.
    trace: bool,
    epoch: u64,
    store: BodyStore,
    limits: Arc<Limits>,
    next_id: u64,
    rule: Arc<KeyRule>,
    keys: Vec<SharingKey>,
    pub coverage: Coverage,
}

impl World {
    pub fn new(upstream: Variant, faults: Faults, change: impl FnOnce(&mut Limits)) -> Self {
        Self::with_requests(upstream, false, faults, change)
    }

    /// With `small_requests` the server takes requests with the node, the type, and little more.
    pub fn with_requests(
        upstream: Variant,
        small_requests: bool,
        faults: Faults,
        change: impl FnOnce(&mut Limits),
    ) -> Self {
        // Nothing in these histories is slower than this.
        let second_silence = Duration::from_secs(7200);
        // `tests/order.rs` tests what waits for other changes.
        let reference_hold = Duration::ZERO;
        let mut limits = Limits { faults, second_silence, reference_hold, ..Limits::default() };
        change(&mut limits);
        let limits = Arc::new(limits);
        let rule = match faults.has(Fault::KeyWithoutMetadata) {
            true => KeyRule::of(vec![KeyField::Cluster]),
            false => KeyRule::default(),
        };
        let rule = Arc::new(rule);
        let keys: Vec<_> = (0..KEYS).map(|node| rule.key(&encoded_node(node, 0)).unwrap()).collect();
        let units =
            keys.iter().map(|key| UnitRig::new(upstream, small_requests, key.upstream_node(), &limits)).collect();
        Self {
            now: Moment::START + Duration::from_secs(1),
            truths: vec![Truth::default(); KEYS.into()],
            units,
            clients: Vec::new(),
            serial: 0,
            pieces: false,
            slow_interest: false,
            trace: std::env::var_os("WEIR_TRACE").is_some(),
            epoch: 1,
            store: BodyStore::default(),
            limits,
            next_id: 0,
            rule,
            keys,
            coverage: Coverage::default(),
        }
    }

    /// `node` decides which content the client gets; the sharing key decides which view it joins.
    pub fn add_client(&mut self, profile: Profile, variant: Variant, node: u8, wrappers: bool) -> usize {
        let key = self.unit_of(node);
        let client = client_of(profile, variant, wrappers);
        let (id, session) = self.new_session(client.clone(), node);
        let mut pretend = Pretend::new(id, key, node, profile, client, session);
        pretend.judge.short_memory = self.limits.tombstone_bytes < 1000;
        if profile == Profile::Envoy {
            pretend.wish(Kind::Cluster).wildcard = true;
            pretend.open(Kind::Cluster, Return::Fresh);
        }
        self.clients.push(pretend);
        self.clients.len() - 1
    }

    fn unit_of(&mut self, node: u8) -> u8 {
        self.next_id += 1;
        let key = self.rule.key(&encoded_node(node, self.next_id)).unwrap();
        u8::try_from(self.keys.iter().position(|known| *known == key).unwrap()).unwrap()
    }

    fn new_session(&mut self, client: Client, node: u8) -> (SessionId, Session) {
        self.next_id += 1;
        let identity = Identity::of(self.rule.clone(), &encoded_node(node, self.next_id)).unwrap();
        let session = Session::new(client, table(), self.limits.clone()).with_identity(identity);
        (SessionId(self.next_id), session)
    }

    /// The client sends another node on its stream, or the same node encoded differently.
    pub fn change_node(&mut self, at: usize, node: u8) -> Result<(), String> {
        self.next_id += 1;
        let encoded = encoded_node(node, self.next_id).into();
        let client = &mut self.clients[at];
        let Some(kind) = client.judge.kinds().next().filter(|_| !client.ended) else { return Ok(()) };
        let wish = client.wish(kind).clone();
        let request = match client.variant {
            Variant::Sotw => {
                let wildcard = (wish.wildcard && wish.named_once).then(|| "*".to_owned());
                let resource_names = wish.names.into_iter().chain(wildcard).collect();
                let type_url = kind.url().into();
                Request::Sotw(DiscoveryRequest { node: Some(encoded), resource_names, type_url, ..Default::default() })
            }
            Variant::Delta => {
                let type_url = kind.url().into();
                Request::Delta(DeltaDiscoveryRequest { node: Some(encoded), type_url, ..Default::default() })
            }
        };
        client.requests.push_back(request);
        while self.session_reads(at)? {}
        if node != self.clients[at].judge.key {
            self.coverage.note(Event::NodeChangedInMidStream);
            let state = self.units[usize::from(self.clients[at].key)].view.snapshot().clone();
            let leases = &mut self.units[usize::from(self.clients[at].key)].leases;
            let step = self.clients[at].session.poll(&state, leases, self.now);
            ensure(matches!(step, Step::End(CloseReason::KeyChanged)), || "served on under its old key".into())?;
            self.reconnect(at, node, Return::TrueVersions)?;
        }
        Ok(())
    }

    // ---- the control plane

    /// Sets the content of a name, as `*` shows it, as the name does, or both.
    pub fn set(
        &mut self,
        key: u8,
        kind: Kind,
        number: u8,
        wildcard: bool,
        named: bool,
        edit: impl FnOnce(&mut Content),
    ) {
        self.serial += 1;
        let name = kind.name(number);
        let truth = &mut self.truths[usize::from(key)];
        let before = truth.of(kind, wildcard).get(&name).cloned();
        let mut content = before.unwrap_or(Content {
            kind,
            name: name.clone(),
            serial: 0,
            key,
            wildcard: false,
            target: None,
            eds: true,
            alias: None,
            metadata: 0,
        });
        content.serial = self.serial;
        edit(&mut content);
        let differs = wildcard != named;
        for (on, class) in [(wildcard, true), (named, false)] {
            if on {
                let content = Content { wildcard: differs && class, ..content.clone() };
                let sets = if class { &mut truth.wildcard } else { &mut truth.named };
                sets.entry(kind).or_default().insert(name.clone(), content);
            }
        }
        self.push(key, kind);
    }

    pub fn delete(&mut self, key: u8, kind: Kind, number: u8, wildcard: bool, named: bool) {
        let truth = &mut self.truths[usize::from(key)];
        for (on, sets) in [(wildcard, &mut truth.wildcard), (named, &mut truth.named)] {
            if on && let Some(set) = sets.get_mut(&kind) {
                set.remove(&kind.name(number));
            }
        }
        self.push(key, kind);
    }

    fn push(&mut self, key: u8, kind: Kind) {
        let rig = &mut self.units[usize::from(key)];
        for link in rig.links.iter_mut().filter(|link| link.open.is_some()) {
            link.server.push(kind, &self.truths[usize::from(key)], self.epoch);
        }
    }

    pub fn repeat(&mut self, key: u8, kind: Kind) {
        self.coverage.note(Event::SameBytesNewVersion);
        self.epoch += 1_000_000; // all version strings are new
        let rig = &mut self.units[usize::from(key)];
        rig.links.iter_mut().filter(|link| link.open.is_some()).for_each(|link| link.server.repeat(kind, self.epoch));
    }

    /// The control plane reads the relay's requests.
    pub fn origin_reads(&mut self, key: u8, how_many: usize) -> bool {
        let mut any = false;
        let rig = &mut self.units[usize::from(key)];
        for link in rig.links.iter_mut().filter(|link| link.open.is_some()) {
            for _ in 0..how_many {
                let Some(request) = link.requests.pop_front() else { break };
                any = true;
                // The server answers for the node that it was sent.
                let tenant = request.node().map(|node| tenant_of(node));
                assert!(tenant.is_none_or(|tenant| tenant.is_none_or(|tenant| tenant == key.to_string())));
                link.server.read(request, &self.truths[usize::from(key)], self.pieces, self.epoch);
            }
        }
        any
    }

    pub fn kill_upstream(&mut self, key: u8, at: usize) {
        let now = self.now;
        self.open_gates(key);
        let rig = &mut self.units[usize::from(key)];
        let Some(link) = rig.links.get_mut(at) else { return };
        let Some(epoch) = link.open.take() else { return };
        self.coverage.note(Event::UpstreamKilled);
        link.late = link.server.out.drain(..).map(|sent| (epoch, sent)).collect();
        let stars = std::mem::take(&mut link.wanted_stars);
        *link = Link { late: std::mem::take(&mut link.late), ..Link::default() };
        rig.log.push(Entry::Ended { stars });
        let updates = rig.upstream.streams()[at].ended(epoch);
        rig.view.apply(updates, now);
    }

    pub fn reset_origin(&mut self) {
        self.coverage.note(Event::UpstreamReset);
        self.epoch += 1;
        for key in 0..KEYS {
            (0..2).for_each(|at| self.kill_upstream(key, at));
        }
    }

    pub fn connect_upstream(&mut self, key: u8) -> bool {
        let rig = &mut self.units[usize::from(key)];
        let mut any = false;
        let count = rig.upstream.streams().len();
        rig.links.resize_with(count.max(rig.links.len()), Link::default);
        for (at, stream) in rig.upstream.streams().iter_mut().enumerate() {
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
                // It may be a response from a time when the name was not subscribed.
                sent.requested.retain(|name| {
                    let left = link.left_at.get(&(sent.kind, name.clone()));
                    left.is_none_or(|left| now - *left >= Duration::from_secs(15))
                });
                self.coverage.note_if(self.pieces && sent.wildcard && !sent.last_piece, Event::InitialSetInPieces);
                for content in &sent.set {
                    link.asked_at.remove(&(content.kind, content.name.clone()));
                }
                let said = Entry::Said { sent: Box::new(sent.clone()), at: now };
                match rig.gated.get_mut(&sent.kind) {
                    Some(gated) => gated.push(said),
                    None => rig.log.push(said),
                }
                rig.responses_since_publication += 1;
                let said = self.trace.then(|| {
                    let names: Vec<_> = sent.set.iter().map(|content| &content.name).collect();
                    format!("unit {key}: the server says {:?} {names:?} -{:?}", sent.kind, sent.gone)
                });
                let updates = rig.upstream.streams()[at].on_response(epoch, sent.response, &self.store, self.now);
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

    /// Messages of an abandoned stream arrive late.
    pub fn late_messages(&mut self, key: u8) {
        let now = self.now;
        let rig = &mut self.units[usize::from(key)];
        for (at, link) in rig.links.iter_mut().enumerate() {
            for (epoch, sent) in std::mem::take(&mut link.late) {
                self.coverage.note(Event::LateMessage);
                let updates = rig.upstream.streams()[at].on_response(epoch, sent.response, &self.store, self.now);
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
            if !change.on {
                self.coverage.note(Event::InterestExpired);
                rig.forgotten.push((kind, name.clone()));
            } else if rig.forgotten.contains(&(kind, name.clone())) {
                self.coverage.note(Event::Refetched);
            }
            let wanted = Entry::Wanted { kind, name, on: change.on };
            rig.gated.entry(kind).and_modify(|gated| gated.push(wanted.clone()));
            rig.log.push(wanted);
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

    /// Lets the streams decide what silence means, and makes their calls: a call is answered if the stream is open, and a stream that is to
    /// be reopened ends.
    fn let_judge(&mut self, key: u8) -> Result<(), String> {
        let now = self.now;
        for at in 0..self.units[usize::from(key)].links.len() {
            for _ in 0..2 {
                let rig = &mut self.units[usize::from(key)];
                let (link, standpoint) = (&mut rig.links[at], ViewContext::single_server(&rig.view));
                let Some(epoch) = link.open else { break };
                let updates = rig.upstream.streams()[at].on_time(&standpoint, now);
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
                    let timed_out = match class {
                        Class::Named => Entry::TimedOut { kind, name },
                        Class::Wildcard => Entry::NotThere { kind, name, at: now },
                    };
                    match rig.gated.get_mut(&kind) {
                        Some(gated) => gated.push(timed_out),
                        None => rig.log.push(timed_out),
                    }
                }
                rig.view.apply(updates, now);
                let stream = &mut rig.upstream.streams()[at];
                // What the server sent before it answers the call is read before the answer.
                let is_all_read = link.server.out.is_empty();
                if is_all_read && stream.take_liveness_call() {
                    stream.on_liveness_answer(epoch);
                }
            }
            if self.units[usize::from(key)].upstream.streams().get_mut(at).is_some_and(|stream| stream.take_reopen(now))
            {
                self.coverage.note(Event::OpenedAgain);
                self.kill_upstream(key, at);
                self.connect_upstream(key);
            }
        }
        Ok(())
    }

    fn send_requests(&mut self, key: u8) {
        let now = self.now;
        let rig = &mut self.units[usize::from(key)];
        for (at, stream) in rig.upstream.streams().iter_mut().enumerate() {
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

    fn publish(&mut self, key: u8) {
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

    /// Advances time, and runs the timers that are due.
    pub fn advance(&mut self, by: Duration) -> Result<(), String> {
        self.now = self.now + by;
        let now = self.now;
        for key in 0..KEYS {
            let rig = &mut self.units[usize::from(key)];
            rig.view.on_time(now);
            let expired = rig.forgotten.len();
            self.settle(key, true)?;
            let rig = &self.units[usize::from(key)];
            for (kind, name) in &rig.forgotten[expired..] {
                let wants = |judge: &Judge| {
                    judge.wants(*kind).is_some_and(|wants| match name {
                        None => wants.wildcard,
                        Some(name) => wants.names.contains(name),
                    })
                };
                let counted = |client: &&Pretend| client.key == key && !client.ended && client.interest.is_empty();
                let wanted = self.clients.iter().filter(counted).any(|client| wants(&client.judge));
                ensure(!wanted, || format!("{name:?} of {kind:?} was dropped while somebody wants it"))?;
            }
        }
        Ok(())
    }

    pub fn shut_gate(&mut self, key: u8, kind: Kind) {
        self.coverage.note(Event::GateHeld);
        let rig = &mut self.units[usize::from(key)];
        rig.gated.entry(kind).or_default();
        rig.view.shut_gate(&table().resolve(kind.url()));
    }

    pub fn open_gates(&mut self, key: u8) {
        let now = self.now;
        let rig = &mut self.units[usize::from(key)];
        for (kind, entries) in std::mem::take(&mut rig.gated) {
            rig.view.open_gate(&table().resolve(kind.url()), now);
            rig.log.extend(entries.into_iter().map(|entry| match entry {
                Entry::Said { sent, .. } => Entry::Said { sent, at: now },
                other => other,
            }));
        }
    }

    // ---- clients

    /// The relay reads one request of a client.
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

    /// Sends interest to the view; it arrives now, or when the history decides.
    fn carry_interest(&mut self, at: usize) -> Result<(), String> {
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

    /// The client can receive: the relay makes its next reply.
    pub fn pull(&mut self, at: usize) -> Result<Pulled, String> {
        let client = &mut self.clients[at];
        if client.stalled || client.ended {
            return Ok(Pulled::Nothing(None));
        }
        let rig = &mut self.units[usize::from(client.key)];
        let state = rig.view.snapshot().clone();
        let before = rig.leases.count();
        let working_on = client.session.leased_revision();
        client.judge.on_poll(rig.view(&state), !client.session.holds_routing());
        let late = self.limits.faults.has(Fault::MarksBeforeSnapshot) && !client.inbox.is_empty();
        let marks = if late { std::mem::take(&mut client.inbox) } else { Vec::new() };
        client.read_inbox();
        let mut step = client.session.poll(&state, &mut rig.leases, self.now);
        marks.iter().for_each(|mark| client.session.on_name_changed(mark));
        if late && matches!(step, Step::Idle(_)) {
            step = client.session.poll(&state, &mut rig.leases, self.now); // the marks wake it
        }
        let claims = client.session.take_claims();
        self.coverage.note_if(!claims.is_empty(), Event::Claimed);
        if !claims.is_empty() {
            if self.trace {
                println!("client {at} claims {claims:?}");
            }
            rig.view.seek(claims);
            rig.sought = true;
        }
        match step {
            Step::Reply(reply) => {
                let limit = self.limits.leased_states;
                let joined = working_on.is_none() && reply.revision < state.revision && before >= limit;
                self.coverage.note_if(joined, Event::LeaseJoined);
                self.coverage.note_if(working_on.is_some_and(|mark| mark < reply.revision), Event::LeaseRevoked);
                ensure(rig.leases.count() <= limit, || format!("more states are kept alive than {limit}"))?;
                let view = rig
                    .views
                    .entry(mark_of(&reply))
                    .or_insert_with_key(|mark| ModelView::replay(&rig.log[..rig.published[mark]]));
                self.coverage.replies += 1;
                let log = &rig.log[..rig.published[&mark_of(&reply)]];
                if self.trace {
                    let names: Vec<_> = reply.resources.iter().map(|resource| &resource.name).collect();
                    println!(
                        "client {at}: {:?} {:?} {names:?} -{:?}",
                        reply.revision,
                        reply.kind.name(),
                        reply.removed
                    );
                }
                let judged = client.judge.on_reply(&reply, log, view, rig.orderly, self.now, &mut self.coverage);
                judged.map_err(|fault| {
                    let names: Vec<_> = reply.resources.iter().map(|resource| &resource.name).collect();
                    format!("{fault} (client {at}, {:?}: {names:?} -{:?})", reply.revision, reply.removed)
                })?;
                client.replies.push_back(*reply);
                let footprint = client.session.footprint();
                let nonces = self.limits.answers * client.judge.kinds().count();
                ensure(footprint.answers <= nonces, || format!("a session keeps {footprint:?}"))?;
                let kept = footprint.names + footprint.pending + footprint.stated;
                let allowed = 3 * client.judge.allowance() + 8;
                ensure(kept <= allowed, || format!("a session keeps {footprint:?} where {allowed} were asked for"))?;
                Ok(Pulled::Reply)
            }
            Step::Idle(deadline) => {
                if client.session.holds_routing() {
                    self.coverage.note(Event::RoutingHeld);
                    client.judge.on_kept_back(self.now);
                }
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

    pub fn process(&mut self, at: usize, reaction: Reaction) -> bool {
        let silent = self.clients[at].silent;
        let reaction = if silent { Reaction::Silence } else { reaction };
        self.clients[at].process(reaction).is_some()
    }

    /// The client reconnects on a new stream, possibly as another node.
    pub fn reconnect(&mut self, at: usize, node: u8, how: Return) -> Result<(), String> {
        self.coverage.note_if(node != self.clients[at].judge.key, Event::NodeChanged);
        self.clients[at].session.close();
        self.carry_interest(at)?;
        let (profile, variant) = (self.clients[at].profile, self.clients[at].variant);
        let key = self.unit_of(node);
        let client = client_of(profile, variant, self.clients[at].judge.wrappers);
        let (id, session) = self.new_session(client.clone(), node);
        let pretend = &mut self.clients[at];
        // What was in flight is lost with the stream.
        match how {
            Return::Fresh => pretend.lose_everything(),
            Return::OldVersions => pretend.go_back(),
            Return::TrueVersions | Return::ForeignVersions => {}
        }
        let wishes = pretend.wishes.clone();
        pretend
            .held
            .retain(|(kind, name), _| wishes.get(kind).is_some_and(|wish| wish.wildcard || wish.names.contains(name)));
        pretend.restart(id, key, node, client, session);
        let kinds: Vec<_> =
            wishes.iter().filter(|(_, wish)| wish.wildcard || !wish.names.is_empty()).map(|(kind, _)| *kind).collect();
        kinds.into_iter().for_each(|kind| pretend.open(kind, how));
        match how {
            Return::Fresh => {}
            Return::TrueVersions => self.coverage.note(Event::ReconnectTrueVersions),
            Return::OldVersions => self.coverage.note(Event::ReconnectOldVersions),
            Return::ForeignVersions => self.coverage.note(Event::ReconnectForeignVersions),
        }
        Ok(())
    }

    pub fn unstall(&mut self) {
        self.clients.iter_mut().for_each(|client| client.stalled = false);
    }
}

fn length(request: &Request) -> usize {
    match request {
        Request::Sotw(request) => request.encoded_len(),
        Request::Delta(request) => request.encoded_len(),
    }
}

/// Whether both subscribe to names of one type, and the first one has all that fits.
fn is_rest_of(rest: &Request, first: &Request) -> bool {
    match (rest, first) {
        (Request::Delta(rest), Request::Delta(first)) => {
            let subscribes = |request: &DeltaDiscoveryRequest| !request.resource_names_subscribe.is_empty();
            rest.type_url == first.type_url && subscribes(rest) && subscribes(first) && rest.response_nonce.is_empty()
        }
        _ => false,
    }
}

/// Whether a request has no room for another version.
fn states_little(request: &Request, limit: usize) -> bool {
    matches!(request, Request::Delta(delta) if !delta.initial_resource_versions.is_empty() && length(request) + 16 > limit)
}

pub enum Pulled {
    Reply,
    Nothing(Option<Moment>),
    Ended,
}

/// A node whose metadata decides which content it gets. Its id and the order of its maps differ from client to client.
fn encoded_node(node: u8, id: u64) -> Vec<u8> {
    let text = |text: String| Value { kind: Some(value::Kind::StringValue(text)) };
    let field = |key: &str, value| Node {
        metadata: Some(Struct { fields: [(key.to_owned(), value)].into() }),
        ..Node::default()
    };
    let named = Node { id: format!("client-{id}"), cluster: "fleet".into(), ..Node::default() };
    let mut parts = [field("tenant", text(node.to_string())), field("stage", text("live".into()))];
    parts.rotate_left((id % 2) as usize);
    // Concatenated messages are merged by the reader.
    [named, parts[0].clone(), parts[1].clone()].iter().flat_map(Message::encode_to_vec).collect()
}

fn tenant_of(node: &[u8]) -> Option<String> {
    let metadata = Node::decode(node).unwrap().metadata?;
    match metadata.fields.get("tenant")?.kind.clone()? {
        value::Kind::StringValue(text) => Some(text),
        _ => None,
    }
}

fn client_of(profile: Profile, variant: Variant, wrappers: bool) -> Client {
    Client { grpc: profile == Profile::Grpc, wrappers, ..Client::plain(variant) }
}
