//! `remanent serve`: Redis clients on a pool.

use std::fs::File;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::value_parser;
use remanent::pmem::{self, Medium, Pool};
use remanent::structures::BatchOptions;
use remanent::{Backing, Durability, Emulation};
use remanent_server::store::{Form, Lag};
use remanent_server::{BatchStore, Config, MapStore, Server, Store};
use rustix::process::{Resource, getrlimit};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::opening::{self, Opened, Promise};
use super::output::{announce, complain};
use super::units::{human_size, parse_address, parse_duration, parse_size, parse_size_at_least_1};
use super::{default_pool, fault};

/// Minimal number of file descriptors for a server.
const DESCRIPTORS_MIN: u64 = 16;
/// Maximal length of a password file in bytes.
const PASSWORD_FILE_MAX: u64 = 64 << 10;

/// Serve Redis clients from a pool
///
/// Every write is durable, in the pool's class, before it is acknowledged. With --durability
/// batched it is acknowledged at once and becomes safe within a bound. On SIGTERM, SIGINT or the
/// command SHUTDOWN the server answers what it has read, and ends; a second signal ends it at once.
/// Nothing is lost in either case, nor by SIGKILL. SIGHUP is ignored, because there is no
/// configuration to read again. The status is 0, or 1 if something failed or the medium met a
/// fault.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Serve {
    /// Pool file; created if it does not exist. Default: /dev/shm/remanent-UID.pool, which survives
    /// the death of the process but not a restart of the machine
    #[arg(long, value_name = "PATH")]
    pool: Option<PathBuf>,

    /// Address to listen on, such as localhost:6380; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:6380", value_parser = parse_address)]
    listen: SocketAddr,

    /// Size beyond which a new pool does not grow, such as 512M or 8G; 16.6M of it are metadata
    #[arg(long, value_name = "SIZE", default_value = "64G", value_parser = parse_size_at_least_1)]
    size: u64,

    /// What an acknowledged write survives: the death of the `process`; the loss of `power`; or,
    /// with `batched`, the loss of power once the write is safe, within the bound of --lag and
    /// --lag-time. Default: the durability that the pool was created with; `process` for a new pool
    #[arg(long, value_name = "CLASS")]
    durability: Option<Promise>,

    /// With --durability batched: maximal number of bytes that are acknowledged and not yet safe; a
    /// write beyond it waits. Default: 8M
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    lag: Option<u64>,

    /// With --durability batched: age at which a write is safe, if the disk is fast enough.
    /// Default: 20ms
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    lag_time: Option<Duration>,

    /// Treat DRAM as other memory, for research: none, nvram, pcm or stt-mram
    #[arg(long, value_name = "MEDIUM", default_value = "none")]
    emulate: Emulation,

    /// Password that clients must give with AUTH; visible in the list of processes
    #[arg(long, value_name = "PASSWORD", conflicts_with = "password_file")]
    password: Option<String>,

    /// File whose first line is the password
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,

    /// Serve other machines, although no password is set
    #[arg(long)]
    unprotected: bool,

    /// How long to wait while another process holds the pool, such as 500ms or 30s
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = parse_duration)]
    wait: Duration,

    /// Maximal number of connections; fewer if the system allows fewer open files (`ulimit -n`)
    #[arg(long, value_name = "NUMBER", default_value_t = 10_000, value_parser = value_parser!(u32).range(1..))]
    max_clients: u32,

    /// Memory for unfinished requests and unread answers of all clients together. A request that
    /// would need more is answered with an error that begins with OOM. The client that takes most
    /// of this memory is then closed, if it has made no progress for ten seconds
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = parse_size_at_least_1)]
    client_memory: u64,

    /// Threads that serve connections; 0 takes one for each core but one, which is left to the
    /// network and to clients on this machine
    #[arg(long, value_name = "NUMBER", default_value_t = 0, value_parser = value_parser!(u32).range(..=1024))]
    threads: u32,

    /// How long a thread polls for further requests, if the last ones came that soon after each
    /// other, before it sleeps. Polling answers clients that wait for each answer sooner, and keeps
    /// a core busy meanwhile. With 0s a thread without requests sleeps immediately
    #[arg(long, value_name = "DURATION", default_value = "200us", value_parser = parse_duration)]
    poll: Duration,
}

