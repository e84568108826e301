//! `remanent disk`: block devices in a pool.

mod export;
mod serve;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use remanent::blockdev::CheckScope;
use remanent::pmem::pool::RootInfo;
use remanent::pmem::{self, Mapped, Options, Pool};
use remanent::{Disk as Device, Durability};
use serde_json::json;

use super::opening::open_as_made;
use super::output::{say, shown};
use super::pool::{physical_bytes, progress};
use super::units::{human_size, parse_duration, parse_size, parse_size_at_least_1};

/// Maximal number of violations that a check prints; further ones are only counted.
const TOLD_MAX: usize = 1000;

/// Create, serve, describe, check and resize block devices
///
/// A disk lies in a pool, which may hold other disks and structures. It takes space when it is
/// written. Each write is atomic, whatever its length, and durable when it is answered.
#[derive(Debug, clap::Args)]
pub(crate) struct Disk {
    #[command(subcommand)]
    subcommand: Subcommand,
}

#[derive(Debug, clap::Subcommand)]
enum Subcommand {
    /// Create an empty disk, and a pool for it if there is none
    #[command(after_help = "Examples:
  remanent disk create my.pool --size 1G
  remanent disk create /mnt/pmem/my.pool --size 100G --name backup --durability power")]
    Create {
        #[command(flatten)]
        target: Target,
        /// Bytes of the disk, such as 512M or 8G
        #[arg(long, value_name = "SIZE", value_parser = parse_size)]
        size: u64,
        /// Size beyond which a new pool does not grow; snapshots need room, too. Default: twice the
        /// disk and 1G
        #[arg(long, value_name = "SIZE", value_parser = parse_size_at_least_1)]
        pool_size: Option<u64>,
        /// What a write survives, in a new pool: the death of the `process`, or the loss of
        /// `power`. Default: `process`
        #[arg(long, value_name = "CLASS")]
        durability: Option<Durability>,
    },
    Serve(serve::Serve),
    /// Show the size of a disk, the space that it takes, and its snapshots
    Info {
        #[command(flatten)]
        target: Target,
    },
    /// Check a disk: its map and its free space, and every block against its checksum
    ///
    /// The command only reads: the pool file does not change. If the disk is damaged, it names
    /// every violation and ends with status 1.
    Check {
        #[command(flatten)]
        target: Target,
        /// Check the map and the free space only, and read no data
        #[arg(long)]
        quick: bool,
    },
    /// Make a disk larger or smaller; data behind a new end are lost, except in snapshots
    Resize {
        #[command(flatten)]
        target: Target,
        /// New size of the disk in bytes
        #[arg(long, value_name = "SIZE", value_parser = parse_size)]
        size: u64,
        /// Allow a smaller size, which drops the data behind the new end
        #[arg(long)]
        shrink: bool,
    },
    /// Keep the present content of a disk for reading; it is served as `DISK@SNAPSHOT`
    Snapshot {
        #[command(flatten)]
        target: Target,
        /// Name of the snapshot
        snapshot: String,
        /// Remove the snapshot instead
        #[arg(long)]
        remove: bool,
    },
}

#[derive(Debug, clap::Args)]
struct Target {
    /// Pool file
    path: PathBuf,
    /// Name of the disk in the pool
    #[arg(long, default_value = "disk")]
    name: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// How long to wait while another process holds the pool, such as 500ms or 30s
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = parse_duration)]
    wait: Duration,
}

impl Disk {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self.subcommand {
            Subcommand::Create { target, size, pool_size, durability } => {
                let disk = target.create(size, pool_size, durability)?;
                describe(&disk, &target);
                Ok(ExitCode::SUCCESS)
            }
            Subcommand::Serve(serve) => serve.run(),
            Subcommand::Info { target } => {
                describe(&target.inspect()?, &target);
                Ok(ExitCode::SUCCESS)
            }
            Subcommand::Check { target, quick } => check(&target, quick),
            Subcommand::Resize { target, size, shrink } => {
                let disk = target.open()?;
                if size < disk.size() && !shrink {
                    bail!(
                        "{} of {} has {} bytes; making it smaller drops what lies behind {size}: say \
                         --shrink if that is meant",
                        target.name,
                        target.path.display(),
                        disk.size()
                    );
                }
                disk.resize(size)?;
                describe(&disk, &target);
                Ok(ExitCode::SUCCESS)
            }
            Subcommand::Snapshot { target, snapshot, remove } => {
                let disk = target.open()?;
                if remove {
                    disk.remove_snapshot(&snapshot)?
                } else if snapshot.contains(char::is_control) {
                    bail!(
                        "a snapshot cannot be called {snapshot:?}: choose a name without control characters"
                    )
                } else {
                    disk.snapshot(&snapshot)?
                }
                describe(&disk, &target);
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}

impl Target {
    fn create(
        &self,
        size: u64,
        pool_size: Option<u64>,
        durability: Option<Durability>,
    ) -> anyhow::Result<Device> {
        if self.name.is_empty() || self.name.contains(|c: char| c == '@' || c.is_control()) {
            bail!(
                "a disk cannot be called {:?}: clients ask for it by its name, and for its snapshots as \
                 DISK@SNAPSHOT; choose a name without @ and control characters with --name",
                self.name
            );
        }
        let options = Pool::options().wait(self.wait);
        let pool = if self.path.exists() {
            if pool_size.is_some() || durability.is_some() {
                bail!(
                    "{} exists: --pool-size and --durability are for a new pool",
                    self.path.display()
                );
            }
            open_pool(&options, &self.path)?
        } else {
            let size_max =
                pool_size.unwrap_or_else(|| size.saturating_mul(2).saturating_add(1 << 30));
            let durability = durability.unwrap_or(Durability::Process);
            options.size_max(size_max).durability(durability).create(&self.path)?
        };
        Ok(Device::create(&pool, &self.name, size)?)
    }

