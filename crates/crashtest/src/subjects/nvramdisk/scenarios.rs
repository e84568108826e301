//! Scenarios of the nvramdisk paper's device.

use remanent_blockdev::papers::nvramdisk::Policy;
use remanent_crashsim::{Class, Config, Faults, Nested};
use remanent_pmem::order::Method;

use super::subject::Nvramdisks;
use crate::presets::{SIZE_MAX, alone, briefly, class, pages, prepared, together};
use crate::scenario::Scenario;

/// Two lines of the map; only blocks of the first one are used.
const NVRAMDISK: Nvramdisks =
    Nvramdisks { lbas: 16, used: 6, policy: Policy::P3, size_max: SIZE_MAX };

/// So few blocks that threads compete.
const CONTENDED: Nvramdisks = Nvramdisks { used: 2, policy: Policy::P5, ..NVRAMDISK };

fn with(policy: Policy) -> Nvramdisks {
    Nvramdisks { policy, ..NVRAMDISK }
}

/// Garbage in words that are being written, also during recovery. The pool around the disk does not
/// survive it.
fn masked(config: Config) -> Config {
    let faults = Faults { disturbed_words: 8, ..Faults::default() };
    let nested = Nested { depth: 1, one_in: 64, samples: 1 };
    Config { faults, nested, creation: false, ..config }
}

/// Every scenario of the subject.
pub(super) fn scenarios() -> Vec<Scenario> {
    let mut all = unmasked();
    all.extend(on_masking_memory());
    all
}

fn unmasked() -> Vec<Scenario> {
    let faulty = Faults { poisoned: 2, truncated: 2, ..Faults::default() };
    let nested = Config { nested: Nested { depth: 2, one_in: 8, samples: 6 }, ..alone(3, 3) };
    let mixed = Policy::new(Method::CacheFlush, Method::Direct, Method::WriteCombining);
    vec![
        Scenario::new("nvramdisk/writes", "blocks and parts of them", NVRAMDISK, alone(2, 4)),
        Scenario::new("nvramdisk/flushed", "by cache flush", with(Policy::P6), alone(2, 4)),
        Scenario::new("nvramdisk/mixed", "by three methods", with(mixed), alone(2, 4)),
        Scenario::new("nvramdisk/threads", "three threads", NVRAMDISK, together(3, 3, 2)),
        Scenario::new(
            "nvramdisk/threads-briefly",
            "two threads, many short runs",
            CONTENDED,
            briefly(2, 3, 2),
        )
        .with_weight(6),
        Scenario::new("nvramdisk/recovery", "crashes during recovery", with(Policy::P5), nested),
        Scenario::new(
            "nvramdisk/process",
            "the process dies",
            NVRAMDISK,
            class(Class::Process, prepared(alone(2, 2))),
        ),
        Scenario::new("nvramdisk/pages", "a page-cache file", NVRAMDISK, pages(alone(2, 3))),
        Scenario::new(
            "nvramdisk/faults",
            "memory that cannot be read",
            NVRAMDISK,
            Config { faults: faulty, ..alone(2, 3) },
        ),
    ]
}

/// If only words that are being written can be garbage, the paper's policies survive.
fn on_masking_memory() -> Vec<Scenario> {
    let writes =
        |name, about, policy| Scenario::new(name, about, with(policy), masked(alone(2, 4)));
    let recovery =
        Config { nested: Nested { depth: 1, one_in: 12, samples: 1 }, ..masked(alone(1, 1)) };
    vec![
        writes("nvramdisk/masked-1", "P1, words disturbed", Policy::P1),
        writes("nvramdisk/masked-2", "P2, words disturbed", Policy::P2),
        writes("nvramdisk/masked-3", "P3, words disturbed", Policy::P3),
        writes("nvramdisk/masked-4", "P4, words disturbed", Policy::P4),
        writes("nvramdisk/masked-5", "P5, words disturbed", Policy::P5),
        Scenario::new(
            "nvramdisk/masked-recovery",
            "crashes during recovery, words disturbed",
            with(Policy::P5),
            recovery,
        ),
        Scenario::new(
            "nvramdisk/masked-threads",
            "three threads, words disturbed",
            CONTENDED,
            masked(together(3, 3, 2)),
        ),
    ]
}

/// Cases that do not survive; each must be found to fail.
///
/// `nvramdisk/disturbed` is the danger that the nvramdisk paper describes in its section 6.2: an
/// explicit cache flush of one entry of the mapping table destroys another entry in the same line.
pub(super) fn counterexamples() -> Vec<Scenario> {
    let faults = Faults { disturbed: 12, ..Faults::default() };
    let config = Config { faults, ..prepared(alone(3, 4)) };
    let about = "by cache flush, whole lines disturbed";
    vec![Scenario::new("nvramdisk/disturbed", about, with(Policy::P6), config)]
}
