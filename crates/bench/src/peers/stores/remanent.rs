//! Remanent's batched map in a pool file on a disk.

use std::collections::VecDeque;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use remanent_pmem::{Durability, Pool};
use remanent_structures::{BatchMap, BatchOptions};

use super::interface::{Commit, LAG_LEN, LAG_TIME, Lag, Rival, Store};

/// The map among the stores.
pub(super) const RIVAL: Rival =
    Rival { name: "remanent", open, terms, is_whole_unsynced: true, keeps_bounds: true };

fn terms(commit: Commit) -> &'static str {
    match commit {
        Commit::Each => "BatchMap, a sync a put: one msync",
        Commit::Unsynced => {
            "BatchMap, whose thread syncs: the death of the process takes nothing, power loss what was \
             not synced; a prefix is kept"
        }
        Commit::Grouped => {
            "BatchMap, synced after so many puts: the death of the process takes nothing, power loss \
             what was not synced; a prefix is kept"
        }
    }
}

/// Bytes of a put in the map's log: a head of three words, a key, a value in whole words.
const RECORD_LEN: u64 = 24 + 8 + 104;
/// Puts between two checks of the map's lag.
const PUTS_PER_LOOK: u64 = 64;

struct RemanentStore {
    map: BatchMap<u64, [u8]>,
    syncs_each: bool,
    puts: u64,
    /// For puts that may be unsafe: when so many puts had returned.
    returned: VecDeque<(u64, Instant)>,
    longest: Duration,
}

fn open(directory: &Path, commit: Commit) -> Result<Box<dyn Store>> {
    let path = directory.join("store.pool");
    let options = Pool::options().size_max(16 << 30).durability(Durability::Power);
    let pool = if path.exists() { options.open(&path)? } else { options.create(&path)? };
    let batches = BatchOptions {
        // Counts records, which are a third longer than the values that the rivals' bound counts.
        lag_bytes: LAG_LEN as u64,
        lag_age: LAG_TIME,
        background: commit == Commit::Unsynced,
        ..BatchOptions::default()
    };
    let batches = match commit {
        // The caller decides when to sync.
        Commit::Each | Commit::Grouped => BatchOptions { lag_bytes: u64::MAX, ..batches },
        Commit::Unsynced => batches,
    };
    let map = BatchMap::open_or_create(&pool, "store", batches)?;
    let syncs_each = commit == Commit::Each;
    let (returned, longest) = (VecDeque::new(), Duration::ZERO);
    Ok(Box::new(RemanentStore { map, syncs_each, puts: 0, returned, longest }))
}

impl RemanentStore {
    /// Notes which puts have become safe, and the maximal time that this took.
    fn look(&mut self) {
        let now = Instant::now();
        let safe = self.puts.saturating_sub(self.map.lag().bytes.div_ceil(RECORD_LEN));
        while let Some(&(puts, returned)) = self.returned.front()
            && puts <= safe
        {
            self.longest = self.longest.max(now - returned);
            self.returned.pop_front();
        }
        self.returned.push_back((self.puts, now));
    }
}

impl Store for RemanentStore {
    fn put(&mut self, key: u64, value: &[u8]) -> Result<()> {
        self.map.put(&key, value)?;
        self.puts += 1;
        if self.syncs_each {
            self.map.sync()?;
        } else if self.puts.is_multiple_of(PUTS_PER_LOOK) {
            self.look();
        }
        Ok(())
    }

    fn get(&mut self, key: u64, value: &mut Vec<u8>) -> Result<bool> {
        let found = self.map.get_with(&key, |found| {
            value.clear();
            value.extend_from_slice(found);
        })?;
        Ok(found.is_some())
    }

    fn sync(&mut self) -> Result<()> {
        self.map.sync()?;
        self.look();
        Ok(())
    }

    fn lag(&self) -> Lag {
        Lag { waited: None, longest: self.longest }
    }
}
