//! One connection, without its socket.

mod client;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::clients::{Record, Totals};
use crate::command::{Call, Command, NO_MEMORY_FOR_REQUEST, TABLE};
use crate::memory::Share;
use crate::resp::{Output, Parser, ProtocolError, peek};
use crate::statistics::{Ended, Unreported};
use crate::syncs::Ticket;
use crate::{Shared, Store};

pub use self::client::Progress;
pub(crate) use self::client::{Client, Replies};

/// Bytes of answers that are sent before more requests are run.
const FLUSH_LEN: usize = 32 << 10;
/// Requests that are run before other connections get a turn.
const TURN_REQUESTS: usize = 1024;
/// Requests whose entries are fetched from memory at a time, before the first of them is run.
const REQUESTS_AHEAD: usize = 16;
/// Least room for a read, in bytes.
const READ_LEN: usize = 16 << 10;
/// Most bytes of buffer that an idle connection keeps for each direction.
const KEPT_LEN: usize = 64 << 10;
/// Bytes of buffer for each direction that do not count as clients' memory, so that short requests
/// and answers have room whatever other clients take: the buffer that is kept, and the positions of
/// some arguments.
const UNCOUNTED: usize = KEPT_LEN + (4 << 10);

/// One connection without its socket: bytes in, answers out.
///
/// The owner of the socket reads into [`input`](Session::input), calls [`run`](Session::run), sends
/// [`output`](Session::output), calls [`sent`](Session::sent), and does what the [`Progress`] asks
/// for.
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
    /// Bytes at the start of `input` whose requests were run.
    done: usize,
    /// A request that was found and is left to `run_long`.
    long: Option<Long>,
    /// Length of `input` when its bytes were last counted.
    counted: usize,
    parser: Parser,
    output: Output,
    /// The clients' memory that `input` and the parser take.
    share: Share,
    unreported: Unreported,
    /// When the last request ended.
    clock: Instant,
}

/// A request that may take long.
#[derive(Clone, Copy, Debug)]
struct Long {
    /// Its length in bytes.
    len: usize,
    /// How long it may wait for a sync; `None` if it does not wait for one, or without a limit.
    sync_limit: Option<Duration>,
}

