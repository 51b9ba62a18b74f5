//! Reads the configuration file again while the relay runs, and applies what has changed. A file with a fault changes nothing.

use std::path::PathBuf;
use std::sync::{Arc, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::sync::Mutex;
use weir_core::xds::Permissions;

use crate::admin::{Dry, ReloadCall};
use crate::config::{
    Applies, Config, Diagnostic, InUse, Reading, Reloaded, applies, with_lasting_hashes, without_environment,
};
use crate::config_status::{ConfigFacts, ConfigStatus};
use crate::config_watch::{Attempt, Cause, ConfigFileState, ConfigWatch, LastAttempt, Waits};
use crate::downstream::{self, DrainReason, DrainTimes, JudgedClients, Service};
use crate::generation::Generation;
use crate::relay::{LivePermissions, NeedsRestart, Newest, Views};
use crate::tls::{ListenTls, ListenerTls, ReadTls, TlsFileError};

/// The present generation, and its parts for those who need only one of them. All are replaced together.
pub(crate) struct Serving {
    pub(crate) generation: Newest<Generation>,
    pub(crate) views: Arc<Newest<Views>>,
    pub(crate) service: Arc<Newest<Service>>,
    /// Held while views are let go of: of two at a time, each could keep what the other lets go of.
    letting_go: Mutex<()>,
}

/// Applies a changed configuration file. Clones share the state.
#[derive(Clone)]
pub struct ReloadControl(Arc<Inner>);

struct Inner {
    serving: Arc<Serving>,
    permissions: PermissionsControl,
    status: Arc<ConfigStatus>,
    path: PathBuf,
    adapt: ConfigOverride,
    limits: PutLimits,
    /// The TLS of the addresses for clients, in the order of the addresses.
    listeners: Vec<Option<Arc<ListenerTls>>>,
    /// Locked during a whole reload, so that there is only one at a time.
    in_use: Mutex<InUse>,
    /// Nothing awaits while it is locked.
    course: std::sync::Mutex<ReloadState>,
}

/// Applies the command line to a configuration.
pub type ConfigOverride = Box<dyn Fn(Config) -> anyhow::Result<Config> + Send + Sync>;

/// Applies those limits that take effect at once, also to listeners that stay.
pub(crate) type PutLimits = Box<dyn Fn(&downstream::Options) + Send + Sync>;

struct ReloadState {
    times: DrainTimes,
    watch: bool,
    /// The last attempt to read the file again.
    attempt: Option<Arc<Attempt>>,
    /// Earlier generations, whose streams are ending.
    earlier: Vec<Weak<Generation>>,
    /// The relay shuts down, and client streams are ending.
    is_over: bool,
}

impl ReloadState {
    fn ensure_not_over(&self) -> anyhow::Result<()> {
        anyhow::ensure!(!self.is_over, "the relay is shutting down");
        Ok(())
    }
}

/// Changes the permissions of a running relay.
pub struct PermissionsControl {
    permissions: Arc<LivePermissions>,
    judged: Arc<JudgedClients>,
}

impl PermissionsControl {
    pub(crate) fn new(permissions: Arc<LivePermissions>, judged: Arc<JudgedClients>) -> Self {
        Self { permissions, judged }
    }

    /// Applies other permissions. Streams of clients whose rule has changed are ended, spread over some seconds, and the clients reconnect under
    /// the new rule. Returns whether anything has changed.
    pub fn replace(&self, permissions: Permissions) -> Result<bool, NeedsRestart> {
        self.permissions.replace(permissions).inspect(|differ| self.judge_again_if(*differ))
    }

    fn judge_again_if(&self, has_changed: bool) {
        if has_changed {
            self.judged.judge_again();
        }
    }
}

/// The result of a reload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReloadReport {
    /// The keys that have changed and are in force now.
    pub changed: Vec<String>,
    /// The keys whose change in the file needs a restart.
    pub pending: Vec<String>,
}

impl Serving {
    pub(crate) fn new(first: Generation) -> Self {
        let first = Arc::new(first);
        let (views, service) = (Newest::new(first.views.clone()), Newest::new(first.service.clone()));
        let (views, service, letting_go) = (Arc::new(views), Arc::new(service), Mutex::default());
        Self { generation: Newest::new(first), views, service, letting_go }
    }

