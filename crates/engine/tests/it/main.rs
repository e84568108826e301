//! Tests of the engine as programs use it.

mod back;
mod batch_keys;
mod batches;
mod changes;
mod columns;
mod dictionaries;
mod errors;
mod fences;
mod foreign;
mod foreign_at_commit;
mod foreign_left;
mod isolation;
mod left;
mod locks;
mod long_texts;
mod moved_dictionaries;
mod online;
mod ordered;
mod own_maps;
mod placement;
mod promises;
mod replicas;
mod rows;
mod scans;
mod schema;
mod sequences;
mod serializable;
mod serializable_refreshed;
mod shop;
mod snapshots;
mod steps;
mod threads;
mod transactions;
mod upsert;
mod uses;
mod waits;

use remanent_engine::{TableSpec, Type};

/// A table with two keys.
fn subscribers() -> TableSpec {
    TableSpec::new("subscribers")
        .column("id", Type::U32)
        .column("number", Type::Text { max: 15 })
        .nullable("location", Type::U32)
        .primary_key(["id"])
        .unique("by_number", ["number"])
}
