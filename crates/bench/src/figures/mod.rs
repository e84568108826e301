//! The benches, one module each: workload, order, and claims.

mod batch_list;
pub(crate) mod bench;
mod berkeley_db;
mod disk;
mod effort;
mod hashmap;
mod killed;
mod kv;
mod line_tx;
mod maps;
mod opening;
mod primitives;
mod recovery;
mod restart;
mod rewrites;
mod row_index;
mod skip_list;
mod sqlite;
mod tatp;
mod transactions;

use bench::Bench;

/// All benches, in the order of the help.
pub(crate) const BENCHES: &[Bench] = &[
    primitives::BENCH,
    hashmap::BENCH,
    hashmap::WRITER,
    maps::BENCH,
    maps::WRITER,
    line_tx::BENCH,
    batch_list::BENCH,
    disk::BENCH,
    sqlite::BENCH,
    berkeley_db::BENCH,
    restart::BENCH,
    opening::BENCH,
    row_index::BENCH,
    skip_list::BENCH,
    tatp::BENCH,
    transactions::BENCH,
    rewrites::BENCH,
    recovery::BENCH,
    recovery::USERS,
    kv::BENCH,
];

/// The bench of that name.
pub(crate) fn named(name: &str) -> Option<&'static Bench> {
    BENCHES.iter().find(|bench| bench.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_readme_has_a_row_for_every_bench() {
        let readme = include_str!("../../README.md");
        for bench in BENCHES.iter().filter(|bench| !bench.is_hidden) {
            let row = format!("\n| `{}` |", bench.name);
            assert!(readme.contains(&row), "README.md has no row {row:?}");
        }
    }
}
