//! Turns SIGBUS on pool memory into an error.
//!
//! A load raises SIGBUS if it reads an uncorrectable memory line, or a page behind the end of a
//! file that somebody truncated. The handler maps a page of zeros under the address, notes the
//! fault on the medium, and lets the instruction run again. The operation then returns
//! [`Fault::Poisoned`](crate::Fault::Poisoned). Any other SIGBUS goes to the handler that was
//! installed before.

use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use crate::medium::units::PAGE_LEN;

/// Maximal number of pools in a process whose SIGBUS becomes an error.
const SLOTS: usize = 256;

struct Slot {
    base: AtomicUsize,
    len: AtomicUsize,
    fault: AtomicPtr<AtomicU64>,
}

static SLOTS_TABLE: [Slot; SLOTS] = [const {
    Slot {
        base: AtomicUsize::new(0),
        len: AtomicUsize::new(0),
        fault: AtomicPtr::new(ptr::null_mut()),
    }
}; SLOTS];

/// Mark of the word that the handler stores for a medium; the rest of it is the offset.
pub(crate) const POISONED: u64 = 1 << 63;

static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

/// Watches `len` bytes at `base`. The first fault there is noted in `fault`.
///
/// `fault` must stay valid until [`unregister`]. Beyond 256 mappings a SIGBUS stays a signal.
pub(crate) fn register(base: *mut u8, len: u64, fault: &AtomicU64) {
    PREVIOUS.get_or_init(install);
    for slot in &SLOTS_TABLE {
        let claimed = slot.base.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed);
        if claimed.is_ok() {
            slot.fault.store(ptr::from_ref(fault).cast_mut(), Ordering::Relaxed);
            slot.len.store(len as usize, Ordering::Relaxed);
            // Release: partner of the Acquire in `handle`; base is stored last.
            slot.base.store(base as usize, Ordering::Release);
            return;
        }
    }
}

/// Stops watching the mapping at `base`.
pub(crate) fn unregister(base: *mut u8) {
    for slot in &SLOTS_TABLE {
        // Release: partner of the Acquire in `register`'s claim of the slot.
        let found =
            slot.base.compare_exchange(base as usize, 0, Ordering::Release, Ordering::Relaxed);
        if found.is_ok() {
            return;
        }
    }
}

fn install() -> libc::sigaction {
    // SAFETY: all-zero is a valid `sigaction`: no flags, empty mask, default handler.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handle as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER | libc::SA_ONSTACK;
    // SAFETY: as above.
    let mut previous: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: both point to valid structures, and `handle` only does what a signal handler may.
    let installed = unsafe { libc::sigaction(libc::SIGBUS, &action, &mut previous) };
    assert_eq!(installed, 0, "SIGBUS can always be handled");
    previous
}

extern "C" fn handle(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo to a SA_SIGINFO handler, and nobody else writes it.
    let info_of_signal = unsafe { &*info };
    // SAFETY: a SIGBUS has an address. A signal sent by a process has another field there, which is
    // no address of a pool and is only compared.
    let address = unsafe { info_of_signal.si_addr() } as usize;
    for slot in &SLOTS_TABLE {
        // Acquire: partner of the Release in `register`.
        let base = slot.base.load(Ordering::Acquire);
        if base > 1 && address >= base && address - base < slot.len.load(Ordering::Relaxed) {
            let page = address & !(PAGE_LEN as usize - 1);
            if replace_with_zeros(page) {
                // SAFETY: registered pointers stay valid until `unregister`, which precedes
                // unmapping.
                let fault = unsafe { &*slot.fault.load(Ordering::Relaxed) };
                let word = (page - base) as u64 | POISONED;
                // Relaxed: the first fault counts; the same thread reads it after its access.
                let _ = fault.compare_exchange(0, word, Ordering::Relaxed, Ordering::Relaxed);
                return;
            }
        }
    }
    pass_on(signal, info, context);
}

/// Maps a private page of zeros over `page`; `mmap` is a bare system call, safe in a handler.
fn replace_with_zeros(page: usize) -> bool {
    // SAFETY: the page belongs to one of our mappings. The only Rust references into it are frozen
    // views, whose content is lost in any case.
    let mapped = unsafe {
        libc::mmap(
            page as *mut libc::c_void,
            PAGE_LEN as usize,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
            -1,
            0,
        )
    };
    mapped != libc::MAP_FAILED
}

fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let previous = PREVIOUS.get();
    match previous.map_or(libc::SIG_DFL, |action| action.sa_sigaction) {
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: restores the default action, so that returning raises the signal for good.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        handler if previous.is_some_and(|a| a.sa_flags & libc::SA_SIGINFO != 0) => {
            type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
            // SAFETY: the previous action was installed with SA_SIGINFO, so this is its type.
            let handler = unsafe { std::mem::transmute::<usize, Handler>(handler) };
            handler(signal, info, context);
        }
        handler => {
            // SAFETY: the previous action was installed without SA_SIGINFO, so this is its type.
            let handler =
                unsafe { std::mem::transmute::<usize, extern "C" fn(libc::c_int)>(handler) };
            handler(signal);
        }
    }
}
