//! Reads the configuration file again while the relay runs, and takes over what has changed. A file with a fault changes nothing.

use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use serde::Serialize;
use tokio::sync::Mutex;

use crate::admin::ReloadCall;
use crate::config::{Applies, Config, Diagnostic, InUse, Reloaded, hash_of};
use crate::config_status::ConfigStatus;
use crate::downstream::{DrainReason, DrainTimes, JudgedClients, Service};
use crate::generation::Generation;
use crate::relay::{LivePermissions, NeedsRestart, Newest, Views};
use crate::xds::Permissions;

/// What serves now, each for those who need no more than that. All of them are replaced together.
pub(crate) struct Serving {
    pub(crate) generation: Newest<Generation>,
    pub(crate) views: Arc<Newest<Views>>,
    pub(crate) service: Arc<Newest<Service>>,
}

/// Takes over a file that has changed. Clones do the same.
#[derive(Clone)]
pub struct ReloadControl(Arc<Inner>);

struct Inner {
    serving: Arc<Serving>,
    permissions: PermissionsControl,
    status: Arc<ConfigStatus>,
    path: PathBuf,
    adapt: Adapt,
    /// Locked for as long as a reload takes: one at a time.
    state: Mutex<State>,
}

/// Changes a configuration as the command line demands.
pub type Adapt = Box<dyn Fn(Config) -> anyhow::Result<Config> + Send + Sync>;

struct State {
    in_use: InUse,
    times: DrainTimes,
    watch: bool,
    /// Those whose streams are ending.
    earlier: Vec<Weak<Generation>>,
    is_over: bool,
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

    /// Puts other permissions in force. Clients whose rule is another now are ended, spread over some seconds, and come back under it. Returns
    /// whether anything differs.
    pub fn replace(&self, permissions: Permissions) -> Result<bool, NeedsRestart> {
        let differ = self.permissions.replace(permissions)?;
        if differ {
            self.judged.judge_again();
        }
        Ok(differ)
    }
}

/// What a reload has done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReloadReport {
    /// The keys that have changed and count now.
    pub changed: Vec<String>,
    /// The keys whose change in the file needs a restart.
    pub pending: Vec<String>,
}

impl Serving {
    pub(crate) fn new(first: Generation) -> Self {
        let first = Arc::new(first);
        let (views, service) = (Newest::new(first.views.clone()), Newest::new(first.service.clone()));
        Self { generation: Newest::new(first), views: Arc::new(views), service: Arc::new(service) }
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
        adapt: Adapt,
    ) -> Self {
        let path = status.get().file;
        let state = Mutex::new(State { in_use, times, watch, earlier: Vec::new(), is_over: false });
        Self(Arc::new(Inner { serving, permissions, status, path, adapt, state }))
    }

    /// Reads the file, and takes over what has changed. If anything is wrong with it, nothing changes.
    pub async fn reload(&self) -> anyhow::Result<ReloadReport> {
        let done = self.try_reload().await;
        let path = self.0.path.display();
        match &done {
            Ok(ReloadReport { changed, pending }) => {
                let (changed, pending) = (changed.join(", "), pending.join(", "));
                if pending.is_empty() {
                    tracing::info!(file = %path, changed, "configuration read again");
                } else {
                    tracing::warn!(file = %path, changed, pending, "configuration read again; what is pending needs a restart");
                }
            }
            Err(error) => {
                let error = format!("{error:#}");
                self.0.status.failed(&error);
                tracing::error!(file = %path, error, "invalid configuration; the one before goes on, and a restart would fail");
            }
        }
        done
    }

    async fn try_reload(&self) -> anyhow::Result<ReloadReport> {
        let mut state = self.0.state.lock().await;
        anyhow::ensure!(!state.is_over, "the relay is shutting down");
        let Reloaded { config, changed, pending } = state.in_use.reload(&self.0.path)?;
        let config = (self.0.adapt)(config)?;
        for Diagnostic { path, line, at, reason, .. } in &config.warnings {
            tracing::warn!(file = %path.display(), line, key = at, reason, "configuration warning");
        }
        if changed.iter().all(|key| Applies::of(key) == Applies::AtOnce) {
            self.0.permissions.replace(config.views.permissions.clone())?;
        } else {
            self.replace(&mut state, &config).await?;
        }
        state.in_use = config.in_use();
        (state.times, state.watch) = (config.drain, config.reload.watch);
        let shown = config.shown;
        self.0.status.taken(shown.sha256, shown.config, pending.clone());
        Ok(ReloadReport { changed, pending })
    }

