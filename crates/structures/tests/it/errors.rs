//! What errors say: types by their names, and what a program can do.

use remanent_pmem::{Error as PoolError, Persistent, Pool};
use remanent_structures::{BlinkTree, Error, HashMap, Tx, TxArray, Vector};

mod before {
    use remanent_pmem::Persistent;

    #[derive(Clone, Copy, Debug, Persistent)]
    #[repr(C)]
    pub(super) struct Account {
        pub(super) balance: u64,
    }
}

#[derive(Clone, Copy, Debug, Persistent)]
#[repr(C)]
struct Account {
    balance: i64,
}

/// The message for a root that is opened as another type.
fn told<T: std::fmt::Debug>(opened: remanent_structures::Result<T>) -> String {
    match opened.unwrap_err() {
        error @ Error::Pool(PoolError::WrongType { .. }) => error.to_string(),
        other => panic!("{other}"),
    }
}

#[test]
fn another_type_is_refused_in_words() {
    let pool = Pool::options().size_max(64 << 20).create_in_memory().unwrap();
    HashMap::<str, u64>::create(&pool, "ages").unwrap();
    assert_eq!(
        told(BlinkTree::<str, u64>::open(&pool, "ages")),
        "root \"ages\" has type HashMap<str, u64> and was opened as BlinkTree<str, u64>; open it with the type that it \
         was created with"
    );
    let account = before::Account { balance: 1 };
    drop(Tx::create(&pool, "account", account).unwrap());
    drop(TxArray::create(&pool, "accounts", 3, |_| account).unwrap());
    drop(Vector::<before::Account>::create(&pool, "history").unwrap());
    for (root, told) in [
        ("Tx<Account>", told(Tx::<Account>::open(&pool, "account"))),
        ("Vector<Account>", told(Vector::<Account>::open(&pool, "history"))),
    ] {
        let expected = "but its layout has (a struct's fields, or the structure's own format) changed since it was created; \
                        open it with the program that created it";
        assert!(told.contains(&format!("has type {root}, {expected}")), "{told}");
    }
    let told = told(Tx::<before::Account>::open(&pool, "accounts"));
    assert!(told.contains("TxArray<Account> of 3 objects and was opened as Tx<Account>"), "{told}");
}
