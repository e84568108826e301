//! How a table is described when it is created.

use crate::index::order;
use crate::value::{ID_LEN, Type};
use crate::{Error, Result};

/// Columns of a table at the most.
pub const COLUMNS_MAX: usize = 1_000;
/// Indexes of a table at the most.
pub const INDEXES_MAX: usize = 64;
/// Encoded columns of a table whose dictionary indexes lie in the pool when it is made. Others have
/// theirs in DRAM, and may be [moved](crate::Database::place_dictionary) later.
pub const POOL_DICTIONARIES_MAX: usize = 640;
/// Bytes of a name at the most.
pub const NAME_LEN_MAX: usize = 128;
/// Bytes of a row at the most.
pub const ROW_LEN_MAX: usize = 32 << 10;
/// What the names of tables begin with that are the database's own.
pub(crate) const RESERVED: &str = "remanent.";
/// Name of the index of the primary key.
pub const PRIMARY: &str = "primary";

/// A column.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its type.
    pub of_type: Type,
    /// Whether a row may have no value.
    pub is_nullable: bool,
    /// Where the index of its dictionary lies, if the column has one: rows have the number of their
    /// value there. `None` if rows have their values themselves. A handle to a table has what was
    /// so when it was made; [`Table::dictionary_placement`](crate::Table::dictionary_placement)
    /// tells what is so now.
    pub dictionary: Option<Placement>,
}

impl Column {
    /// Whether it is the same column, wherever the indexes of dictionaries lie.
    pub(crate) fn is_like(&self, other: &Column) -> bool {
        let Column { name, of_type, is_nullable, dictionary } = self;
        (name, of_type, is_nullable) == (&other.name, &other.of_type, &other.is_nullable)
            && dictionary.is_some() == other.dictionary.is_some()
    }

    /// Bytes of its cell in a row.
    pub(crate) fn cell_len(&self) -> usize {
        match self.dictionary {
            Some(_) => ID_LEN,
            None => self.of_type.cell_len(),
        }
    }
}

/// What an index promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum IndexKind {
    /// Every row has values in its columns, and no two rows have the same ones.
    Primary,
    /// No two rows have the same values. Any number may have no value in one of its columns.
    Unique,
    /// Nothing: any number of rows have the same values.
    Secondary,
}

impl IndexKind {
    /// Whether no two rows have the same values in its columns.
    pub fn is_unique(self) -> bool {
        !matches!(self, IndexKind::Secondary)
    }
}

/// How an index finds rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum Structure {
    /// By a hash of all of its columns. Rows without a value in one of them are not in it.
    #[default]
    Hash,
    /// By the order of its columns: rows are also read [by ranges](crate::Table::prepare_range). It
    /// has all rows. NULL comes before every value, and is equal to no key: rows with NULL in one
    /// of the columns do not collide in a unique index.
    Ordered,
}

/// Where an index lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum Placement {
    /// In the pool, where it is there the moment the database is opened.
    #[default]
    Pmem,
    /// In memory that ends with the process: its words need no flush, and it is
    /// [rebuilt](crate::Rebuild) from the rows whenever the database is opened.
    Dram,
}

/// An index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexSpec {
    /// Its name. Indexes of one table have different names.
    pub name: String,
    /// What it promises.
    pub kind: IndexKind,
    /// Its columns, as numbers of columns of the table.
    pub columns: Vec<usize>,
    /// How it finds rows.
    pub structure: Structure,
    /// Where it lies.
    pub placement: Placement,
}

/// Description of a table, for [`Database::create_table`](crate::Database::create_table).
///
/// ```
/// use remanent_engine::{TableSpec, Type};
///
/// let accounts = TableSpec::new("accounts")
///     .column("number", Type::U32)
///     .column("owner", Type::Text { max: 40 })
///     .nullable("remark", Type::Text { max: 200 })
///     .primary_key(["number"])
///     .unique("by_owner", ["owner"]);
/// assert_eq!(accounts.columns().len(), 3);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct TableSpec {
    pub(crate) name: String,
    pub(crate) columns: Vec<Column>,
    pub(crate) indexes: Vec<Index>,
    pub(crate) foreign_keys: Vec<NewForeignKey>,
    /// Rows of a tile, if a test asks for few.
    pub(crate) tile_rows: Option<u32>,
    /// Names of indexes that were to be placed or ordered, and are not there.
    unknown: Vec<String>,
    /// Names of columns that were to be encoded, or whose dictionaries were to be placed, and are
    /// not there.
    unknown_columns: Vec<String>,
}

