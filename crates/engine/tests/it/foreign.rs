//! Foreign keys: who refers to a row finds it, whatever others do meanwhile.

use std::time::Duration;

use remanent_engine::{
    Database, Durability, Error, ForeignKeySpec, NewColumn, NewForeignKey, NewIndex, Placement,
    Table, TableSpec, Transaction, TransactionOptions, Type, Value,
};
use remanent_pmem::Pool;

pub(crate) struct Shop {
    pub(crate) pool: Pool,
    pub(crate) database: Database,
    pub(crate) customers: Table,
    pub(crate) orders: Table,
}

/// Number and remark.
fn customers() -> TableSpec {
    TableSpec::new("customers")
        .column("number", Type::U32)
        .column("remark", Type::U32)
        .primary_key(["number"])
        .tile_rows(7)
}

/// Number and customer.
fn orders() -> TableSpec {
    TableSpec::new("orders")
        .column("number", Type::U32)
        .nullable("customer", Type::U32)
        .primary_key(["number"])
        .index("by_customer", ["customer"])
        .tile_rows(7)
}

fn of_customer() -> NewForeignKey {
    NewForeignKey::new("of_customer", ["customer"], "customers", ["number"])
}

/// Customers 1 to 3, and order 1 of customer 1.
pub(crate) fn shop() -> Shop {
    shop_with(orders().foreign_key("of_customer", ["customer"], "customers", ["number"]))
}

fn shop_with(orders: TableSpec) -> Shop {
    let pool = Pool::options().create_in_memory().unwrap();
    let database = Database::create(&pool, "shop").unwrap();
    let customers = database.create_table(&customers()).unwrap();
    let orders = database.create_table(&orders).unwrap();
    for number in 1..=3u32 {
        customers.insert(&[number.into(), 0.into()]).unwrap();
    }
    orders.insert(&[1.into(), 1.into()]).unwrap();
    Shop { pool, database, customers, orders }
}

impl Shop {
    pub(crate) fn begin(&self, how: Durability) -> Transaction<'_> {
        self.database.begin_with(&TransactionOptions::new().durability(how)).unwrap()
    }

    pub(crate) fn order(&self, number: u32, customer: impl Into<Option<u32>>) -> Result<(), Error> {
        let customer = Value::from(customer.into());
        self.orders.insert(&[number.into(), customer]).map(drop)
    }

    pub(crate) fn order_in(
        &self,
        by: &mut Transaction<'_>,
        number: u32,
        customer: u32,
    ) -> Result<(), Error> {
        self.orders.insert_in(by, &[number.into(), customer.into()]).map(drop)
    }

    pub(crate) fn pass_on_in(
        &self,
        by: &mut Transaction<'_>,
        order: u32,
        to: u32,
    ) -> Result<(), Error> {
        let update = self.orders.prepare_update("primary")?;
        let done = update.run_in(by, &[order.into()], |_, row| row.set(1, to))?;
        assert!(done.is_some(), "order {order}");
        Ok(())
    }

    pub(crate) fn cancel_in(&self, by: &mut Transaction<'_>, order: u32) -> Result<bool, Error> {
        self.orders.prepare_delete("primary")?.run_in(by, &[order.into()])
    }

    pub(crate) fn add_in(&self, by: &mut Transaction<'_>, customer: u32) -> Result<(), Error> {
        self.customers.insert_in(by, &[customer.into(), 0.into()]).map(drop)
    }

    pub(crate) fn remove(&self, customer: u32) -> Result<bool, Error> {
        self.customers.prepare_delete("primary")?.run(&[customer.into()])
    }

    pub(crate) fn remove_in(&self, by: &mut Transaction<'_>, customer: u32) -> Result<bool, Error> {
        self.customers.prepare_delete("primary")?.run_in(by, &[customer.into()])
    }

    pub(crate) fn renumber_in(
        &self,
        by: &mut Transaction<'_>,
        customer: u32,
        to: u32,
    ) -> Result<(), Error> {
        let update = self.customers.prepare_update("primary")?;
        let done = update.run_in(by, &[customer.into()], |_, row| row.set(0, to))?;
        assert!(done.is_some(), "customer {customer}");
        Ok(())
    }

    pub(crate) fn reopened(self) -> Shop {
        let Shop { pool, database, customers, orders } = self;
        drop((database, customers, orders));
        let database = Database::open(&pool, "shop").unwrap();
        let customers = database.table("customers").unwrap();
        let orders = database.table("orders").unwrap();
        Shop { pool, database, customers, orders }
    }

    pub(crate) fn check(&self) {
        assert_eq!(self.database.check().unwrap(), []);
    }
}