    /// Sets up what the configuration describes, and lets new streams come to it.
    async fn replace(&self, state: &mut State, config: &Config) -> anyhow::Result<()> {
        let serving = self.0.serving.clone();
        let earlier = serving.generation.get();
        let next = {
            let (config, earlier) = (config.clone(), earlier.clone());
            tokio::task::spawn_blocking(move || Generation::after(&config, &earlier)).await?
        };
        self.0.permissions.replace(config.views.permissions.clone())?;
        serving.replace(Arc::new(next));
        // However often the file changes, few configurations are at work.
        state.earlier.retain(|before| before.strong_count() > 0);
        for before in state.earlier.iter().filter_map(Weak::upgrade) {
            before.end(config.drain, DrainReason::Reload);
        }
        earlier.end(config.drain.of_reload(), DrainReason::Reload);
        state.earlier.push(Arc::downgrade(&earlier));
        let lasts = config.drain.of_reload().longest() + LAST_BYTES;
        tokio::spawn(async move {
            tokio::time::sleep(lasts).await;
            earlier.finish_loads(LAST_BYTES).await;
            serving.forget(&earlier);
        });
        Ok(())
    }

    /// Reads the file again whenever it has changed, where that is configured.
    pub(crate) async fn watch(&self) {
        let (mut seen, mut tried) = (None, None);
        loop {
            tokio::time::sleep(LOOKS_EVERY).await;
            if !self.0.state.lock().await.watch {
                continue;
            }
            let Ok(text) = tokio::fs::read(&self.0.path).await else { continue };
            let now = Some(hash_of(&text));
            let is_new = now != tried && now.as_ref() != Some(&self.0.status.get().sha256);
            // It is read once it looks the same twice in a row: not all who write a file replace it in one step.
            if is_new && now == seen {
                tried.clone_from(&now);
                let _ = self.reload().await; // logged
            }
            seen = now;
        }
    }

    /// Returns what the admin address calls.
    pub(crate) fn for_admin(&self) -> ReloadCall {
        let reloads = self.clone();
        Arc::new(move || {
            let reloads = reloads.clone();
            Box::pin(async move {
                match reloads.reload().await {
                    Ok(report) => Ok(serde_json::to_value(report).unwrap_or_default()),
                    Err(error) => Err(format!("{error:#}")),
                }
            })
        })
    }

    /// Ends the streams of all configurations. Nothing is read again after that.
    pub(crate) async fn end(&self) -> DrainTimes {
        let mut state = self.0.state.lock().await;
        state.is_over = true;
        let earlier = state.earlier.iter().filter_map(Weak::upgrade);
        for generation in earlier.chain([self.0.serving.generation.get()]) {
            generation.end(state.times, DrainReason::Shutdown);
        }
        state.times
    }

    /// Reports what clients reported last, after all of them have left.
    pub(crate) async fn finish_loads(&self, patience: Duration) {
        let state = self.0.state.lock().await;
        let earlier = state.earlier.iter().filter_map(Weak::upgrade);
        let all = earlier.chain([self.0.serving.generation.get()]);
        let finish = |generation: Arc<Generation>| async move { generation.finish_loads(patience).await };
        futures_util::future::join_all(all.map(finish)).await;
    }

    /// Returns how long the relay serves as before while it is not ready.
    pub(crate) async fn last_delay(&self) -> Duration {
        self.0.state.lock().await.times.delay
    }
}

impl Serving {
    /// The views after these no longer show them.
    fn forget(&self, gone: &Generation) {
        let mut views = self.views.get();
        loop {
            let Some(earlier) = views.before() else { return };
            if Arc::ptr_eq(&earlier, &gone.views) {
                return views.forget_earlier();
            }
            views = earlier;
        }
    }
}

const LOOKS_EVERY: Duration = Duration::from_secs(1);
/// How long to wait for the last bytes of streams that have ended.
const LAST_BYTES: Duration = Duration::from_secs(5);
