//! The streams of a bench to its servers: what these say, and what the view task does with that.

use std::time::Duration;

use weir_core::proto::{Request, Response};
use weir_core::protocol::ladder::LadderState;
use weir_core::protocol::options::ProtocolOptions;
use weir_core::protocol::sources::{Plan, StreamEnd, StreamId, UpdateBatch};
use weir_core::protocol::upstream::{Epoch, ReceivedResponse, ResponseMessage};
use weir_core::protocol::view::SessionId;
use weir_core::xds::{Authority, TypeTable};

use super::{Bench, END_OF_SET};

/// Sessions that the bench does not have: only their interest is there.
pub const ONE: SessionId = SessionId(1_001);
pub const TWO: SessionId = SessionId(1_002);

impl Bench {
    /// Returns a bench with these servers. What waits for other changes is tested in `core/tests/order.rs`.
    pub fn with_servers(plan: Plan) -> Self {
        Self::of_servers(plan, ProtocolOptions::default().with(|options| options.hold_referenced(Duration::ZERO)))
    }

    pub fn of_servers(plan: Plan, options: ProtocolOptions) -> Self {
        Self { has_servers: true, ..Self::made(plan, options, TypeTable::new()) }
    }

    /// Returns the same view in a later process, which has its state.
    pub fn restarted(&self, plan: Plan) -> Self {
        let mut after = Self::with_servers(plan);
        after.inherit(self);
        after
    }

    pub fn want(&mut self, url: &str, name: &str, on: bool) {
        self.want_as(ONE, url, name, on);
    }

    pub fn want_as(&mut self, session: SessionId, url: &str, name: &str, on: bool) {
        let change = self.count_interest(session, url, name, on);
        self.sources.on_names_requested(&[change], &self.view);
        self.settle();
    }

    /// Does what the view task does after each event.
    pub fn settle(&mut self) {
        self.judge();
        if self.answer_calls() {
            self.judge();
        }
        self.again.extend(self.sources.take_reopened());
        self.view.note_unsteady(self.sources.unsteady(), self.now);
        self.view.on_time(self.now);
        for change in self.view.take_upstream_changes() {
            self.sources.want(change, &self.view, self.now);
        }
        self.sources.close_unused(&self.view, self.now);
        self.publish();
        let closed = self.sources.take_closed();
        let there: Vec<_> = self.sources.streams_mut().map(|(id, _)| id).collect();
        self.up.retain(|id, _| there.contains(id) && !closed.contains(&id.server));
    }

    fn judge(&mut self) {
        let batches = self.sources.on_time(&self.view, self.now);
        self.apply_batches(batches);
    }

    fn apply_batches(&mut self, batches: Vec<UpdateBatch>) {
        for batch in batches {
            self.view.apply_from(batch.origin, batch.updates, self.now);
        }
    }

    /// Lets live servers answer their liveness calls.
    fn answer_calls(&mut self) -> bool {
        let mut any = false;
        for (id, stream) in self.sources.streams_mut() {
            if let Some(epoch) = self.up.get(&id).filter(|_| !self.mute.contains(&id.server))
                && stream.take_liveness_call()
            {
                stream.on_liveness_answer(*epoch);
                any = true;
            }
        }
        any
    }

    /// Returns the servers whose streams were reopened for a second request since the last call.
    pub fn asked_again(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.again).into_iter().map(|id| id.server).collect()
    }

    /// Opens the streams to a server. Returns the requests to it in the form of [`text_of_request`].
    pub fn open(&mut self, server: usize) -> Vec<String> {
        for (id, stream) in self.sources.streams_mut().filter(|(id, _)| id.server == server) {
            let epoch = stream.opened();
            self.up.insert(id, epoch);
        }
        self.requested(server)
    }

    pub fn requested(&mut self, server: usize) -> Vec<String> {
        let now = self.now;
        let mut texts = Vec::new();
        for (_, stream) in self.sources.streams_mut().filter(|(id, _)| id.server == server) {
            while let Some(request) = stream.next_request(now) {
                texts.push(text_of_request(&request));
            }
            stream.written(now);
        }
        texts
    }

    pub fn say(&mut self, server: usize, response: Response) {
        self.say_on(StreamId { server, at: 0 }, response);
    }

    pub fn say_on(&mut self, id: StreamId, response: Response) {
        let epoch = self.up[&id];
        let response = ReceivedResponse::read(ResponseMessage::Decoded(response), &self.table, &self.store).unwrap();
        let batches = self.sources.on_received(id, epoch, response, &self.view, self.now);
        self.view.note_recovering(self.sources.recovering());
        self.apply_batches(batches);
        self.settle();
    }

    /// Ends the streams to a server. Unless they count as answered, the server is unreachable after that.
    pub fn end(&mut self, server: usize, answered: bool) {
        self.end_all(server, answered, false);
    }

    /// Loses a server, or the connection to it.
    pub fn lose(&mut self, server: usize) {
        self.end_all(server, false, true);
    }

    fn end_all(&mut self, server: usize, answered: bool, is_lost: bool) {
        let ids: Vec<_> = self.sources.streams_mut().map(|(id, _)| id).filter(|id| id.server == server).collect();
        for id in ids {
            let epoch = self.up.remove(&id);
            let had_answered = self.sources.stream(id).is_some_and(|stream| stream.has_answered());
            let end = StreamEnd { answered: answered || had_answered, is_lost };
            self.end_one(id, epoch, end);
            if had_answered && !answered {
                self.end_one(id, None, StreamEnd { answered, ..end });
            }
        }
        self.settle();
    }

    pub fn end_one(&mut self, id: StreamId, epoch: Option<Epoch>, end: impl Into<StreamEnd>) {
        let batches = self.sources.ended(id, epoch, end, &self.view, self.now);
        self.apply_batches(batches);
    }

    pub fn standing(&self) -> LadderState {
        self.sources.ladders().find(|ladder| *ladder.authority == Authority::TopLevel).unwrap().state
    }
}

/// Returns a request as `[names] vVersion`, in delta as `+[on] -[off] {versions}`.
pub fn text_of_request(request: &Request) -> String {
    match request {
        Request::Sotw(request) => format!("[{}] v{}", request.resource_names.join(","), request.version_info),
        Request::Delta(request) => {
            // The name that asks for the end of a set differs each time: `core/tests/upstream/ends.rs` checks it.
            let stated = request.initial_resource_versions.iter().filter(|(name, _)| !name.starts_with(END_OF_SET));
            let versions: Vec<_> = stated.map(|(name, version)| format!("{name}:{version}")).collect();
            let (on, off) = (request.resource_names_subscribe.join(","), request.resource_names_unsubscribe.join(","));
            format!("+[{on}] -[{off}] {{{}}}", versions.join(","))
        }
    }
}
