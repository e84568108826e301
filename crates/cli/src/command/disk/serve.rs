//! `remanent disk serve`: NBD clients on the disks of a pool.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::bail;
use clap::value_parser;
use remanent::pmem::{self, Medium, Options, Pool};
use remanent::{Durability, Emulation};
use remanent_nbd::{Config, Exports, Server};

use super::super::fault;
use super::super::output::{announce, shown};
use super::super::serve::{Stop, promise, runtime};
use super::super::units::{parse_address, parse_duration};
use super::export::{DiskExport, SnapshotExport};
use super::{disks, open_disk, open_pool};

/// Default address, where clients look first.
const ADDRESS: ([u8; 4], u16) = ([127, 0, 0, 1], 10809);

/// Serve the disks of a pool to NBD clients: qemu, nbdcopy, the kernel
///
/// Each disk of the pool is served under its name, and each snapshot, read-only, as
/// `DISK@SNAPSHOT`. A client that names no export gets the disk of --name, or the first one. Every
/// write is durable, in the pool's class, before it is answered; flushes and FUA cost nothing. The
/// server ends on SIGTERM or SIGINT.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Serve {
    /// Pool file
    path: PathBuf,

    /// Disk for clients that name none, instead of the pool's first
    #[arg(long)]
    name: Option<String>,

    /// Unix socket to listen on; may be given several times
    #[arg(long, value_name = "PATH")]
    socket: Vec<PathBuf>,

    /// Address to listen on, such as localhost:10809; port 0 takes a free one. Default:
    /// 127.0.0.1:10809 without --socket
    #[arg(long, value_name = "ADDRESS", value_parser = parse_address)]
    listen: Vec<SocketAddr>,

    /// Refuse all changes
    #[arg(long)]
    read_only: bool,

    /// Serve other machines, although NBD has no passwords
    #[arg(long)]
    unprotected: bool,

    /// Maximal number of connections; each has a thread, and up to 66 MiB of buffers
    #[arg(long, value_name = "NUMBER", default_value_t = 64, value_parser = value_parser!(u32).range(1..=10_000))]
    max_clients: u32,

    /// How long an idle connection polls for the next request before it sleeps. Polling answers
    /// clients that send one request at a time sooner, and keeps a core busy meanwhile. With 0s an
    /// idle connection sleeps immediately
    #[arg(long, value_name = "DURATION", default_value = "50us", value_parser = parse_duration)]
    poll: Duration,

    /// What a write survives: `process` or `power`. Default: the durability that the pool was
    /// created with
    #[arg(long, value_name = "CLASS")]
    durability: Option<Durability>,

    /// Treat DRAM as other memory, for research: none, nvram, pcm or stt-mram
    #[arg(long, value_name = "MEDIUM", default_value = "none")]
    emulate: Emulation,

    /// How long to wait while another process holds the pool, such as 500ms or 30s
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = parse_duration)]
    wait: Duration,
}

const EXAMPLES: &str = "\
Examples:
  remanent disk serve my.pool --socket /run/my.socket
  qemu-img convert image.qcow2 'nbd+unix:///disk?socket=/run/my.socket'
  nbdinfo 'nbd+unix:///?socket=/run/my.socket'
  nbd-client -unix /run/my.socket -N disk /dev/nbd0 && mkfs.ext4 /dev/nbd0";

impl Serve {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let start = Instant::now();
        let options = Pool::options().emulation(self.emulate).wait(self.wait);
        match self.emulate {
            Emulation::Latency(_) => self.serve(&options.open_emulated(&self.path)?, start),
            Emulation::None | Emulation::Nvram => self.serve(&self.open(&options)?, start),
        }
    }

    fn open(&self, options: &Options) -> anyhow::Result<Pool> {
        match self.durability {
            Some(durability) => Ok(options.clone().durability(durability).open(&self.path)?),
            None => open_pool(options, &self.path),
        }
    }

    fn serve<M: Medium>(&self, pool: &Pool<M>, start: Instant) -> anyhow::Result<ExitCode> {
        let exports = self.exports(pool)?;
        let names: Vec<String> = exports.names().map(str::to_owned).collect();
        let opened = start.elapsed();
        let server = Server::bind(exports, self.config())?;
        let runtime = runtime()?;
        runtime.block_on(async {
            let stop = Stop::new()?;
            announce(&format!(
                "serving {} of {} on {}, opened in {:.1} ms; an acknowledged write {}",
                shown(&names.join(", ")),
                self.path.display(),
                self.places(&server),
                opened.as_secs_f64() * 1e3,
                promise(pool.guarantee(), None),
            ));
            fault::told(pool, async { Ok(server.run(stop.wait()).await?) }).await
        })?;
        announce(&format!("stopped; {} is closed", self.path.display()));
        Ok(ExitCode::SUCCESS)
    }

    /// The listening addresses, for people.
    fn places(&self, server: &Server) -> String {
        let sockets = self.socket.iter().map(|path| path.display().to_string());
        let addresses = server.addresses().into_iter().map(|address| address.to_string());
        sockets.chain(addresses).collect::<Vec<_>>().join(", ")
    }

    fn exports<M: Medium>(&self, pool: &Pool<M>) -> anyhow::Result<Exports> {
        let mut names: Vec<String> = disks(pool)?.into_iter().map(|root| root.name).collect();
        if let Some(first) = &self.name {
            let Some(place) = names.iter().position(|name| name == first) else {
                bail!(
                    "{} has no disk {first:?}; it has: {}",
                    self.path.display(),
                    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
                );
            };
            names[..=place].rotate_right(1);
        }
        if names.is_empty() {
            bail!(
                "{} has no disk; make one with `remanent disk create {0} --size SIZE`",
                self.path.display()
            );
        }
        let mut exports = Exports::new();
        for name in names {
            add(&mut exports, pool, &name, &self.path, self.read_only)?;
        }
        Ok(exports)
    }

    fn config(&self) -> Config {
        let is_default = self.socket.is_empty() && self.listen.is_empty();
        let tcp = if is_default { vec![SocketAddr::from(ADDRESS)] } else { self.listen.clone() };
        Config {
            tcp,
            unix: self.socket.clone(),
            connections_max: self.max_clients as usize,
            poll: self.poll,
            unprotected: self.unprotected,
        }
    }
}

/// Adds a disk and its snapshots.
fn add<M: pmem::Medium>(
    exports: &mut Exports,
    pool: &Pool<M>,
    name: &str,
    path: &Path,
    is_read_only: bool,
) -> anyhow::Result<()> {
    let disk = open_disk(pool, name, path)?;
    exports.add(name, Arc::new(DiskExport::new(disk.clone(), is_read_only)))?;
    for info in disk.snapshots() {
        let snapshot = disk.open_snapshot(&info.name)?;
        exports.add(format!("{name}@{}", info.name), Arc::new(SnapshotExport(snapshot)))?;
    }
    Ok(())
}