const EXAMPLES: &str = "\
Examples:
  remanent serve
  remanent serve --pool data.pool --size 8G
  remanent serve --pool /mnt/pmem/data.pool --durability power
  remanent serve --pool data.pool --durability batched --lag 64M --lag-time 100ms
  remanent serve --listen 0.0.0.0:6380 --password-file /etc/remanent/password
  remanent serve --pool /dev/shm/test.pool --emulate nvram";

impl Serve {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let start = Instant::now();
        // Checked before a pool is created in vain.
        self.password()?;
        let path = self.pool.clone().unwrap_or_else(default_pool::path);
        self.refuse_lag_unless(match self.durability {
            Some(promise) => promise == Promise::Batched,
            // An existing pool may be batched.
            None => path.exists(),
        })?;
        let options = Pool::options().size_max(self.size).emulation(self.emulate).wait(self.wait);
        // Everybody may put files into the directory of the default pool.
        let options = options.private(self.pool.is_none());
        match self.emulate {
            Emulation::Latency(_) => {
                self.serve(opening::open_emulated(&options, &path, self.durability)?, start)
            }
            Emulation::None | Emulation::Nvram => {
                self.serve(opening::open(&options, &path, self.durability, self.emulate)?, start)
            }
        }
    }

    fn serve<M: Medium>(&self, opened: Opened<M>, start: Instant) -> anyhow::Result<ExitCode> {
        self.refuse_lag_unless(opened.form.is_batched())?;
        let Opened { pool, form, was_clean } = opened;
        let durability = pool.guarantee().durability;
        match form {
            Form::ExtendibleMap | Form::HashMap => {
                // A map that has to count after a crash looks at all segments. A client that
                // connects meanwhile would wait for half a second with ten million entries.
                let is_counted = form == Form::HashMap && durability == Durability::Process;
                let counts = was_clean || is_counted;
                let store = MapStore::open(&pool)?;
                self.run_server(&pool, store, &Ready { start, was_clean, counts })?;
            }
            Form::BatchMap => {
                let store = BatchStore::open(&pool, self.batch_options())?;
                self.run_server(&pool, store, &Ready { start, was_clean, counts: true })?;
            }
        }
        let path = pool.path().to_owned();
        drop(pool);
        announce(&format!("stopped; {} is closed", path.display()));
        Ok(ExitCode::SUCCESS)
    }

    fn run_server<M: Medium>(
        &self,
        pool: &Pool<M>,
        store: impl Store,
        ready: &Ready,
    ) -> anyhow::Result<()> {
        let opened = ready.start.elapsed();
        let entries = ready.entries(&store)?;
        let promise = promise(pool.guarantee(), store.lag());
        let server = Server::bind(store, self.config()?)?;
        let runtime = runtime()?;
        runtime.block_on(async {
            // Signals are caught before the server announces itself.
            let stop = Stop::new()?;
            announce(&format!(
                "listening on {}: {entries} in {}, opened in {:.1} ms{}; an acknowledged write {promise}",
                server.address(),
                pool.path().display(),
                opened.as_secs_f64() * 1e3,
                if ready.was_clean { "" } else { " after a crash" },
            ));
            fault::told(pool, async { Ok(server.run(stop.wait()).await?) }).await
        })
    }

    fn refuse_lag_unless(&self, is_batched: bool) -> anyhow::Result<()> {
        let has_lag = self.lag.is_some() || self.lag_time.is_some();
        if has_lag && !is_batched {
            bail!(
                "--lag and --lag-time bound what --durability batched acknowledges before it is safe; \
                 without it every write is durable before it is acknowledged, so leave them out, or \
                 ask for --durability batched"
            );
        }
        Ok(())
    }

    fn batch_options(&self) -> BatchOptions {
        let default = BatchOptions::default();
        BatchOptions {
            lag_bytes: self.lag.unwrap_or(default.lag_bytes),
            lag_age: self.lag_time.unwrap_or(default.lag_age),
            ..default
        }
    }

    fn config(&self) -> anyhow::Result<Config> {
        Ok(Config {
            listen: self.listen,
            password: self.password()?,
            unprotected: self.unprotected,
            clients_max: self.max_clients as usize,
            clients_memory_max: self.client_memory,
            threads: self.threads as usize,
            poll: self.poll,
            ..Config::default()
        })
    }

    fn password(&self) -> anyhow::Result<Option<String>> {
        let Some(path) = &self.password_file else {
            if self.password.as_ref().is_some_and(String::is_empty) {
                bail!("the password given with --password is empty, and would keep nobody out");
            }
            return Ok(self.password.clone());
        };
        let mut text = String::new();
        let read = File::open(path)
            .and_then(|file| file.take(PASSWORD_FILE_MAX + 1).read_to_string(&mut text));
        read.with_context(|| format!("cannot read the password file {}", path.display()))?;
        if text.len() as u64 > PASSWORD_FILE_MAX {
            bail!("the password file {} has more than {PASSWORD_FILE_MAX} bytes", path.display());
        }
        match text.lines().next() {
            Some(password) if !password.is_empty() => Ok(Some(password.to_owned())),
            _ => bail!("the first line of the password file {} is empty", path.display()),
        }
    }
}

