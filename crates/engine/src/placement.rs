//! Placing indexes, also those of dictionaries, by how much they are used, and what that costs.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use remanent_pmem::Medium;

use crate::database::Database;
use crate::dictionary::Dictionary;
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
    /// Its name. For the index of a dictionary: the name of the column.
    pub index: String,
    /// Whether it is the index of the [dictionary](crate::TableSpec::encoded) of a column, which
    /// leads from values to their numbers.
    pub is_dictionary: bool,
    /// What it promises. A dictionary has each value once.
    pub kind: IndexKind,
    /// How it finds rows.
    pub structure: Structure,
    /// Where it lies.
    pub placement: Placement,
    /// How often rows with a key were looked for: by reads, changes, and to find that no other row
    /// has a key. For the index of a dictionary: how often a row was to get a value.
    pub lookups: u64,
    /// How often a range was read.
    pub ranges: u64,
    /// How often a row got a key, or lost one. For the index of a dictionary: values that were
    /// added.
    pub changes: u64,
    /// Its rows, about: some tiles are looked at. For the index of a dictionary: its values.
    pub rows: u64,
    /// What it takes, in bytes, by the number of its rows or values.
    pub bytes: u64,
}

impl IndexUse {
    /// All uses.
    pub fn uses(&self) -> u64 {
        self.lookups + self.ranges + self.changes
    }

    /// Its table and its name, for people.
    fn name(&self) -> String {
        let what = if self.is_dictionary { " (dictionary)" } else { "" };
        format!("{}.{}{what}", self.table, self.index)
    }

    /// The place in the order of names.
    fn order(&self) -> (&str, bool, &str) {
        (&self.table, self.is_dictionary, &self.index)
    }

    fn shape(&self) -> Shape {
        (self.is_dictionary, self.structure)
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

/// Where all indexes of a database, and those of its dictionaries, are to lie, and what that is
/// expected to cost. Printing it shows a table.
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
    /// The same for one value in the index of a dictionary.
    pub rebuild_value_ns: f64,
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
        let ns_of = |used: &IndexUse| match used.is_dictionary {
            true => used.rows as f64 * self.rebuild_value_ns,
            false => used.rows as f64 * self.rebuild_ns,
        };
        let ns: f64 = in_dram.map(|of| ns_of(&of.used)).sum();
        let seconds = ns / 1e9 / threads.max(1) as f64;
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
        let names = self.indexes.iter().map(|of| of.used.name().len());
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
                used.name(),
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
    /// How each index, and that of each [dictionary](crate::TableSpec::encoded), was used since the
    /// database was opened, and how large it is. Looks at some tiles of each table.
    pub fn index_uses(&self) -> Vec<IndexUse> {
        self.engine.used_indexes().into_iter().map(|(_, used)| used).collect()
    }

    /// Plans where indexes are to lie so that about `share` of their bytes is in the pool, from 0
    /// to 1: those that were used most for each of their bytes, since the database was opened. They
    /// are there the moment the database is opened after a crash, and the others are rebuilt.
    /// Indexes of dictionaries count as others do. Indexes are placed whole. Looks up some rows or
    /// values of each index to say what that takes; changes nothing.
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
    /// pool. Each is moved as by [`place_index`](Database::place_index), or
    /// [`place_dictionary`](Database::place_dictionary): while others use it, and in a durable step
    /// of its own. After a crash between two of them, some are moved and others
    /// not.
    ///
    /// # Errors
    ///
    /// Those of [`place_index`](Database::place_index), also when a table or an index of the plan
    /// was dropped. Those before it are moved then.
    pub fn apply_placement(&self, plan: &PlacementPlan) -> Result<()> {
        let mut planned: Vec<&PlannedIndex> = plan.indexes.iter().collect();
        // What leaves the pool makes room for what comes.
        planned.sort_by_key(|of| (of.is_in_pool(), of.used.order()));
        for PlannedIndex { used, placement, .. } in planned {
            let table = self
                .engine
                .table(&used.table, None)
                .filter(|table| !table.name.starts_with(RESERVED));
            let table = table.ok_or_else(|| Error::NoSuchTable { table: used.table.clone() })?;
            match used.is_dictionary {
                true => self.engine.place_dictionary(&table, &used.index, *placement)?,
                false => self.engine.place_index(&table, &used.index, *placement)?,
            }
        }
        Ok(())
    }
}

/// An index, or the column of a dictionary, with its table.
enum Placed<M: Medium> {
    Index(Arc<Table<M>>, Arc<Index<M>>),
    Dictionary(Arc<Table<M>>, usize),
}

impl<M: Medium> Placed<M> {
    /// How long a look takes, in nanoseconds; `None` if there is nothing to look for.
    fn measure_lookup_ns(&self) -> Option<f64> {
        match self {
            Placed::Index(table, index) => table.measure_lookup_ns(index),
            Placed::Dictionary(table, column) => {
                table.dictionaries.get(*column)?.as_ref()?.measure_lookup_ns()
            }
        }
    }
}

impl<M: Medium> Engine<M> {
    fn used_indexes(&self) -> Vec<(Placed<M>, IndexUse)> {
        let tables = self.schema.lock(self.medium()).tables.clone();
        let mut all = Vec::new();
        // Those of the database's own tables stay where they are.
        let is_wanted =
            |table: &Arc<Table<M>>| table.is_there(None) && !table.name.starts_with(RESERVED);
        for table in tables.into_iter().filter(is_wanted) {
            let rows = table.estimate_rows();
            let indexes: Vec<Arc<Index<M>>> = table.indexes.load().named(false).cloned().collect();
            for index in indexes {
                let used = used(&table, &index, rows);
                all.push((Placed::Index(Arc::clone(&table), index), used));
            }
            for (column, dictionary) in table.dictionaries.iter().enumerate() {
                let Some(dictionary) = dictionary else { continue };
                let used = used_dictionary(&table, column, dictionary);
                all.push((Placed::Dictionary(Arc::clone(&table), column), used));
            }
        }
        all
    }

