//! `remanent serve`: Redis clients on a pool.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use remanent::pmem::{self, Medium, Pool};
use remanent::{Backing, Durability, Emulation};
use remanent_server::{Config, MapStore, Server, Store};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::default_pool;
use super::units::{parse_duration, parse_size};

/// Serve Redis clients from a pool
///
/// Every write is durable, in the pool's class, before it is acknowledged. The server ends on
/// SIGTERM, SIGINT or the command SHUTDOWN, after it has answered what it has read; a second signal
/// ends it at once. Nothing is lost either way, nor by SIGKILL.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Serve {
    /// Pool file; created when missing. Default: /dev/shm/remanent-UID.pool, which survives the
    /// death of the process but not of the machine
    #[arg(long, value_name = "PATH")]
    pool: Option<PathBuf>,

    /// Address to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:6380")]
    listen: SocketAddr,

    /// Size beyond which a new pool does not grow, such as 512M or 8G
    #[arg(long, value_name = "SIZE", default_value = "64G", value_parser = parse_size)]
    size: u64,

    /// What an acknowledged write survives: the death of the `process`, or the loss of `power`.
    /// Default: what the pool was created with; `process` for a new one
    #[arg(long, value_name = "CLASS")]
    durability: Option<Durability>,

    /// Treat DRAM as other memory, for research: none, nvram, pcm or stt-mram
    #[arg(long, value_name = "MEDIUM", default_value = "none")]
    emulate: Emulation,

    /// Password that clients must give with AUTH; visible in the list of processes
    #[arg(long, value_name = "PASSWORD", conflicts_with = "password_file")]
    password: Option<String>,

    /// File whose first line is the password
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,

    /// Serve other machines although no password is set
    #[arg(long)]
    unprotected: bool,

    /// How long to wait while another process holds the pool, such as 500ms or 30s
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = parse_duration)]
    wait: Duration,

    /// Connections at a time
    #[arg(long, value_name = "NUMBER", default_value_t = 10_000)]
    max_clients: usize,

    /// Threads that serve connections; 0 takes one a core but one, which is left to the network and
    /// to clients on this machine
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    threads: usize,
}

const EXAMPLES: &str = "\
Examples:
  remanent serve
  remanent serve --pool data.pool --size 8G
  remanent serve --pool /mnt/pmem/data.pool --durability power
  remanent serve --listen 0.0.0.0:6380 --password-file /etc/remanent/password
  remanent serve --pool /dev/shm/test.pool --emulate nvram";

impl Serve {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let start = Instant::now();
        let path = match &self.pool {
            Some(path) => path.clone(),
            None => default_pool::path()?,
        };
        let options = Pool::options()
            .size_max(self.size)
            .durability(self.durability.unwrap_or_default())
            .emulation(self.emulate)
            .wait(self.wait);
        match self.emulate {
            Emulation::Latency(_) => {
                let pool = open_emulated(&options, &path)?;
                let was_clean = pool.was_clean();
                self.serve(pool, was_clean, start)
            }
            Emulation::None | Emulation::Nvram => {
                let mut pool = options.open_or_create(&path)?;
                let was_clean = pool.was_clean();
                let created = pool.info()?.created_durability;
                if self.durability.is_none() && created != pool.guarantee().durability {
                    // Whoever made the pool meant it: serving it with less would be a silent loss.
                    drop(pool);
                    pool = options.durability(created).open(&path)?;
                }
                self.serve(pool, was_clean, start)
            }
        }
    }

    fn serve<M: Medium>(
        &self,
        pool: Pool<M>,
        was_clean: bool,
        start: Instant,
    ) -> anyhow::Result<ExitCode> {
        let store = MapStore::open(&pool)?;
        let opened = start.elapsed();
        let entries = entries(&pool, &store, was_clean)?;
        let server = Server::bind(store, self.config()?)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            // The signals are caught before anyone is told that the server is there.
            let stop = Stop::new()?;
            announce(&format!(
                "listening on {}: {entries} in {}, opened in {:.1} ms{}; an acknowledged write {}",
                server.address(),
                pool.path().display(),
                opened.as_secs_f64() * 1e3,
                if was_clean { "" } else { " after a crash" },
                promise(pool.guarantee()),
            ));
            server.run(stop.wait()).await?;
            anyhow::Ok(())
        })?;
        let path = pool.path().to_owned();
        drop(pool);
        announce(&format!("stopped; {} is closed", path.display()));
        Ok(ExitCode::SUCCESS)
    }

    fn config(&self) -> anyhow::Result<Config> {
        Ok(Config {
            listen: self.listen,
            password: self.password()?,
            unprotected: self.unprotected,
            clients_max: self.max_clients,
            threads: self.threads,
            ..Config::default()
        })
    }

    fn password(&self) -> anyhow::Result<Option<String>> {
        let Some(path) = &self.password_file else { return Ok(self.password.clone()) };
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read the password file {}", path.display()))?;
        match text.lines().next() {
            Some(password) if !password.is_empty() => Ok(Some(password.to_owned())),
            _ => anyhow::bail!("the first line of the password file {} is empty", path.display()),
        }
    }
}

/// How many entries there are, where it does not take long to know.
fn entries<M: Medium>(
    pool: &Pool<M>,
    store: &MapStore<M>,
    was_clean: bool,
) -> anyhow::Result<String> {
    let must_count_one_by_one = pool.guarantee().durability == Durability::Power && !was_clean;
    if must_count_one_by_one {
        return Ok("entries not counted yet".into());
    }
    let count = store.len()?;
    Ok(format!("{count} {}", if count == 1 { "entry" } else { "entries" }))
}

fn open_emulated(options: &pmem::Options, path: &Path) -> pmem::Result<Pool<pmem::Emulated>> {
    match options.open_emulated(path) {
        Err(pmem::Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            options.create_emulated(path)
        }
        opened => opened,
    }
}

/// What an acknowledged write survives, in words.
fn promise(guarantee: &pmem::Guarantee) -> &'static str {
    match (guarantee.durability, guarantee.backing, guarantee.emulation) {
        (Durability::Power, ..) => "survives the loss of power",
        (_, Backing::Memory, Emulation::None) => "survives the death of the process, not a reboot",
        (.., Emulation::None) => "survives the death of the process; for power loss ask for it",
        _ => "survives the death of the process, on emulated memory",
    }
}

/// A line on standard output; a closed one is no reason to stop.
fn announce(line: &str) {
    let _ = writeln!(io::stdout(), "{line}");
}

/// The signals that end the server.
struct Stop {
    terminate: Signal,
    interrupt: Signal,
}

impl Stop {
    fn new() -> io::Result<Self> {
        Ok(Stop {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Waits for a signal. From then on another one ends the process at once: nothing that was
    /// acknowledged is lost by that.
    async fn wait(mut self) {
        self.received().await;
        tokio::spawn(async move {
            self.received().await;
            eprintln!("error: stopped by a second signal before all connections had ended");
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
