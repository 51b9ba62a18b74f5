//! Messages to the service manager that has started the relay, such as systemd (`sd_notify(3)`). Without one, nothing is sent.

use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sd_notify::NotifyState;
use weir::reload::ReloadReport;

/// The content of the status line: where the relay serves, or the result of the last reload, and which addresses it waits for.
#[derive(Debug, Default)]
struct Told {
    listen: Vec<String>,
    /// Addresses that another process still has.
    awaited: Vec<String>,
    of_reload: Option<String>,
    /// The service manager has heard that the process ends. After that it hears no more of serving, and of no reload.
    is_stopping: bool,
}

static TOLD: Mutex<Told> =
    Mutex::new(Told { listen: Vec::new(), awaited: Vec::new(), of_reload: None, is_stopping: false });

impl Told {
    fn status(&self) -> String {
        let Self { listen, awaited, of_reload, is_stopping: _ } = self;
        let open: Vec<_> = listen.iter().filter(|address| !awaited.contains(address)).map(String::as_str).collect();
        let serving = of_reload.clone().unwrap_or_else(|| format!("serving {}", open.join(" ")));
        match awaited.as_slice() {
            [] => serving,
            awaited => format!("{serving}; another process still has {}", awaited.join(" ")),
        }
    }
}

/// Reports that clients are served, and where. Another process may still have some of the addresses.
pub fn ready(listen: Vec<String>, awaited: Vec<String>) {
    tell(Some(NotifyState::Ready), |told| (told.listen, told.awaited) = (listen, awaited));
}

/// Reports that no other process has any of the addresses any more.
pub fn opened() {
    tell(None, |told| told.awaited.clear());
}

/// Changes the content of the status line, and sends the line, after another message if there is one.
fn tell(before: Option<NotifyState<'_>>, change: impl FnOnce(&mut Told)) {
    let mut told = told();
    change(&mut told);
    if !told.is_stopping {
        let status = told.status();
        send(&before.into_iter().chain([NotifyState::Status(&status)]).collect::<Vec<_>>());
    }
}

/// Messages are sent in the order in which they lock this.
fn told() -> MutexGuard<'static, Told> {
    TOLD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reports that the configuration is being read again. [`reloaded`] has to follow.
pub fn reloading() {
    let Ok(now) = NotifyState::monotonic_usec_now() else { return };
    let told = told();
    if told.is_stopping {
        return;
    }
    send(&[NotifyState::Reloading, now, NotifyState::Status("reading the configuration again")]);
}

/// Reports the result of a reload, without the text of an error, which may contain secrets.
pub fn reloaded(result: &anyhow::Result<ReloadReport>) {
    let status = match result {
        Ok(report) if report.pending.is_empty() => "serving; configuration read again".to_owned(),
        Ok(report) => format!("serving; a restart is needed for {}", report.pending.join(", ")),
        Err(_) => "serving; invalid configuration, see the log; the one before goes on".to_owned(),
    };
    tell(Some(NotifyState::Ready), |told| told.of_reload = Some(status));
}

/// Reports that the process ends when its clients have left.
pub fn stopping() {
    let mut told = told();
    told.is_stopping = true;
    send(&[NotifyState::Stopping, NotifyState::Status("draining")]);
}

/// Reports that the process makes progress, if the service manager expects that (`WatchdogSec=` of systemd).
pub fn alive() {
    if sd_notify::watchdog_enabled().is_some() {
        send(&[NotifyState::Watchdog]);
    }
}

/// Waits until all messages are sent, but at most this long: the process should not end before its last message.
pub fn finish(time: Duration) {
    let (all_sent, is_sent) = sync_channel(1);
    if is_there() && MESSAGES.try_send(Message::Last(all_sent)).is_ok() {
        let _ = is_sent.recv_timeout(time); // the service manager does not read
    }
}

/// The work of the thread that sends messages.
enum Message {
    Send(String),
    /// Signals that all earlier messages are sent.
    Last(SyncSender<()>),
}

/// Sends messages in a thread of its own, in order: a service manager that does not read must not delay the relay.
static MESSAGES: LazyLock<SyncSender<Message>> = LazyLock::new(|| {
    let (to, messages) = sync_channel(MAX_WAITING);
    std::thread::spawn(move || {
        for message in messages {
            match message {
                Message::Send(text) => send_now(&text),
                Message::Last(all_sent) => drop(all_sent),
            }
        }
    });
    to
});

fn send(states: &[NotifyState<'_>]) {
    if is_there() {
        let text: String = states.iter().map(|state| format!("{state}\n")).collect();
        if MESSAGES.try_send(Message::Send(text)).is_err() {
            tracing::warn!("the service manager does not read; a message is lost");
        }
    }
}

fn is_there() -> bool {
    std::env::var_os("NOTIFY_SOCKET").is_some()
}

fn send_now(message: &str) {
    if let Err(error) = sd_notify::notify(&[NotifyState::Custom(message.trim_end())]) {
        tracing::warn!(%error, "cannot notify the service manager");
    }
}

/// The limit of messages that wait for the service manager to read.
const MAX_WAITING: usize = 64;
