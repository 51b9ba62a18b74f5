//! A control plane that answers by itself, by a script that the test can change at any time.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};

use crate::address::own_address;
use crate::conversation::Conversation;
use crate::load_plane::LoadStream;
use crate::plane::{Calls, Habits, Plane};
use crate::script::{Manner, Seen, Way, World};
use crate::wait::until;

pub struct Server {
    pub address: SocketAddr,
    /// Streams of load reports, which are accepted in every script.
    pub loads: mpsc::UnboundedReceiver<LoadStream>,
    way: watch::Sender<Way>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
    seen: Arc<Mutex<Seen>>,
    calls: Calls,
}

impl Server {
    pub async fn start(way: Way) -> Self {
        Self::start_at(own_address(), way).await
    }

    pub async fn start_at(address: SocketAddr, way: Way) -> Self {
        Self::with(address, Habits::default(), Manner::default(), way).await
    }

    /// Starts a control plane with these habits.
    pub async fn with(address: SocketAddr, habits: Habits, manner: Manner, way: Way) -> Self {
        let mut plane = Plane::with(address, habits).await;
        let (address, calls) = (plane.address, plane.calls.clone());
        let loads = std::mem::replace(&mut plane.loads, mpsc::unbounded_channel().1);
        let (way, ways) = watch::channel(way);
        let (stop, mut stopped) = oneshot::channel();
        let seen = Arc::new(Mutex::new(Seen::default()));
        let log = seen.clone();
        let task = tokio::spawn(async move {
            let mut streams = JoinSet::new();
            loop {
                tokio::select! {
                    stream = plane.streams.recv() => {
                        streams.spawn(Conversation::over(stream.unwrap(), manner, log.clone()).hold(ways.clone()));
                    }
                    _ = &mut stopped => break,
                }
            }
            plane.kill().await;
        });
        Self { address, loads, way, stop, task, seen, calls }
    }

    /// Changes the script, also for open streams.
    pub fn turn(&self, way: Way) {
        self.way.send_replace(way);
    }

    /// Changes what the control plane has.
    pub fn change(&self, change: impl FnOnce(&mut World)) {
        self.way.send_modify(|way| change(way.world_mut().expect("the script has no world")));
    }

    /// Returns the script.
    pub fn way(&self) -> Way {
        self.way.borrow().clone()
    }

    pub fn seen(&self) -> Seen {
        let refused = self.calls.lock().unwrap().iter().filter_map(|call| call.refused.clone()).collect();
        Seen { refused, ..self.seen.lock().unwrap().clone() }
    }

    /// Waits until the control plane has seen this. What it has refused is left to [`Self::seen`].
    pub async fn sees(&self, what: &str, holds: impl Fn(&Seen) -> bool) {
        until(what, async || holds(&self.seen.lock().unwrap())).await;
    }

    /// Closes the listener and every connection.
    pub async fn kill(self) -> SocketAddr {
        drop(self.stop);
        self.task.await.unwrap();
        self.address
    }
}
