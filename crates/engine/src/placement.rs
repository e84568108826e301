//! Placing indexes by how much they are used, and what that costs.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use remanent_pmem::Medium;

use crate::database::Database;
use crate::engine::Engine;
use crate::index::Index;
use crate::index::uses::Use;
use crate::schema::{IndexKind, Placement, RESERVED, Structure};
use crate::table::Table;
use crate::{Error, Result};

/// Adding or removing a word, besides finding its place: a flush, and for trees two fences.
const FLUSH_NS: f64 = 30.0;
const FENCE_NS: f64 = 100.0;
/// Looking for a key where no row could be measured: some lines that no cache has.
const LOOKUP_NS: f64 = 200.0;
/// Bytes that a hash index takes without rows.
const EMPTY_LEN: u64 = 16 << 10;
/// Bytes of a row in a hash index, about.
const WORD_LEN: u64 = 15;
/// Bytes of an entry in a tree besides its key, about; leaves are seven tenths full.
const ENTRY_LEN: u64 = 24;

/// How an index was used since the database was opened, and how large it is.
///
/// Made by [`Database::index_uses`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct IndexUse {
    /// The name of its table.
    pub table: String,
    /// Its name.
    pub index: String,
    /// What it promises.
    pub kind: IndexKind,
    /// How it finds rows.
    pub structure: Structure,
    /// Where it lies.
    pub placement: Placement,
    /// How often rows with a key were looked for: by reads, changes, and to find that no other row
    /// has a key.
    pub lookups: u64,
    /// How often a range was read.
    pub ranges: u64,
    /// How often a row got a key, or lost one.
    pub changes: u64,
    /// Its rows, about: some tiles are looked at.
    pub rows: u64,
    /// What it takes, in bytes, by the number of its rows.
    pub bytes: u64,
}

impl IndexUse {
    /// All uses.
    pub fn uses(&self) -> u64 {
        self.lookups + self.ranges + self.changes
    }

    /// Uses for each byte.
    fn worth(&self) -> f64 {
        self.uses() as f64 / self.bytes as f64
    }
}

/// Where an index is to lie.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PlannedIndex {
    /// How it is used now, and where it lies now.
    pub used: IndexUse,
    /// Where it is to lie.
    pub placement: Placement,
    /// What one look for a key is expected to take there, in nanoseconds.
    pub lookup_ns: f64,
    /// What one change is expected to take there, in nanoseconds.
    pub change_ns: f64,
}

/// Where all indexes of a database are to lie, and what that is expected to cost. Printing it shows
/// a table.
///
/// Made by [`Database::plan_placement`], which has an example.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PlacementPlan {
    /// All indexes, the most wanted for each of its bytes first.
    pub indexes: Vec<PlannedIndex>,
    /// What rebuilding one row of one index takes one thread, in nanoseconds: as measured in this
    /// opening, or else as is usual.
    pub rebuild_ns: f64,
}

impl PlacementPlan {
    /// The part of the bytes of all indexes that is to lie in the pool, from 0 to 1.
    pub fn share(&self) -> f64 {
        let bytes = |planned: &PlannedIndex| planned.used.bytes as f64;
        let all: f64 = self.indexes.iter().map(bytes).sum();
        self.indexes.iter().filter(|of| of.is_in_pool()).map(bytes).sum::<f64>() / all.max(1.0)
    }

    /// The expected time until everything is rebuilt after a crash, if so many threads do it.
    pub fn rebuild_time(&self, threads: usize) -> Duration {
        let in_dram = self.indexes.iter().filter(|of| !of.is_in_pool());
        let rows: f64 = in_dram.map(|of| of.used.rows as f64).sum();
        let seconds = rows * self.rebuild_ns / 1e9 / threads.max(1) as f64;
        // A program may have changed the plan.
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }

    /// The expected time of a use of an index, in nanoseconds: the mean over all uses that were
    /// counted; 0 if there were none.
    pub fn use_ns(&self) -> f64 {
        let (mut ns, mut uses) = (0.0, 0.0);
        for PlannedIndex { used, lookup_ns, change_ns, .. } in &self.indexes {
            ns += (used.lookups + used.ranges) as f64 * lookup_ns + used.changes as f64 * change_ns;
            uses += used.uses() as f64;
        }
        if uses == 0.0 { 0.0 } else { ns / uses }
    }
}

