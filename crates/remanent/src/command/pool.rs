//! `remanent pool`: create, describe and check pools.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use remanent::blockdev::file::File;
use remanent::pmem::Mapped;
use remanent::pmem::heap::Violation;
use remanent::pmem::pool::RootInfo;
use remanent::structures::batch_list::{Append, BatchList, FlushAlways, List, Log, Table, Variant};
use remanent::structures::{BatchMap, BatchOptions, BlinkTree, BpTree, Map, OrderedKey};
use remanent::{Disk, Durability, HashMap, Key, PoolInfo, Stored};
use remanent_server::store::{Form, TREE_ROOT};
use remanent_server::{BatchStore, Keyspace, MapStore, Store};
use serde_json::json;

use super::opening::open_as_made;
use super::units::{human_size, parse_duration, parse_size};

/// Create, describe or check a pool file
#[derive(Debug, clap::Args)]
pub(crate) struct Pool {
    #[command(subcommand)]
    subcommand: Subcommand,
}

#[derive(Debug, clap::Subcommand)]
enum Subcommand {
    /// Make an empty pool
    #[command(after_help = "Example:\n  remanent pool create my.pool --size 8G --durability power")]
    Create {
        #[command(flatten)]
        target: Target,
        /// Size beyond which the pool does not grow, such as 512M or 8G
        #[arg(long, value_name = "SIZE", default_value = "64G", value_parser = parse_size)]
        size: u64,
        /// What a write is to survive: the death of the `process`, or the loss of `power`
        #[arg(long, value_name = "CLASS", default_value = "process")]
        durability: Durability,
        /// The medium may leave garbage in what was being written when the power failed
        ///
        /// The pool remembers it. Structures that do not survive that are refused, maps among them.
        #[arg(long)]
        write_disturbance: bool,
    },
    /// Say what a pool lies on, what it survives and what it holds
    #[command(after_help = "Example:\n  remanent pool info /mnt/pmem/my.pool --json")]
    Info {
        #[command(flatten)]
        target: Target,
    },
    /// Prove that a pool is whole: nothing lost, nothing leaked, nothing damaged
    ///
    /// Ends with status 1 and names every violation, with its offset where it has one, when it is not. A
    /// server's sorted sets are compared with themselves, which takes memory for all their members.
    #[command(after_help = "Example:\n  remanent pool check /mnt/pmem/my.pool && echo whole")]
    Check {
        #[command(flatten)]
        target: Target,
    },
}

#[derive(Debug, clap::Args)]
struct Target {
    /// Pool file
    path: PathBuf,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
    /// How long to wait while another process holds the pool, such as 500ms or 30s
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = parse_duration)]
    wait: Duration,
}

impl Pool {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self.subcommand {
            Subcommand::Create { target, size, durability, write_disturbance } => {
                let options = remanent::Pool::options().size_max(size).durability(durability);
                let options = options.write_disturbance(write_disturbance);
                let pool = options.wait(target.wait).create(&target.path)?;
                describe(&pool.info()?, &target);
                Ok(ExitCode::SUCCESS)
            }
            Subcommand::Info { target } => {
                describe(&target.open()?.info()?, &target);
                Ok(ExitCode::SUCCESS)
            }
            Subcommand::Check { target } => check(&target),
        }
    }
}

impl Target {
    fn open(&self) -> anyhow::Result<remanent::Pool> {
        Ok(remanent::Pool::options().wait(self.wait).open(&self.path)?)
    }

    /// Opens it in the durability that it was made for, where that can be had here: opening its roots
    /// recovers them.
    fn open_as_made(&self) -> anyhow::Result<remanent::Pool> {
        match open_as_made(&remanent::Pool::options().wait(self.wait), &self.path) {
            Err(remanent::pmem::Error::Unsupported { .. }) => self.open(),
            opened => Ok(opened?.0),
        }
    }
}

