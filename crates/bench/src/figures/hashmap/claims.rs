//! Rows and claims of a stage.

use super::Entries;
use super::Stage;
use super::contenders::{Contender, EXTENDIBLE_NVRAM, MEMORY, NVRAM, PMEMOBJ, TBB, fence_budget};
use super::rounds::Floors;
use crate::measure::Samples;
use crate::peers::Operation;
use crate::report::{Ground, Report};

/// Ratios of time: the claim, ours, the other, and the operation.
const RATIOS: [(&str, &str, &str, Operation); 11] = [
    ("extendible.insert.nvram_vs_hashmap", EXTENDIBLE_NVRAM, NVRAM, Operation::Insert),
    ("extendible.lookup.nvram_vs_hashmap", EXTENDIBLE_NVRAM, NVRAM, Operation::Lookup),
    ("extendible.remove.nvram_vs_hashmap", EXTENDIBLE_NVRAM, NVRAM, Operation::Remove),
    ("extendible.insert.nvram_vs_tbb", EXTENDIBLE_NVRAM, TBB, Operation::Insert),
    ("extendible.lookup.nvram_vs_tbb", EXTENDIBLE_NVRAM, TBB, Operation::Lookup),
    ("extendible.insert.nvram_vs_pmemobj", EXTENDIBLE_NVRAM, PMEMOBJ, Operation::Insert),
    ("hashmap.insert.nvram_vs_tbb", NVRAM, TBB, Operation::Insert),
    ("hashmap.lookup.nvram_vs_tbb", NVRAM, TBB, Operation::Lookup),
    ("hashmap.insert.nvram_vs_pmemobj", NVRAM, PMEMOBJ, Operation::Insert),
    ("hashmap.insert.memory_vs_tbb", MEMORY, TBB, Operation::Insert),
    ("hashmap.lookup.memory_vs_tbb", MEMORY, TBB, Operation::Lookup),
];

/// Adds what was measured, and the machine's floors.
pub(super) fn add_rows<K>(
    label: &str,
    stage: &Stage,
    entry_len: usize,
    contenders: &[Contender<K>],
    floors: &Floors,
    report: &mut Report,
) {
    for contender in contenders {
        let (name, ground) = (contender.name, &contender.ground);
        for operation in Operation::ALL {
            let x = format!("{label} {}", operation.name());
            let throughput = contender.wall_ns[operation as usize].reciprocal(1e3);
            report.row(name, &x, ground, "Mops/s", &throughput);
            let cpu_ns = &contender.cpu_ns[operation as usize];
            report.row(name, &x, ground, "CPU ns/op", cpu_ns);
        }
        let x = format!("{label} memory in blocks");
        report.row(name, &x, ground, "bytes/entry", &contender.block_len);
        let x = format!("{label} memory in chunks");
        report.row(name, &x, ground, "bytes/entry", &contender.chunk_len);
    }
    let Some(ours) = find(contenders, EXTENDIBLE_NVRAM) else { return };
    floors.floor.add_rows(label, &ours.ground, report);
    let volatile = Ground::volatile();
    report.row("load that nothing overlaps", label, &volatile, "ns", &floors.miss_ns);
    for (series, name) in [("floor of nvram", NVRAM), ("floor of extendible", EXTENDIBLE_NVRAM)] {
        for operation in Operation::ALL {
            let x = format!("{label} {}", operation.name());
            let fences = fence_budget(name, entry_len, operation);
            let mops = stage.threads as f64 * 1e3 / floors.floor.ns(fences);
            report.row(series, &x, &ours.ground, "Mops/s", &Samples::from_iter([mops]));
        }
    }
}

/// Adds the claims of a stage.
pub(super) fn add_claims<K>(
    stage: &Stage,
    entry_len: usize,
    contenders: &[Contender<K>],
    floors: &Floors,
    report: &mut Report,
) {
    for (id, ours, other, operation) in RATIOS {
        let (Some(ours), Some(other)) = (find(contenders, ours), find(contenders, other)) else {
            continue;
        };
        let index = operation as usize;
        let floor = floors.floor.ns(fence_budget(ours.name, entry_len, operation));
        let describe = |contender: &Contender<K>| {
            let wall_ns = contender.wall_ns[index].median();
            format!("{} {wall_ns:.0} (CPU {:.0})", contender.name, contender.cpu_ns[index].median())
        };
        let against = format!(
            "ns per {}: {}, {}, floor {floor:.0}",
            operation.name(),
            describe(other),
            describe(ours),
        );
        let ratio = other.wall_ns[index].over(&ours.wall_ns[index]);
        let best = other.wall_ns[index].median() * stage.threads as f64 / floor;
        report.claim(&format!("{id}{}", stage.suffix), &ratio, "x", against, Some(best));
    }
    if let Some(ours) = find(contenders, EXTENDIBLE_NVRAM) {
        claim_insert_over_floor(stage, ours, floors, report);
        if stage.entries == Entries::Words {
            claim_memory(stage, ours, report);
        }
    }
}

/// An insert cannot do without one fence of a random line, nor without fetching that line.
fn claim_insert_over_floor<K>(
    stage: &Stage,
    ours: &Contender<K>,
    floors: &Floors,
    report: &mut Report,
) {
    let (fence_ns, load_ns) = (&floors.floor.fence_ns, &floors.floor.load_ns);
    let insert_ns = ours.wall_ns[Operation::Insert as usize].times(stage.threads as f64);
    let floor_ns = fence_ns.plus(load_ns);
    let against = format!(
        "ns of a thread: insert {:.0}, fence of a random line {:.0} + load from one {:.0} \
         ({:.0} if nothing overlaps it)",
        insert_ns.median(),
        fence_ns.median(),
        load_ns.median(),
        floors.miss_ns.median(),
    );
    let id = format!("extendible.insert.vs_floor{}", stage.suffix);
    report.claim(&id, &insert_ns.over(&floor_ns), "x the time", against, Some(1.0));
}

fn claim_memory<K>(stage: &Stage, ours: &Contender<K>, report: &mut Report) {
    /// Key and value.
    const FLOOR_LEN: f64 = 16.0;
    let against = format!(
        "key and value; chunks of the map {:.1}, blocks in them {:.1}",
        ours.chunk_len.median(),
        ours.block_len.median()
    );
    let id = format!("extendible.bytes_per_entry{}", stage.suffix);
    report.claim(&id, &ours.chunk_len, "bytes", against, Some(FLOOR_LEN));
}

fn find<'a, K>(contenders: &'a [Contender<K>], name: &str) -> Option<&'a Contender<K>> {
    contenders.iter().find(|contender| contender.name == name)
}