pub(crate) fn is_conflict<T>(done: Result<T, Error>) -> bool {
    matches!(done, Err(Error::Conflict { .. }))
}

pub(crate) fn has_no_parent<T>(done: Result<T, Error>) -> bool {
    matches!(done, Err(Error::NoParent { .. }))
}

pub(crate) fn has_children<T>(done: Result<T, Error>) -> bool {
    matches!(done, Err(Error::HasChildren { .. }))
}

fn is_overtaken<T>(done: Result<T, Error>) -> bool {
    matches!(done, Err(Error::Overtaken { .. }))
}

#[test]
fn a_row_without_its_parent_and_the_end_of_a_parent_are_refused_and_say_why() {
    let shop = shop();
    let refused = shop.order(2, 9).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "table \"orders\": foreign key \"of_customer\" refers to a row of table \"customers\" \
         with the key (9), and there is none; nothing was changed; insert that row first, or both \
         in one batch (`Transaction::batch`)"
    );
    let refused = shop.remove(1).unwrap_err();
    assert!(matches!(&refused, Error::HasChildren { child, key, .. }
        if child == "orders" && key == "1"));
    assert!(refused.to_string().contains("from row 0"), "{refused}");
    let update = shop.customers.prepare_update("primary").unwrap();
    assert!(has_children(update.run(&[1.into()], |_, row| row.set(0, 7))));
    // Others are free, and so is all but the key.
    assert_eq!(update.run(&[1.into()], |_, row| row.set(1, 7)).unwrap(), Some(()));
    assert_eq!(update.run(&[2.into()], |_, row| row.set(0, 7)).unwrap(), Some(()));
    assert!(shop.remove(3).unwrap());
    let update = shop.orders.prepare_update("primary").unwrap();
    assert!(has_no_parent(update.run(&[1.into()], |_, row| row.set(1, 2))));
    assert_eq!(update.run(&[1.into()], |_, row| row.set(1, 7)).unwrap(), Some(()));
    assert!(shop.remove(1).unwrap() && has_children(shop.remove(7)));
    // Who refers to nobody needs nobody.
    assert_eq!(update.run(&[1.into()], |_, row| row.set(1, Value::Null)).unwrap(), Some(()));
    assert!(shop.remove(7).unwrap());
    shop.order(2, None).unwrap();
    let upsert = shop.orders.prepare_upsert("primary").unwrap();
    assert!(has_no_parent(upsert.run(&[3.into(), 1.into()], |_, _| Ok(()))));
    assert!(has_no_parent(upsert.run(&[2.into(), 1.into()], |_, row| row.set(1, 1))));
    shop.check();
}

