//! The verdicts of a run, stored in a file so that a run that was cut short can be resumed.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Instant;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::judge::{Verdict, judge};
use crate::mutation::Mutant;
use crate::settings::Settings;
use crate::tests_of::TestProgram;

pub struct Verdicts {
    file: File,
    by_number: BTreeMap<usize, Verdict>,
}

#[derive(Serialize, Deserialize)]
struct Line {
    name: String,
    line: usize,
    verdict: Verdict,
}

impl Verdicts {
    /// Opens the file. Its verdicts count if `resume` is set.
    pub fn open(path: PathBuf, resume: bool, mutants: &[Mutant]) -> Result<Self> {
        let mut by_number = BTreeMap::new();
        for line in std::fs::read_to_string(&path).iter().filter(|_| resume).flat_map(|text| text.lines()) {
            let Line { name, line, verdict } =
                serde_json::from_str(line).with_context(|| path.display().to_string())?;
            let number = mutants.iter().position(|mutant| mutant.line == line && mutant.name() == name);
            by_number.extend(number.map(|number| (number, verdict)));
        }
        let file = OpenOptions::new().create(true).append(resume).write(true).truncate(!resume).open(&path)?;
        Ok(Self { file, by_number })
    }

    /// Judges the mutants that have no verdict yet, in this order, until the time is up.
    pub fn judge(
        self,
        order: &[usize],
        mutants: &[Mutant],
        programs: &[TestProgram],
        settings: &Settings,
        root: &Path,
        until: Option<Instant>,
    ) -> Result<BTreeMap<usize, Verdict>> {
        let Self { file, by_number } = self;
        let queue: Vec<_> = order.iter().copied().filter(|number| !by_number.contains_key(number)).collect();
        let (queue, verdicts) = (Mutex::new(queue.into_iter()), Mutex::new((file, by_number)));
        let work = || -> Result<()> {
            while until.is_none_or(|until| Instant::now() < until) {
                let Some(number) = queue.lock().expect("no panics").next() else { break };
                let (mutant, started) = (&mutants[number], Instant::now());
                let verdict = judge(number, programs, settings, root)?;
                eprintln!("{:6.1?} {verdict:?} {}:{} {}", started.elapsed(), mutant.file, mutant.line, mutant.change);
                let line = Line { name: mutant.name(), line: mutant.line, verdict: verdict.clone() };
                let (file, by_number) = &mut *verdicts.lock().expect("no panics");
                writeln!(file, "{}", serde_json::to_string(&line)?)?;
                by_number.insert(number, verdict);
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..settings.jobs).map(|_| scope.spawn(work)).collect();
            workers.into_iter().try_for_each(|worker| worker.join().expect("no panics"))
        })?;
        Ok(verdicts.into_inner()?.1)
    }
}
