//! A shop for tests of what is written later than it is changed.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use remanent_engine::{
    Database, Durability, Error, Moment, Placement, Table, TableSpec, Transaction,
    TransactionOptions, Type,
};
use remanent_pmem::Pool;

pub(crate) struct Shop {
    pub(crate) pool: Pool,
    pub(crate) database: Database,
    pub(crate) items: Table,
}

/// Number, name and price; the name is the number at first.
pub(crate) fn shop() -> Shop {
    shop_in(Placement::Pmem)
}

pub(crate) fn shop_in(placement: Placement) -> Shop {
    let pool = Pool::options().create_in_memory().unwrap();
    let database = Database::create(&pool, "shop").unwrap();
    let spec = TableSpec::new("items")
        .column("number", Type::U32)
        .column("name", Type::U32)
        .column("price", Type::I64)
        .primary_key(["number"])
        .unique("by_name", ["name"])
        .index("by_price", ["price"])
        .place(["primary", "by_name", "by_price"], placement)
        .tile_rows(7);
    let items = database.create_table(&spec).unwrap();
    for number in 1..=3u32 {
        items.insert(&[number.into(), number.into(), 100.into()]).unwrap();
    }
    Shop { pool, database, items }
}

pub(crate) fn at_commit() -> TransactionOptions {
    TransactionOptions::new().durability(Durability::AtCommit)
}

/// Name and price of each item.
pub(crate) type Items = BTreeMap<u32, (u32, i64)>;

impl Shop {
    pub(crate) fn begin(&self, how: Durability) -> Transaction<'_> {
        self.database.begin_with(&TransactionOptions::new().durability(how)).unwrap()
    }

    pub(crate) fn insert(
        &self,
        by: &mut Transaction<'_>,
        number: u32,
        name: u32,
    ) -> Result<(), Error> {
        let values = [number.into(), name.into(), 0.into()];
        self.items.insert_in(by, &values).map(drop)
    }

    pub(crate) fn update(
        &self,
        by: &mut Transaction<'_>,
        number: u32,
        name: u32,
        price: i64,
    ) -> Result<bool, Error> {
        let update = self.items.prepare_update("primary")?;
        let done = update.run_in(by, &[number.into()], |_, row| {
            row.set(1, name)?;
            row.set(2, price)
        });
        done.map(|found| found.is_some())
    }

    pub(crate) fn remove(&self, by: &mut Transaction<'_>, number: u32) -> Result<bool, Error> {
        self.items.prepare_delete("primary")?.run_in(by, &[number.into()])
    }

    /// What is seen at a moment, by a scan and by each key.
    pub(crate) fn items(&self, moment: &impl Moment) -> Items {
        let mut items = Items::new();
        let scanned = self.items.scan(moment, |row| {
            let item = (row.get(1).unwrap(), row.get(2).unwrap());
            assert_eq!(items.insert(row.get(0).unwrap(), item), None);
            ControlFlow::<()>::Continue(())
        });
        assert_eq!(scanned.unwrap(), None);
        let (by_number, by_name) =
            (self.items.prepare_get("primary"), self.items.prepare_get("by_name"));
        let (by_number, by_name) = (by_number.unwrap(), by_name.unwrap());
        for (number, (name, _)) in &items {
            let found = by_number.run(moment, &[(*number).into()], |row| row.get(1)).unwrap();
            assert_eq!(found, Some(*name));
            let found = by_name.run(moment, &[(*name).into()], |row| row.get(0)).unwrap();
            assert_eq!(found, Some(*number));
        }
        items
    }

    pub(crate) fn now(&self) -> Items {
        self.items(&self.database.snapshot())
    }

    pub(crate) fn reopened(self) -> Shop {
        let Shop { pool, database, items } = self;
        drop((database, items));
        let database = Database::open(&pool, "shop").unwrap();
        let items = database.table("items").unwrap();
        Shop { pool, database, items }
    }

    pub(crate) fn check(&self) {
        assert_eq!(self.database.check().unwrap(), []);
    }
}

pub(crate) fn three() -> Items {
    (1..=3).map(|number| (number, (number, 100))).collect()
}
