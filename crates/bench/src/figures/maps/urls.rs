//! Keys of many lengths, addresses of web pages, compared with words: time and memory.

use std::borrow::Borrow;
use std::path::Path;
use std::time::Instant;

use anyhow::{Result, ensure};
use remanent_pmem::Emulation;
use remanent_structures::{BlinkTree, OrderedKey};

use super::{Effort, count_label};
use crate::cleanup::Scratch;
use crate::measure::{Progress, Samples};
use crate::memory::pool;
use crate::report::{Ground, Report};
use crate::setup::Setup;
use crate::workloads::keys::{distinct, shuffled};
use crate::workloads::urls::urls;

/// Measures both kinds of keys in turn, and adds their rows and claims.
///
/// # Errors
///
/// When a map cannot be made, or answers wrongly.
pub(super) fn run(effort: Effort, setup: &Setup, report: &mut Report) -> Result<()> {
    let entries = effort.pick(1_000_000, 200_000, 2_000);
    let rounds = effort.pick(5, 3, 1);
    let order = shuffled(&(0..entries).collect::<Vec<_>>(), entries, 1);
    let words = Keys::new("u64", distinct::<u64>(0, entries), &order);
    let urls = Keys::new("url", urls(0, entries), &order);
    let url_len = urls.all.iter().map(String::len).sum::<usize>() as f64 / entries as f64;
    let [mut of_words, mut of_urls] = [const { Measured::new() }; 2];
    let mut ground = Ground::volatile();
    let progress = Progress::new("maps, urls", 2 * rounds);
    for round in 0..rounds {
        let scratch = Scratch::new(&setup.dir)?;
        for turn in [round % 2, (round + 1) % 2] {
            progress.step(if turn == 0 { words.name } else { urls.name });
            ground = match turn {
                0 => words.sample::<u64>(scratch.path(), &mut of_words)?,
                _ => urls.sample::<str>(scratch.path(), &mut of_urls)?,
            };
        }
    }
    drop(progress);
    for (series, measured) in [("u64 keys", &of_words), ("url keys", &of_urls)] {
        let x = |what| format!("{} {what}", count_label(entries));
        report.row(series, &x("insert"), &ground, "ns/op", &measured.insert_ns);
        report.row(series, &x("lookup"), &ground, "ns/op", &measured.lookup_ns);
        report.row(series, &x("memory, blocks"), &ground, "bytes/entry", &measured.block_len);
        report.row(series, &x("memory, chunks"), &ground, "bytes/entry", &measured.chunk_len);
    }
    for (id, words_ns, urls_ns) in [
        ("insert", &of_words.insert_ns, &of_urls.insert_ns),
        ("lookup", &of_words.lookup_ns, &of_urls.lookup_ns),
    ] {
        let against = format!(
            "ns per {id} of {} entries: u64 keys {:.0}, url keys of {url_len:.0} bytes {:.0}",
            count_label(entries),
            words_ns.median(),
            urls_ns.median()
        );
        let ratio = urls_ns.over(words_ns);
        report.claim(&format!("ordered.url_{id}_vs_u64"), &ratio, "x the time", against, None);
    }
    Ok(())
}

/// The keys of one map.
struct Keys<T> {
    name: &'static str,
    all: Vec<T>,
    /// The same in another order, each with its value: copied, so that a lookup need not also fetch
    /// its key from memory.
    lookups: Vec<(T, u64)>,
}

/// Measurements of one kind of keys.
struct Measured {
    insert_ns: Samples,
    lookup_ns: Samples,
    /// Bytes for each entry: of the blocks in use, and of the map's chunks.
    block_len: Samples,
    chunk_len: Samples,
}

impl Measured {
    const fn new() -> Self {
        Measured {
            insert_ns: Samples::new(),
            lookup_ns: Samples::new(),
            block_len: Samples::new(),
            chunk_len: Samples::new(),
        }
    }
}

impl<T: Clone> Keys<T> {
    fn new(name: &'static str, all: Vec<T>, order: &[usize]) -> Self {
        let lookups = order.iter().map(|&at| (all[at].clone(), at as u64)).collect();
        Keys { name, all, lookups }
    }

    /// Fills a new map, and looks everything up.
    fn sample<K>(&self, directory: &Path, measured: &mut Measured) -> Result<Ground>
    where
        K: OrderedKey + ?Sized + 'static,
        T: Borrow<K>,
    {
        let path = directory.join(format!("{}.pool", self.name));
        let pool = pool::options(Emulation::Nvram).create(path)?;
        let map: BlinkTree<K, u64> = BlinkTree::create(&pool, "bench")?;
        let entries = self.all.len() as f64;
        let start = Instant::now();
        for (key, value) in self.all.iter().zip(0..) {
            ensure!(map.insert(key.borrow(), &value)?, "key {value} was not inserted");
        }
        measured.insert_ns.push(start.elapsed().as_secs_f64() * 1e9 / entries);
        let start = Instant::now();
        for (key, value) in &self.lookups {
            ensure!(map.get(key.borrow())? == Some(*value), "key {value} has another value");
        }
        measured.lookup_ns.push(start.elapsed().as_secs_f64() * 1e9 / entries);
        let usage = map.usage()?;
        measured.block_len.push(usage.block_bytes as f64 / entries);
        measured.chunk_len.push(usage.chunk_bytes as f64 / entries);
        Ok(Ground::of_pool(&pool))
    }
}
