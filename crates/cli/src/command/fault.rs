//! Reporting a fault of the medium while it is served.

use std::time::Duration;

use anyhow::bail;
use remanent::pmem::{Error, Medium, Pool};

use super::output::complain;

/// Interval at which the medium is checked for a fault.
const INTERVAL: Duration = Duration::from_millis(500);

/// Runs `serving`. If the medium meets a fault, reports it once on standard error.
///
/// # Errors
///
/// When `serving` fails, or the medium has met a fault. Answers after a fault are unreliable, and
/// the status must show this to a script that started the server.
pub(crate) async fn told<M: Medium>(
    pool: &Pool<M>,
    serving: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<()> {
    let watching = async {
        while !tell(pool) {
            tokio::time::sleep(INTERVAL).await;
        }
        std::future::pending::<()>().await;
    };
    let served = tokio::select! {
        served = serving => served,
        () = watching => unreachable!("nobody watches to an end"),
    };
    // After a fault, any other failure is a consequence.
    if pool.medium().fault().is_some() {
        bail!(
            "the medium of {} failed while it was served; look for the cause, then open the pool again and run \
             `remanent pool check`",
            pool.path().display()
        );
    }
    served
}

/// Reports a fault of the medium; returns false if there is none.
fn tell<M: Medium>(pool: &Pool<M>) -> bool {
    let Some(fault) = pool.medium().fault() else { return false };
    complain(format_args!(
        "error: {}: {}; commands that meet it are answered by an error from now on",
        pool.path().display(),
        Error::Medium(fault)
    ));
    true
}