impl<S: Store> Session<S> {
    /// A connection from `address` that was accepted on `local`.
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
            unreported: Unreported::default(),
            clock: Instant::now(),
        }
    }

    /// Sets the file descriptor of the socket, which `CLIENT LIST` shows.
    pub fn set_descriptor(&mut self, descriptor: i32) {
        // Relaxed: only shown to users.
        self.client.record.descriptor.store(descriptor, Ordering::Relaxed);
    }

    /// The client as other threads see it. Its `closing` returns when the client is to be closed.
    pub(crate) fn record(&self) -> Arc<Record> {
        Arc::clone(&self.client.record)
    }

    /// The buffer to which the bytes that were read are to be appended. It has room for some.
    ///
    /// The room grows with what has arrived, not with what a client announces, so a client cannot
    /// make the server allocate by announcing a long request.
    pub fn input(&mut self) -> &mut Vec<u8> {
        if self.input.capacity() == self.input.len() {
            // The first read. If the system has no memory for so much room, the read itself makes
            // less.
            let _ = self.input.try_reserve_exact(READ_LEN);
        }
        self.counted = self.input.len();
        &mut self.input
    }

    /// Drops the requests that were run, and makes room for more of the present one. False when
    /// there is no memory for it.
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
            // What the connection has counts until it is closed, unless the bound refuses even
            // that.
            self.share.resize(self.input.capacity() + positions);
        }
        is_granted
    }

    /// The answers that are to be sent.
    pub fn output(&self) -> &[u8] {
        self.output.as_bytes()
    }

    /// Drops the answers, which were sent.
    pub fn sent(&mut self) {
        self.output.clear(KEPT_LEN);
        self.client.record.note_progress();
        self.show_buffers();
    }

    /// Runs the requests that have arrived in full, until the owner of the socket has to do
    /// something.
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

    /// Refuses a request that has not arrived in full and that there is no memory for. The
    /// connection ends: without the rest of the request, the start of the next one cannot be found.
    fn refuse_request(&mut self) -> Progress {
        self.shared.memory_refused(self.client.record.address);
        self.output.error(NO_MEMORY_FOR_REQUEST);
        self.client.end = Some(Progress::Close);
        Progress::Close
    }

    /// Runs the request for which [`run`](Session::run) returned [`Progress::Long`], however long
    /// it takes. Returns [`Progress::Yield`], unless the request delays its answer or ends the
    /// connection.
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

    /// The sync that the long request waits for, and how long it may wait; `None` if the wait has
    /// no limit.
    ///
    /// A sync cannot be interrupted. So the owner of the socket runs it beside the session. If it
    /// takes longer than the limit, the owner calls [`run_overdue`](Session::run_overdue), else
    /// `run_long`, which needs no further sync.
    pub(crate) fn limited_sync(&self) -> Option<(Duration, impl FnOnce() + Send + 'static)> {
        let limit = self.long?.sync_limit?;
        let (shared, ticket) = (Arc::clone(&self.shared), self.client.ticket);
        // If the sync fails, `run_long` syncs again, and answers the error.
        Some((limit, move || _ = shared.sync(ticket)))
    }

    /// As [`run_long`](Session::run_long), for a request whose sync did not end in time.
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
        let mut fetched = 0;
        for _ in 0..TURN_REQUESTS {
            if self.output.len() >= FLUSH_LEN {
                return Progress::Yield;
            }
            if fetched == 0 {
                fetched = self.fetch_ahead();
            }
            fetched = fetched.saturating_sub(1);
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
                // A client that may not run the command must not make the disk work either.
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

    /// Has the entries fetched that the next requests name, so that the CPU waits for several of
    /// them at a time. Returns for how many requests.
    fn fetch_ahead(&self) -> usize {
        let rest = &self.input[self.done..];
        let mut keys = [&rest[..0]; REQUESTS_AHEAD];
        let (mut count, mut start) = (0, 0);
        while count < keys.len()
            && let Some((len, key)) = peek(&rest[start..])
        {
            keys[count] = &rest[start..][key];
            (count, start) = (count + 1, start + len);
        }
        // A single request fetches what it needs itself.
        if count > 1 {
            let keys = keys[..count].iter().filter(|key| !key.is_empty());
            self.shared.keys.store().prefetch(keys.copied());
        }
        count
    }

    /// Runs the request of `len` bytes that the parser has found, and goes on behind it.
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
            // Even the error had no room: the system is out of memory.
            tracing::warn!(client = %self.client.record.address, "no memory for an answer");
            self.output.truncate(start);
            self.client.end = Some(Progress::Close);
        }
    }

    fn count(&mut self, ended: Option<(&'static Command, Ended)>) {
        let now = Instant::now();
        let duration = now - std::mem::replace(&mut self.clock, now);
        if let Some((command, ended)) = ended {
            self.unreported.add(command.number, ended, duration, &self.shared.statistics);
        }
    }

    fn report(&mut self) {
        let record = &self.client.record;
        if self.client.counts.commands > 0 {
            record.note_progress();
        }
        let active_ms = record.connected.elapsed().as_millis() as u64;
        // Relaxed: only shown to users, who get estimates.
        record.last_active_ms.store(active_ms, Ordering::Relaxed);
        record.is_in_transaction.store(self.client.is_in_transaction, Ordering::Relaxed);
        record.counters.report(&mut self.client.counts);
        self.unreported.report(&self.shared.statistics);
        self.show_buffers();
    }

    /// Reports the lengths of the buffers, and how much of the clients' memory they take.
    fn show_buffers(&self) {
        let buffers = &self.client.record.buffers;
        let show = |value: &AtomicU64, len: usize| value.store(len as u64, Ordering::Relaxed);
        // Relaxed: only shown to users, who get estimates.
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