#[test]
fn what_is_described_wrong_is_refused_with_what_would_be_right() {
    let shop = shop_with(orders());
    let spec = || {
        TableSpec::new("t")
            .column("a", Type::U32)
            .column("b", Type::U16)
            .primary_key(["a"])
            .index("by_b", ["b"])
    };
    for (spec, told) in [
        (spec().foreign_key("", ["a"], "customers", ["number"]), "name has 0 bytes"),
        (spec().foreign_key("f", ["a"], "nowhere", ["number"]), "there is no table \"nowhere\""),
        (spec().foreign_key("f", ["x"], "customers", ["number"]), "\"t\" has no column \"x\""),
        (spec().foreign_key("f", ["a"], "customers", ["x"]), "\"customers\" has no column \"x\""),
        (spec().foreign_key("f", [], "customers", []), "0 columns refer to 0"),
        (spec().foreign_key("f", ["a", "b"], "customers", ["number"]), "2 columns refer to 1"),
        (spec().foreign_key("f", ["a", "a"], "t", ["a", "b"]), "column \"a\" comes twice"),
        (spec().foreign_key("f", ["b"], "customers", ["number"]), "the same type is needed"),
        (
            spec().foreign_key("f", ["a"], "customers", ["remark"]),
            "\"customers\" has no unique index of exactly the columns (remark)",
        ),
        (
            spec().column("c", Type::U32).foreign_key("f", ["c"], "customers", ["number"]),
            "\"t\" has no index of the columns (c), by which children are found; make a hash index",
        ),
        (
            spec().foreign_key("f", ["a"], "customers", ["number"]).foreign_key(
                "f",
                ["a"],
                "t",
                ["a"],
            ),
            "another one of this name",
        ),
    ] {
        let refused = shop.database.create_table(&spec).unwrap_err();
        assert!(matches!(refused, Error::ForeignKey { .. }), "{refused}");
        assert!(refused.to_string().contains(told), "{refused}");
        assert!(shop.database.table("t").is_err());
    }
    let refused = shop.database.drop_foreign_key(&shop.orders, "of_customer").unwrap_err();
    assert!(refused.to_string().contains("has no foreign key \"of_customer\""), "{refused}");
    shop.check();
}

#[test]
fn columns_of_a_key_are_found_in_any_order_and_at_the_beginning_of_an_ordered_index() {
    for is_ordered in [false, true] {
        let pool = Pool::options().create_in_memory().unwrap();
        let database = Database::create(&pool, "db").unwrap();
        let items = TableSpec::new("items")
            .column("shelf", Type::I16)
            .column("name", Type::Text { max: 9 })
            .primary_key(["name", "shelf"]);
        let items = database.create_table(&items).unwrap();
        let uses = TableSpec::new("uses")
            .column("at", Type::U64)
            .nullable("item", Type::Text { max: 9 })
            .nullable("place", Type::I16)
            .primary_key(["at"]);
        let uses = match is_ordered {
            false => uses.index("by_item", ["place", "item"]),
            true => uses.index("by_item", ["item", "place", "at"]).ordered(["by_item"]),
        };
        let uses = uses.foreign_key("of_item", ["place", "item"], "items", ["shelf", "name"]);
        let uses = database.create_table(&uses).unwrap();
        items.insert(&[(-7).into(), "lamp".into()]).unwrap();
        items.insert(&[8.into(), "lam".into()]).unwrap();
        uses.insert(&[1.into(), "lamp".into(), (-7).into()]).unwrap();
        for (item, place) in [("lamp", 8), ("lam", -7), ("lampp", -7)] {
            assert!(has_no_parent(uses.insert(&[2.into(), item.into(), place.into()])));
        }
        uses.insert(&[2.into(), "nobody".into(), Value::Null]).unwrap();
        uses.insert(&[3.into(), Value::Null, 99.into()]).unwrap();
        let delete = items.prepare_delete("primary").unwrap();
        let refused = delete.run(&["lamp".into(), (-7).into()]).unwrap_err();
        assert!(refused.to_string().contains("the key (\"lamp\", -7)"), "{refused}");
        assert!(delete.run(&["lam".into(), 8.into()]).unwrap());
        let expected = ForeignKeySpec {
            name: "of_item".to_owned(),
            columns: vec![2, 1],
            references: "items".to_owned(),
            referenced: vec![0, 1],
        };
        assert_eq!(uses.foreign_keys(), [expected]);
        assert!(items.foreign_keys().is_empty());
        assert_eq!(database.check().unwrap(), []);
    }
}