/// An index whose columns are names still.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Index {
    name: String,
    kind: IndexKind,
    columns: Vec<String>,
    structure: Structure,
    placement: Placement,
}

impl TableSpec {
    /// A table of this name without columns.
    pub fn new(name: impl Into<String>) -> Self {
        TableSpec {
            name: name.into(),
            columns: Vec::new(),
            indexes: Vec::new(),
            foreign_keys: Vec::new(),
            tile_rows: None,
            unknown: Vec::new(),
            unknown_columns: Vec::new(),
        }
    }

    /// A table that is there, without its foreign keys.
    pub(crate) fn of_table(
        name: &str,
        columns: &[Column],
        indexes: &[IndexSpec],
        tile_rows: Option<u32>,
    ) -> Self {
        let indexes = indexes.iter().map(|spec| Index::of(spec, columns)).collect();
        let mut columns = columns.to_vec();
        let in_pool =
            columns.iter_mut().filter(|column| column.dictionary == Some(Placement::Pmem));
        // More of them were moved there than a table is made with.
        for column in in_pool.skip(POOL_DICTIONARIES_MAX) {
            column.dictionary = Some(Placement::Dram);
        }
        TableSpec { columns, indexes, tile_rows, ..TableSpec::new(name) }
    }

    /// Adds a column that has a value in every row.
    #[must_use]
    pub fn column(self, name: impl Into<String>, of_type: Type) -> Self {
        self.with(Column { name: name.into(), of_type, is_nullable: false, dictionary: None })
    }

    /// Adds a column that may have no value.
    #[must_use]
    pub fn nullable(self, name: impl Into<String>, of_type: Type) -> Self {
        self.with(Column { name: name.into(), of_type, is_nullable: true, dictionary: None })
    }

    fn with(mut self, column: Column) -> Self {
        self.columns.push(column);
        self
    }

