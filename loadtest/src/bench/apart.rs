//! A view of few clients beside one of many, both with changes: how long the few wait for theirs while the many are sent theirs.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::clients::{ClientOptions, Clients, Names};
use super::gate::Gate;
use super::own_thread::OwnThread;
use super::stage::Stage;
use super::subject::{Setting, Subject};
use super::{Bench, Kind, Programs, Resources, Running, Scene};
use crate::measure::{Latencies, raise_open_files};
use crate::wire::Variant;

#[derive(Debug, Clone)]
pub struct Apart {
    pub variant: Variant,
    /// Clients of the large view.
    pub many: usize,
    /// Clients of the small one.
    pub few: usize,
    /// Changes for the large view. The small one gets changes as long as these are on their way.
    pub rounds: u32,
}

impl Bench for Apart {
    fn name(&self) -> String {
        let Self { variant, many, few, rounds } = self;
        format!(
            "apart: changes to {few} clients while 1 KiB goes to {many} of another view, {variant}, {rounds} rounds"
        )
    }

    fn subjects(&self) -> Vec<Subject> {
        vec![Subject::Relay, Subject::RelayShared]
    }

    fn gates(&self) -> Vec<Gate> {
        vec![Gate::absolute("few_p99_by_many", 0.25), Gate::ratio("few_p99_ms", Subject::RelayShared, 1.0)]
    }

    fn run<'a>(&'a self, subject: Subject, programs: &'a Programs) -> Running<'a> {
        Box::pin(self.measure(subject, programs))
    }
}

impl Apart {
    async fn measure(&self, subject: Subject, programs: &Programs) -> anyhow::Result<Scene> {
        raise_open_files(self.many + self.few)?;
        // One resource for each view.
        let resources = Resources { kind: Kind::Endpoints, count: 2, size: 1024 };
        let setting = Setting { variant: self.variant, ..Setting::of(resources) };
        let stage = Stage::start(subject, setting, programs).await?;
        let named = |index: usize| -> Names { Arc::new(move |_| vec![resources.name(index)]) };
        let many = Clients::storm(ClientOptions { names: named(OF_MANY), ..stage.clients(self.many) }, 1);
        let options = ClientOptions { names: named(OF_FEW), cluster: "apart".into(), ..stage.clients(self.few) };
        let thread = OwnThread::start()?;
        let few = thread.enter(|| Clients::storm(options, 1));
        many.reached().await?;
        few.reached().await?;
        let mut beside = Beside { stage: &stage, few: &few, round: 0 };
        for round in 1..self.rounds + 2 {
            if round == 2 {
                // The first round was to warm up.
                many.take_latencies();
                few.take_latencies();
            }
            stage.origin.change([OF_MANY], round, |start| many.expect(round, 1, start));
            let is_over = Cell::new(false);
            let arrived = async {
                let reached = many.reached().await;
                is_over.set(true);
                reached
            };
            let (arrived, changed) = tokio::join!(arrived, beside.changes(&is_over));
            arrived?;
            changed?;
        }
        let ((of_many, _), (of_few, _)) = (many.take_latencies(), few.take_latencies());
        Ok(Scene::of(figures(&of_many, &of_few)))
    }
}

/// The changes for the small view.
struct Beside<'a> {
    stage: &'a Stage,
    few: &'a Clients,
    round: u32,
}

impl Beside<'_> {
    /// Makes one change after another until the change for the large view has arrived, at least one. Waits for the last one too: a slow one must
    /// count.
    async fn changes(&mut self, is_over: &Cell<bool>) -> anyhow::Result<()> {
        loop {
            self.round += 1;
            let (round, few) = (self.round, self.few);
            self.stage.origin.change([OF_FEW], round, |start| few.expect(round, 1, start));
            few.reached().await?;
            sleep(PAUSE).await;
            if is_over.get() {
                return Ok(());
            }
        }
    }
}

fn figures(many: &Latencies, few: &Latencies) -> BTreeMap<String, f64> {
    let ms = |latencies: &Latencies, percentile: f64| latencies.percentile(percentile).as_secs_f64() * 1e3;
    BTreeMap::from([
        ("few_p50_ms".into(), ms(few, 50.0)),
        ("few_p99_ms".into(), ms(few, 99.0)),
        ("few_p99_by_many".into(), ms(few, 99.0) / ms(many, 99.0)),
        ("few_received".into(), few.count() as f64),
        ("many_p50_ms".into(), ms(many, 50.0)),
        ("many_p99_ms".into(), ms(many, 99.0)),
    ])
}

/// The resource of the large view, and that of the small one.
const OF_MANY: usize = 0;
const OF_FEW: usize = 1;
/// Between a change that has arrived and the next one, so that the small view is no load itself.
const PAUSE: Duration = Duration::from_millis(5);
