//! When the certificates that the relay shows servers expire. Their files are read from time to time, apart from the other checks, so that a disk that
//! hangs delays nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use futures_util::FutureExt as _;
use tokio::task::JoinHandle;

use crate::file_access;
use crate::tls::{certificates, of_chain};

#[derive(Default)]
pub(super) struct ServerCertificateFiles {
    /// The expiry by file. A file that cannot be read keeps its earlier value.
    ends: BTreeMap<PathBuf, SystemTime>,
    /// The files of the last reading, and when it began.
    last: Option<(Arc<[PathBuf]>, Instant)>,
    reading: Option<JoinHandle<BTreeMap<PathBuf, SystemTime>>>,
}

impl ServerCertificateFiles {
    pub(super) fn ends(&self) -> impl Iterator<Item = (&Path, SystemTime)> {
        self.ends.iter().map(|(file, end)| (&**file, *end))
    }

    /// Takes the result of a finished reading. Starts another one if the files have changed, or it is time.
    pub(super) fn look(&mut self, files: &Arc<[PathBuf]>) {
        if let Some(reading) = &mut self.reading {
            let Some(read) = reading.now_or_never() else { return };
            self.ends.extend(read.unwrap_or_default());
            self.reading = None;
        }
        let is_recent = |(of, at): &(Arc<[PathBuf]>, Instant)| Arc::ptr_eq(of, files) && at.elapsed() < EVERY;
        if files.is_empty() && self.ends.is_empty() || self.last.as_ref().is_some_and(is_recent) {
            return;
        }
        self.ends.retain(|file, _| files.contains(file));
        self.last = Some((files.clone(), Instant::now()));
        self.reading = Some(tokio::spawn(read(files.clone())));
    }
}

/// Returns when the first certificate in each chain expires. A file that cannot be read is reported as an error of its server.
async fn read(files: Arc<[PathBuf]>) -> BTreeMap<PathBuf, SystemTime> {
    let begun: Vec<_> = files.iter().filter_map(|file| Some((file, file_access::begin_read(file).ok()?))).collect();
    let mut ends = BTreeMap::new();
    for (file, begun) in begun {
        let chain = begun.bytes(FILE_LIMIT).await.ok().and_then(|bytes| certificates(file, &bytes).ok());
        ends.extend(chain.and_then(|chain| Some((file.clone(), of_chain(&chain)?.until))));
    }
    ends
}

const EVERY: Duration = Duration::from_secs(60);
const FILE_LIMIT: Duration = Duration::from_secs(10);