    /// Encodes columns that were named so far, each by a dictionary of its own: a row has a value's
    /// number there, of 4 bytes, and the dictionary has each value once.
    ///
    /// Worth it for long values of which there are few. A value that the column has never had costs
    /// the statement one fence more; values are never removed from a dictionary. A column can have
    /// 268 million values of up to 8 bytes, 16 million of 255, and 65,000 of 64 KiB: then there is
    /// [`Error::TooManyValues`]. Columns that are [added](crate::Database::add_column) later are
    /// not encoded.
    ///
    /// ```
    /// use remanent_engine::{TableSpec, Type};
    ///
    /// let orders = TableSpec::new("orders")
    ///     .column("number", Type::U32)
    ///     .column("country", Type::Text { max: 60 })
    ///     .primary_key(["number"])
    ///     .index("by_country", ["country"])
    ///     .encoded(["country"]);
    /// # let pool = remanent_pmem::Pool::options().create_in_memory()?;
    /// # let shop = remanent_engine::Database::create(&pool, "shop")?;
    /// let orders = shop.create_table(&orders)?;
    /// orders.insert(&[1.into(), "Norway".into()])?;
    /// let by_country = orders.prepare_find("by_country")?;
    /// # use std::ops::ControlFlow;
    /// # use remanent_engine::Row;
    /// let visit = |row: &Row<'_>| ControlFlow::Break(row.get::<u32>(0));
    /// let found = by_country.run(&shop.snapshot(), &["Norway".into()], visit)?;
    /// assert_eq!(found.transpose()?, Some(1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn encoded<'n>(self, columns: impl IntoIterator<Item = &'n str>) -> Self {
        self.with_each_column(columns, |column| {
            column.dictionary.get_or_insert_default();
            true
        })
    }

    /// [Encodes](TableSpec::encoded) all columns that were named so far.
    #[must_use]
    pub fn all_encoded(mut self) -> Self {
        for column in &mut self.columns {
            column.dictionary.get_or_insert_default();
        }
        self
    }

    /// Says where the indexes of dictionaries lie, by which the number of a value is found: in the
    /// pool, if nothing is said. The columns have to be [encoded](TableSpec::encoded) by then. An
    /// index in DRAM is rebuilt from its dictionary. Reading needs none. They can be
    /// [moved](crate::Database::place_dictionary) later.
    #[must_use]
    pub fn place_dictionaries<'n>(
        self,
        columns: impl IntoIterator<Item = &'n str>,
        placement: Placement,
    ) -> Self {
        self.with_each_column(columns, |column| {
            column.dictionary.as_mut().map(|place| *place = placement).is_some()
        })
    }

    fn with_each_column<'n>(
        mut self,
        columns: impl IntoIterator<Item = &'n str>,
        change: impl Fn(&mut Column) -> bool,
    ) -> Self {
        for name in columns {
            let found = self.columns.iter_mut().find(|column| column.name == name);
            if !found.is_some_and(&change) {
                self.unknown_columns.push(name.to_owned());
            }
        }
        self
    }

    /// Says which columns are the primary key. Their index is named `primary`.
    #[must_use]
    pub fn primary_key<'n>(self, columns: impl IntoIterator<Item = &'n str>) -> Self {
        self.with_index(PRIMARY, IndexKind::Primary, columns)
    }

    /// Adds an index whose keys only one row can have.
    #[must_use]
    pub fn unique<'n>(
        self,
        name: impl Into<String>,
        columns: impl IntoIterator<Item = &'n str>,
    ) -> Self {
        self.with_index(name, IndexKind::Unique, columns)
    }

    /// Adds an index whose keys any number of rows can have.
    #[must_use]
    pub fn index<'n>(
        self,
        name: impl Into<String>,
        columns: impl IntoIterator<Item = &'n str>,
    ) -> Self {
        self.with_index(name, IndexKind::Secondary, columns)
    }

    fn with_index<'n>(
        mut self,
        name: impl Into<String>,
        kind: IndexKind,
        columns: impl IntoIterator<Item = &'n str>,
    ) -> Self {
        self.indexes.push(Index::new(name, kind, columns));
        self
    }

    /// Says where the indexes lie that were named so far: in the pool, if nothing is said.
    ///
    /// ```
    /// use remanent_engine::{Placement, TableSpec, Type};
    ///
    /// let accounts = TableSpec::new("accounts")
    ///     .column("number", Type::U32)
    ///     .column("owner", Type::Text { max: 40 })
    ///     .primary_key(["number"])
    ///     .unique("by_owner", ["owner"])
    ///     .place(["by_owner"], Placement::Dram);
    /// # let pool = remanent_pmem::Pool::options().create_in_memory()?;
    /// # let bank = remanent_engine::Database::create(&pool, "bank")?;
    /// assert_eq!(bank.create_table(&accounts)?.placement("by_owner")?, Placement::Dram);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn place<'n>(
        self,
        indexes: impl IntoIterator<Item = &'n str>,
        placement: Placement,
    ) -> Self {
        self.with_each(indexes, |index| index.placement = placement)
    }

    /// Orders the indexes that were named so far: rows are found by their keys as in others, and
    /// also [by ranges](crate::Table::prepare_range), in the order of the index's columns. Without
    /// this, an index is a hash table.
    ///
    /// An ordered index in the pool costs a statement two fences more for each key that it adds;
    /// keys that no row has any more cost two when they are folded. One [in
    /// DRAM](Placement::Dram) costs none. [`Structure::Ordered`] says what NULL is worth.
    ///
    /// ```
    /// use remanent_engine::{TableSpec, Type};
    ///
    /// let accounts = TableSpec::new("accounts")
    ///     .column("number", Type::U32)
    ///     .column("balance", Type::I64)
    ///     .primary_key(["number"])
    ///     .index("by_balance", ["balance"])
    ///     .ordered(["by_balance"]);
    /// # let pool = remanent_pmem::Pool::options().create_in_memory()?;
    /// # let bank = remanent_engine::Database::create(&pool, "bank")?;
    /// let accounts = bank.create_table(&accounts)?;
    /// assert!(accounts.prepare_range("by_balance").is_ok());
    /// assert!(accounts.prepare_range("primary").is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn ordered<'n>(self, indexes: impl IntoIterator<Item = &'n str>) -> Self {
        self.with_each(indexes, |index| index.structure = Structure::Ordered)
    }

    fn with_each<'n>(
        mut self,
        indexes: impl IntoIterator<Item = &'n str>,
        change: impl Fn(&mut Index),
    ) -> Self {
        for name in indexes {
            match self.indexes.iter_mut().find(|index| index.name == name) {
                Some(index) => change(index),
                None => self.unknown.push(name.to_owned()),
            }
        }
        self
    }

    /// Adds a foreign key: the values of `columns` are those of `referenced` in some row of the
    /// table `references`, its *parent*, unless one of them is NULL. The table may be this one.
    ///
    /// The table that is referred to has to be there, with a unique index of exactly these columns,
    /// in any order. This table needs an index by which the children of a row are found: a hash
    /// index of exactly `columns`, in any order, or an ordered index that begins with them.
    ///
    /// A statement is refused if it inserts or changes a row that has no parent
    /// ([`Error::NoParent`]), or removes or changes a row that has children
    /// ([`Error::HasChildren`]). In a [batch](crate::Transaction::batch), and in a transaction that
    /// is [durable at its commit](crate::Durability::AtCommit), all of that is checked at the end:
    /// rows may be inserted before their parents.
    ///
    /// ```
    /// use remanent_engine::{Database, Error, TableSpec, Type};
    /// # use remanent_pmem::Pool;
    /// # let pool = Pool::options().create_in_memory()?;
    /// let shop = Database::create(&pool, "shop")?;
    /// let customers = TableSpec::new("customers").column("id", Type::U32).primary_key(["id"]);
    /// let customers = shop.create_table(&customers)?;
    /// let orders = TableSpec::new("orders")
    ///     .column("id", Type::U32)
    ///     .column("customer", Type::U32)
    ///     .primary_key(["id"])
    ///     .index("by_customer", ["customer"])
    ///     .foreign_key("of_customer", ["customer"], "customers", ["id"]);
    /// let orders = shop.create_table(&orders)?;
    ///
    /// customers.insert(&[7.into()])?;
    /// orders.insert(&[1.into(), 7.into()])?;
    /// assert!(matches!(orders.insert(&[2.into(), 8.into()]), Err(Error::NoParent { .. })));
    /// let delete = customers.prepare_delete("primary")?;
    /// assert!(matches!(delete.run(&[7.into()]), Err(Error::HasChildren { .. })));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn foreign_key<'c, 'r>(
        mut self,
        name: impl Into<String>,
        columns: impl IntoIterator<Item = &'c str>,
        references: impl Into<String>,
        referenced: impl IntoIterator<Item = &'r str>,
    ) -> Self {
        self.foreign_keys.push(NewForeignKey::new(name, columns, references, referenced));
        self
    }

    /// Has tiles of so many rows, to be filled by a few.
    #[doc(hidden)]
    #[must_use]
    pub fn tile_rows(mut self, rows: u32) -> Self {
        self.tile_rows = Some(rows.max(1));
        self
    }

    /// Name of the table.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its columns.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// The indexes, by the numbers of their columns, if all of the description is right.
    pub(crate) fn resolve(&self) -> Result<Vec<IndexSpec>> {
        self.resolved().map_err(|reason| Error::Schema { table: self.name.clone(), reason })
    }

    fn resolved(&self) -> Result<Vec<IndexSpec>, String> {
        named("table", &self.name)?;
        if !(1..=COLUMNS_MAX).contains(&self.columns.len()) {
            return Err(format!(
                "it has {} columns; 1 to {COLUMNS_MAX} are possible",
                self.columns.len()
            ));
        }
        for (index, column) in self.columns.iter().enumerate() {
            named("column", &column.name)?;
            if self.columns[..index].iter().any(|other| other.name == column.name) {
                return Err(format!("two columns have the name {:?}", column.name));
            }
            if !column.of_type.is_valid() {
                return Err(format!("column {:?} cannot have {}", column.name, column.of_type));
            }
        }
        let len: usize = self.columns.iter().map(Column::cell_len).sum();
        if len > ROW_LEN_MAX {
            return Err(format!("its rows have {len} bytes; {ROW_LEN_MAX} are possible"));
        }
        if self.indexes.len() > INDEXES_MAX {
            return Err(format!("it has more than {INDEXES_MAX} indexes"));
        }
        if self.pool_dictionaries() > POOL_DICTIONARIES_MAX {
            return Err(format!(
                "it has more than {POOL_DICTIONARIES_MAX} dictionaries with an index in the pool; \
                 place some of them in DRAM"
            ));
        }
        if self.tile_rows == Some(0) {
            return Err("its tiles have no rows".to_owned());
        }
        if let Some(name) = self.unknown_columns.first() {
            return Err(format!(
                "column {name:?} is to be encoded, and was not named before; or its dictionary is \
                 to be placed, and it is not encoded"
            ));
        }
        if let Some(name) = self.unknown.first() {
            return Err(format!(
                "index {name:?} is to be placed or ordered, and was not named before"
            ));
        }
        (0..self.indexes.len()).map(|index| self.resolved_index(index)).collect()
    }

    /// Dictionaries whose indexes lie in the pool.
    pub(crate) fn pool_dictionaries(&self) -> usize {
        let placements = self.columns.iter().filter_map(|column| column.dictionary);
        placements.filter(|placement| *placement == Placement::Pmem).count()
    }

    fn resolved_index(&self, at: usize) -> Result<IndexSpec, String> {
        let others = self.indexes[..at].iter().map(|other| &other.name[..]);
        self.indexes[at].resolved(&self.columns, others)
    }

    /// Which columns an index has: they are in the first group of a row.
    pub(crate) fn key_columns(&self, indexes: &[IndexSpec]) -> Vec<bool> {
        let is_key = |column| indexes.iter().any(|index| index.columns.contains(&column));
        (0..self.columns.len()).map(is_key).collect()
    }
}