    fn replace(&self, next: Arc<Generation>) {
        self.views.replace(next.views.clone());
        self.service.replace(next.service.clone());
        self.generation.replace(next);
    }
}

impl ReloadControl {
    pub(crate) fn new(
        serving: Arc<Serving>,
        permissions: PermissionsControl,
        status: Arc<ConfigStatus>,
        (in_use, times, watch): (InUse, DrainTimes, bool),
        (listeners, limits, adapt): (Vec<Option<Arc<ListenerTls>>>, PutLimits, ConfigOverride),
    ) -> Self {
        let path = status.get().file;
        let course =
            std::sync::Mutex::new(ReloadState { times, watch, attempt: None, earlier: Vec::new(), is_over: false });
        Self(Arc::new(Inner {
            serving,
            permissions,
            status,
            path,
            adapt,
            limits,
            listeners,
            in_use: Mutex::new(in_use),
            course,
        }))
    }

    fn course(&self) -> MutexGuard<'_, ReloadState> {
        self.0.course.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the file, and applies what has changed. If it has any fault, nothing changes.
    pub async fn reload(&self) -> anyhow::Result<ReloadReport> {
        self.reload_and_tell(Cause::News).await.map_err(|(error, _)| error)
    }

    /// Does the same for a given cause. An error comes with its text for pages.
    async fn reload_and_tell(&self, cause: Cause) -> Result<ReloadReport, (anyhow::Error, String)> {
        let path = self.0.path.display();
        self.ensure_not_over()?;
        match self.try_reload().await {
            Ok(report) => {
                let (changed, pending) = (report.changed.join(", "), report.pending.join(", "));
                if pending.is_empty() {
                    tracing::info!(file = %path, changed, "configuration read again");
                } else {
                    tracing::warn!(file = %path, changed, pending, "configuration read again; what is pending needs a restart");
                }
                Ok(report)
            }
            Err(fault) => {
                self.ensure_not_over()?; // a drain may have begun meanwhile
                let (error, file) = (format!("{fault:#}"), self.0.path.clone());
                let words = tokio::task::spawn_blocking(move || without_environment(&error, &file));
                let words = words.await.unwrap_or_default();
                if self.0.status.failed(&words) || cause == Cause::News {
                    tracing::error!(file = %path, error = words, "invalid configuration; the one before goes on, and a restart would fail");
                }
                Err((fault, words))
            }
        }
    }

    /// Rejects a reload during a drain. This says nothing about the file, so it does not count as a failure of it.
    fn ensure_not_over(&self) -> Result<(), (anyhow::Error, String)> {
        let Err(error) = self.course().ensure_not_over() else { return Ok(()) };
        tracing::info!(file = %self.0.path.display(), reason = %error, "configuration not read again");
        let words = error.to_string();
        Err((error, words))
    }

    async fn try_reload(&self) -> anyhow::Result<ReloadReport> {
        let mut in_use = self.0.in_use.lock().await;
        // A load from disk goes to the present views, so the reload waits for it.
        self.0.serving.views.get().readiness().load().awaited().await;
        self.course().ensure_not_over()?;
        // This waits for the disk, within the limit of each file.
        let reading = tokio::task::spawn_blocking({
            let (in_use, path) = (in_use.clone(), self.0.path.clone());
            move || {
                let Reading { sha256, named, result } = in_use.reload(&path);
                (Attempt::of(sha256, named), result)
            }
        });
        let (attempt, result) = reading.await?;
        self.course().attempt = Some(Arc::new(attempt));
        let Reloaded { config, changed, pending } = result?;
        let config = self.adapted(config).await?;
        let has_other_tls = changed.iter().any(|key| key.starts_with("listen.tls"));
        let tls = if has_other_tls { self.read_tls(&config).await? } else { Vec::new() };
        self.course().ensure_not_over()?; // a drain may have begun since the file was read
        if changed.iter().all(|key| applies(key) == Applies::AtOnce) {
            self.0.permissions.replace(config.views.permissions.clone())?;
        } else {
            self.replace(&config)?;
        }
        {
            let views = self.0.serving.views.get();
            views.memory().set_budget(config.views.memory.clone());
            views.shared().tenants.set_limits(config.views.tenants);
            views.readiness().set_ready_after(config.ready_after);
        }
        (self.0.limits)(&config.downstream);
        for (listener, read) in tls {
            listener.replace(read);
        }
        self.0.permissions.judge_again_if(has_other_tls);
        for Diagnostic { path, line, at, reason, .. } in &config.warnings {
            tracing::warn!(file = %path.display(), line, key = at, reason, "configuration warning");
        }
        *in_use = InUse::of(&config);
        {
            let mut course = self.course();
            (course.times, course.watch) = (config.drain, config.reload.watch);
        }
        let shown = config.shown;
        self.0.status.taken(shown.sha256, shown.bootstrap, shown.config, pending.clone());
        Ok(ReloadReport { changed, pending })
    }

