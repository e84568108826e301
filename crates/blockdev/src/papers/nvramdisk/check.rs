//! The check of an nvramdisk's consistency.

use remanent_pmem::Medium;
use remanent_pmem::heap::Violation;

use super::layout::NULL;
use super::ops::Device;
use crate::Result;
use crate::disk::layout::{Block, Lba};

/// The blocks that the map leads to.
pub(crate) struct Used {
    /// By block number.
    is_used: Vec<bool>,
    pub(crate) violations: Vec<Violation>,
}

impl Used {
    pub(crate) fn free(&self) -> impl DoubleEndedIterator<Item = Block> {
        let numbers = self.is_used.iter().enumerate().skip(1);
        numbers.filter(|(_, is_used)| !**is_used).map(|(number, _)| Block(number as u32))
    }
}

impl<M: Medium> Device<M> {
    /// Reads the whole map. Nobody changes it meanwhile.
    pub(crate) fn read_map(&self) -> Used {
        let count = self.places.block_count() as usize + 1;
        let mut used = Used { is_used: vec![false; count], violations: Vec::new() };
        for lba in (0..self.places.lbas).map(Lba) {
            let at = self.places.entry(lba.0);
            let word = self.medium().load(at);
            let what = match self.places.vpn(word) {
                _ if word == 0 => continue,
                None => format!("logical block {} leads to block {word:#x}, which is none", lba.0),
                Some(Block(block)) => {
                    if !std::mem::replace(&mut used.is_used[block as usize], true) {
                        continue;
                    }
                    format!("logical block {} leads to block {block}, as does another", lba.0)
                }
            };
            used.violations.push(Violation::new(at, what));
        }
        used
    }

    /// Proves that the map, the records and the free shadow blocks agree. Writers wait meanwhile.
    pub(crate) fn check(&self) -> Result<Vec<Violation>> {
        let medium = self.medium();
        let _lanes: Vec<_> = self.lanes.iter().map(|lane| lane.lock(medium)).collect();
        let used = self.read_map();
        let mut free: Vec<Block> = used.free().collect();
        let mut violations = used.violations;
        for lane in 0..self.lanes.len() {
            let [vpn, l1, l2] = self.load_record(lane);
            if (l1, l2) != (NULL, NULL) {
                let what = format!("record {lane} is in use: {vpn:#x}, {l1:#x}, {l2:#x}");
                violations.push(Violation::new(self.places.record(lane)[0], what));
            }
        }
        let shadows = self.shadows.lock(medium);
        let mut known = shadows.as_ref().map(|shadows| shadows.free.clone()).unwrap_or_default();
        free.sort_unstable();
        known.sort_unstable();
        if free != known {
            let what = format!("{} blocks are free, {} are known to be", free.len(), known.len());
            violations.push(Violation::new(self.places.meta, what));
        }
        let extents = [self.places.meta].into_iter().chain(self.places.segments.iter().copied());
        violations.extend(self.heap.check(extents)?);
        self.heap.verify()?;
        Ok(violations)
    }
}