impl Index {
    /// An index that is there, of a table with these columns.
    fn of(spec: &IndexSpec, columns: &[Column]) -> Self {
        let IndexSpec { name, kind, columns: numbers, structure, placement } = spec;
        Index {
            name: name.clone(),
            kind: *kind,
            columns: numbers.iter().map(|column| columns[*column].name.clone()).collect(),
            structure: *structure,
            placement: *placement,
        }
    }

    /// The index by the numbers of its columns, beside others of these names.
    fn resolved<'o>(
        &self,
        all: &[Column],
        mut others: impl Iterator<Item = &'o str>,
    ) -> Result<IndexSpec, String> {
        let Index { name, kind, columns, structure, placement } = self;
        named("index", name)?;
        if others.any(|other| other == name) {
            return Err(match kind {
                IndexKind::Primary => "it has two primary keys".to_owned(),
                _ => format!("two indexes have the name {name:?}"),
            });
        }
        if *kind != IndexKind::Primary && name == PRIMARY {
            return Err(format!("only the index of the primary key is named {PRIMARY:?}"));
        }
        if columns.is_empty() {
            return Err(format!("index {name:?} has no columns"));
        }
        let mut numbers: Vec<usize> = Vec::new();
        for column in columns {
            let number = all.iter().position(|other| other.name == *column);
            let number = number.ok_or_else(|| format!("index {name:?}: no column {column:?}"))?;
            if numbers.contains(&number) {
                return Err(format!("index {name:?} has column {column:?} twice"));
            }
            if *kind == IndexKind::Primary && all[number].is_nullable {
                return Err(format!("the primary key has {column:?}, which may be NULL"));
            }
            numbers.push(number);
        }
        if *structure == Structure::Ordered {
            require_short_keys(name, all, &numbers)?;
        }
        let (name, kind, structure, placement) = (name.clone(), *kind, *structure, *placement);
        Ok(IndexSpec { name, kind, columns: numbers, structure, placement })
    }
}