#[test]
fn a_row_may_refer_to_itself() {
    let pool = Pool::options().create_in_memory().unwrap();
    let database = Database::create(&pool, "db").unwrap();
    let people = TableSpec::new("people")
        .column("id", Type::U32)
        .nullable("chief", Type::U32)
        .primary_key(["id"])
        .index("by_chief", ["chief"])
        .foreign_key("of_chief", ["chief"], "people", ["id"]);
    let people = database.create_table(&people).unwrap();
    let (update, delete) =
        (people.prepare_update("primary").unwrap(), people.prepare_delete("primary").unwrap());
    let set = |id: u32, new: [u32; 2]| {
        update.run(&[id.into()], |_, row| {
            row.set(0, new[0])?;
            row.set(1, new[1])
        })
    };
    people.insert(&[1.into(), 1.into()]).unwrap();
    assert!(has_no_parent(people.insert(&[2.into(), 3.into()])));
    people.insert(&[2.into(), 1.into()]).unwrap();
    assert!(has_children(delete.run(&[1.into()])));
    // Number 1 itself would refer to nobody.
    assert!(delete.run(&[2.into()]).unwrap());
    assert!(has_children(set(1, [5, 1])) && has_no_parent(set(1, [1, 5])));
    assert_eq!(set(1, [5, 5]).unwrap(), Some(()));
    assert!(has_no_parent(people.insert(&[2.into(), 1.into()])));
    people.insert(&[2.into(), 2.into()]).unwrap();
    assert_eq!(set(2, [2, 5]).unwrap(), Some(()));
    assert_eq!(set(5, [5, 2]).unwrap(), Some(()));
    assert!(has_children(delete.run(&[2.into()])) && has_children(delete.run(&[5.into()])));
    let mut both = database.begin().unwrap();
    let deleted = both.batch(|batch| {
        Ok(delete.run_in(batch, &[2.into()])? && delete.run_in(batch, &[5.into()])?)
    });
    assert!(deleted.unwrap());
    both.commit().unwrap();
    assert!(people.insert(&[1.into(), 1.into()]).is_ok() && delete.run(&[1.into()]).unwrap());
    database.drop_table("people").unwrap();
    assert_eq!(database.check().unwrap(), []);
}

#[test]
fn a_parent_stays_while_an_open_transaction_has_a_child_or_may_get_one_back() {
    let shop = shop();
    let mut open = shop.database.begin().unwrap();
    shop.order_in(&mut open, 2, 2).unwrap();
    shop.pass_on_in(&mut open, 1, 3).unwrap();
    for customer in 1..=3 {
        assert!(is_conflict(shop.remove(customer)), "{customer}");
    }
    let behind = open.statement();
    assert!(shop.cancel_in(&mut open, 2).unwrap());
    assert!(is_conflict(shop.remove(2)), "order 2 may come back");
    open.take_back_to(behind).unwrap();
    assert!(is_conflict(shop.remove(2)), "it is back");
    let waiting = shop.database.begin().unwrap();
    open.commit().unwrap();
    assert!(
        shop.remove(1).unwrap() && has_children(shop.remove(2)) && has_children(shop.remove(3))
    );
    // Who does not see the new children is told of them, too.
    let mut waiting = waiting;
    assert!(has_children(shop.remove_in(&mut waiting, 2)));
    assert!(is_overtaken(shop.order_in(&mut waiting, 4, 1)), "it has seen customer 1");
    waiting.abort().unwrap();
    let mut given_up = shop.database.begin().unwrap();
    assert!(shop.cancel_in(&mut given_up, 1).unwrap() && shop.cancel_in(&mut given_up, 2).unwrap());
    assert!(is_conflict(shop.remove(2)));
    // The transaction itself sees what it has made.
    assert!(shop.remove_in(&mut given_up, 2).unwrap());
    given_up.abort().unwrap();
    assert!(has_children(shop.remove(2)));
    shop.check();
}

