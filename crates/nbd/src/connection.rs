//! The threads of connections: each receives, runs its session, and sends.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use socket2::Socket;

use crate::export::Exports;
use crate::limits::NEGOTIATION_SILENCE_MAX;
use crate::session::{Progress, Session};

/// How long a thread polls for the rest of a message before it sleeps. Clients send the head of a
/// write and its payload one after the other; sleeping in between would take longer than everything
/// else.
const MIDWAY_POLL: Duration = Duration::from_micros(20);

/// The connections of a server, and their exports.
#[derive(Debug)]
pub(super) struct Connections {
    exports: Arc<Exports>,
    count_max: usize,
    /// How long a thread polls for the next request before it sleeps, if the client's requests
    /// arrive that soon.
    poll: Duration,
    threads: Arc<Threads>,
}

/// State shared by the threads of connections. It does not include the exports: each thread has
/// them in its session, and has dropped them when its socket is removed from here.
#[derive(Debug, Default)]
struct Threads {
    /// Set when connections are to finish.
    is_ending: AtomicBool,
    open: Mutex<Open>,
    closed: Condvar,
}

/// A second handle of each open socket, to wake the thread that waits for it.
#[derive(Debug, Default)]
struct Open {
    sockets: HashMap<u64, Socket>,
    id_last: u64,
}

impl Connections {
    pub(super) fn new(exports: Exports, count_max: usize, poll: Duration) -> Self {
        Connections { exports: Arc::new(exports), count_max, poll, threads: Arc::default() }
    }

    /// Serves a blocking socket in a thread of its own; `client` is its name for people.
    ///
    /// # Errors
    ///
    /// When there are too many connections, or the system refuses a thread.
    pub(super) fn start(&self, socket: Socket, client: String) -> io::Result<()> {
        let waker = socket.try_clone()?;
        let mut open = self.threads.open();
        // SeqCst: together with the lock, either `end` finds this socket, or this thread finds the
        // end.
        if self.threads.is_ending.load(Ordering::SeqCst) || open.sockets.len() >= self.count_max {
            return Err(io::Error::other("too many connections; the client is closed"));
        }
        open.id_last += 1;
        let id = open.id_last;
        open.sockets.insert(id, waker);
        drop(open);
        let connection = Connection { threads: Arc::clone(&self.threads), id, client };
        let session = Session::new(Arc::clone(&self.exports));
        let poll = self.poll;
        let thread = std::thread::Builder::new().name(format!("nbd-{id}"));
        thread.spawn(move || connection.run(socket, session, poll))?;
        Ok(())
    }

    /// Lets every connection finish what it has received. Returns true if all ended within
    /// `patience`, and no thread has exports any more.
    pub(super) fn end(&self, patience: Duration) -> bool {
        // SeqCst: see `start`.
        self.threads.is_ending.store(true, Ordering::SeqCst);
        self.threads.shut_down(Shutdown::Read, patience)
    }

    /// Ends connections whose clients do not read their replies. Returns true if all ended in time.
    pub(super) fn cut(&self, patience: Duration) -> bool {
        self.threads.shut_down(Shutdown::Both, patience)
    }
}