    /// Returns a configuration in the form in which this process serves it.
    async fn adapted(&self, config: Config) -> anyhow::Result<Config> {
        let reloads = self.clone();
        let adapted = tokio::task::spawn_blocking(move || with_lasting_hashes((reloads.0.adapt)(config)?));
        adapted.await?
    }

    /// Reads the files for TLS of all addresses. None is applied unless all are usable.
    async fn read_tls(&self, config: &Config) -> anyhow::Result<Vec<(Arc<ListenerTls>, ReadTls)>> {
        let pairs = self.0.listeners.iter().zip(&config.listen);
        let pairs: Vec<_> = pairs.filter_map(|(tls, options)| Some((tls.clone()?, options.tls.clone()?))).collect();
        let read = move || {
            let read = |(tls, options): (Arc<ListenerTls>, ListenTls)| Ok((tls.clone(), tls.read(&options)?));
            pairs.into_iter().map(read).collect::<Result<Vec<_>, TlsFileError>>()
        };
        Ok(tokio::task::spawn_blocking(read).await??)
    }

    /// Sets up the generation of a configuration, which gets the new streams. Nothing changes before all that may refuse it has been asked.
    fn replace(&self, config: &Config) -> anyhow::Result<()> {
        let serving = &self.0.serving;
        let mut course = self.course();
        course.ensure_not_over()?;
        let (control, permissions) = (&self.0.permissions, config.views.permissions.clone());
        control.judge_again_if(control.permissions.replace_with_generation(permissions)?);
        let earlier = serving.generation.get();
        let next = Arc::new(Generation::after(config, &earlier));
        serving.replace(next.clone());
        next.take_audits();
        next.ask_sources();
        // Limits how many generations serve at the same time, however often the file changes.
        course.earlier.retain(|before| before.strong_count() > 0);
        for before in course.earlier.iter().filter_map(Weak::upgrade) {
            before.end(config.drain.evenly(), DrainReason::Reload);
        }
        let times = config.drain.of_reload();
        earlier.end(times, DrainReason::Reload);
        course.earlier.push(Arc::downgrade(&earlier));
        drop(course);
        tokio::spawn(leave(serving.clone(), earlier, times.longest() + LAST_BYTES));
        Ok(())
    }

    /// Reads the file again whenever it has changed, if that is configured. A file that was refused is also tried again.
    pub(crate) async fn watch(&self) {
        let mut watch = ConfigWatch::default();
        loop {
            tokio::time::sleep(LOOKS_EVERY).await;
            let (is_on, attempt) = {
                let course = self.course();
                (course.watch && !course.is_over, course.attempt.clone())
            };
            if !is_on {
                watch = ConfigWatch::default();
                continue;
            }
            let ConfigFacts { sha256, error, .. } = self.0.status.get();
            let refused = attempt.filter(|_| error.is_some());
            let (path, of_look) = (self.0.path.clone(), refused.clone());
            let look = tokio::task::spawn_blocking(move || ConfigFileState::at(&path, of_look.as_deref()));
            let Ok(look) = look.await else { continue };
            let tried = refused.as_deref().map_or(LastAttempt::Taken(&sha256), LastAttempt::Refused);
            if let Some(Waits { missing }) = watch.waits(&tried) {
                let file = self.0.path.display();
                tracing::warn!(%file, missing, "waiting: the configuration is read again when it or a file that it names changes, and every 30 s");
            }
            if let Some(cause) = watch.is_due(look, &tried, Instant::now()) {
                let _ = self.reload_and_tell(cause).await; // the result is logged
            }
        }
    }

