//! Names of SQLite's files, and their roots in a pool.
//!
//! ```text
//! path that SQLite uses                      in the pool /dev/shm/app.pool
//! /dev/shm/app.pool, /dev/shm/app.pool:main  disk `main`
//! /dev/shm/app.pool:orders                   disk `orders`
//! /dev/shm/app.pool:orders-journal           file `orders-journal`
//! /dev/shm/app.pool:orders-wal               file `orders-wal`
//! ```
//!
//! The name of a database is a part of its path, because SQLite distinguishes journals by their
//! path alone: when it looks for a journal or deletes it, it passes a path without parameters.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_128;

use crate::{Error, Result};

/// The database that is meant if a path names none.
pub(crate) const MAIN: &str = "main";
/// Maximal length of a root's name in bytes.
const ROOT_NAME_LEN: usize = 64;

/// Suffixes that SQLite appends to a database's path.
pub(crate) const ROLLBACK: &str = "-journal";
pub(crate) const WAL: &str = "-wal";

/// Maximal length of a database's name, which leaves room for a suffix.
const NAME_LEN: usize = ROOT_NAME_LEN - ROLLBACK.len();

/// A kind of journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JournalKind {
    Rollback,
    Wal,
}

impl JournalKind {
    /// Name of its root, for a database whose roots begin with `base`.
    pub(crate) fn root(self, base: &str) -> String {
        match self {
            JournalKind::Rollback => format!("{base}{ROLLBACK}"),
            JournalKind::Wal => format!("{base}{WAL}"),
        }
    }
}

/// The database's path, if `path` is that of a journal.
pub(crate) fn split_journal(path: &Path) -> Option<(PathBuf, JournalKind)> {
    let bytes = path.as_os_str().as_bytes();
    let kinds = [(ROLLBACK, JournalKind::Rollback), (WAL, JournalKind::Wal)];
    kinds.into_iter().find_map(|(suffix, kind)| {
        let database = bytes.strip_suffix(suffix.as_bytes())?;
        Some((PathBuf::from(OsStr::from_bytes(database)), kind))
    })
}

/// A database in a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) pool: PathBuf,
    pub(crate) name: String,
}

impl Place {
    /// Parses `POOL` or `POOL:NAME`.
    pub(crate) fn parse(path: &Path) -> Result<Self> {
        let refuse =
            |reason: &str| Err(Error::Name { path: path.to_owned(), reason: reason.to_owned() });
        let Some(file_name) = path.file_name() else {
            return refuse("it ends with no file name; write the path of a pool file");
        };
        let bytes = file_name.as_bytes();
        let (file, name) = match bytes.iter().rposition(|&byte| byte == b':') {
            Some(colon) => (&bytes[..colon], &bytes[colon + 1..]),
            None => (bytes, MAIN.as_bytes()),
        };
        let Ok(name) = str::from_utf8(name) else {
            return refuse("the name behind the colon is not UTF-8");
        };
        if file.is_empty() || name.is_empty() || name.len() > NAME_LEN {
            return refuse(
                "write the path of a pool file, and behind a colon a name of 1 to 56 bytes, or \
                 neither colon nor name",
            );
        }
        Ok(Place { pool: path.with_file_name(OsStr::from_bytes(file)), name: name.to_owned() })
    }

    /// The canonical path of this database: two connections to the same database must use the same
    /// path.
    pub(crate) fn canonical(path: &Path) -> Result<PathBuf> {
        let place = Place::parse(path)?;
        let mut canonical = canonical_file(&place.pool)?.into_os_string();
        if place.name != MAIN {
            canonical.push(":");
            canonical.push(&place.name);
        }
        Ok(canonical.into())
    }

    /// Whether the path to the pool contains a symbolic link.
    pub(crate) fn has_link(path: &Path) -> bool {
        let Ok(place) = Place::parse(path) else { return false };
        let Ok(absolute) = std::path::absolute(place.pool) else { return false };
        absolute.ancestors().any(Path::is_symlink)
    }
}

/// Maximal length of a chain of symbolic links, as in the system.
const LINKS_MAX: usize = 40;

/// The absolute path of a file without symbolic links, whether or not the file exists. A link to a
/// missing file is followed, too.
pub(crate) fn canonical_file(path: &Path) -> Result<PathBuf> {
    let io = |source| {
        let path = path.to_owned();
        Error::Pool(remanent_pmem::Error::Io { action: "find the directory of", path, source })
    };
    let mut followed = path.to_owned();
    for _ in 0..LINKS_MAX {
        if let Ok(found) = followed.canonicalize() {
            return Ok(found);
        }
        let parent = followed.parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new(".")).canonicalize().map_err(io)?;
        let file = parent.join(followed.file_name().unwrap_or_default());
        match file.read_link() {
            Ok(target) => followed = parent.join(target),
            Err(_) => return Ok(file),
        }
    }
    Err(io(std::io::Error::other("its symbolic links lead in a circle")))
}

