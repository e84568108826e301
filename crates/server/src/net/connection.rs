//! One connection: reads, lets the session run, sends.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use super::Ending;
use crate::{Progress, Session, Store};

/// How often it is looked whether a peer that has sent more is still there.
const CLOSED_INTERVAL: Duration = Duration::from_millis(100);

/// Serves a connection until the client or the server ends it.
///
/// Answers are sent before more is read, so a client that does not read its answers is read from no
/// more. Where it takes memory that others need, it is closed.
pub(super) async fn serve<S: Store>(
    mut socket: TcpStream,
    mut session: Session<S>,
    mut ending: Ending,
) -> io::Result<()> {
    let record = session.record();
    let closing = || record.closing();
    let mut progress = Progress::Read;
    let mut abandoned = None;
    loop {
        if let Progress::Wait(delay) = progress {
            tokio::select! {
                () = tokio::time::sleep(delay) => {}
                // Who guesses and does not wait for the answer leaves room for others.
                () = closed_by_peer(&socket) => break,
                _ = ending.stop.wait_for(|stop| *stop) => {}
            }
            progress = Progress::Yield;
        }
        if !session.output().is_empty() {
            if progress == Progress::Read {
                // Others that have something to read go first. Answers then leave together, and a
                // peer that serves several connections is woken once and not for each.
                tokio::task::yield_now().await;
            }
            tokio::select! {
                biased;
                sent = socket.write_all(session.output()) => sent?,
                () = closing() => return Err(closed_for_memory()),
            }
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
                    () = closing() => return Err(closed_for_memory()),
                };
                if received == 0 {
                    break;
                }
                session.run()
            }
            // It has been waited for above.
            Progress::Yield | Progress::Wait(_) => {
                tokio::task::yield_now().await;
                session.run()
            }
            Progress::Long => {
                let progress;
                (progress, session) = run_long(session, &mut abandoned).await?;
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

/// Returns when the peer sends no more. What it sends meanwhile is not read.
async fn closed_by_peer(socket: &TcpStream) {
    while let Ok(ready) = socket.ready(Interest::READABLE).await {
        if ready.is_read_closed() {
            return;
        }
        tokio::time::sleep(CLOSED_INTERVAL).await;
    }
}

fn closed_for_memory() -> io::Error {
    io::Error::other("closed, because it took memory that others needed")
}

/// Runs a long request where it holds nobody up.
///
/// A sync that does not end in time goes on, and is the next one's to wait for: a client that asks again and again
/// keeps one thread busy and no more.
async fn run_long<S: Store>(
    mut session: Session<S>,
    abandoned: &mut Option<JoinHandle<()>>,
) -> Result<(Progress, Session<S>), tokio::task::JoinError> {
    if let Some((limit, sync)) = session.limited_sync() {
        let syncing = async {
            if let Some(earlier) = abandoned.as_mut() {
                // A panic is the session's to meet, when it syncs itself.
                let _ = earlier.await;
            }
            let _ = abandoned.insert(tokio::task::spawn_blocking(sync)).await;
            *abandoned = None;
        };
        if tokio::time::timeout(limit, syncing).await.is_err() {
            return Ok((session.run_overdue(), session));
        }
    }
    tokio::task::spawn_blocking(move || (session.run_long(), session)).await
}
