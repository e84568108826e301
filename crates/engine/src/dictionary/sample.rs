//! What some values of a dictionary tell of all.

use std::time::Instant;

use remanent_pmem::Medium;

use super::Dictionary;
use crate::index::Key;

/// Values that are looked for.
const SAMPLED: u64 = 64;

impl<M: Medium> Dictionary<M> {
    /// How long it takes to look for a value in the index, in nanoseconds; `None` if there is none.
    pub(crate) fn measure_lookup_ns(&self) -> Option<f64> {
        let (index, count) = (self.index.load(), self.count());
        let sampled = count.min(SAMPLED);
        let key_of = |number| {
            let value = self.store.read((number * count / sampled) as u32)?;
            Some(Key::of_value(&value))
        };
        let keys: Vec<Key> = (0..sampled).filter_map(key_of).collect();
        let begin = Instant::now();
        let looked = keys.iter().filter(|key| index.rows.candidates(key).is_ok()).count();
        (looked > 0).then(|| begin.elapsed().as_nanos() as f64 / looked as f64)
    }
}