#[test]
fn nobody_gets_a_child_of_a_parent_that_an_open_transaction_decides_about() {
    let shop = shop();
    let mut open = shop.database.begin().unwrap();
    assert!(shop.remove_in(&mut open, 2).unwrap());
    assert!(is_conflict(shop.order(2, 2)) && has_no_parent(shop.order_in(&mut open, 2, 2)));
    shop.add_in(&mut open, 2).unwrap();
    assert!(is_conflict(shop.order(2, 2)), "it may be gone for a moment");
    shop.add_in(&mut open, 4).unwrap();
    assert!(is_conflict(shop.order(4, 4)));
    shop.order_in(&mut open, 4, 4).unwrap();
    assert!(has_children(shop.remove_in(&mut open, 4)));
    shop.renumber_in(&mut open, 3, 5).unwrap();
    assert!(is_conflict(shop.order(3, 3)) && is_conflict(shop.order(5, 5)));
    shop.renumber_in(&mut open, 5, 3).unwrap();
    assert!(is_conflict(shop.order(3, 3)) && is_conflict(shop.order(5, 5)));
    // What does not touch its key does not matter.
    let update = shop.customers.prepare_update("primary").unwrap();
    update.run_in(&mut open, &[1.into()], |_, row| row.set(1, 7)).unwrap();
    shop.order(7, 1).unwrap();
    assert!(is_conflict(shop.remove(1)));
    let refused = shop.remove_in(&mut open, 1).unwrap_err();
    assert!(matches!(refused, Error::HasChildren { .. }), "{refused}");
    open.commit().unwrap();
    shop.order(5, 4).unwrap();
    assert!(has_no_parent(shop.order(6, 5)));
    shop.check();
}

#[test]
fn a_transaction_needs_a_parent_that_it_sees_and_that_is_there() {
    let shop = shop();
    let mut old = shop.database.begin().unwrap();
    shop.order_in(&mut old, 9, 1).unwrap();
    assert!(shop.remove(2).unwrap());
    shop.customers.insert(&[4.into(), 0.into()]).unwrap();
    assert!(is_overtaken(shop.order_in(&mut old, 2, 2)), "it was removed");
    assert!(is_overtaken(shop.order_in(&mut old, 2, 4)), "it came later");
    assert!(has_no_parent(shop.order_in(&mut old, 2, 5)));
    shop.customers.insert(&[2.into(), 0.into()]).unwrap();
    // It sees one, and one is there.
    shop.order_in(&mut old, 2, 2).unwrap();
    // A child that it sees, and that is gone.
    assert!(shop.orders.prepare_delete("primary").unwrap().run(&[1.into()]).unwrap());
    assert!(shop.cancel_in(&mut old, 9).unwrap());
    assert!(is_overtaken(shop.remove_in(&mut old, 1)));
    old.refresh().unwrap();
    assert!(shop.remove_in(&mut old, 1).unwrap());
    shop.order_in(&mut old, 4, 4).unwrap();
    old.commit().unwrap();
    shop.check();
}

