//! One connection, apart from its socket.

mod client;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::clients::{Record, Totals};
use crate::command::{Call, Command, NO_MEMORY_FOR_REQUEST, TABLE};
use crate::memory::Share;
use crate::resp::{Output, Parser, ProtocolError};
use crate::statistics::{Ended, Tally};
use crate::syncs::Ticket;
use crate::{Shared, Store};

pub use self::client::Progress;
pub(crate) use self::client::{Client, Replies};

/// Bytes of answers after which they are sent before more requests are run.
const FLUSH_LEN: usize = 32 << 10;
/// Requests after which other connections get a turn.
const TURN_REQUESTS: usize = 1024;
/// Bytes of room for a read, at least.
const READ_LEN: usize = 16 << 10;
/// Bytes of buffer that an idle connection keeps for each direction, at most.
const KEPT_LEN: usize = 64 << 10;
/// Bytes of buffer for each direction that do not count as memory that clients share, so that short requests and answers
/// have room however much others take: what is kept, and the positions of some arguments.
const UNCOUNTED: usize = KEPT_LEN + (4 << 10);

/// One connection without its socket: bytes in, answers out.
///
/// The owner of the socket reads into [`input`](Session::input), calls [`run`](Session::run), sends
/// [`output`](Session::output), says so with [`sent`](Session::sent), and does what the
/// [`Progress`] asks for.
///
/// ```
/// use std::sync::Arc;
/// use remanent_server::{Config, Keyspace, Progress, Session, Shared, Volatile};
///
/// let keys = Keyspace::open(Volatile::new(1 << 20))?;
/// let shared = Arc::new(Shared::new(keys, Config::default()));
/// let address = "127.0.0.1:50000".parse()?;
/// let mut session = Session::new(shared, address, address);
/// session.input().extend_from_slice(b"SET key value\r\nGET key\r\nGET oth");
/// assert_eq!(session.run(), Progress::Read);
/// assert_eq!(session.output(), b"+OK\r\n$5\r\nvalue\r\n");
/// session.sent();
/// session.input().extend_from_slice(b"er\r\n");
/// session.run();
/// assert_eq!(session.output(), b"$-1\r\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Session<S: Store> {
    shared: Arc<Shared<S>>,
    client: Client,
    input: Vec<u8>,
    /// Bytes of `input` whose requests were run.
    done: usize,
    /// A request that was found but left for `run_long`.
    long: Option<Long>,
    /// Length of `input` when its new bytes were last counted.
    counted: usize,
    parser: Parser,
    output: Output,
    /// What `input` and the parser take of the clients' memory.
    share: Share,
    tally: Tally,
    /// When the request before was done.
    clock: Instant,
}

/// A request that may take long.
#[derive(Clone, Copy, Debug)]
struct Long {
    /// Its length in bytes.
    len: usize,
    /// How long it may wait for a sync, where it does and is limited.
    sync_limit: Option<Duration>,
}

impl<S: Store> Session<S> {
    /// A connection that was just accepted from `address` on `local`.
    pub fn new(shared: Arc<Shared<S>>, address: SocketAddr, local: SocketAddr) -> Self {
        let authenticated = shared.config.password.is_none();
        let mut limits = shared.config.limits;
        limits.authenticated = authenticated;
        let client = Client {
            record: shared.clients.connect(address, local),
            authenticated,
            replies: Replies::All,
            end: None,
            delay: None,
            is_in_transaction: false,
            ticket: Ticket::default(),
            is_overdue: false,
            counts: Totals::default(),
        };
        let share = Share::new(&shared.memory, UNCOUNTED);
        let output = Output::sharing(shared.config.output_len_max, share);
        let share = Share::new(&shared.memory, UNCOUNTED);
        Session {
            shared,
            client,
            input: Vec::new(),
            done: 0,
            long: None,
            counted: 0,
            parser: Parser::new(limits),
            output,
            share,
            tally: Tally::default(),
            clock: Instant::now(),
        }
    }

    /// Says which descriptor the socket is, for people who list the clients.
    pub fn set_descriptor(&mut self, descriptor: i32) {
        // Relaxed: for people.
        self.client.record.descriptor.store(descriptor, Ordering::Relaxed);
    }

