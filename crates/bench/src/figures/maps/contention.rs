//! Contention in Figure 7: failed compare-exchanges of the hash map, with flushes and without. A
//! medium counts them in runs of their own.

use anyhow::Result;
use remanent_pmem::Emulation;

use super::mix::THREADS_7;
use super::{Effort, Flush, Variant, count_label, threads_label};
use crate::cleanup::Scratch;
use crate::measure::{Progress, Samples, timed};
use crate::memory::counting::Counting;
use crate::peers::multi::Kind;
use crate::report::{Ground, Report, Shape};
use crate::setup::Setup;
use crate::workloads::entries::Entries;

const UNIT: &str = "failed CAS per million inserts";

/// Counts them, and adds their rows and the chart.
///
/// # Errors
///
/// When a map cannot be made, or answers wrongly.
pub(super) fn run(effort: Effort, setup: &Setup, report: &mut Report) -> Result<()> {
    let entries = effort.pick(1_000_000, 100_000, 1_000);
    let inserts = effort.pick(1_000_000, 100_000, 1_000);
    let rounds = effort.pick(3, 2, 1);
    let label = "failed CAS, threads:";
    let progress = Progress::new("maps, contention", 2 * rounds * THREADS_7.len());
    // At the largest number of threads, without flushes and with them.
    let mut most = Vec::new();
    for (emulation, flush) in [(Emulation::None, Flush::None), (Emulation::Nvram, Flush::Best)] {
        let variant = Variant { kind: Kind::Hashmap, flush };
        for threads in THREADS_7 {
            let mut failed = Samples::new();
            let scratch = Scratch::new(&setup.dir)?;
            let pool = Counting::pool(scratch.path(), emulation)?;
            let map = variant.kind.create::<u64, _>(&pool)?;
            let first = Entries::new(entries);
            map.run(&first.inserts())?;
            let mixed = first.mixed(inserts, 100);
            for _ in 0..rounds {
                progress.step(format!("{}, {}", variant.name(), threads_label(threads)));
                let before = pool.medium().failed();
                timed(&mixed.steps, threads, |steps| map.run(steps))?;
                let count = pool.medium().failed() - before;
                failed.push(count as f64 * 1e6 / inserts as f64);
                map.run(&mixed.undo)?;
            }
            let ground = Ground::of_pool(&pool);
            report.row(&variant.name(), &format!("{label} {threads}"), &ground, UNIT, &failed);
            if threads == THREADS_7[THREADS_7.len() - 1] {
                most.push(failed.mean());
            }
        }
    }
    drop(progress);
    let threads = threads_label(THREADS_7[THREADS_7.len() - 1]);
    let title =
        format!("{} entries, 100 % writes, over threads, up to {threads}", count_label(entries));
    report.chart("figure-7-failed-cas", &title, UNIT, label, Shape::Lines);
    if let [without, with] = most[..]
        && with > 0.0
    {
        let against = format!(
            "failed CAS per million inserts by {threads}: without flushes {without:.1}, with flushes {with:.1}; the \
             paper: 3 to 4, by 20 threads"
        );
        let ratio = Samples::from_iter([without / with]);
        report.claim("maps.failed_cas.unflushed_vs_flushed", &ratio, "x", against, None);
    }
    Ok(())
}
