//! What a look waits for. A disk may hang, for example one of a lost server, and a look at it then does not end.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use super::FileError;
use crate::file_access::LIMIT;

/// The path for which a look has last asked the disk. The look shares it with the task that waits for the look. A look at many files may take
/// long; it is late only if a single answer is.
#[derive(Debug, Clone, Default)]
pub(super) struct DiskWait(Arc<Mutex<Asked>>);

#[derive(Debug, Default)]
struct Asked {
    path: PathBuf,
    /// `None`: the disk has answered.
    since: Option<Instant>,
}

impl DiskWait {
    /// Notes that the disk is asked for a path next: it has answered for the one before.
    pub(super) fn begin(&self, path: &Path) {
        let mut asked = self.lock();
        path.clone_into(&mut asked.path);
        asked.since = Some(Instant::now());
    }

    /// Notes that the disk has answered for the last path.
    pub(super) fn end(&self) {
        self.lock().since = None;
    }

    /// Waits until the disk has not answered for a path within the limit, and returns that as an error of the path.
    pub(super) async fn late(&self) -> FileError {
        loop {
            let left = {
                let asked = self.lock();
                let left = asked.since.map_or(LIMIT, |since| LIMIT.saturating_sub(since.elapsed()));
                if left.is_zero() {
                    let limit = humantime::format_duration(LIMIT);
                    return FileError::of(&asked.path, &format!("the disk has not answered within {limit}"));
                }
                left
            };
            tokio::time::sleep(left).await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Asked> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::sleep;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_look_is_late_if_one_answer_is_and_not_if_there_are_many_or_none_is_awaited() {
        let (disk, moment) = (DiskWait::default(), Duration::from_millis(10));
        let look = async {
            for number in 0..10 {
                disk.begin(Path::new(&format!("{number}.json")));
                sleep(LIMIT - moment).await;
            }
            disk.end();
            sleep(3 * LIMIT).await;
            disk.begin(Path::new("last.json"));
            Instant::now()
        };
        let (late, asked) = tokio::join!(disk.late(), look);
        assert_eq!(late.to_string(), "last.json: the disk has not answered within 10s");
        assert!((LIMIT..LIMIT + moment).contains(&asked.elapsed()), "{:?}", asked.elapsed());
    }
}
