//! Options of the command that help against an error of the library.

use remanent::blockdev::Error as DiskError;
use remanent::pmem::Error as PoolError;
use remanent::structures::Error as StructureError;

/// Text to append to the error; empty if no option helps.
pub(crate) fn advice(error: &anyhow::Error) -> &'static str {
    match error.chain().find_map(of_pool) {
        Some(PoolError::Full { .. } | PoolError::TooSmall { .. }) => {
            " (option --size, or --pool-size of `disk create`)"
        }
        Some(PoolError::Locked { .. }) => " (option --wait)",
        Some(PoolError::NotAPool { .. }) => " (command `remanent pool create`)",
        Some(PoolError::Corrupt { .. }) => " (command `remanent pool check`)",
        _ => "",
    }
}

fn of_pool<'e>(cause: &'e (dyn std::error::Error + 'static)) -> Option<&'e PoolError> {
    let of_structure = || match cause.downcast_ref() {
        Some(StructureError::Pool(error)) => Some(error),
        _ => None,
    };
    let of_disk = || match cause.downcast_ref() {
        Some(DiskError::Pool(error)) => Some(error),
        _ => None,
    };
    cause.downcast_ref().or_else(of_structure).or_else(of_disk)
}