    fn open(&self) -> anyhow::Result<Device> {
        let pool = open_pool(&Pool::options().wait(self.wait), &self.path)?;
        open_disk(&pool, &self.name, &self.path)
    }

    /// Opens the disk for inspection: the file does not change.
    fn inspect(&self) -> anyhow::Result<Device> {
        let pool = Pool::options().wait(self.wait).inspect(&self.path)?;
        open_disk(&pool, &self.name, &self.path)
    }
}

/// Opens a pool with the durability that it was created with.
fn open_pool(options: &Options, path: &Path) -> anyhow::Result<Pool> {
    Ok(open_as_made(options, path)?.0)
}

fn open_disk<M: pmem::Medium>(
    pool: &Pool<M>,
    name: &str,
    path: &Path,
) -> anyhow::Result<Device<M>> {
    Device::open(pool, name)
        .with_context(|| format!("cannot open the disk {name:?} of {}", path.display()))
}

/// The disks of a pool.
fn disks<M: pmem::Medium>(pool: &Pool<M>) -> anyhow::Result<Vec<RootInfo>> {
    let mut roots = pool.info()?.roots;
    roots.retain(Device::<Mapped>::is_one);
    Ok(roots)
}

fn describe(disk: &Device, target: &Target) {
    let info = disk.info();
    let snapshots = disk.snapshots();
    if target.json {
        let snapshots = snapshots.iter().map(|snapshot| {
            json!({
                "name": snapshot.name,
                "size_bytes": snapshot.size,
                "created_unix_s": snapshot.created_unix_s,
            })
        });
        say!(
            "{:#}",
            json!({
                "path": target.path,
                "name": target.name,
                "size_bytes": info.size,
                "allocated_bytes": info.allocated,
                "slab_bytes": info.slab_len,
                "snapshots": snapshots.collect::<Vec<_>>(),
            })
        );
        return;
    }
    say!("disk        {} in {}", target.name, target.path.display());
    say!("size        {} ({} bytes)", human_size(info.size), info.size);
    say!(
        "takes       {} of the pool, in slabs of {}; the pool's file takes {}",
        human_size(info.allocated),
        human_size(info.slab_len),
        human_size(physical_bytes(&target.path))
    );
    for snapshot in snapshots {
        say!("snapshot    {}: {}", shown(&snapshot.name), human_size(snapshot.size));
    }
}

fn check(target: &Target, quick: bool) -> anyhow::Result<ExitCode> {
    let disk = target.inspect()?;
    let bar = progress("checking");
    bar.set_length(disk.size());
    let scope = if quick { CheckScope::Map } else { CheckScope::All };
    let (mut count, mut violations) = (0_u64, Vec::new());
    let go_on = |len| {
        bar.set_position(len);
        ControlFlow::Continue(())
    };
    disk.check_with(scope, go_on, |violation| {
        count += 1;
        if violations.len() < TOLD_MAX {
            violations.push(violation);
        }
    })?;
    bar.finish_and_clear();
    if target.json {
        let told = violations.iter().map(|v| json!({"offset": v.offset, "what": v.what}));
        let told: Vec<_> = told.collect();
        say!(
            "{:#}",
            json!({
                "path": target.path,
                "name": target.name,
                "violations": told,
                "violation_count": count,
            })
        );
    } else if violations.is_empty() {
        say!("{} in {} is whole", target.name, target.path.display());
    } else {
        violations.iter().for_each(|violation| say!("{violation}"));
        match count - violations.len() as u64 {
            0 => say!("{count} violations in {}", target.name),
            untold => say!("{count} violations in {}, {untold} of them not listed", target.name),
        }
    }
    Ok(if violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