/// Facts about a store that was just opened.
struct Ready {
    /// Time when opening began.
    start: Instant,
    was_clean: bool,
    /// Whether the store knows the number of its entries without counting them.
    counts: bool,
}

impl Ready {
    /// The number of entries, if it is known or quickly counted.
    fn entries(&self, store: &impl Store) -> anyhow::Result<String> {
        if !self.counts {
            return Ok("entries not counted yet".into());
        }
        let count = store.len()?;
        Ok(format!("{count} {}", if count == 1 { "entry" } else { "entries" }))
    }
}

/// What an acknowledged write survives, in words.
pub(super) fn promise(guarantee: &pmem::Guarantee, lag: Option<Lag>) -> String {
    if let Some(lag) = lag {
        let survives = match guarantee.durability {
            Durability::Power => "survives the loss of power once it is safe",
            Durability::Process => {
                "survives the death of the process and is safe, on emulated memory,"
            }
        };
        return format!(
            "{survives} after about {:?}, at most {} behind; WAITAOF 1 0 0 waits for it",
            lag.age_max,
            human_size(lag.bytes_max)
        );
    }
    let words = match (guarantee.durability, guarantee.backing, guarantee.emulation) {
        (Durability::Power, ..) => "survives the loss of power",
        (_, Backing::Memory, Emulation::None) => "survives the death of the process, not a reboot",
        (.., Emulation::None) => {
            "survives the death of the process; --durability power adds power loss"
        }
        _ => "survives the death of the process, on emulated memory",
    };
    words.to_owned()
}

/// The runtime of a server's main thread.
pub(super) fn runtime() -> anyhow::Result<Runtime> {
    // Creating it panics if there are too few descriptors for its signals.
    if let Some(max) = getrlimit(Resource::Nofile).current.filter(|&max| max < DESCRIPTORS_MIN) {
        bail!(
            "{max} files may be open at a time, and a server needs {DESCRIPTORS_MIN}: see `ulimit -n`"
        );
    }
    Ok(Builder::new_current_thread().enable_all().build()?)
}

/// Signals that end the server.
pub(super) struct Stop {
    terminate: Signal,
    interrupt: Signal,
    /// Caught and ignored, so that closing a terminal does not end the server.
    _hangup: Signal,
}

impl Stop {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Stop {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            _hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for a signal. From then on another one ends the process at once. No acknowledged write
    /// is lost by that, but the system has to write what is not yet safe.
    pub(super) async fn wait(mut self) {
        self.received().await;
        tokio::spawn(async move {
            self.received().await;
            complain(format_args!(
                "error: stopped by a second signal before all connections had ended"
            ));
            std::process::exit(1);
        });
    }

    async fn received(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
