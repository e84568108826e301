//! Makes Berkeley DB keep its files on a disk of ours, in this process ([`DiskFiles`]).

use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};

use super::disk_files::DiskFiles;

/// `struct files` of cpp/berkeley_files.c.
#[repr(C)]
struct Functions {
    open: extern "C" fn(i32, u64) -> i32,
    close: extern "C" fn(i32),
    read: unsafe extern "C" fn(i32, u64, *mut u8, usize) -> i32,
    write: unsafe extern "C" fn(i32, u64, *const u8, usize) -> i32,
    truncate: extern "C" fn(i32, u64) -> i32,
    len: extern "C" fn(i32) -> i64,
    remove: extern "C" fn(u64) -> i32,
}

static FUNCTIONS: Functions = Functions { open, close, read, write, truncate, len, remove };

/// Berkeley DB has one set of hooks for the whole process.
static FILES: Mutex<Option<DiskFiles>> = Mutex::new(None);

// The function of cpp/berkeley_files.c.
unsafe extern "C" {
    fn berkeley_use_files(functions: Option<&'static Functions>);
}

/// While this lives, environments that are opened have their files on the disk.
pub(crate) struct OnDisk(());

impl OnDisk {
    /// Makes Berkeley DB keep its files there from now on.
    pub(crate) fn new(files: DiskFiles) -> Self {
        *FILES.lock().unwrap_or_else(PoisonError::into_inner) = Some(files);
        // SAFETY: the functions are those of the struct, and live as long as the process; no
        // environment is open, since the program opens one at a time.
        unsafe { berkeley_use_files(Some(&FUNCTIONS)) };
        OnDisk(())
    }

    /// Makes Berkeley DB use ordinary files again, and returns the disk.
    pub(crate) fn into_files(self) -> Result<DiskFiles> {
        let files = FILES.lock().unwrap_or_else(PoisonError::into_inner).take();
        files.context("there is no disk")
    }
}

impl Drop for OnDisk {
    fn drop(&mut self) {
        // SAFETY: as in `new`; environments are closed before this, and opened after it.
        unsafe { berkeley_use_files(None) };
        *FILES.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Berkeley DB only gets a number, so the error is printed here.
fn with_files<T>(work: impl FnOnce(&mut DiskFiles) -> Result<T>) -> Option<T> {
    let mut files = FILES.lock().unwrap_or_else(PoisonError::into_inner);
    match files.as_mut().context("there is no disk").and_then(work) {
        Ok(done) => Some(done),
        Err(error) => {
            eprintln!("the disk of Berkeley DB: {error:#}");
            None
        }
    }
}

fn code(done: Option<()>) -> i32 {
    if done.is_some() { 0 } else { -1 }
}

extern "C" fn open(descriptor: i32, number: u64) -> i32 {
    code(with_files(|files| {
        files.open(descriptor, number);
        Ok(())
    }))
}

extern "C" fn close(descriptor: i32) {
    with_files(|files| {
        files.close(descriptor);
        Ok(())
    });
}

unsafe extern "C" fn read(descriptor: i32, offset: u64, bytes: *mut u8, len: usize) -> i32 {
    // SAFETY: the shim passes Berkeley DB's buffer of `len` bytes, which nobody else uses
    // meanwhile.
    let bytes = unsafe { std::slice::from_raw_parts_mut(bytes, len) };
    code(with_files(|files| files.read(descriptor, offset, bytes)))
}

unsafe extern "C" fn write(descriptor: i32, offset: u64, bytes: *const u8, len: usize) -> i32 {
    // SAFETY: as for `read`, and nobody writes to it meanwhile.
    let bytes = unsafe { std::slice::from_raw_parts(bytes, len) };
    code(with_files(|files| files.write(descriptor, offset, bytes)))
}

extern "C" fn truncate(descriptor: i32, len: u64) -> i32 {
    code(with_files(|files| files.truncate(descriptor, len)))
}

extern "C" fn len(descriptor: i32) -> i64 {
    with_files(|files| files.len(descriptor)).map_or(-1, |len| len as i64)
}

extern "C" fn remove(number: u64) -> i32 {
    code(with_files(|files| files.remove(number)))
}

#[cfg(test)]
mod tests {
    use remanent_pmem::Emulation;

    use super::*;
    use crate::peers::berkeley_db::BerkeleyDb;

    #[test]
    fn commits_are_there_when_the_environment_was_never_closed() {
        const COUNT: u32 = 30_000;
        let directory = tempfile::tempdir().expect("a directory");
        let pool = directory.path().join("disk.pool");
        let key =
            |number: u32| *format!("{number:016}").as_bytes().first_chunk().expect("16 digits");
        let files = DiskFiles::create(&pool, Emulation::None).expect("created");
        let on_disk = OnDisk::new(files);
        let mut db = BerkeleyDb::open(directory.path(), true).expect("opened");
        for number in 0..COUNT {
            if number == COUNT / 2 {
                db.checkpoint().expect("written");
            }
            db.put(&key(number), &[number as u8; 512]).expect("put");
        }
        for number in (0..COUNT).step_by(3) {
            db.delete(&key(number)).expect("deleted");
        }
        // A killed process closes nothing.
        std::mem::forget(db);
        drop(on_disk);
        let _on_disk = OnDisk::new(DiskFiles::open_pool(&pool, Emulation::None).expect("opened"));
        let mut db = BerkeleyDb::open(directory.path(), true).expect("recovered");
        let mut value = [0; 512];
        for number in 0..COUNT {
            let found = db.get(&key(number), &mut value).expect("read");
            assert_eq!(found, (number % 3 != 0).then_some(512), "{number}");
            assert!(found.is_none() || value == [number as u8; 512], "{number}");
        }
        drop(db);
        let names = std::fs::read_dir(directory.path()).expect("listed");
        let written: u64 = names
            .map(|entry| entry.expect("an entry"))
            .filter(|entry| entry.path() != pool)
            .map(|entry| entry.metadata().expect("there").len())
            .sum();
        assert_eq!(written, 0, "everything lies on the disk");
    }
}