#[test]
fn a_batch_is_looked_at_as_a_whole() {
    let shop = shop();
    for how in [Durability::EachStatement, Durability::AtCommit] {
        let mut by = shop.begin(how);
        by.batch(|batch| {
            shop.order_in(batch, 10, 10)?;
            shop.renumber_in(batch, 1, 11)?;
            shop.add_in(batch, 10)?;
            shop.pass_on_in(batch, 1, 11)
        })
        .unwrap();
        assert!(is_conflict(shop.order(12, 10)) && is_conflict(shop.order(12, 1)));
        by.abort().unwrap();
        shop.check();
    }
    let mut by = shop.database.begin().unwrap();
    shop.order_in(&mut by, 3, 3).unwrap();
    let refused = by.batch(|batch| shop.order_in(batch, 9, 9));
    assert!(has_no_parent(refused));
    let refused = by.batch(|batch| shop.remove_in(batch, 1));
    assert!(has_children(refused));
    let refused = by.batch(|batch| {
        shop.pass_on_in(batch, 1, 7)?;
        assert!(shop.remove_in(batch, 1)?);
        shop.pass_on_in(batch, 1, 1)
    });
    assert!(has_children(refused));
    // Another row gets the key of the one that is removed.
    by.batch(|batch| {
        assert!(shop.remove_in(batch, 1)?);
        shop.add_in(batch, 1)
    })
    .unwrap();
    // A batch in a batch is no more than a part of it.
    by.batch(|batch| {
        batch.batch(|inner| shop.order_in(inner, 9, 9))?;
        shop.add_in(batch, 9)
    })
    .unwrap();
    assert_eq!(by.statement(), 3);
    by.commit().unwrap();
    assert!(has_children(shop.remove(9)) && has_children(shop.remove(1)));
    shop.check();
}

#[test]
fn a_transaction_that_is_durable_at_its_commit_is_looked_at_then() {
    let shop = shop();
    let mut good = shop.begin(Durability::AtCommit);
    shop.order_in(&mut good, 5, 5).unwrap();
    let behind = good.statement();
    assert!(shop.remove_in(&mut good, 1).unwrap());
    good.take_back_to(behind).unwrap();
    shop.add_in(&mut good, 5).unwrap();
    assert!(is_conflict(shop.order(6, 5)));
    good.commit().unwrap();
    for is_child in [true, false] {
        let mut bad = shop.begin(Durability::AtCommit);
        shop.add_in(&mut bad, 8).unwrap();
        match is_child {
            true => shop.order_in(&mut bad, 8, 9).unwrap(),
            false => assert!(shop.remove_in(&mut bad, 5).unwrap()),
        }
        match is_child {
            true => assert!(has_no_parent(bad.commit())),
            false => assert!(has_children(bad.commit())),
        }
        // It was given up.
        assert!(has_no_parent(shop.order(7, 8)));
    }
    let mut one = shop.begin(Durability::AtCommit);
    let mut other = shop.begin(Durability::AtCommit);
    shop.order_in(&mut one, 7, 2).unwrap();
    assert!(shop.remove_in(&mut other, 2).unwrap());
    assert!(is_conflict(one.commit()), "the other one decides");
    other.commit().unwrap();
    assert!(has_no_parent(shop.order(7, 2)));
    shop.check();
}

#[test]
fn a_statement_waits_for_who_decides() {
    let shop = shop();
    shop.database.set_wait(Duration::from_secs(60));
    let mut open = shop.database.begin().unwrap();
    assert!(shop.remove_in(&mut open, 2).unwrap());
    shop.order_in(&mut open, 3, 3).unwrap();
    std::thread::scope(|scope| {
        let child = scope.spawn(|| shop.order(2, 2));
        let parent = scope.spawn(|| shop.remove(3));
        let by_batch = scope.spawn(|| {
            let wait = TransactionOptions::new().wait(Duration::from_secs(60));
            let mut by = shop.database.begin_with(&wait).unwrap();
            let done = by.batch(|batch| shop.order_in(batch, 4, 2));
            by.commit().unwrap();
            done
        });
        std::thread::sleep(Duration::from_millis(20));
        open.abort().unwrap();
        child.join().unwrap().unwrap();
        by_batch.join().unwrap().unwrap();
        assert!(parent.join().unwrap().unwrap());
    });
    shop.check();
}