fn describe(info: &PoolInfo, target: &Target) {
    let uuid = uuid(&info.uuid);
    let physical = physical_bytes(&target.path);
    let roots = info.roots.iter();
    if target.json {
        let roots: Vec<_> =
            roots.map(|root| json!({"name": root.name, "type": root.root_type.name})).collect();
        println!(
            "{:#}",
            json!({
                "path": target.path,
                "backing": info.guarantee.backing.to_string(),
                "durability": info.created_durability.to_string(),
                "write_disturbance": info.guarantee.write_disturbance,
                "uuid": uuid,
                "format_version": info.format_version,
                "size_bytes": info.size,
                "size_max_bytes": info.size_max,
                "physical_bytes": physical,
                "created_unix_s": info.created_unix_s,
                "opens": info.opens,
                "clean": info.was_clean,
                "roots": roots,
            })
        );
        return;
    }
    println!("pool        {}", target.path.display());
    println!("backing     {}", info.guarantee.backing);
    println!("durability  {}", info.created_durability);
    if info.guarantee.write_disturbance {
        println!("medium      may leave garbage in what was being written");
    }
    println!("uuid        {uuid}");
    println!("format      {}", info.format_version);
    println!(
        "size        {} of at most {}, {} in use on the medium",
        human_size(info.size),
        human_size(info.size_max),
        human_size(physical)
    );
    println!("last closed {}", if info.was_clean { "properly" } else { "by a crash" });
    for root in roots {
        println!("root        {}: {}", root.name, root.root_type.name);
    }
}

