//! The floor: the cost of the kernel alone. Each message is encoded into frames once, and written to each client in one call.
//!
//! It serves only the first stream of a connection, and ignores what a client sends after it has subscribed. A line `N` on standard input begins
//! round N: the first resources change, and all clients are sent them.

use std::collections::HashMap;
use std::io::{self, BufRead, ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token, Waker};

use super::frames::{self, Event, Opening};
use crate::bench::{Kind, Resources, framed, response};
use crate::wire::Variant;

#[derive(Debug, clap::Args)]
pub struct Floor {
    #[arg(long, value_enum)]
    variant: Variant,
    #[arg(long, value_enum)]
    kind: Kind,
    /// How many resources there are
    #[arg(long)]
    count: usize,
    /// Bytes of each
    #[arg(long)]
    size: usize,
    /// How many of them change in a round
    #[arg(long)]
    changed: usize,
}

impl Floor {
    pub fn run(self) -> anyhow::Result<()> {
        let resources = Resources { kind: self.kind, count: self.count, size: self.size };
        let all = (0..self.count).map(|index| (index, 0));
        let mut first = frames::response_headers();
        first.extend(frames::data(&framed(&response(&resources, self.variant, all, "0", "0"))));
        let first = Arc::<[u8]>::from(first);
        let listener = super::listen()?.into_std()?;
        listener.set_nonblocking(false)?;
        super::print_address(listener.local_addr()?);
        let workers = (0..WORKERS).map(|_| Worker::start(first.clone())).collect::<io::Result<Vec<_>>>()?;
        let accepting = workers.clone();
        std::thread::spawn(move || {
            for worker in accepting.iter().cycle() {
                let Ok((socket, _)) = listener.accept() else { return };
                let ready = socket.set_nodelay(true).and_then(|()| socket.set_nonblocking(true));
                if ready.is_ok() {
                    worker.send(Order::Accept(socket));
                }
            }
        });
        for line in io::stdin().lock().lines() {
            let round: u32 = line?.trim().parse()?;
            // A complete set has all resources, changed or not.
            let sent = if self.variant == Variant::Sotw { self.count } else { self.changed };
            let sent = (0..sent).map(|index| (index, if index < self.changed { round } else { 0 }));
            let message = response(&resources, self.variant, sent, &round.to_string(), &round.to_string());
            let frames = Arc::<[u8]>::from(frames::data(&framed(&message)));
            workers.iter().for_each(|worker| worker.send(Order::Push(frames.clone())));
        }
        Ok(())
    }
}

enum Order {
    Accept(std::net::TcpStream),
    Push(Arc<[u8]>),
}

/// A thread with some of the connections.
#[derive(Clone)]
struct Worker {
    orders: Sender<Order>,
    waker: Arc<Waker>,
}

impl Worker {
    fn start(first: Arc<[u8]>) -> io::Result<Self> {
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKER)?);
        #[allow(clippy::disallowed_methods, reason = "orders are connections and pushes, which the benchmark makes")]
        let (orders, queue) = channel();
        std::thread::spawn(move || Connections { poll, queue, first, open: HashMap::new() }.run());
        Ok(Self { orders, waker })
    }

    fn send(&self, order: Order) {
        let _ = self.orders.send(order); // the thread ends with the process
        let _ = self.waker.wake();
    }
}

struct Connections {
    poll: Poll,
    queue: Receiver<Order>,
    first: Arc<[u8]>,
    open: HashMap<Token, Connection>,
}

struct Connection {
    socket: TcpStream,
    /// `None` once the client has subscribed.
    opening: Option<Opening>,
    /// Frames to be written, oldest first, and how many bytes of the first were written.
    unsent: Vec<Arc<[u8]>>,
    written: usize,
}

impl Connections {
    fn run(mut self) {
        let mut events = Events::with_capacity(1024);
        let mut scratch = vec![0; 64 << 10];
        let mut next = 1;
        loop {
            match self.poll.poll(&mut events, None) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => return,
                Ok(()) => {}
            }
            for event in &events {
                let Some(connection) = self.open.get_mut(&event.token()) else { continue };
                let read = !event.is_readable() || connection.read(&mut scratch, &self.first);
                let kept = read && connection.write().is_ok();
                if !kept {
                    self.open.remove(&event.token());
                }
            }
            while let Ok(order) = self.queue.try_recv() {
                match order {
                    Order::Accept(socket) => {
                        self.accept(Token(next), TcpStream::from_std(socket));
                        next += 1;
                    }
                    Order::Push(frames) => self.push(&frames),
                }
            }
        }
    }

    fn accept(&mut self, token: Token, mut socket: TcpStream) {
        let both = Interest::READABLE | Interest::WRITABLE;
        if self.poll.registry().register(&mut socket, token, both).is_err() {
            return;
        }
        let unsent = vec![frames::greeting().into()];
        self.open.insert(token, Connection { socket, opening: Some(Opening::default()), unsent, written: 0 });
    }

    fn push(&mut self, frames: &Arc<[u8]>) {
        self.open.retain(|_, connection| {
            if connection.opening.is_none() {
                connection.unsent.push(frames.clone());
            }
            connection.write().is_ok()
        });
    }
}

impl Connection {
    /// Returns whether the connection stays open.
    fn read(&mut self, scratch: &mut [u8], first: &Arc<[u8]>) -> bool {
        loop {
            let read = match self.socket.read(scratch) {
                Ok(0) => return false,
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => return false,
            };
            if let Some(opening) = &mut self.opening {
                for event in opening.read(&scratch[..read]) {
                    match event {
                        Event::Settings => self.unsent.push(frames::settings_ack().into()),
                        Event::Request => {
                            self.unsent.push(first.clone());
                            self.opening = None;
                            break;
                        }
                    }
                }
            }
            if read < scratch.len() {
                return true; // nothing is left to read; further bytes cause another event
            }
        }
    }

    fn write(&mut self) -> io::Result<()> {
        while let Some(frames) = self.unsent.first() {
            match self.socket.write(&frames[self.written..]) {
                Ok(written) => self.written += written,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if self.written == frames.len() {
                self.unsent.remove(0);
                self.written = 0;
            }
        }
        Ok(())
    }
}

const WORKERS: usize = 2;
const WAKER: Token = Token(0);
