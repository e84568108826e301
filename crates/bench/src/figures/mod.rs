//! One module a bench: what is run, in which order, and which claims follow.

pub(crate) mod batch_list;
#[cfg(has_berkeley_db)]
pub(crate) mod berkeley_db;
#[cfg(not(has_berkeley_db))]
pub(crate) mod berkeley_db {
    pub(crate) fn run(_: &crate::Setup) -> anyhow::Result<crate::report::Report> {
        anyhow::bail!(
            "this program was built without Berkeley DB: install Debian's libdb5.3-dev, and build it again"
        )
    }
}
pub(crate) mod disk;
pub(crate) mod hashmap;
pub(crate) mod kv;
pub(crate) mod line_tx;
pub(crate) mod maps;
pub(crate) mod primitives;
pub(crate) mod restart;
pub(crate) mod sqlite;
