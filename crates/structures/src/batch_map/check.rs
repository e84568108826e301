//! Checks that the index leads to the newest record of every key, and to nothing else.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use remanent_pmem::Medium;
use remanent_pmem::heap::Violation;

use super::Core;
use super::index::Entry;
use super::layout::{HASH, Kind};
use crate::Result;
use crate::background::lock_patiently;
use crate::segments::Slot;

impl<M: Medium> Core<M> {
    /// Proves that the map is consistent. Nobody may change it meanwhile.
    pub(super) fn check(&self) -> Result<Vec<Violation>> {
        // Keeps the background thread from emptying segments meanwhile.
        let _compacting = lock_patiently(&self.compacting, self.medium());
        let mut violations = Vec::new();
        let mut live = BTreeMap::new();
        for shard in &self.shards {
            let shard = shard.0.lock(self.medium());
            let mut len = 0;
            for entry in shard.table.entries_from(0) {
                self.check_entry(entry, &mut live, &mut violations);
                len += u64::from(!entry.is_tombstone());
            }
            if len != shard.len {
                let what = format!("a shard has {len} keys, and counts {}", shard.len);
                violations.push(Violation::new(self.log.heap().header(), what));
            }
        }
        for (slot, segment) in self.log.segments.slots() {
            let counted = self.log.segments.live.make(slot).load(Ordering::Relaxed);
            let found = live.get(&slot).copied().unwrap_or(0);
            if counted != found {
                let what = format!("a segment has {found} live bytes, and counts {counted}");
                violations.push(Violation::new(segment.offset, what));
            }
        }
        let blocks = self.log.segments.directory.blocks(self.medium());
        violations.extend(self.log.heap().check(blocks.into_iter())?);
        self.log.heap().verify()?;
        Ok(violations)
    }

    fn check_entry(
        &self,
        entry: Entry,
        live: &mut BTreeMap<Slot, u64>,
        violations: &mut Vec<Violation>,
    ) {
        let (slot, at) = (entry.place().slot(), self.log.segments.offset(entry.place()));
        let Some(record) = self.log.segments.locate(entry.place()) else {
            violations.push(Violation::new(at, "the index leads to no record"));
            return;
        };
        let (start, head) = (record.start, record.head);
        *live.entry(slot).or_insert(0) += head.record_len();
        if !self.log.segments.is_whole(&record) {
            violations.push(Violation::new(start, "a record has changed since it was written"));
        }
        if self.medium().load(start + HASH) != entry.hash {
            violations.push(Violation::new(start, "the index leads to a record of another hash"));
        }
        if (head.kind == Kind::Tombstone) != entry.is_tombstone() {
            violations.push(Violation::new(
                start,
                "the index takes a tombstone for a value, or a value for one",
            ));
        }
    }
}
