//! The floor of all structures: the machine's time for steps that no structure can omit.

use std::path::Path;

use anyhow::Result;
use remanent_pmem::{LINE_LEN, Medium};

use super::area::{Area, Order};
use crate::measure::{Samples, mean_ns};
use crate::report::{Ground, Report};
use crate::workloads::keys::{cycle, mix};

/// Bytes over which the floor is measured: far more than any cache holds.
pub(crate) const FLOOR_LEN: u64 = 1 << 30;
/// Fences in a sample: a few milliseconds.
const FENCES: u64 = 20_000;

/// Row name of [`FenceCost`].
pub(crate) const PERSIST: &str = "store + flush + fence";

/// The floor of durable operations: the time to make one line durable.
#[derive(Clone, Debug)]
pub(crate) struct FenceCost([Samples; 3]);

impl FenceCost {
    /// Measures store + flush + fence, one line at a time, `rounds` times in each order.
    pub(crate) fn measure(area: &Area, rounds: usize) -> Self {
        let mut samples: [Samples; 3] = Default::default();
        for round in 0..rounds as u64 {
            for (order, samples) in Order::ALL.into_iter().zip(&mut samples) {
                samples.push(mean_ns(FENCES, |turn| {
                    let offset = area.visit(order, LINE_LEN, round * FENCES + turn);
                    area.medium().store(offset, turn);
                    area.medium().persist(offset, 8);
                }));
            }
        }
        FenceCost(samples)
    }

    /// Nanoseconds a line, in this order of visits.
    pub(crate) fn samples(&self, order: Order) -> &Samples {
        let [same, sequential, random] = &self.0;
        match order {
            Order::Same => same,
            Order::Sequential => sequential,
            Order::Random => random,
        }
    }
}

/// The machine's time for the steps that no structure can omit.
#[derive(Default)]
pub(crate) struct Floor {
    /// Storing, flushing and fencing a random line.
    pub(crate) fence_ns: Samples,
    /// Loading a random line of as much memory as the structure takes.
    pub(crate) load_ns: Samples,
}

impl Floor {
    /// Measures both, for a structure of `len` bytes.
    ///
    /// # Errors
    ///
    /// When there is not enough memory.
    pub(crate) fn measure(directory: &Path, len: usize, rounds: usize) -> Result<Self> {
        let area = Area::new(directory, FLOOR_LEN)?;
        Ok(Floor {
            fence_ns: FenceCost::measure(&area, rounds).samples(Order::Random).clone(),
            load_ns: random_load_ns(len, rounds),
        })
    }

    /// Nanoseconds that a thread needs for so many fences, or for one load if there are none.
    pub(crate) fn ns(&self, fences: u32) -> f64 {
        match fences {
            0 => self.load_ns.median(),
            fences => f64::from(fences) * self.fence_ns.median(),
        }
    }

    /// Adds both as rows at `x`; `ground` is that of a pool opened as NVRAM.
    pub(crate) fn add_rows(&self, x: &str, ground: &Ground, report: &mut Report) {
        report.row(PERSIST, x, ground, "ns", &self.fence_ns);
        report.row("load from a random line", x, &Ground::volatile(), "ns", &self.load_ns);
    }
}

#[derive(Clone)]
#[repr(align(64))]
struct Line(u32);

/// Nanoseconds of a load from a random line of a working set of `len` bytes, if each load depends
/// on the one before: a cache miss that nothing hides.
pub(crate) fn chase_ns(len: usize, rounds: usize) -> Samples {
    let next = cycle((len / size_of::<Line>()).max(2), 1);
    let lines: Vec<Line> = next.into_iter().map(Line).collect();
    let mut at = 0;
    load_ns(lines.len(), rounds, |_| {
        at = lines[at as usize].0;
        at
    })
}

/// Nanoseconds of a load from a random line of a working set of `len` bytes, a power of two, if the
/// CPU may overlap it with the next ones: the minimum of a lookup in so much memory.
pub(crate) fn random_load_ns(len: usize, rounds: usize) -> Samples {
    let lines = vec![Line(1); (len / size_of::<Line>()).next_power_of_two()];
    load_ns(lines.len(), rounds, |turn| lines[mix(turn) as usize & (lines.len() - 1)].0)
}

fn load_ns(lines: usize, rounds: usize, mut load: impl FnMut(u64) -> u32) -> Samples {
    let steps = (2 * lines as u64).clamp(200_000, 2_000_000);
    let mut round = || {
        let mut sum = 0u64;
        let ns = mean_ns(steps, |turn| sum += u64::from(load(turn)));
        // The sum is used, so that the compiler cannot omit the loads.
        std::hint::black_box(sum);
        ns
    };
    // The first round warms the caches with as much of the set as fits.
    round();
    (0..rounds).map(|_| round()).collect()
}
