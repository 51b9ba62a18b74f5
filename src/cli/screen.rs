//! The alternate screen of a terminal, for a picture that is drawn again and again, and the signals that end, stop or continue the program.

use std::future::poll_fn;
use std::io::{self, IsTerminal};
use std::mem;
use std::task::Poll;

use nix::sys::signal::{Signal as Raised, raise};
use nix::unistd::{getpgrp, getsid, tcgetpgrp};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::show;

/// The alternate screen of a terminal. It is left when this is dropped or the program is stopped. Without a terminal, nothing is switched.
pub(super) struct Screen {
    is_terminal: bool,
    /// Whether the terminal shows the alternate screen.
    is_entered: bool,
    signals: Signals,
}

/// What a signal requests of the running program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wish {
    End,
    Stop,
    GoOn,
}

struct Signals(Vec<(Wish, Signal)>);

impl Screen {
    pub(super) fn enter() -> Self {
        let is_terminal = io::stdout().is_terminal();
        // Without a terminal the program is stopped and continued by the system, like any other.
        let stops = STOPS.into_iter().filter(|_| is_terminal);
        let mut this = Self { is_terminal, is_entered: false, signals: Signals::of(ENDS.into_iter().chain(stops)) };
        this.switch_to();
        this
    }

    pub(super) fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// Returns `true` if the picture has to be drawn again because the program was stopped and continued, and `false` if the program has to end.
    pub(super) async fn is_continued(&mut self) -> bool {
        loop {
            match self.signals.next().await {
                Wish::End => return false,
                Wish::Stop if is_job() => {
                    self.leave();
                    if raise(Raised::SIGSTOP).is_err() {
                        self.switch_to();
                    }
                }
                Wish::Stop => {} // not a job, so no shell could continue it
                // Another program has the terminal.
                Wish::GoOn if is_in_background() && raise(Raised::SIGSTOP).is_ok() => {}
                Wish::GoOn => {
                    self.switch_to();
                    return true;
                }
            }
        }
    }

    fn switch_to(&mut self) {
        if self.is_terminal {
            self.is_entered = true;
            write(ENTER);
        }
    }

    fn leave(&mut self) {
        write(self.left());
    }

    /// Returns the sequence that leaves the screen, once. After a stop the terminal is the shell's, which may then end the program.
    fn left(&mut self) -> &'static str {
        if mem::take(&mut self.is_entered) { LEAVE } else { "" }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.leave();
    }
}

fn write(sequence: &str) {
    if !sequence.is_empty() {
        let _ = show(sequence); // nothing helps if the terminal is gone, and the next picture notices it
    }
}

/// Waits for a signal that ends the program, from a user or because the terminal has closed.
pub(super) async fn interrupted() {
    Signals::of(ENDS).next().await;
}

impl Signals {
    /// Listens to these signals; those that cannot be caught are left out.
    fn of(kinds: impl IntoIterator<Item = (Wish, SignalKind)>) -> Self {
        Self(kinds.into_iter().filter_map(|(wish, kind)| Some((wish, signal(kind).ok()?))).collect())
    }

    async fn next(&mut self) -> Wish {
        poll_fn(|cx| {
            for (wish, signal) in &mut self.0 {
                if signal.poll_recv(cx).is_ready() {
                    return Poll::Ready(*wish);
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// Whether a shell has started the program as a job, which the shell can continue. A shell that runs only one command, as with ssh and in containers,
/// starts no jobs.
fn is_job() -> bool {
    getsid(None).is_ok_and(|session| session != getpgrp())
}

fn is_in_background() -> bool {
    tcgetpgrp(io::stdout()).is_ok_and(|foreground| foreground != getpgrp())
}

const ENDS: [(Wish, SignalKind); 4] = [
    (Wish::End, SignalKind::interrupt()),
    (Wish::End, SignalKind::terminate()),
    (Wish::End, SignalKind::hangup()),
    (Wish::End, SignalKind::quit()),
];
const STOPS: [(Wish, SignalKind); 2] =
    [(Wish::Stop, SignalKind::from_raw(libc::SIGTSTP)), (Wish::GoOn, SignalKind::from_raw(libc::SIGCONT))];
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_screen_that_was_left_is_not_left_again() {
        let mut screen = Screen { is_terminal: true, is_entered: true, signals: Signals::of([]) };
        assert_eq!((screen.left(), screen.left()), (LEAVE, ""));
    }

    #[tokio::test]
    async fn a_signal_to_stop_is_caught_and_one_to_continue_follows() {
        let mut signals = Signals::of(STOPS);
        for (raised, wish) in [(Raised::SIGTSTP, Wish::Stop), (Raised::SIGCONT, Wish::GoOn)] {
            raise(raised).unwrap();
            let next = tokio::time::timeout(Duration::from_secs(60), signals.next()).await;
            assert_eq!(next, Ok(wish), "{raised}");
        }
    }
}
