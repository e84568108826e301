//! Detection of the backing of a file.

use std::fs::File;
use std::path::Path;

use rustix::fs::{FileType, fstat, fstatfs};

use super::backing::Backing;
use super::mapped::mapping::supports_map_sync;
use crate::error::{Error, Result};

const TMPFS_MAGIC: u64 = 0x0102_1994;
const RAMFS_MAGIC: u64 = 0x8584_58f6;
const HUGETLBFS_MAGIC: u64 = 0x9584_58f6;

/// Detects the backing of `file`.
pub(crate) fn detect(file: &File, path: &Path) -> Result<Backing> {
    let stat = fstat(file).map_err(|e| Error::io("inspect", path, e))?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    if kind == FileType::CharacterDevice {
        return Ok(Backing::Dax);
    }
    if kind != FileType::RegularFile {
        return Err(Error::NotAPool {
            path: path.to_owned(),
            reason: "it is neither a regular file nor a devdax device".to_owned(),
        });
    }
    let system = fstatfs(file).map_err(|e| Error::io("inspect", path, e))?;
    match system.f_type as u64 {
        TMPFS_MAGIC | RAMFS_MAGIC | HUGETLBFS_MAGIC => Ok(Backing::Memory),
        _ if supports_map_sync(file) => Ok(Backing::Dax),
        _ => Ok(Backing::File),
    }
}