fn check(target: &Target) -> anyhow::Result<ExitCode> {
    let progress = progress("checking the pool");
    let pool = target.open_as_made()?;
    let mut violations = Vec::new();
    let mut skipped = Vec::new();
    let roots = pool.info()?.roots;
    let has_sorted_sets = roots.iter().any(|root| root.name == TREE_ROOT);
    for root in roots {
        progress.set_message(format!("checking {}", root.name));
        match check_root(&pool, &root)? {
            Some(found) => violations.extend(found),
            None => skipped.push(root),
        }
    }
    let mut contradictions = Vec::new();
    // What lies in a damaged structure cannot be read.
    if has_sorted_sets && violations.is_empty() {
        progress.set_message("comparing the sorted sets");
        contradictions = check_sorted_sets(&pool)?;
    }
    // After the roots: opening one completes what a crash left half done to its chunks.
    let report = pool.check()?;
    violations.extend(report.violations);
    let is_whole = violations.is_empty() && contradictions.is_empty();
    progress.finish_and_clear();
    for root in &skipped {
        eprintln!(
            "warning: the content of root {} was not checked: type {} is known to its program only",
            root.name, root.root_type.name
        );
    }
    if target.json {
        let told = violations.iter().map(|v| json!({"offset": v.offset, "what": v.what}));
        let told = told.chain(contradictions.iter().map(|what| json!({"what": what})));
        println!(
            "{:#}",
            json!({
                "path": target.path,
                "chunks": report.chunks,
                "chunks_used": report.chunks_used,
                "roots_skipped": skipped.iter().map(|root| &root.name).collect::<Vec<_>>(),
                "violations": told.collect::<Vec<_>>(),
            })
        );
    } else if is_whole {
        println!(
            "{} is whole: {} chunks, {} in use",
            target.path.display(),
            report.chunks,
            report.chunks_used
        );
    } else {
        violations.iter().for_each(|violation| println!("{violation}"));
        contradictions.iter().for_each(|what| println!("sorted sets: {what}"));
        let count = violations.len() + contradictions.len();
        println!("{count} violations in {}", target.path.display());
    }
    Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Checks the structure under a root; `None` when its type is not known here.
fn check_root(pool: &remanent::Pool, root: &RootInfo) -> anyhow::Result<Option<Vec<Violation>>> {
    let checkers: &[Checker] = &[
        check_map::<[u8], [u8]>,
        check_map::<[u8], u64>,
        check_map::<str, str>,
        check_map::<str, [u8]>,
        check_map::<str, u64>,
        check_map::<u64, u64>,
        check_map::<u64, [u8]>,
        check_map::<u64, str>,
        check_batch_map::<[u8], [u8]>,
        check_bptree::<u64, u64>,
        check_blink_tree::<u64, u64>,
        check_blink_tree::<u64, [u8]>,
        check_blink_tree::<u64, str>,
        check_blink_tree::<str, u64>,
        check_blink_tree::<str, [u8]>,
        check_blink_tree::<str, str>,
        check_blink_tree::<[u8], u64>,
        check_blink_tree::<[u8], [u8]>,
        check_disk,
        check_file,
        check_list::<FlushAlways>,
        check_list::<Append>,
        check_list::<Log>,
        check_list::<Table>,
    ];
    for checker in checkers {
        if let Some(found) = checker(pool, root)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

type Checker = fn(&remanent::Pool, &RootInfo) -> anyhow::Result<Option<Vec<Violation>>>;

fn check_map<K: Key + ?Sized + 'static, V: Stored + ?Sized + 'static>(
    pool: &remanent::Pool,
    root: &RootInfo,
) -> anyhow::Result<Option<Vec<Violation>>> {
    unless_other_type(HashMap::<K, V>::open(pool, &root.name).and_then(|map| map.check()))
}

fn check_batch_map<K: Key + ?Sized + 'static, V: Stored + ?Sized + 'static>(
    pool: &remanent::Pool,
    root: &RootInfo,
) -> anyhow::Result<Option<Vec<Violation>>> {
    // A thread would go on compacting what is being looked at.
    let options = BatchOptions::without_thread();
    let map = BatchMap::<K, V>::open(pool, &root.name, options);
    unless_other_type(map.and_then(|map| map.check()))
}

fn check_bptree<K: OrderedKey + 'static, V: Stored + 'static>(
    pool: &remanent::Pool,
    root: &RootInfo,
) -> anyhow::Result<Option<Vec<Violation>>> {
    unless_other_type(BpTree::<K, V>::open(pool, &root.name).and_then(|tree| tree.check()))
}

fn check_blink_tree<K: OrderedKey + ?Sized + 'static, V: Stored + ?Sized + 'static>(
    pool: &remanent::Pool,
    root: &RootInfo,
) -> anyhow::Result<Option<Vec<Violation>>> {
    unless_other_type(BlinkTree::<K, V>::open(pool, &root.name).and_then(|tree| tree.check()))
}

fn check_disk(pool: &remanent::Pool, root: &RootInfo) -> anyhow::Result<Option<Vec<Violation>>> {
    if !Disk::<Mapped>::is_one(root) {
        return Ok(None);
    }
    Ok(Some(Disk::open(pool, &root.name)?.check()?))
}

fn check_file(pool: &remanent::Pool, root: &RootInfo) -> anyhow::Result<Option<Vec<Violation>>> {
    if !File::<Mapped>::is_one(root) {
        return Ok(None);
    }
    Ok(Some(File::open(pool, &root.name)?.check()?))
}

fn check_list<V: Variant>(
    pool: &remanent::Pool,
    root: &RootInfo,
) -> anyhow::Result<Option<Vec<Violation>>> {
    let list = List::<V>::open(pool, &root.name, BatchOptions::without_thread());
    unless_other_type(list.and_then(|mut list| list.check()))
}

/// What contradicts itself in a server's sorted sets, in words; nothing when the pool is not a server's.
fn check_sorted_sets(pool: &remanent::Pool) -> anyhow::Result<Vec<String>> {
    fn found(keys: Keyspace<impl Store>) -> Vec<String> {
        keys.check().unwrap_or_else(|error| vec![error.to_string()])
    }
    let contradictions = match Form::of(pool)? {
        None => return Ok(Vec::new()),
        Some(Form::HashMap) => MapStore::open(pool).map(|store| Keyspace::open(store).map(found)),
        Some(Form::BatchMap) => BatchStore::open(pool, BatchOptions::without_thread())
            .map(|store| Keyspace::open(store).map(found)),
    };
    match contradictions {
        Ok(Ok(contradictions)) => Ok(contradictions),
        Ok(Err(error)) => Ok(vec![error.to_string()]),
        // Names that a server uses, and types that it does not.
        Err(remanent::Error::Pool(remanent::pmem::Error::WrongType { .. })) => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}

/// What a check found; `None` when the root is of another type.
fn unless_other_type(
    found: remanent::Result<Vec<Violation>>,
) -> anyhow::Result<Option<Vec<Violation>>> {
    match found {
        Ok(violations) => Ok(Some(violations)),
        Err(remanent::Error::Pool(remanent::pmem::Error::WrongType { .. })) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Bytes that the file takes; holes take none.
pub(super) fn physical_bytes(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(path).map_or(0, |metadata| metadata.blocks() * 512)
}

fn uuid(bytes: &[u8; 16]) -> String {
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

/// Shown on a terminal, and nowhere else.
pub(super) fn progress(message: &'static str) -> ProgressBar {
    let bar = ProgressBar::new_spinner().with_message(message);
    bar.set_style(ProgressStyle::default_spinner());
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}
