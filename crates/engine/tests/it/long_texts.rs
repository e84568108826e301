//! Texts of more than 255 bytes: their length has two bytes in a cell.

use std::ops::{Bound, ControlFlow};

use remanent_engine::{
    Database, Error, NewColumn, Order, Placement, ROW_LEN_MAX, Row, TableSpec, Type,
};
use remanent_pmem::Pool;

/// Bytes that a cell of such a text has at most, in a table of this test.
const MAX: u16 = 1_000;

/// A text that differs from others of its length in its last letters.
fn text(len: usize, number: usize) -> String {
    let end = number.to_string();
    let end = &end[..end.len().min(len)];
    "ä".repeat((len - end.len()) / 2) + &"x".repeat((len - end.len()) % 2) + end
}

fn lengths() -> impl Iterator<Item = usize> {
    [0, 1, 5, 254, 255, 256, 257, 511, 512, 513, 999, 1_000].into_iter()
}

fn remark_of(row: &Row<'_>) -> Result<String, Error> {
    row.get::<&str>(3).map(str::to_owned)
}

#[test]
fn texts_around_255_bytes_are_stored_found_ordered_and_encoded() {
    let pool = Pool::options().create_in_memory().unwrap();
    let database = Database::create(&pool, "db").unwrap();
    let long = Type::Text { max: MAX };
    let spec = TableSpec::new("notes")
        .column("name", long)
        .column("title", long)
        .encoded(["title"])
        .column("body", Type::Bytes { max: 2 * MAX })
        .column("remark", long)
        .primary_key(["name"])
        .index("by_title", ["title"])
        .index("by_remark", ["remark", "name"])
        .ordered(["by_remark"])
        .place(["by_title"], Placement::Dram);
    let notes = database.create_table(&spec).unwrap();
    let all: Vec<[String; 2]> = lengths()
        .enumerate()
        .map(|(number, len)| [text(len, 1_000 + number), text(1_000 - len, number)])
        .collect();
    for [name, title] in &all {
        let body = name.repeat(2);
        let values =
            [name.as_str().into(), title.as_str().into(), body.as_bytes().into(), "new".into()];
        notes.insert(&values).unwrap();
    }
    let update = notes.prepare_update("primary").unwrap();
    for [name, title] in &all {
        let done = update.run(&[name.as_str().into()], |_, row| row.set(3, title.as_str()));
        assert!(done.unwrap().is_some());
    }
    let added = NewColumn::new("more", Type::Text { max: 300 }).default("d".repeat(300).as_str());
    database.add_column(&notes, &added).unwrap();
    drop((update, notes));
    drop(database);

    let database = Database::open(&pool, "db").unwrap();
    let notes = database.table("notes").unwrap();
    let get = notes.prepare_get("primary").unwrap();
    let find = notes.prepare_find("by_title").unwrap();
    for [name, title] in &all {
        let found = get.run(&database.snapshot(), &[name.as_str().into()], |row| {
            assert_eq!(row.get::<&[u8]>(2)?, name.repeat(2).as_bytes());
            assert_eq!(row.get::<&str>(4)?, "d".repeat(300));
            let of = |column| row.get::<&str>(column).map(str::to_owned);
            Ok([of(0)?, of(1)?, of(3)?])
        });
        assert_eq!(found.unwrap(), Some([name.clone(), title.clone(), title.clone()]));
        let mut names = Vec::new();
        let visited = find.run(&database.snapshot(), &[title.as_str().into()], |row| {
            names.push(row.get::<&str>(0).unwrap().to_owned());
            ControlFlow::<()>::Continue(())
        });
        assert_eq!((visited.unwrap(), &names[..]), (None, &[name.clone()][..]));
    }
    let mut titles: Vec<String> = all.iter().map(|[_, title]| title.clone()).collect();
    titles.sort();
    assert_eq!(in_order(&database), titles);
    assert_eq!(database.check().unwrap(), []);
}

/// All remarks, by the index of these.
fn in_order(database: &Database) -> Vec<String> {
    let mut ordered = Vec::new();
    let range = database.table("notes").unwrap().prepare_range("by_remark").unwrap();
    let all_of_it = (Bound::Unbounded, Bound::Unbounded);
    let visited =
        range.run(&database.snapshot(), all_of_it, Order::Ascending, |row| match remark_of(row) {
            Ok(remark) => {
                ordered.push(remark);
                ControlFlow::Continue(())
            }
            Err(error) => ControlFlow::Break(error),
        });
    assert!(visited.unwrap().is_none());
    ordered
}

#[test]
fn what_is_too_long_is_refused_and_rows_have_a_limit() {
    let pool = Pool::options().create_in_memory().unwrap();
    let database = Database::create(&pool, "db").unwrap();
    let row = ROW_LEN_MAX as u16;
    let spec = |max| {
        TableSpec::new("t").column("a", Type::Text { max }).column("b", Type::U8).index("i", ["b"])
    };
    let refused = database.create_table(&spec(row - 2)).unwrap_err();
    assert!(refused.to_string().contains("its rows have 32769 bytes"), "{refused}");
    let table = database.create_table(&spec(row - 3)).unwrap();
    let longest = "l".repeat(usize::from(row) - 3);
    table.insert(&[longest.as_str().into(), 1.into()]).unwrap();
    let longer = longest.clone() + "l";
    let refused = table.insert(&[longer.as_str().into(), 1.into()]).unwrap_err();
    assert!(refused.to_string().contains("32766 bytes are more than TEXT(32765)"), "{refused}");
    let mut transaction = database.begin().unwrap();
    let update = table.prepare_update("i");
    assert!(update.is_err(), "it is no unique index");
    transaction
        .batch(|batch| {
            (0..3).try_for_each(|_| table.insert_in(batch, &["".into(), 1.into()]).map(drop))
        })
        .unwrap();
    transaction.commit().unwrap();
    let mut lens = Vec::new();
    let visited = table.scan(&database.snapshot(), |row| match row.get::<&str>(0) {
        Ok(text) => {
            lens.push(text.len());
            ControlFlow::Continue(())
        }
        Err(error) => ControlFlow::Break(error),
    });
    assert!(visited.unwrap().is_none());
    assert_eq!(lens, [32_765, 0, 0, 0]);
    // Encoded, it is not in the row.
    let encoded = TableSpec::new("u").column("a", Type::Text { max: u16::MAX }).encoded(["a"]);
    let table = database.create_table(&encoded.column("b", Type::U8)).unwrap();
    let text = "m".repeat(65_535);
    for number in 0..3u8 {
        table.insert(&[text.as_str().into(), number.into()]).unwrap();
    }
    let count = table.scan(&database.snapshot(), |row| match row.get::<&str>(0) {
        Ok(found) if found == text => ControlFlow::Continue(()),
        _ => ControlFlow::Break(()),
    });
    assert_eq!(count.unwrap(), None);
    assert_eq!(database.check().unwrap(), []);
}
