//! One connection: reads, lets the session run, sends.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::Ending;
use crate::{Progress, Session, Store};

/// Serves a connection until the client or the server ends it.
///
/// Answers are sent before more is read, so a client that does not read its answers is read from no
/// more, and costs others nothing.
pub(super) async fn serve<S: Store>(
    mut socket: TcpStream,
    mut session: Session<S>,
    mut ending: Ending,
) -> io::Result<()> {
    let mut progress = Progress::Read;
    loop {
        if !session.output().is_empty() {
            if progress == Progress::Read {
                // Others that have something to read go first. Answers then leave together, and a
                // peer that serves several connections is woken once and not for each.
                tokio::task::yield_now().await;
            }
            socket.write_all(session.output()).await?;
            session.sent();
        }
        progress = match progress {
            // A client that never pauses must not keep the server from ending.
            Progress::Read if ending.stop.has_changed().unwrap_or(true) => break,
            Progress::Read => {
                let received = tokio::select! {
                    biased;
                    received = socket.read_buf(session.input()) => received?,
                    _ = ending.stop.wait_for(|stop| *stop) => 0,
                };
                if received == 0 {
                    break;
                }
                session.run()
            }
            Progress::Yield => {
                tokio::task::yield_now().await;
                session.run()
            }
            Progress::Long => {
                let progress;
                (progress, session) = run_long(session).await?;
                progress
            }
            Progress::Close => break,
            Progress::ShutDown => {
                ending.shutdown.notify_one();
                break;
            }
        };
    }
    socket.shutdown().await
}

/// Runs a long request where it holds nobody up.
async fn run_long<S: Store>(
    mut session: Session<S>,
) -> Result<(Progress, Session<S>), tokio::task::JoinError> {
    if let Some((limit, sync)) = session.limited_sync() {
        // Left alone when the time is up: it does no harm, and serves others.
        let syncing = tokio::task::spawn_blocking(sync);
        if tokio::time::timeout(limit, syncing).await.is_err() {
            return Ok((session.run_overdue(), session));
        }
    }
    tokio::task::spawn_blocking(move || (session.run_long(), session)).await
}
