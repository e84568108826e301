//! Litmus tests: everything that a crash may leave of a few stores.

use std::collections::BTreeSet;

use remanent_pmem::WORD_LEN;

use super::image::{Choice, Images};
use super::pending::Pending;
use crate::config::Points;
use crate::sim::{Sim, SimOptions};

/// Every combination of the words at `offsets` that a crash of `program` may leave.
///
/// With [`Points::Fences`] the power fails right after the program; with [`Points::Stores`] it may
/// also fail at any moment during the program. The program runs alone; [`Sim::as_thread`] lets it
/// act for several threads.
///
/// # Examples
///
/// Two lines are unordered, and a line that was not flushed may survive all the same:
///
/// ```
/// use remanent_crashsim::{Points, SimOptions, litmus};
/// use remanent_pmem::Medium;
///
/// let left = litmus(&SimOptions::default(), Points::Fences, &[0, 64], |medium| {
///     medium.store(0, 1);
///     medium.persist(0, 8);
///     medium.store(64, 2);
/// });
/// assert_eq!(left, [vec![1, 0], vec![1, 2]].into());
/// ```
///
/// # Panics
///
/// When there are more than 2²⁰ images at some moment, too many for a litmus test.
pub fn litmus(
    options: &SimOptions,
    points: Points,
    offsets: &[u64],
    program: impl FnOnce(&Sim),
) -> BTreeSet<Vec<u64>> {
    let sim = Sim::new(options.clone());
    sim.keep_undo();
    let start = sim.mark();
    sim.record();
    program(&sim);
    let events = sim.take_events();
    sim.roll_back(start);
    let mut pending = Pending::new(options, 0);
    let mut left = BTreeSet::new();
    let mut collect = |pending: &Pending| {
        let images = Images::new(pending, &sim, 1 << 20, 0, 0);
        assert!(!images.is_sampled(), "too many images for a litmus test");
        let mut choice = Choice::default();
        for number in 0..images.total() {
            let before = sim.mark();
            images.choice(number, &mut choice);
            images.materialise(&choice, &sim);
            left.insert(
                offsets.iter().map(|offset| sim.peek((offset / WORD_LEN) as u32)).collect(),
            );
            sim.roll_back(before);
        }
    };
    for event in &events {
        if points == Points::Stores {
            collect(&pending);
        }
        pending.advance(event, &sim);
    }
    collect(&pending);
    left
}