#[test]
fn a_foreign_key_is_added_if_no_row_is_without_its_parent_and_dropped_again() {
    let shop = shop_with(orders());
    let (database, orders) = (&shop.database, &shop.orders);
    shop.order(9, 9).unwrap();
    shop.order(8, None).unwrap();
    assert!(has_no_parent(database.add_foreign_key(orders, &of_customer())));
    assert!(orders.foreign_keys().is_empty() && shop.order(10, 10).is_ok());
    let delete = orders.prepare_delete("primary").unwrap();
    assert!(delete.run(&[9.into()]).unwrap());
    let mut open = database.begin().unwrap();
    assert!(shop.cancel_in(&mut open, 10).unwrap());
    // Order 10 may come back.
    assert!(is_conflict(database.add_foreign_key(orders, &of_customer())));
    open.commit().unwrap();
    for how in [Durability::EachStatement, Durability::AtCommit] {
        for what in 0..4 {
            let mut open = shop.begin(how);
            match what {
                0 => shop.order_in(&mut open, 9, 9).unwrap(),
                1 => shop.pass_on_in(&mut open, 1, 9).unwrap(),
                2 => assert!(shop.remove_in(&mut open, 1).unwrap()),
                _ => {
                    shop.add_in(&mut open, 9).unwrap();
                    shop.order_in(&mut open, 9, 9).unwrap();
                }
            }
            assert!(is_conflict(database.add_foreign_key(orders, &of_customer())), "{what}");
            open.abort().unwrap();
        }
    }
    // Begun before, and looked at when it commits.
    let mut open = shop.begin(Durability::AtCommit);
    assert!(shop.remove_in(&mut open, 2).unwrap());
    database.add_foreign_key(orders, &of_customer()).unwrap();
    assert!(is_conflict(shop.order(2, 2)));
    open.commit().unwrap();
    assert!(has_no_parent(shop.order(2, 2)) && has_children(shop.remove(1)));
    let shop = shop.reopened();
    let (database, orders) = (&shop.database, &shop.orders);
    assert_eq!(orders.foreign_keys().len(), 1);
    assert!(has_no_parent(shop.order(2, 2)) && has_children(shop.remove(1)));
    assert!(matches!(
        database.add_foreign_key(orders, &of_customer()),
        Err(Error::ForeignKey { .. })
    ));
    database.drop_foreign_key(orders, "of_customer").unwrap();
    assert!(shop.remove(1).unwrap() && shop.order(2, 2).is_ok());
    let shop = shop.reopened();
    assert!(shop.orders.foreign_keys().is_empty() && shop.order(4, 4).is_ok());
    shop.check();
}

#[test]
fn what_a_foreign_key_needs_is_not_dropped() {
    let shop = shop();
    let (database, orders, customers) = (&shop.database, &shop.orders, &shop.customers);
    let refused = database.drop_index(orders, "by_customer").unwrap_err();
    assert_eq!(
        refused.to_string(),
        "table \"orders\": index \"by_customer\" is needed by the foreign key \"of_customer\" of \
         table \"orders\"; drop that first (`Database::drop_foreign_key`)"
    );
    let refused = database.drop_table("customers").unwrap_err();
    assert!(matches!(&refused, Error::Referenced { by, .. } if by == "orders"), "{refused}");
    database.create_index(customers, &NewIndex::unique("by_remark", ["remark"])).unwrap_err();
    database.create_index(orders, &NewIndex::unique("of_both", ["customer", "number"])).unwrap();
    let spec = TableSpec::new("parts")
        .column("order", Type::U32)
        .column("customer", Type::U32)
        .index("by_order", ["order", "customer"])
        .foreign_key("of_order", ["customer", "order"], "orders", ["customer", "number"]);
    let parts = database.create_table(&spec).unwrap();
    parts.insert(&[1.into(), 1.into()]).unwrap();
    assert!(has_no_parent(parts.insert(&[1.into(), 2.into()])));
    let refused = database.drop_index(orders, "of_both").unwrap_err();
    assert!(matches!(&refused, Error::IndexNeeded { of, .. } if of == "parts"), "{refused}");
    assert!(matches!(database.drop_table("orders"), Err(Error::Referenced { .. })));
    database.drop_table("parts").unwrap();
    database.drop_index(orders, "of_both").unwrap();
    database.drop_foreign_key(orders, "of_customer").unwrap();
    database.drop_index(orders, "by_customer").unwrap();
    let refused = database.add_foreign_key(orders, &of_customer()).unwrap_err();
    assert!(refused.to_string().contains("no index of the columns (customer)"), "{refused}");
    let index = NewIndex::secondary("ordered", ["customer", "number"]).ordered();
    database.create_index(orders, &index).unwrap();
    database.add_foreign_key(orders, &of_customer()).unwrap();
    assert!(has_children(shop.remove(1)));
    database.drop_table("orders").unwrap();
    assert!(shop.remove(1).unwrap());
    database.drop_table("customers").unwrap();
    drop((parts, shop.orders, shop.customers));
    database.collect().unwrap();
    assert_eq!(shop.database.check().unwrap(), []);
}

