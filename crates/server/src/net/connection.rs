//! Serving one connection: reads requests, runs the session, sends the answers.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use super::Ending;
use super::polling::Polling;
use crate::{Progress, Session, Store};

/// How often to look whether a peer has closed its side, while bytes that it has sent are not read.
const CLOSED_INTERVAL: Duration = Duration::from_millis(100);
/// Most bytes of requests, in one read, that are answered before the system is asked for other
/// connections with requests, if this client was alone at work before. The runtime asks at the
/// latest after some tens of reads.
const ALONE_LEN: usize = 512;

/// Serves a connection until the client or the server ends it.
///
/// Answers are sent before more requests are read, so no requests are read from a client that does
/// not read its answers. If such a client takes memory that others need, it is closed.
pub(super) async fn serve<S: Store>(
    mut socket: TcpStream,
    mut session: Session<S>,
    mut ending: Ending,
    polling: &Polling,
) -> io::Result<()> {
    let record = session.record();
    let closing = || record.closing();
    let mut progress = Progress::Read;
    let mut abandoned = None;
    let mut is_alone = false;
    loop {
        if let Progress::Wait(delay) = progress {
            tokio::select! {
                () = tokio::time::sleep(delay) => {}
                // A client that guesses passwords and disconnects frees its place at once.
                () = closed_by_peer(&socket) => break,
                _ = ending.stop.wait_for(|stop| *stop) => {}
            }
            progress = Progress::Yield;
        }
        if !session.output().is_empty() {
            if progress == Progress::Read && !is_alone {
                // Other connections with requests to read go first. The answers of all are then
                // sent together, and a peer with several connections is woken once and not for
                // each.
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
            // Without this, a client that never pauses would keep the server from ending.
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
                is_alone = !polling.note_read(record.id) && received <= ALONE_LEN;
                session.run()
            }
            // `Wait`: the delay is over, see above.
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

/// Waits until the peer closes its sending side. Reads nothing of what it sends.
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

/// Runs a long request on another thread, where it delays no other connection.
///
/// A sync that does not end in time goes on as `abandoned`, and the next one of the connection
/// waits for it first. So a client that asks again and again keeps one thread busy and no more.
async fn run_long<S: Store>(
    mut session: Session<S>,
    abandoned: &mut Option<JoinHandle<()>>,
) -> Result<(Progress, Session<S>), tokio::task::JoinError> {
    if let Some((limit, sync)) = session.limited_sync() {
        let syncing = async {
            if let Some(earlier) = abandoned.as_mut() {
                // If the sync panicked, the session meets the cause when it syncs itself.
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
