//! Telling of a medium that fails while it is served.

use std::time::Duration;

use anyhow::bail;
use remanent::pmem::{Error, Medium, Pool};

use super::output::complain;

/// How often the medium is asked.
const INTERVAL: Duration = Duration::from_millis(500);

/// Does what `serving` does, and says on standard error, once, when the medium has met a fault.
///
/// # Errors
///
/// When `serving` fails, or the medium has met a fault: what is answered after that is not to be trusted, and a script
/// that started the server is to know.
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
    // Whatever else fails, fails because of it.
    if pool.medium().fault().is_some() {
        bail!(
            "the medium of {} failed while it was served; look for the cause, then open the pool again and run \
             `remanent pool check`",
            pool.path().display()
        );
    }
    served
}

/// Says what the medium has met; false while that is nothing.
fn tell<M: Medium>(pool: &Pool<M>) -> bool {
    let Some(fault) = pool.medium().fault() else { return false };
    complain(format_args!(
        "error: {}: {}; commands that meet it are answered by an error from now on",
        pool.path().display(),
        Error::Medium(fault)
    ));
    true
}
