//! The nvramdisk paper's device: its Table 2, state by state, in both directions; beside a plain
//! array of bytes; and the fences of a write.

mod forward;
mod model;
mod table;

use std::sync::Arc;

use remanent_blockdev::papers::nvramdisk::{Nvramdisk, Policy};
use remanent_crashsim::{Sim, SimOptions};
use remanent_pmem::pool::Format;
use remanent_pmem::{Medium, Pool};

/// Length of the simulated pools.
const POOL_LEN: u64 = 40 << 20;
/// Blocks of the simulated disks.
const LBAS: u64 = 16;
/// The block that is being written.
const LBA: u64 = 3;
/// Its neighbour in the map, which is not.
const OTHER: u64 = 4;
const BLOCK: usize = 4096;

fn options() -> SimOptions {
    SimOptions { len: 64 << 10, capacity: POOL_LEN, ..SimOptions::default() }
}

type SimDisk = Nvramdisk<Arc<Sim>>;

/// A disk of which every block but the last has been written; backwards, so that no block's number
/// is that of a logical block that a test is about.
fn disk(sim: &Arc<Sim>, policy: Policy) -> (Pool<Arc<Sim>>, SimDisk) {
    let pool = Pool::format(Arc::clone(sim), &Format::new(POOL_LEN)).expect("room");
    let disk = Nvramdisk::create(&pool, "disk", LBAS * BLOCK as u64, policy).expect("room");
    for lba in (0..LBAS - 1).rev() {
        disk.write(lba * BLOCK as u64, &bytes(lba)).expect("on the disk");
    }
    (pool, disk)
}

fn reopen(sim: &Arc<Sim>, policy: Policy) -> (Pool<Arc<Sim>>, SimDisk) {
    let pool = Pool::recover(Arc::clone(sim)).expect("a pool");
    let disk = Nvramdisk::open(&pool, "disk", policy).expect("a disk");
    (pool, disk)
}

/// A block, no two words of which are the same, nor those of another stamp.
fn bytes(stamp: u64) -> Vec<u8> {
    (0..BLOCK as u64 / 8).flat_map(|word| (stamp << 32 | (word + 1)).to_le_bytes()).collect()
}

fn read(disk: &SimDisk, lba: u64) -> Vec<u8> {
    let mut found = vec![0; BLOCK];
    disk.read(lba * BLOCK as u64, &mut found).expect("on the disk");
    found
}

/// What the map says of a block.
fn entry(sim: &Sim, disk: &SimDisk, lba: u64) -> u64 {
    sim.load(disk.places().entry(lba))
}
