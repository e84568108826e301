//! Which snapshots are in use: what they can see is kept.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use remanent_pmem::Medium;

use super::stamps::Stamps;

/// Snapshots that can be in use at one time; further ones wait.
const PLACES: usize = 1024;

/// The snapshots in use, each in a place of its own.
#[derive(Debug)]
pub(crate) struct Snapshots {
    places: Box<[Place]>,
}

/// 0, or one more than the stamp of a snapshot. In a line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Place(AtomicU64);

/// A snapshot in use. Giving it back is the owner's.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Held {
    place: usize,
    pub(crate) stamp: u64,
}

impl Snapshots {
    pub(crate) fn new() -> Self {
        Snapshots { places: (0..PLACES).map(|_| Place::default()).collect() }
    }

    /// Takes a snapshot of what is visible now.
    #[inline]
    pub(crate) fn hold<M: Medium>(&self, medium: &M, stamps: &Stamps) -> Held {
        let stamp = stamps.visible();
        let place = self.take(medium, stamp);
        let word = &self.places[place].0;
        let mut held = Held { place, stamp };
        loop {
            // SeqCst: the stamp is announced before it is seen again; partner of the fence in
            // `horizon`. Who has not seen the announcement has taken a horizon that is visible
            // here.
            fence(Ordering::SeqCst);
            let visible = stamps.visible();
            if visible == held.stamp {
                return held;
            }
            held.stamp = visible;
            // Relaxed: ordered by the fence.
            word.store(visible + 1, Ordering::Relaxed);
        }
    }

    /// Takes a snapshot with this stamp, while nothing that it sees is folded.
    pub(crate) fn hold_at<M: Medium>(&self, medium: &M, stamp: u64) -> Held {
        Held { place: self.take(medium, stamp), stamp }
    }

    fn take<M: Medium>(&self, medium: &M, stamp: u64) -> usize {
        let first = medium.thread() as usize;
        loop {
            for place in (0..PLACES).map(|next| first.wrapping_add(next) % PLACES) {
                let word = &self.places[place].0;
                // Relaxed: the caller fences.
                if word.load(Ordering::Relaxed) == 0
                    && word
                        .compare_exchange(0, stamp + 1, Ordering::SeqCst, Ordering::Relaxed)
                        .is_ok()
                {
                    return place;
                }
            }
            medium.pause();
        }
    }

    /// Gives a snapshot back.
    #[inline]
    pub(crate) fn give_back(&self, held: &Held) {
        // Release: what was read with it, before; partner of the load in `horizon`.
        self.places[held.place].0.store(0, Ordering::Release);
    }

    /// The stamp up to which every snapshot sees everything, those that come later included.
    pub(crate) fn horizon(&self, stamps: &Stamps) -> u64 {
        let visible = stamps.visible();
        // SeqCst: partner of the fence in `hold`.
        fence(Ordering::SeqCst);
        let held = self.places.iter().filter_map(|place| {
            // Acquire: partner of the store in `give_back`.
            place.0.load(Ordering::Acquire).checked_sub(1)
        });
        held.fold(visible, u64::min)
    }
}