#[test]
fn indexes_are_moved_while_foreign_keys_need_them() {
    let shop = shop();
    for placement in [Placement::Dram, Placement::Pmem, Placement::Dram] {
        let mut open = shop.database.begin().unwrap();
        shop.order_in(&mut open, 2, 2).unwrap();
        shop.database.place_index(&shop.customers, "primary", placement).unwrap();
        shop.database.place_index(&shop.orders, "by_customer", placement).unwrap();
        assert!(is_conflict(shop.remove(2)));
        open.abort().unwrap();
        assert!(has_children(shop.remove(1)) && has_no_parent(shop.order(3, 9)));
        assert!(shop.remove(2).unwrap());
        shop.customers.insert(&[2.into(), 0.into()]).unwrap();
        shop.check();
    }
    let shop = shop.reopened();
    assert!(has_children(shop.remove(1)) && has_no_parent(shop.order(3, 9)));
    shop.check();
}

#[test]
fn added_columns_refer_and_are_referred_to() {
    for placement in [Placement::Pmem, Placement::Dram] {
        let mut shop = shop_with(orders());
        let code = NewColumn::nullable("code", Type::Text { max: 8 });
        shop.customers = shop.database.add_column(&shop.customers, &code).unwrap();
        let of_code = NewColumn::nullable("of_code", Type::Text { max: 8 });
        shop.orders = shop.database.add_column(&shop.orders, &of_code).unwrap();
        let make = |table: &Table, index: NewIndex| {
            shop.database.create_index(table, &index.place(placement)).unwrap();
        };
        make(&shop.customers, NewIndex::unique("by_code", ["code"]));
        make(&shop.orders, NewIndex::secondary("by_of_code", ["of_code"]));
        let key = NewForeignKey::new("by_codes", ["of_code"], "customers", ["code"]);
        shop.database.add_foreign_key(&shop.orders, &key).unwrap();

        let update = |table: &Table, number: u32, code: Option<&str>| {
            let update = table.prepare_update("primary").unwrap();
            let column = table.columns().len() - 1;
            update.run(&[number.into()], |_, row| row.set(column, code)).map(|done| {
                assert_eq!(done, Some(()));
            })
        };
        assert!(has_no_parent(update(&shop.orders, 1, Some("x"))));
        update(&shop.customers, 1, Some("x")).unwrap();
        update(&shop.orders, 1, Some("x")).unwrap();
        assert!(has_children(update(&shop.customers, 1, Some("y"))));
        assert!(has_children(update(&shop.customers, 1, None)));
        assert!(has_children(shop.remove(1)));
        let inserted = shop.orders.insert(&[2.into(), Value::Null, "z".into()]);
        assert!(has_no_parent(inserted));
        shop.orders.insert(&[2.into(), Value::Null, Value::Null]).unwrap();
        shop.database.collect().unwrap();
        assert!(has_children(shop.remove(1)));
        let shop = shop.reopened();
        assert!(has_children(shop.remove(1)));
        update(&shop.orders, 1, None).unwrap();
        assert!(shop.remove(1).unwrap());
        assert!(has_no_parent(update(&shop.orders, 2, Some("x"))));
        assert_eq!(shop.database.check().unwrap(), []);
    }
}
