//! Which snapshots are in use: what they can see is kept.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use std::time::Duration;

use remanent_pmem::Medium;
use remanent_pmem::sync::PauseMutex;

use super::stamps::Stamps;

/// Snapshots that can be in use at one time; further ones wait.
const PLACES: usize = 1024;

/// The snapshots in use, each in a place of its own.
#[derive(Debug)]
pub(crate) struct Snapshots {
    places: Box<[Place]>,
    /// None of the places behind so many was ever taken: who folds looks at few lines.
    taken_end: AtomicUsize,
    /// How long one is kept, in ms.
    limit_ms: AtomicU64,
    /// What each place was last seen to have, and since when, in ms: who folds looks.
    ages: PauseMutex<Vec<(u64, u64)>>,
}

/// How long a snapshot is kept unless somebody says otherwise.
pub(crate) const LIMIT: Duration = Duration::from_secs(3600);

/// In a place: its snapshot is not kept any more, and not given back yet.
const EXPIRED: u64 = u64::MAX;

/// In a place: its snapshot is kept however old it is. A transaction needs the same one after a
/// crash, when nobody could tell it that it was not kept.
const FIRM: u64 = 1 << 62;

/// 0, or one more than the stamp of a snapshot. In a line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Place(AtomicU64);

/// A snapshot in use. Giving it back is the owner's.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) place: usize,
    pub(crate) stamp: u64,
}

impl Snapshots {
    pub(crate) fn new() -> Self {
        Snapshots {
            places: (0..PLACES).map(|_| Place::default()).collect(),
            taken_end: AtomicUsize::new(0),
            limit_ms: AtomicU64::new(LIMIT.as_millis() as u64),
            ages: PauseMutex::new(vec![(0, 0); PLACES]),
        }
    }

    /// Says how long snapshots are kept.
    pub(crate) fn set_limit(&self, limit: Duration) {
        // Relaxed: a number.
        self.limit_ms.store(limit.as_millis().min(u64::MAX.into()) as u64, Ordering::Relaxed);
    }

    /// How long snapshots are kept.
    pub(crate) fn limit(&self) -> Duration {
        // Relaxed: a number.
        Duration::from_millis(self.limit_ms.load(Ordering::Relaxed))
    }

    /// Whether what the snapshot of a place sees was kept up to now.
    #[inline]
    pub(crate) fn is_kept(&self, place: usize) -> bool {
        // Acquire: after what was read; partner of the exchange in `expire`, after which it may be
        // folded. Who has read what folding has written sees the exchange.
        fence(Ordering::Acquire);
        // Relaxed: ordered by the fence.
        self.places[place].0.load(Ordering::Relaxed) != EXPIRED
    }

    /// Stops keeping the snapshots that are too old, and that keep something.
    pub(crate) fn expire(&self, stamps: &Stamps, now_ms: u64) {
        let Some(mut ages) = self.ages.try_lock() else { return };
        let (visible, limit_ms) = (stamps.visible(), self.limit_ms.load(Ordering::Relaxed));
        for (place, (seen, since_ms)) in self.taken().iter().zip(ages.iter_mut()) {
            // Relaxed: the exchange below decides.
            let word = place.0.load(Ordering::Relaxed);
            // Firm ones are greater. One that keeps nothing does not age: there may be another one
            // of the same moment in its place later, but not once it is past.
            if word == 0 || word > visible {
                *seen = 0;
                continue;
            }
            if word != *seen {
                (*seen, *since_ms) = (word, now_ms);
            }
            let is_old = now_ms.saturating_sub(*since_ms) >= limit_ms;
            if is_old {
                // SeqCst: before the horizon is taken. It fails if it was given back meanwhile.
                let _ =
                    place.0.compare_exchange(word, EXPIRED, Ordering::SeqCst, Ordering::Relaxed);
            }
        }
    }

    /// Takes a snapshot of what is visible now.
    #[inline]
    pub(crate) fn hold<M: Medium>(&self, medium: &M, stamps: &Stamps) -> Held {
        self.hold_as(medium, stamps, 0)
    }

    /// The same for a transaction: it is kept until it is given back.
    pub(crate) fn hold_firmly<M: Medium>(&self, medium: &M, stamps: &Stamps) -> Held {
        self.hold_as(medium, stamps, FIRM)
    }

    #[inline]
    fn hold_as<M: Medium>(&self, medium: &M, stamps: &Stamps, how: u64) -> Held {
        let stamp = stamps.visible();
        let place = self.take(medium, (stamp + 1) | how);
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
            word.store((visible + 1) | how, Ordering::Relaxed);
        }
    }

    /// Takes the snapshot of a transaction that had it before, while nothing that it sees is
    /// folded.
    pub(crate) fn hold_at<M: Medium>(&self, medium: &M, stamp: u64) -> Held {
        Held { place: self.take(medium, (stamp + 1) | FIRM), stamp }
    }

    fn take<M: Medium>(&self, medium: &M, as_word: u64) -> usize {
        let first = medium.thread() as usize;
        loop {
            for place in (0..PLACES).map(|next| first.wrapping_add(next) % PLACES) {
                let word = &self.places[place].0;
                // Relaxed: the caller fences.
                if word.load(Ordering::Relaxed) == 0
                    && word
                        .compare_exchange(0, as_word, Ordering::SeqCst, Ordering::Relaxed)
                        .is_ok()
                {
                    self.note_taken(place);
                    return place;
                }
            }
            medium.pause();
        }
    }

    /// Has who folds look at a place, too.
    #[inline]
    fn note_taken(&self, place: usize) {
        // Relaxed: it grows alone, and who finds it too small exchanges it.
        if place >= self.taken_end.load(Ordering::Relaxed) {
            // SeqCst: before the caller's fence; partner of the load in `taken`.
            self.taken_end.fetch_max(place + 1, Ordering::SeqCst);
        }
    }

    /// The places that were ever taken, by who has announced it.
    fn taken(&self) -> &[Place] {
        // SeqCst: behind the fence in `horizon`; partner of the exchange in `note_taken`.
        &self.places[..self.taken_end.load(Ordering::SeqCst)]
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
        let held = self.taken().iter().filter_map(|place| {
            // Acquire: partner of the store in `give_back`.
            match place.0.load(Ordering::Acquire) {
                0 | EXPIRED => None,
                word => Some((word & !FIRM) - 1),
            }
        });
        held.fold(visible, u64::min)
    }
}
