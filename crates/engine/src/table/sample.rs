//! What some rows of a table tell of all.

use std::time::Instant;

use remanent_pmem::Medium;

use super::Table;
use super::layout::State;
use super::ops::{RowPlace, key_cells};
use crate::index::{Index, Key};

/// Tiles that are looked at.
const SAMPLED_TILES: u64 = 64;

impl<M: Medium> Table<M> {
    /// Some tiles that are none but damaged ones, spread over all.
    fn sampled_tiles(&self) -> impl Iterator<Item = u64> {
        let tiles = self.tile_count();
        let count = tiles.min(SAMPLED_TILES);
        let sampled = (0..count).map(move |number| number * tiles / count);
        sampled.filter(|tile| self.whole_tile(*tile).is_ok())
    }

    /// Rows of a tile that are there.
    fn rows_there(&self, tile: u64) -> impl Iterator<Item = RowPlace> {
        self.heads_of(tile).filter_map(|(_, place, head)| {
            let state = head.committed.state();
            matches!(state, State::Present(_) | State::Version(_)).then_some(place)
        })
    }

    /// How many rows there are, about.
    pub(crate) fn estimate_rows(&self) -> u64 {
        let (mut rows, mut tiles) = (0, 0);
        for tile in self.sampled_tiles() {
            rows += self.rows_there(tile).count() as u64;
            tiles += 1;
        }
        let all = u128::from(rows) * u128::from(self.tile_count());
        (all / u128::from(tiles.max(1_u64))) as u64
    }

    /// How long it takes to look for a key in an index, in nanoseconds; `None` if no row has one.
    pub(crate) fn measure_lookup_ns(&self, index: &Index<M>) -> Option<f64> {
        let key_of = |tile| {
            let _pin = self.heap.pin();
            let place = self.rows_there(tile).next()?;
            let groups = self.key_groups_in_tile(place, index.needs_others).ok()?;
            index.key_of(&self.format, key_cells(&groups))
        };
        let keys: Vec<Key> = self.sampled_tiles().filter_map(key_of).collect();
        let begin = Instant::now();
        let looked = keys.iter().filter(|key| index.candidates(key).is_ok()).count();
        (looked > 0).then(|| begin.elapsed().as_nanos() as f64 / looked as f64)
    }
}