impl PlannedIndex {
    fn is_in_pool(&self) -> bool {
        self.placement == Placement::Pmem
    }
}

impl fmt::Display for PlacementPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |used: &IndexUse| format!("{}.{}", used.table, used.index);
        let names = self.indexes.iter().map(|of| name(&of.used).len());
        let width = names.max().unwrap_or(0).max("index".len());
        writeln!(
            f,
            "{:width$}  {:>12}  {:>12}  {:>10}  {:>8}  {:>10}  {:>9}  {:>9}",
            "index", "uses", "rows", "KiB", "now", "planned", "lookup ns", "change ns"
        )?;
        let place = |placement| match placement {
            Placement::Pmem => "pool",
            Placement::Dram => "DRAM",
        };
        for PlannedIndex { used, placement, lookup_ns, change_ns } in &self.indexes {
            writeln!(
                f,
                "{:width$}  {:>12}  {:>12}  {:>10}  {:>8}  {:>10}  {:>9.0}  {:>9.0}",
                name(used),
                used.uses(),
                used.rows,
                used.bytes >> 10,
                place(used.placement),
                place(*placement),
                lookup_ns,
                change_ns
            )?;
        }
        write!(
            f,
            "{:.0} % of the bytes in the pool; after a crash {:.1} ms of rebuilding by one thread; \
             {:.0} ns a use",
            self.share() * 100.0,
            self.rebuild_time(1).as_secs_f64() * 1e3,
            self.use_ns()
        )
    }
}

impl<M: Medium> Database<M> {
    /// How each index was used since the database was opened, and how large it is. Looks at some
    /// tiles of each table.
    pub fn index_uses(&self) -> Vec<IndexUse> {
        self.engine.used_indexes().into_iter().map(|(_, _, used)| used).collect()
    }

    /// Plans where indexes are to lie so that about `share` of their bytes is in the pool, from 0
    /// to 1: those that were used most for each of their bytes, since the database was opened. They
    /// are there the moment the database is opened after a crash, and the others are rebuilt.
    /// Indexes are placed whole. Looks up some rows of each index to say what that takes; changes
    /// nothing.
    ///
    /// ```
    /// use remanent_engine::{Database, Placement, TableSpec, Type};
    /// # use remanent_pmem::Pool;
    /// # let pool = Pool::options().create_in_memory()?;
    /// let shop = Database::create(&pool, "shop")?;
    /// let spec = TableSpec::new("items")
    ///     .column("number", Type::U32)
    ///     .column("name", Type::Text { max: 20 })
    ///     .primary_key(["number"])
    ///     .unique("by_name", ["name"])
    ///     .place(["primary", "by_name"], Placement::Dram);
    /// let items = shop.create_table(&spec)?;
    /// items.insert(&[1.into(), "lamp".into()])?;
    /// let by_name = items.prepare_get("by_name")?;
    /// for _ in 0..100 {
    ///     by_name.run(&shop.snapshot(), &["lamp".into()], |_| Ok(()))?;
    /// }
    ///
    /// let plan = shop.plan_placement(0.5); // half of the bytes
    /// println!("{plan}");
    /// assert_eq!(plan.indexes[0].used.index, "by_name");
    /// shop.apply_placement(&plan)?; // others use the indexes meanwhile
    /// assert_eq!(items.placement("by_name")?, Placement::Pmem);
    /// assert_eq!(items.placement("primary")?, Placement::Dram);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn plan_placement(&self, share: f64) -> PlacementPlan {
        self.engine.plan_placement(share)
    }

    /// Moves indexes to where a plan has them, one after the other, those first that leave the
    /// pool. Each is moved as by [`place_index`](Database::place_index): while others use it, and
    /// in a durable step of its own. After a crash between two of them, some are moved and others
    /// not.
    ///
    /// # Errors
    ///
    /// Those of [`place_index`](Database::place_index), also when a table or an index of the plan
    /// was dropped. Those before it are moved then.
    pub fn apply_placement(&self, plan: &PlacementPlan) -> Result<()> {
        let mut planned: Vec<&PlannedIndex> = plan.indexes.iter().collect();
        // What leaves the pool makes room for what comes.
        planned.sort_by_key(|of| (of.is_in_pool(), &of.used.table, &of.used.index));
        for PlannedIndex { used, placement, .. } in planned {
            let table =
                self.engine.table(&used.table).filter(|table| !table.name.starts_with(RESERVED));
            let table = table.ok_or_else(|| Error::NoSuchTable { table: used.table.clone() })?;
            self.engine.place_index(&table, &used.index, *placement)?;
        }
        Ok(())
    }
}

