//! The paper's own implementation: an aspect that AspectC++ weaves into a plain C++ class. On
//! request it is compiled into a library, which this process loads.

use std::ffi::{CStr, CString, c_char, c_void};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr::NonNull;

use anyhow::{Context, Result, bail, ensure};
use remanent_pmem::{FlushInstruction, isa};

use super::buffer::{Buffer, SOURCE, Scenario};
use crate::cleanup::Scratch;
use crate::report::Ground;

/// The compiler, of the Debian package aspectc++.
const COMPILER: &str = "ag++";
const SOURCES: [(&str, &str); 2] = [
    ("cache_line.ah", include_str!("cache_line.ah")),
    ("bounded_buffer.cc", include_str!("bounded_buffer.cc")),
];

/// Compiles and loads the woven buffer. If there is no compiler, returns `None` and reports it on
/// stderr.
///
/// # Errors
///
/// When the compiler rejects the sources, or the library cannot be loaded.
pub(crate) fn load() -> Result<Option<Library>> {
    // Not in the directory of the pools: memory file systems are often mounted without permission
    // to execute.
    let scratch = Scratch::new(&std::env::temp_dir())?;
    match compile(scratch.path())? {
        // The mapping outlives the file.
        Some(library) => Library::open(&library).map(Some),
        None => {
            eprintln!(
                "AspectC++ was not found ({COMPILER} of the Debian package aspectc++): no rows and \
                 claims beside it"
            );
            Ok(None)
        }
    }
}

/// Compiles the woven buffer into a library in `directory`; `None` without a compiler.
fn compile(directory: &Path) -> Result<Option<PathBuf>> {
    for (name, text) in SOURCES {
        let path = directory.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let library = directory.join("bounded_buffer.so");
    let mut command = Command::new(COMPILER);
    command.current_dir(directory).args(["-a", "cache_line.ah"]);
    command.args(["--attributes", "--data_joinpoints", "--builtin_operators"]);
    command.args(["-std=c++17", "-O3", "-DNDEBUG", "-fPIC", "-shared"]);
    command.arg(format!("-DFLUSH_LINE=\"{}\"", flush_instruction()?));
    command.arg("-o").arg(&library).arg("bounded_buffer.cc");
    let output = match command.output() {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        output => output.with_context(|| format!("cannot execute {COMPILER}"))?,
    };
    ensure!(
        output.status.success() && library.exists(),
        "{COMPILER} does not compile the aspect:\n{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(Some(library))
}

/// The flush instruction of our own medium on this machine.
fn flush_instruction() -> Result<&'static str> {
    Ok(match isa().flush {
        Some(FlushInstruction::Clwb) => "clwb",
        Some(FlushInstruction::ClflushOpt) => "clflushopt",
        Some(FlushInstruction::Clflush) => "clflush",
        other => bail!("the aspect is written for x86-64, whose flushes {other:?} is not among"),
    })
}

type New = unsafe extern "C" fn(*const c_char) -> *mut c_void;
type Run = unsafe extern "C" fn(*mut c_void, i32, *const u8, u64) -> u64;
type Free = unsafe extern "C" fn(*mut c_void);

/// The functions of bounded_buffer.cc. The library is never unloaded.
#[derive(Clone, Copy)]
pub(crate) struct Library {
    new: New,
    run: Run,
    free: Free,
}

impl Library {
    fn open(path: &Path) -> Result<Self> {
        let name = CString::new(path.as_os_str().as_bytes())?;
        // SAFETY: the name is a C string; the library, just compiled from our sources, has no
        // initialisers that depend on anything.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        let Some(handle) = NonNull::new(handle) else {
            bail!("cannot load {}: {}", path.display(), loader_error());
        };
        let new = symbol(handle, c"aspect_buffer_new")?;
        let run = symbol(handle, c"aspect_buffer_run")?;
        let free = symbol(handle, c"aspect_buffer_free")?;
        Ok(Library {
            // SAFETY: the C++ source declares it with this signature.
            new: unsafe { std::mem::transmute::<NonNull<c_void>, New>(new) },
            // SAFETY: as for `new`.
            run: unsafe { std::mem::transmute::<NonNull<c_void>, Run>(run) },
            // SAFETY: as for `new`.
            free: unsafe { std::mem::transmute::<NonNull<c_void>, Free>(free) },
        })
    }

    /// A new buffer in a mapped file in `directory`, flushed as ours is under `emulation nvram`.
    ///
    /// # Errors
    ///
    /// When the file cannot be made or mapped.
    pub(crate) fn create(&self, directory: &Path) -> Result<(Box<dyn Buffer>, Ground)> {
        let path = directory.join("aspect.pool");
        let name = CString::new(path.as_os_str().as_bytes())?;
        // SAFETY: the name is a C string that outlives the call.
        let peer = unsafe { (self.new)(name.as_ptr()) };
        let Some(peer) = NonNull::new(peer) else {
            let error = std::io::Error::last_os_error();
            bail!("the woven buffer cannot be mapped at {}: {error}", path.display());
        };
        let buffer = AspectBuffer { library: *self, peer };
        let ground = Ground::nvram_at(&path)?;
        Ok((Box::new(buffer), ground))
    }
}

fn symbol(library: NonNull<c_void>, name: &CStr) -> Result<NonNull<c_void>> {
    // SAFETY: the library is loaded and stays so; the name is a C string.
    let symbol = unsafe { libc::dlsym(library.as_ptr(), name.as_ptr()) };
    NonNull::new(symbol).with_context(|| format!("the woven library lacks {name:?}"))
}

fn loader_error() -> String {
    // SAFETY: the loader returns null or a C string that stays valid until its next call.
    let text = unsafe { libc::dlerror() };
    match NonNull::new(text) {
        // SAFETY: as above: not null, and nothing was loaded since.
        Some(text) => unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned(),
        None => "the loader gives no reason".to_owned(),
    }
}

/// A woven buffer in a mapped file of its own.
struct AspectBuffer {
    library: Library,
    peer: NonNull<c_void>,
}

impl Buffer for AspectBuffer {
    fn run(&mut self, scenario: Scenario, repetitions: u64) -> Result<u64> {
        // SAFETY: the peer lives until `drop` and is used by one thread at a time; the source has
        // as many bytes as the function reads.
        Ok(unsafe {
            (self.library.run)(self.peer.as_ptr(), scenario as i32, SOURCE.as_ptr(), repetitions)
        })
    }
}

impl Drop for AspectBuffer {
    fn drop(&mut self) {
        // SAFETY: made by `create`, and nobody uses it after this.
        unsafe { (self.library.free)(self.peer.as_ptr()) };
    }
}