    /// Returns the function that the admin API calls.
    pub(crate) fn for_admin(&self) -> ReloadCall {
        let reloads = self.clone();
        Arc::new(move |Dry(is_dry)| {
            let reloads = reloads.clone();
            // The reload continues if the caller leaves.
            let reload = tokio::spawn(async move {
                match is_dry {
                    true => reloads.foretell().await,
                    false => reloads.reload_for_admin().await,
                }
            });
            Box::pin(async move { reload.await.unwrap_or_else(|error| Err(error.to_string())) })
        })
    }

    async fn reload_for_admin(&self) -> Result<serde_json::Value, String> {
        let report = self.reload_and_tell(Cause::News).await.map_err(|(_, words)| words)?;
        Ok(serde_json::to_value(report).unwrap_or_default())
    }

    /// Returns what a reload would change, or why it would change nothing. Nothing is applied or logged.
    async fn foretell(&self) -> Result<serde_json::Value, String> {
        self.course().ensure_not_over().map_err(|error| error.to_string())?;
        let (in_use, path) = (self.0.in_use.lock().await.clone(), self.0.path.clone());
        let in_words = |error: String| {
            let path = self.0.path.clone();
            async move { tokio::task::spawn_blocking(move || without_environment(&error, &path)).await.unwrap_or_default() }
        };
        let reading = tokio::task::spawn_blocking(move || in_use.reload(&path).result);
        let foretold = async {
            let Reloaded { config, changed, pending } = reading.await??;
            let config = self.adapted(config).await?;
            if changed.iter().any(|key| key.starts_with("listen.tls")) {
                self.read_tls(&config).await?;
            }
            anyhow::Ok(ReloadReport { changed, pending })
        };
        match foretold.await {
            Ok(report) => Ok(serde_json::to_value(report).unwrap_or_default()),
            Err(fault) => Err(in_words(format!("{fault:#}")).await),
        }
    }

    /// Ends the streams of all generations. After that the file is not watched, and no other generation follows.
    pub(crate) fn end(&self) -> DrainTimes {
        let mut course = self.course();
        course.is_over = true;
        let earlier = course.earlier.iter().filter_map(Weak::upgrade);
        let all: Vec<_> = earlier.chain([self.0.serving.generation.get()]).collect();
        // The generations share the rate at which streams end.
        let count = all.iter().filter(|generation| !generation.has_no_clients()).count();
        for generation in all {
            generation.end(course.times.one_of(count), DrainReason::Shutdown);
        }
        course.times
    }

    /// Sends the last load reports of clients, after all of them have left.
    pub(crate) async fn finish_loads(&self, patience: Duration) {
        let earlier: Vec<_> = self.course().earlier.iter().filter_map(Weak::upgrade).collect();
        let all = earlier.into_iter().chain([self.0.serving.generation.get()]);
        let finish = |generation: Arc<Generation>| async move { generation.finish_loads(patience).await };
        futures_util::future::join_all(all.map(finish)).await;
    }

    /// Returns how long the relay still accepts clients after it has become not ready.
    pub(crate) fn last_delay(&self) -> Duration {
        self.course().times.delay
    }
}

/// Waits until a generation has no clients. The resources of its views then belong to those that followed.
async fn leave(serving: Arc<Serving>, earlier: Arc<Generation>, at_most: Duration) {
    let last = Instant::now() + at_most;
    while Instant::now() < last && !earlier.has_no_clients() {
        tokio::time::sleep(LOOKS_EVERY).await;
    }
    earlier.finish_loads(LAST_BYTES).await;
    let (_turn, views) = (serving.letting_go.lock().await, serving.views.clone());
    let _ = tokio::task::spawn_blocking(move || views.get().let_go_of(&earlier.views)).await;
}

const LOOKS_EVERY: Duration = Duration::from_secs(1);
/// How long to wait for the last bytes of streams that have ended.
const LAST_BYTES: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests;