/// Refuses an ordered index whose keys may be longer than its tree can have them.
fn require_short_keys(index: &str, all: &[Column], columns: &[usize]) -> Result<(), String> {
    let len_max = |&number: &usize| order::len_max(all[number].of_type, all[number].is_nullable);
    match columns.iter().map(len_max).sum::<usize>() {
        len if len > order::KEY_LEN_MAX => Err(format!(
            "keys of the ordered index {index:?} may have {len} bytes, as zeros in text and bytes \
             count twice; {} are possible",
            order::KEY_LEN_MAX
        )),
        _ => Ok(()),
    }
}

impl Index {
    fn new<'n>(
        name: impl Into<String>,
        kind: IndexKind,
        columns: impl IntoIterator<Item = &'n str>,
    ) -> Self {
        let columns = columns.into_iter().map(str::to_owned).collect();
        let (structure, placement) = (Structure::default(), Placement::default());
        Index { name: name.into(), kind, columns, structure, placement }
    }
}

/// Description of an index of a table that is there, for
/// [`Database::create_index`](crate::Database::create_index), which has an example.
///
/// Without further words it is a hash index in the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct NewIndex(Index);

impl NewIndex {
    /// An index whose keys any number of rows can have.
    pub fn secondary<'n>(
        name: impl Into<String>,
        columns: impl IntoIterator<Item = &'n str>,
    ) -> Self {
        NewIndex(Index::new(name, IndexKind::Secondary, columns))
    }

    /// An index whose keys only one row can have.
    pub fn unique<'n>(name: impl Into<String>, columns: impl IntoIterator<Item = &'n str>) -> Self {
        NewIndex(Index::new(name, IndexKind::Unique, columns))
    }

    /// Orders it, as [`TableSpec::ordered`] does.
    #[must_use]
    pub fn ordered(mut self) -> Self {
        self.0.structure = Structure::Ordered;
        self
    }

    /// Says where it lies.
    #[must_use]
    pub fn place(mut self, placement: Placement) -> Self {
        self.0.placement = placement;
        self
    }

    /// An index that is there, of a table with these columns.
    pub(crate) fn of(spec: &IndexSpec, columns: &[Column]) -> Self {
        NewIndex(Index::of(spec, columns))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The index by the numbers of its columns, in a table that has others of these names.
    pub(crate) fn resolve(
        &self,
        table: &str,
        columns: &[Column],
        others: &[&str],
    ) -> Result<IndexSpec> {
        let resolved = match others.len() < INDEXES_MAX {
            true => self.0.resolved(columns, others.iter().copied()),
            false => Err(format!("the table has {INDEXES_MAX} indexes, which are all it can have")),
        };
        resolved.map_err(|reason| Error::Index {
            table: table.to_owned(),
            index: self.0.name.clone(),
            reason,
        })
    }
}

