//! Databases that stay files, with their journals in a pool.

use std::path::Path;
use std::sync::Arc;

use crate::journals::Journals;
use crate::names::{base_of_file, canonical_file};
use crate::pools::{Lease, check_durability};
use crate::settings::Settings;
use crate::{Error, Result};

/// The journals for the database at `database`, in the pool that the URI names.
pub(crate) fn open_journals(
    database: &Path,
    settings: &Settings,
    may_create: bool,
) -> Result<Arc<Journals>> {
    let Some(pool) = &settings.journal else {
        return Err(Error::Parameter {
            key: "journal",
            value: String::new(),
            reason: "missing; write the pool file for the journals, as in \
                     file:app.db?vfs=remanent-journal&journal=/mnt/pmem/journals.pool"
                .to_owned(),
        });
    };
    let asked = canonical_file(pool)?;
    let open = || Lease::take(&asked, settings, may_create);
    let journals = Journals::share(database, &base_of_file(database), open)?;
    if journals.pool().path() != asked {
        let (database, open) = (database.to_owned(), journals.pool().path().to_owned());
        return Err(Error::OtherJournal { database, open, asked });
    }
    check_durability(journals.pool(), settings)?;
    Ok(journals)
}

/// The journals of the database at a path: open ones of this process, or ones in a pool whose
/// journals this process uses.
///
/// SQLite asks for the journals of another database when it recovers one that was changed together
/// with it. They are found if they are in the same pool.
pub(crate) fn journals(database: &Path) -> Result<Option<Arc<Journals>>> {
    match Journals::of(database) {
        Some(journals) => Ok(Some(journals)),
        None => Journals::in_pools_in_use(database, &base_of_file(database)),
    }
}