/// Common beginning of the roots of a database's journals in a pool with journals of many
/// databases: its path; or, if that is too long, a hash of it and as much of its end as fits.
pub(crate) fn base_of_file(database: &Path) -> String {
    let text = String::from_utf8_lossy(database.as_os_str().as_bytes());
    if text.len() <= NAME_LEN && str::from_utf8(database.as_os_str().as_bytes()).is_ok() {
        return text.into_owned();
    }
    let hash = format!("{:032x}…", xxh3_128(database.as_os_str().as_bytes()));
    let start = text.ceil_char_boundary(text.len().saturating_sub(NAME_LEN - hash.len()));
    format!("{hash}{}", &text[start..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_a_pool_and_a_database() {
        let place = |path: &str| Place::parse(Path::new(path)).map(|p| (p.pool, p.name));
        let expected = |pool: &str, name: &str| (PathBuf::from(pool), name.to_owned());
        assert_eq!(place("/a/b.pool").expect("a pool"), expected("/a/b.pool", "main"));
        assert_eq!(place("b.pool:x").expect("a pool"), expected("b.pool", "x"));
        assert_eq!(place("/a:c/b").expect("a pool"), expected("/a:c/b", "main"));
        assert_eq!(place("/a/b:c:d").expect("a pool"), expected("/a/b:c", "d"));
        let long = format!("/a/b:{}", "n".repeat(57));
        for wrong in ["/a/b:", "/a/:b", "/", "..", &long] {
            assert!(place(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn journals_belong_to_their_database() {
        let split = |path: &str| split_journal(Path::new(path));
        let database = PathBuf::from("/a/b:c");
        assert_eq!(split("/a/b:c-journal"), Some((database.clone(), JournalKind::Rollback)));
        assert_eq!(split("/a/b:c-wal"), Some((database, JournalKind::Wal)));
        assert_eq!(split("/a/b:c-mj0123459AB"), None);
        assert_eq!(JournalKind::Wal.root("c"), "c-wal");
    }

    #[test]
    fn a_database_has_one_path() {
        let directory = tempfile::tempdir().expect("a directory");
        let real = directory.path().canonicalize().expect("it exists");
        let link = real.join("link");
        std::os::unix::fs::symlink(&real, &link).expect("links are possible");
        let canonical = |path: PathBuf| Place::canonical(&path).expect("a pool");
        assert_eq!(canonical(link.join("p")), real.join("p"));
        assert_eq!(canonical(link.join("p:main")), real.join("p"));
        assert_eq!(canonical(link.join("./p:x")), real.join("p:x"));
        std::fs::write(real.join("file"), "").expect("it can be written");
        std::os::unix::fs::symlink(real.join("file"), real.join("alias"))
            .expect("links are possible");
        assert_eq!(canonical(real.join("alias:x")), real.join("file:x"));
        assert!(Place::canonical(&real.join("missing/p")).is_err());
    }

    #[test]
    fn links_to_files_that_are_yet_to_be_made_are_followed() {
        let directory = tempfile::tempdir().expect("a directory");
        let real = directory.path().canonicalize().expect("it exists");
        let link = |target: &str, name: &str| {
            std::os::unix::fs::symlink(target, real.join(name)).expect("links are possible");
        };
        let canonical = |name: &str| Place::canonical(&real.join(name));
        std::fs::create_dir(real.join("deep")).expect("room");
        link("deep/new", "relative");
        link("relative", "twice");
        link(real.join("other").to_str().expect("UTF-8"), "absolute");
        for name in ["relative", "twice"] {
            assert_eq!(canonical(name).expect("a pool"), real.join("deep/new"), "{name}");
        }
        assert_eq!(canonical("twice:x").expect("a pool"), real.join("deep/new:x"));
        assert_eq!(canonical("absolute").expect("a pool"), real.join("other"));
        link("two", "one");
        link("one", "two");
        assert!(canonical("one").is_err(), "a circle");
        link("missing/new", "nowhere");
        assert!(canonical("nowhere").is_err(), "no such directory");
    }

    #[test]
    fn links_on_the_way_to_a_pool_are_seen() {
        let directory = tempfile::tempdir().expect("a directory");
        let real = directory.path().canonicalize().expect("it exists");
        std::os::unix::fs::symlink(&real, real.join("link")).expect("links are possible");
        std::os::unix::fs::symlink("new", real.join("dangling")).expect("links are possible");
        for path in ["link", "link/p", "link/p:x", "dangling", "dangling:x", "./link/../p"] {
            assert!(Place::has_link(&real.join(path)), "{path}");
        }
        for path in ["p", "p:x", "./p", "missing/p"] {
            assert!(!Place::has_link(&real.join(path)), "{path}");
        }
    }

    #[test]
    fn long_paths_get_names_of_their_own() {
        let short = Path::new("/data/app.db");
        assert_eq!(base_of_file(short), "/data/app.db");
        let long = |end: &str| PathBuf::from(format!("/data/{}/{end}", "d".repeat(60)));
        let base = base_of_file(&long("app.db"));
        assert!(base.len() <= NAME_LEN && base.ends_with("/app.db"), "{base}");
        assert_ne!(
            base,
            base_of_file(&PathBuf::from(format!("/other{}", long("app.db").display())))
        );
        assert!(base_of_file(&long("ÄÖÜäöüÄÖÜäöü.db")).len() <= NAME_LEN);
    }
}