    /// What others may see of the client; its `closing` returns when it is to be closed.
    pub(crate) fn record(&self) -> Arc<Record> {
        Arc::clone(&self.client.record)
    }

    /// Where bytes that were read are to be appended; it has room for some.
    ///
    /// Room grows with what has arrived, not with what a client announces, so announcing much costs the server nothing.
    pub fn input(&mut self) -> &mut Vec<u8> {
        if self.input.capacity() == self.input.len() {
            // The first read. Should the system have no memory for it, the read will ask for less.
            let _ = self.input.try_reserve_exact(READ_LEN);
        }
        self.counted = self.input.len();
        &mut self.input
    }

    /// Drops what was run, and makes room for what the present request wants; false when there is no memory for it.
    fn make_room(&mut self) -> bool {
        self.input.drain(..self.done);
        self.done = 0;
        self.parser.rest();
        let missing = self.parser.wanted().saturating_sub(self.input.len());
        let room = missing.min(self.input.len()).max(READ_LEN);
        let wanted = self.input.len() + room;
        if wanted <= KEPT_LEN || self.input.capacity() / 2 > wanted {
            self.input.shrink_to(wanted.max(KEPT_LEN));
        }
        let positions = self.parser.memory_len();
        let is_granted = self.share.resize(wanted.max(self.input.capacity()) + positions)
            && self.input.try_reserve_exact(room).is_ok();
        if !is_granted {
            // What it has counts until it is closed, if only as much as there may be.
            self.share.resize(self.input.capacity() + positions);
        }
        is_granted
    }

    /// Answers that wait to be sent.
    pub fn output(&self) -> &[u8] {
        self.output.as_bytes()
    }

    /// Forgets the answers: they were sent.
    pub fn sent(&mut self) {
        self.output.clear(KEPT_LEN);
        self.client.record.get_on();
        self.show_buffers();
    }

    /// Runs the requests that are whole, until something else is needed.
    pub fn run(&mut self) -> Progress {
        self.client.counts.bytes_in += (self.input.len() - self.counted) as u64;
        self.counted = self.input.len();
        self.show_buffers();
        self.clock = Instant::now();
        let sent_before = self.output.len();
        let mut progress = self.run_turn();
        if progress == Progress::Read && !self.make_room() {
            progress = self.refuse_request();
        }
        self.client.counts.bytes_out += (self.output.len() - sent_before) as u64;
        self.report();
        progress
    }

    /// Answers a request that there is no memory for, and of which more is to come: nothing that follows can be told
    /// from it, so the connection ends.
    fn refuse_request(&mut self) -> Progress {
        self.shared.memory_refused(self.client.record.address);
        self.output.error(NO_MEMORY_FOR_REQUEST);
        self.client.end = Some(Progress::Close);
        Progress::Close
    }

    /// Runs the one request for which [`run`](Session::run) answered [`Progress::Long`], for as
    /// long as it takes. Then go on as after [`Progress::Yield`] unless the answer is to close.
    pub fn run_long(&mut self) -> Progress {
        let Some(Long { len, .. }) = self.long.take() else { return Progress::Yield };
        self.clock = Instant::now();
        let sent_before = self.output.len();
        let request = &mut self.input[self.done..self.done + len];
        let command = TABLE.find(self.parser.request(request).get(0));
        self.execute(len, command);
        self.client.counts.bytes_out += (self.output.len() - sent_before) as u64;
        self.report();
        self.client.what_follows().unwrap_or(Progress::Yield)
    }

    /// For how long the long request may wait, and what for; `None` where there is no limit.
    ///
    /// A sync cannot be interrupted. So the owner of the socket runs it beside the session, and calls
    /// [`run_overdue`](Session::run_overdue) when it takes longer, else `run_long`, which need not run
    /// another one.
    pub(crate) fn limited_sync(&self) -> Option<(Duration, impl FnOnce() + Send + 'static)> {
        let limit = self.long?.sync_limit?;
        let (shared, ticket) = (Arc::clone(&self.shared), self.client.ticket);
        // A failure is met, and told to the client, by `run_long`.
        Some((limit, move || _ = shared.sync(ticket)))
    }

