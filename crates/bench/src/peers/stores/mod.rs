//! Stores of small entries. A rival is a file here, and a line in the list of rivals.

mod interface;
#[cfg(has_lmdb)]
#[allow(unsafe_code, reason = "names the C shim of a foreign library")]
mod lmdb;
mod redb;
mod remanent;
#[cfg(has_rocksdb)]
#[allow(unsafe_code, reason = "names the C shim of a foreign library")]
mod rocksdb;
#[allow(unsafe_code, reason = "calls the C shims of foreign libraries")]
mod shim;
#[allow(unsafe_code, reason = "names the C shim of a foreign library")]
mod sqlite;

pub(crate) use interface::{Mode, Rival, Store, value_of, verify};

/// Our own map, and all rivals that were found at build time.
pub(crate) fn rivals() -> Vec<Rival> {
    vec![
        remanent::RIVAL,
        #[cfg(has_lmdb)]
        lmdb::RIVAL,
        sqlite::RIVAL,
        #[cfg(has_rocksdb)]
        rocksdb::RIVAL,
        redb::RIVAL,
    ]
}

/// Reports on stderr which rivals were not found at build time.
pub(crate) fn tell_what_is_absent() {
    for (is_here, rival, package) in
        [(cfg!(has_lmdb), "LMDB", "liblmdb-dev"), (cfg!(has_rocksdb), "RocksDB", "librocksdb-dev")]
    {
        if !is_here {
            eprintln!("{rival} was not found when this was built ({package}): no rows beside it");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::keys::distinct;

    /// Every rival returns what was put, on all terms, also after it was closed.
    fn exercise(rival: &Rival) {
        let keys = distinct::<u64>(0, 1000);
        let absent = distinct::<u64>(1000, 1)[0];
        for mode in Mode::ALL {
            let scratch = tempfile::tempdir().expect("the temporary directory is writable");
            let mut store = rival.open(scratch.path(), mode).expect("it opens");
            for key in &keys {
                store.put(*key, b"the value before").expect("it stores");
                store.put(*key, &value_of(*key)).expect("it replaces");
            }
            store.sync().expect("it syncs");
            verify(&mut *store, keys.iter().copied()).expect("all entries are there");
            assert!(!store.get(absent, &mut Vec::new()).expect("it looks"), "{}", rival.name);
            assert!(verify(&mut *store, [absent]).is_err());
            drop(store);
            let mut store = rival.open(scratch.path(), mode).expect("it opens again");
            verify(&mut *store, keys.iter().copied()).expect("all entries are still there");
        }
    }

    /// A store that cannot be opened gives an error with its name and the reason.
    fn exercise_failure(rival: &Rival) {
        let scratch = tempfile::tempdir().expect("the temporary directory is writable");
        let missing = scratch.path().join("missing").join("too");
        let error = rival.open(&missing, Mode::Batched).err().expect("there is no such directory");
        let whys: Vec<String> = error.chain().map(ToString::to_string).collect();
        assert!(whys.len() > 1 && whys[0].contains(rival.name), "{whys:?}");
        assert!(whys.iter().all(|why| !why.is_empty()), "{whys:?}");
    }

    /// A test for each rival: they run in parallel, and a failure names its rival.
    macro_rules! test_rival {
        ($name:ident) => {
            mod $name {
                use super::super::$name::RIVAL;

                #[test]
                fn returns_what_was_put() {
                    super::exercise(&RIVAL);
                }

                #[test]
                fn says_why_it_cannot_be_opened() {
                    super::exercise_failure(&RIVAL);
                }
            }
        };
    }

    test_rival!(remanent);
    #[cfg(has_lmdb)]
    test_rival!(lmdb);
    test_rival!(redb);
    #[cfg(has_rocksdb)]
    test_rival!(rocksdb);
    test_rival!(sqlite);

    #[test]
    fn no_rival_is_missing_where_all_were_installed() {
        if std::env::var_os("REMANENT_REQUIRE_CLIENTS").is_some() {
            let names: Vec<&str> = rivals().iter().map(|rival| rival.name).collect();
            assert_eq!(names, ["remanent", "LMDB", "SQLite", "RocksDB", "redb"]);
        }
    }

    #[test]
    fn a_row_says_what_its_terms_promise() {
        let scratch = tempfile::tempdir().expect("the temporary directory is writable");
        for rival in rivals() {
            for mode in Mode::ALL {
                let ground = rival.ground(scratch.path(), mode).expect("the directory is there");
                assert!(ground.promise.starts_with(&mode.name()), "{}", ground.promise);
                let lags = matches!(mode, Mode::Batched | Mode::GroupOfTime);
                assert_eq!(ground.durability.ends_with("batched"), lags, "{}", ground.durability);
            }
        }
    }
}