    fn plan_placement(&self, share: f64) -> PlacementPlan {
        let mut indexes = self.used_indexes();
        indexes.sort_by(|(_, one), (_, other)| {
            let worth = other.worth().total_cmp(&one.worth());
            worth.then_with(|| one.order().cmp(&other.order()))
        });
        let measured: Vec<(Shape, Placement, f64)> = indexes
            .iter()
            .filter_map(|(of, used)| Some((used.shape(), used.placement, of.measure_lookup_ns()?)))
            .collect();
        let all: f64 = indexes.iter().map(|(_, used)| used.bytes as f64).sum();
        // Not a number is no share.
        let wanted = if share > 0.0 { share.min(1.0) * all } else { 0.0 };
        let mut in_pool = 0.0;
        let planned = indexes.into_iter().map(|(_, used)| {
            let bytes = used.bytes as f64;
            let is_in_pool = in_pool + bytes / 2.0 <= wanted;
            in_pool += if is_in_pool { bytes } else { 0.0 };
            let placement = if is_in_pool { Placement::Pmem } else { Placement::Dram };
            let lookup_ns = expected_lookup_ns(&measured, used.shape(), placement);
            let change_ns = lookup_ns
                + match (placement, used.structure) {
                    (Placement::Dram, _) => 0.0,
                    (Placement::Pmem, Structure::Hash) => FLUSH_NS,
                    (Placement::Pmem, Structure::Ordered) => FLUSH_NS + 2.0 * FENCE_NS,
                };
            PlannedIndex { used, placement, lookup_ns, change_ns }
        });
        PlacementPlan {
            indexes: planned.collect(),
            rebuild_ns: self.rebuild_cost.for_one(),
            rebuild_value_ns: self.rebuild_cost.for_one_value(),
        }
    }
}

/// Indexes of one shape take as long to look for something: whether it is that of a dictionary, and
/// how it finds what it leads to.
type Shape = (bool, Structure);

/// The mean of what was measured for indexes of this shape that lie there; or else wherever they
/// lie.
fn expected_lookup_ns(
    measured: &[(Shape, Placement, f64)],
    shape: Shape,
    placement: Placement,
) -> f64 {
    let mean = |fits: &dyn Fn(Shape, Placement) -> bool| {
        let found = measured.iter().filter(|(of, there, _)| fits(*of, *there));
        let (sum, count) = found.fold((0.0, 0.0), |(sum, count), (.., ns)| (sum + ns, count + 1.0));
        (count > 0.0).then(|| sum / count)
    };
    let there = mean(&|of, lies| of == shape && lies == placement);
    there.or_else(|| mean(&|of, _| of == shape)).unwrap_or(LOOKUP_NS)
}

/// Bytes of a hash index.
fn hash_len(words: u64) -> u64 {
    EMPTY_LEN + words * WORD_LEN
}

fn used<M: Medium>(table: &Table<M>, index: &Index<M>, rows: u64) -> IndexUse {
    let spec = &index.spec;
    let bytes = match spec.structure {
        Structure::Hash => hash_len(rows),
        Structure::Ordered => {
            let key_len = |column: &usize| table.format.cells[*column].of_type.cell_len() as u64;
            let key: u64 = spec.columns.iter().map(key_len).sum();
            EMPTY_LEN + rows * (key + ENTRY_LEN) * 10 / 7
        }
    };
    IndexUse {
        table: table.name.clone(),
        index: spec.name.clone(),
        is_dictionary: false,
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

fn used_dictionary<M: Medium>(
    table: &Table<M>,
    column: usize,
    dictionary: &Dictionary<M>,
) -> IndexUse {
    let values = dictionary.count();
    IndexUse {
        table: table.name.clone(),
        index: table.column_name(column),
        is_dictionary: true,
        kind: IndexKind::Unique,
        structure: Structure::Hash,
        placement: dictionary.index().placement(),
        lookups: dictionary.uses.of(Use::Lookup),
        ranges: 0,
        changes: dictionary.uses.of(Use::Change),
        rows: values,
        bytes: hash_len(values),
    }
}