    /// As [`run_long`](Session::run_long), for a request that has waited for as long as it may.
    pub(crate) fn run_overdue(&mut self) -> Progress {
        self.client.is_overdue = true;
        let progress = self.run_long();
        self.client.is_overdue = false;
        progress
    }

    fn run_turn(&mut self) -> Progress {
        if let Some(end) = self.client.end {
            return end;
        }
        for _ in 0..TURN_REQUESTS {
            if self.output.len() >= FLUSH_LEN {
                return Progress::Yield;
            }
            let rest = &mut self.input[self.done..];
            let len = match self.parser.parse(rest) {
                Ok(Some(len)) => len,
                Ok(None) => return Progress::Read,
                Err(ProtocolError::NoMemory) => return self.refuse_request(),
                Err(error) => {
                    self.output.error(&format!("ERR Protocol error: {error}"));
                    self.client.end = Some(Progress::Close);
                    return Progress::Close;
                }
            };
            let request = self.parser.request(&mut rest[..len]);
            if request.is_empty() {
                self.done += len;
                continue;
            }
            let command = TABLE.find(request.get(0));
            if let Some(command) = command.filter(|command| command.is_long(&request)) {
                let sync_limit = command.sync_limit(&request);
                // Nobody makes the disk work who may not even ask for it.
                let may_sync = self.client.authenticated && !self.client.is_in_transaction;
                let sync_limit = sync_limit.filter(|_| may_sync);
                self.long = Some(Long { len, sync_limit });
                self.client.ticket = self.shared.syncs.ticket();
                return Progress::Long;
            }
            self.execute(len, command);
            if let Some(progress) = self.client.what_follows() {
                return progress;
            }
        }
        Progress::Yield
    }

    /// Runs the request of `len` bytes that the parser has found, and passes it by.
    fn execute(&mut self, len: usize, command: Option<&'static Command>) {
        let start = self.output.len();
        let replies = self.client.replies;
        let request = self.parser.request(&mut self.input[self.done..self.done + len]);
        let mut call = Call {
            shared: &self.shared,
            client: &mut self.client,
            request,
            reply: &mut self.output,
        };
        let ended = call.execute(command);
        self.done += len;
        self.count(ended);
        if replies != Replies::All && self.client.replies != Replies::All {
            self.output.truncate(start);
        }
        if replies == Replies::SkipNext && self.client.replies == Replies::SkipNext {
            self.client.replies = Replies::All;
        }
        self.parser.set_authenticated(self.client.authenticated);
        if self.output.failure().is_some() {
            // Not even a short answer has room: the system itself is out of memory.
            tracing::warn!(client = %self.client.record.address, "no memory for an answer");
            self.output.truncate(start);
            self.client.end = Some(Progress::Close);
        }
    }

    fn count(&mut self, ended: Option<(&'static Command, Ended)>) {
        let now = Instant::now();
        let duration = now - std::mem::replace(&mut self.clock, now);
        if let Some((command, ended)) = ended {
            self.tally.add(command.number, ended, duration, &self.shared.statistics);
        }
    }

    fn report(&mut self) {
        let record = &self.client.record;
        if self.client.counts.commands > 0 {
            record.get_on();
        }
        let active_ms = record.connected.elapsed().as_millis() as u64;
        // Relaxed: estimates for people who list the clients.
        record.last_active_ms.store(active_ms, Ordering::Relaxed);
        record.is_in_transaction.store(self.client.is_in_transaction, Ordering::Relaxed);
        record.counters.report(&mut self.client.counts);
        self.tally.report(&self.shared.statistics);
        self.show_buffers();
    }

    /// Says how long the buffers are, and how much of the clients' memory they take.
    fn show_buffers(&self) {
        let buffers = &self.client.record.buffers;
        let show = |value: &AtomicU64, len: usize| value.store(len as u64, Ordering::Relaxed);
        // Relaxed: estimates for people who list the clients.
        show(&buffers.query_len, self.input.len() - self.done);
        show(&buffers.query_free, self.input.capacity() - self.input.len());
        show(&buffers.reply_capacity, self.output.capacity());
        show(&buffers.reply_len, self.output.len());
        self.client.record.set_memory(self.share.counted() + self.output.counted());
    }
}

impl<S: Store> Drop for Session<S> {
    fn drop(&mut self) {
        self.shared.clients.disconnect(&self.client.record);
    }
}