impl Threads {
    fn shut_down(&self, how: Shutdown, patience: Duration) -> bool {
        let open = self.open();
        for socket in open.sockets.values() {
            // Fails if the client has already closed it.
            let _ = socket.shutdown(how);
        }
        let waited =
            self.closed.wait_timeout_while(open, patience, |open| !open.sockets.is_empty());
        waited.unwrap_or_else(PoisonError::into_inner).0.sockets.is_empty()
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        // A panic elsewhere leaves the map consistent.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One open connection. Dropping it, also by a panic, closes its socket.
struct Connection {
    threads: Arc<Threads>,
    id: u64,
    client: String,
}

impl Connection {
    /// Drops the session, and the exports with it, before `self`, also in a panic.
    fn run(self, socket: Socket, session: Session, poll: Duration) {
        match serve(socket, session, &self.threads.is_ending, poll) {
            Ok(()) => tracing::debug!(client = %self.client, "connection closed"),
            // A client that disconnects in the middle is ordinary.
            Err(error) => tracing::debug!(%error, client = %self.client, "connection lost"),
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!(
                client = %self.client,
                "a request made the server panic; its connection was closed"
            );
        }
        self.threads.open().sockets.remove(&self.id);
        self.threads.closed.notify_all();
    }
}

/// Serves a connection until the client or the server ends it.
///
/// Replies are sent before more is received. So nothing more is read from a client that does not
/// read its replies.
fn serve(
    mut socket: Socket,
    mut session: Session,
    is_ending: &AtomicBool,
    poll: Duration,
) -> io::Result<()> {
    socket.set_read_timeout(Some(NEGOTIATION_SILENCE_MAX))?;
    let mut is_negotiating = true;
    let mut polling = Polling::new(poll);
    let mut progress = Progress::Read;
    loop {
        if !session.output().is_empty() {
            socket.write_all(session.output())?;
            session.sent();
        }
        if is_negotiating && !session.is_negotiating() {
            is_negotiating = false;
            socket.set_read_timeout(None)?;
        }
        progress = match progress {
            // Relaxed: a client without pauses notices it one request later at worst.
            Progress::Read if is_ending.load(Ordering::Relaxed) => break,
            Progress::Read => {
                let is_midway = session.is_midway();
                let poll = polling.next(is_midway);
                let start = Instant::now();
                let received = receive(&mut socket, session.room(), poll)?;
                if !is_midway {
                    polling.waited(start.elapsed());
                }
                if received == 0 {
                    break;
                }
                session.received(received);
                session.run()
            }
            Progress::Yield => session.run(),
            Progress::Close => break,
        }
    }
    socket.shutdown(Shutdown::Both)
}

/// How long to poll: as long as polling is likely to succeed.
#[derive(Debug)]
struct Polling {
    poll: Duration,
    /// Whether the last bytes came soon.
    is_quick: bool,
}

impl Polling {
    fn new(poll: Duration) -> Self {
        Polling { poll, is_quick: false }
    }

    fn next(&self, is_midway: bool) -> Duration {
        let poll = if self.is_quick { self.poll } else { Duration::ZERO };
        if is_midway { poll.max(MIDWAY_POLL) } else { poll }
    }

    /// Notes how long bytes took to arrive. The wait of a thread that slept includes the time to
    /// wake it.
    fn waited(&mut self, wait: Duration) {
        self.is_quick = wait < self.poll.saturating_mul(2);
    }
}

/// Waits until bytes have arrived: polls for as long as `poll`, then sleeps.
fn receive(socket: &mut Socket, room: &mut [u8], poll: Duration) -> io::Result<usize> {
    if !poll.is_zero() {
        let start = Instant::now();
        while start.elapsed() < poll {
            match recv(&*socket, &mut *room, RecvFlags::DONTWAIT) {
                Ok((received, _)) => return Ok(received),
                Err(Errno::AGAIN | Errno::INTR) => std::thread::yield_now(),
                Err(error) => return Err(error.into()),
            }
        }
    }
    loop {
        match socket.read(room) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            received => return received,
        }
    }
}

#[cfg(test)]
mod tests {
    use socket2::{Domain, Type};

    use super::*;

    /// How long a test waits for an expected event.
    const PATIENCE: Duration = Duration::from_secs(30);

    #[test]
    fn a_thread_gives_up_its_exports_before_it_counts_as_ended() {
        let connections = Connections::new(Exports::new(), 1, Duration::ZERO);
        let pair = Socket::pair(Domain::UNIX, Type::STREAM, None);
        let (client, server) = pair.expect("sockets");
        connections.start(server, "a test".to_owned()).expect("a thread");
        // The thread cannot count as ended before this lock is free.
        let open = connections.threads.open();
        drop(client);
        let start = Instant::now();
        while Arc::strong_count(&connections.exports) > 1 {
            assert!(start.elapsed() < PATIENCE, "it keeps them until it has said that it ends");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(open.sockets.len(), 1, "it has ended already");
        drop(open);
        assert!(connections.end(PATIENCE));
    }

    #[test]
    fn a_thread_stays_awake_for_a_client_that_comes_back_soon() {
        let poll = Duration::from_micros(50);
        let mut polling = Polling::new(poll);
        assert_eq!(polling.next(false), Duration::ZERO, "a new client");
        assert_eq!(polling.next(true), MIDWAY_POLL);
        polling.waited(Duration::from_micros(90));
        assert_eq!([polling.next(false), polling.next(true)], [poll, poll]);
        polling.waited(Duration::from_millis(1));
        assert_eq!(polling.next(false), Duration::ZERO, "it had nothing to ask for some time");
        let mut asleep = Polling::new(Duration::ZERO);
        asleep.waited(Duration::ZERO);
        assert_eq!(asleep.next(false), Duration::ZERO);
    }
}