/// Description of a foreign key for
/// [`Database::add_foreign_key`](crate::Database::add_foreign_key), which has an example.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct NewForeignKey {
    pub(crate) name: String,
    pub(crate) columns: Vec<String>,
    pub(crate) references: String,
    pub(crate) referenced: Vec<String>,
}

impl NewForeignKey {
    /// A foreign key: the values of `columns` are those of `referenced` in some row of the table
    /// `references`, unless one of them is NULL.
    pub fn new<'c, 'r>(
        name: impl Into<String>,
        columns: impl IntoIterator<Item = &'c str>,
        references: impl Into<String>,
        referenced: impl IntoIterator<Item = &'r str>,
    ) -> Self {
        NewForeignKey {
            name: name.into(),
            columns: columns.into_iter().map(str::to_owned).collect(),
            references: references.into(),
            referenced: referenced.into_iter().map(str::to_owned).collect(),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// Refuses a name that is none.
pub(crate) fn named(what: &str, name: &str) -> Result<(), String> {
    match name.len() {
        1..=NAME_LEN_MAX => Ok(()),
        len => Err(format!("a {what}'s name has {len} bytes; 1 to {NAME_LEN_MAX} are possible")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(spec: TableSpec) -> String {
        spec.resolve().unwrap_err().to_string()
    }

    #[test]
    fn wrong_descriptions_are_refused_with_their_reason() {
        let one = || TableSpec::new("t").column("a", Type::U8).nullable("b", Type::U8);
        assert!(one().resolve().is_ok());
        for (spec, told) in [
            (TableSpec::new(""), "a table's name has 0 bytes"),
            (TableSpec::new("t"), "it has 0 columns"),
            (one().column("a", Type::U8), "two columns have the name \"a\""),
            (one().column("", Type::U8), "a column's name has 0 bytes"),
            (one().column("c", Type::Int { len: 9 }), "cannot have INT of 9 bytes"),
            (one().primary_key(["b"]), "the primary key has \"b\", which may be NULL"),
            (one().primary_key(["a"]).primary_key(["a"]), "two primary keys"),
            (one().unique("u", ["c"]), "no column \"c\""),
            (one().unique("u", ["a", "a"]), "has column \"a\" twice"),
            (one().unique("u", []), "has no columns"),
            (one().unique("primary", ["a"]), "only the index of the primary key is named"),
            (one().unique("u", ["a"]).unique("u", ["b"]), "two indexes have the name \"u\""),
            (one().encoded(["c"]), "column \"c\" is to be encoded, and was not"),
            (
                one().encoded(["a"]).place_dictionaries(["b"], Placement::Dram),
                "column \"b\" is to be encoded, and was not",
            ),
            (one().place(["u"], Placement::Dram), "index \"u\" is to be placed or ordered, and"),
            (one().ordered(["u"]).unique("u", ["a"]), "index \"u\" is to be placed or ordered"),
            (
                (0..100)
                    .fold(TableSpec::new("t"), |spec, at| {
                        spec.column(format!("c{at}"), Type::Text { max: 255 })
                    })
                    .index(
                        "i",
                        (0..100)
                            .map(|at| format!("c{at}"))
                            .collect::<Vec<_>>()
                            .iter()
                            .map(|c| &**c),
                    )
                    .ordered(["i"]),
                "keys of the ordered index \"i\" may have 51200 bytes",
            ),
            (
                (0..129)
                    .fold(one(), |spec, at| spec.column(format!("c{at}"), Type::Text { max: 255 })),
                "are possible",
            ),
        ] {
            let refused = refusal(spec);
            assert!(refused.contains(told), "{refused}");
        }
    }
}