/// An index with its table.
type Used<M> = (Arc<Table<M>>, Arc<Index<M>>, IndexUse);

impl<M: Medium> Engine<M> {
    fn used_indexes(&self) -> Vec<Used<M>> {
        let tables = self.schema.lock(self.medium()).tables.clone();
        let mut all = Vec::new();
        // Those of the database's own tables stay where they are.
        for table in tables.into_iter().filter(|table| !table.name.starts_with(RESERVED)) {
            let rows = table.estimate_rows();
            let indexes: Vec<Arc<Index<M>>> = table.indexes.load().named().cloned().collect();
            for index in indexes {
                let used = used(&table, &index, rows);
                all.push((Arc::clone(&table), index, used));
            }
        }
        all
    }

    fn plan_placement(&self, share: f64) -> PlacementPlan {
        let mut indexes = self.used_indexes();
        let name = |used: &IndexUse| (used.table.clone(), used.index.clone());
        indexes.sort_by(|(.., one), (.., other)| {
            let worth = other.worth().total_cmp(&one.worth());
            worth.then_with(|| name(one).cmp(&name(other)))
        });
        let measured: Vec<(Structure, Placement, f64)> = indexes
            .iter()
            .filter_map(|(table, index, used)| {
                Some((used.structure, used.placement, table.measure_lookup_ns(index)?))
            })
            .collect();
        let all: f64 = indexes.iter().map(|(.., used)| used.bytes as f64).sum();
        // Not a number is no share.
        let wanted = if share > 0.0 { share.min(1.0) * all } else { 0.0 };
        let mut in_pool = 0.0;
        let planned = indexes.into_iter().map(|(.., used)| {
            let bytes = used.bytes as f64;
            let is_in_pool = in_pool + bytes / 2.0 <= wanted;
            in_pool += if is_in_pool { bytes } else { 0.0 };
            let placement = if is_in_pool { Placement::Pmem } else { Placement::Dram };
            let lookup_ns = expected_lookup_ns(&measured, used.structure, placement);
            let change_ns = lookup_ns
                + match (placement, used.structure) {
                    (Placement::Dram, _) => 0.0,
                    (Placement::Pmem, Structure::Hash) => FLUSH_NS,
                    (Placement::Pmem, Structure::Ordered) => FLUSH_NS + 2.0 * FENCE_NS,
                };
            PlannedIndex { used, placement, lookup_ns, change_ns }
        });
        PlacementPlan { indexes: planned.collect(), rebuild_ns: self.rebuild_cost.for_one() }
    }
}

/// The mean of what was measured for indexes of this structure that lie there; or else wherever
/// they lie.
fn expected_lookup_ns(
    measured: &[(Structure, Placement, f64)],
    structure: Structure,
    placement: Placement,
) -> f64 {
    let mean = |fits: &dyn Fn(Structure, Placement) -> bool| {
        let found = measured.iter().filter(|(of, there, _)| fits(*of, *there));
        let (sum, count) = found.fold((0.0, 0.0), |(sum, count), (.., ns)| (sum + ns, count + 1.0));
        (count > 0.0).then(|| sum / count)
    };
    let there = mean(&|of, lies| of == structure && lies == placement);
    there.or_else(|| mean(&|of, _| of == structure)).unwrap_or(LOOKUP_NS)
}

fn used<M: Medium>(table: &Table<M>, index: &Index<M>, rows: u64) -> IndexUse {
    let spec = &index.spec;
    let bytes = match spec.structure {
        Structure::Hash => EMPTY_LEN + rows * WORD_LEN,
        Structure::Ordered => {
            let key_len = |column: &usize| table.format.cells[*column].of_type.cell_len() as u64;
            let key: u64 = spec.columns.iter().map(key_len).sum();
            EMPTY_LEN + rows * (key + ENTRY_LEN) * 10 / 7
        }
    };
    IndexUse {
        table: table.name.clone(),
        index: spec.name.clone(),
        kind: spec.kind,
        structure: spec.structure,
        placement: spec.placement,
        lookups: index.uses.of(Use::Lookup),
        ranges: index.uses.of(Use::Range),
        changes: index.uses.of(Use::Change),
        rows,
        bytes,
    }
}
