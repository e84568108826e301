//! A server on real sockets.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use remanent_nbd::{BindError, Config, Export, Exports, Server};
use tempfile::TempDir;

use super::ram::{PAGE, Ram};
use super::wire::*;

/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(30);

/// Where a server can be reached.
#[cfg_attr(
    not(feature = "client-tests"),
    allow(dead_code, reason = "only clients use the directory")
)]
pub(super) struct Place {
    pub(super) directory: TempDir,
    pub(super) socket: PathBuf,
    pub(super) address: SocketAddr,
}

/// Serves exports on a Unix socket and over TCP while `test` runs, and ends when it is done.
pub(super) fn with_server(exports: Exports, test: impl FnOnce(&Place)) {
    with_config(exports, Config::default(), test);
}

fn with_config(exports: Exports, config: Config, test: impl FnOnce(&Place)) {
    let directory = TempDir::new().expect("a directory");
    let socket = directory.path().join("nbd.sock");
    let tcp = vec![([127, 0, 0, 1], 0).into()];
    let config = Config { tcp, unix: vec![socket.clone()], ..config };
    let server = Server::bind(exports, config).expect("a free port");
    let place = Place { directory, socket, address: server.addresses()[0] };
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let stop = async { _ = stopped.await };
        runtime.expect("a runtime").block_on(server.run(stop)).expect("the server runs");
    });
    test(&place);
    drop(stop);
    thread.join().expect("the server ends");
    assert!(!place.socket.exists(), "the socket's file goes with the server");
}

fn exports(ram: Ram) -> Exports {
    let mut exports = Exports::new();
    exports.add("disk", Arc::new(ram)).expect("a good name");
    exports
}

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

/// A client that has chosen the export and speaks simple replies.
fn connect(place: &Place, over_tcp: bool) -> Box<dyn Stream> {
    let mut stream: Box<dyn Stream> = if over_tcp {
        let stream = TcpStream::connect(place.address).expect("the server accepts");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket option");
        Box::new(stream)
    } else {
        let stream = UnixStream::connect(&place.socket).expect("the server accepts");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket option");
        Box::new(stream)
    };
    let mut greeting = [0; 18];
    stream.read_exact(&mut greeting).expect("a greeting");
    let flags = (FIXED | NO_ZEROES).to_be_bytes();
    let bytes = [&flags[..], &option(EXPORT_NAME, b"disk")].concat();
    stream.write_all(&bytes).expect("the server reads");
    stream.read_exact(&mut [0; 10]).expect("the export's size and flags");
    stream
}

/// The error, or 0, that a request is answered with; `None` when the connection ends.
fn error(stream: &mut dyn Stream, bytes: &[u8], read_len: usize) -> Option<u32> {
    stream.write_all(bytes).expect("the server reads");
    let mut reply = vec![0; 16 + read_len];
    match stream.read_exact(&mut reply) {
        Ok(()) => Some(Reader(&reply[4..]).u32()),
        Err(error) => {
            assert!(matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset));
            None
        }
    }
}

fn ends(stream: &mut dyn Stream) {
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).expect("an orderly end");
    assert_eq!(rest, b"");
}

#[test]
fn clients_share_a_disk_over_both_sockets() {
    with_server(exports(Ram::new(1 << 20)), share);
}

#[test]
fn clients_share_a_disk_whose_threads_stay_awake() {
    let config = Config { poll: Duration::from_micros(500), ..Config::default() };
    with_config(exports(Ram::new(1 << 20)), config, share);
}

fn share(place: &Place) {
    let mut clients = [false, true, false, true].map(|over_tcp| connect(place, over_tcp));
    for (index, client) in clients.iter_mut().enumerate() {
        let bytes = write(0, index as u64, &[index as u8 + 1]);
        assert_eq!(error(client, &bytes, 0), Some(0));
    }
    for client in &mut clients {
        client.write_all(&request(READ, 0, 0, 5)).expect("the server reads");
        let mut reply = [0; 21];
        client.read_exact(&mut reply).expect("a reply");
        assert_eq!(reply[16..], [1, 2, 3, 4, 0]);
        client.write_all(&request(DISC, 0, 0, 0)).expect("the server reads");
        ends(client);
    }
}

/// Requests that a client has sent are answered though it sends no more and takes replies late.
#[test]
fn replies_wait_for_a_slow_client() {
    with_server(exports(Ram::new(1 << 20)), |place| {
        for over_tcp in [false, true] {
            let mut slow = connect(place, over_tcp);
            let mut writer = request(READ, 0, 0, 1 << 20).repeat(16);
            writer.extend(request(DISC, 0, 0, 0));
            slow.write_all(&writer).expect("the server reads");
            let mut other = connect(place, over_tcp);
            assert_eq!(error(&mut other, &request(FLUSH, 0, 0, 0), 0), Some(0));
            let mut replies = Vec::new();
            slow.read_to_end(&mut replies).expect("an orderly end");
            assert_eq!(replies.len(), 16 * (16 + (1 << 20)));
        }
    });
}

#[test]
fn a_failing_connection_takes_no_other_with_it() {
    let ram = Ram { poison: PAGE..2 * PAGE, ..Ram::new(1 << 20) };
    with_server(exports(ram), |place| {
        let mut bystander = connect(place, false);
        let poison = [
            write(0, PAGE, b"x"),
            request(READ, 0, PAGE, 1),
            request(TRIM, 0, 0, 1 << 20),
            b"this is not a request at all".to_vec(),
        ];
        for bytes in poison {
            for over_tcp in [false, true] {
                let mut unlucky = connect(place, over_tcp);
                assert_eq!(error(&mut unlucky, &request(READ, 0, 0, 10), 10), Some(0));
                assert_eq!(error(&mut unlucky, &bytes, 1), None);
                assert_eq!(error(&mut bystander, &write(0, 0, b"x"), 0), Some(0));
            }
        }
        // One that goes away in the middle of a request.
        let mut hasty = connect(place, true);
        hasty.write_all(&request(WRITE, 0, 0, 1000)).expect("the server reads");
        drop(hasty);
        assert_eq!(error(&mut bystander, &request(FLUSH, 0, 0, 0), 0), Some(0));
    });
}

#[test]
fn connections_end_with_the_server() {
    let mut clients = Vec::new();
    let ram: Arc<dyn Export> = Arc::new(Ram::new(1 << 20));
    let export = Arc::downgrade(&ram);
    let mut exports = Exports::new();
    exports.add("disk", ram).expect("a good name");
    with_server(exports, |place| {
        for over_tcp in [false, true] {
            let mut client = connect(place, over_tcp);
            assert_eq!(error(&mut client, &write(0, 0, b"x"), 0), Some(0));
            clients.push(client);
        }
        // Has not chosen an export.
        let stream = UnixStream::connect(&place.socket).expect("the server accepts");
        let mut stream: Box<dyn Stream> = Box::new(stream);
        stream.read_exact(&mut [0; 18]).expect("a greeting");
        clients.push(stream);
    });
    assert_eq!(export.strong_count(), 0, "something has the disk open still");
    for client in &mut clients {
        ends(client);
    }
}

#[test]
fn there_are_no_more_connections_than_allowed() {
    let config = Config { connections_max: 2, ..Config::default() };
    with_config(exports(Ram::new(1 << 20)), config, |place| {
        let first = connect(place, false);
        let mut second = connect(place, true);
        let mut third = UnixStream::connect(&place.socket).expect("the system accepts");
        ends(&mut third);
        assert_eq!(error(&mut second, &request(FLUSH, 0, 0, 0), 0), Some(0));
        drop(first);
        // The server notices after a moment.
        let greeted = |_| {
            let stream = UnixStream::connect(&place.socket).expect("the system accepts");
            let is_greeted = (&stream).read_exact(&mut [0; 18]).is_ok();
            std::thread::sleep(Duration::from_millis(10));
            is_greeted
        };
        assert!((0..1000).any(greeted), "a connection that has ended still counts");
    });
}

#[test]
fn strangers_are_kept_out() {
    let open = SocketAddr::from(([0, 0, 0, 0], 0));
    let bind = |unprotected| {
        let config = Config { tcp: vec![open], unprotected, ..Config::default() };
        Server::bind(exports(Ram::new(1)), config)
    };
    assert!(matches!(bind(false), Err(BindError::Unprotected(address)) if address == open));
    assert_ne!(bind(true).expect("permission is enough").addresses()[0].port(), 0);
}

#[test]
fn a_socket_is_taken_from_the_dead_alone() {
    let directory = TempDir::new().expect("a directory");
    let bind = |path: &Path| {
        let config = Config { unix: vec![path.to_owned()], ..Config::default() };
        Server::bind(exports(Ram::new(1)), config)
    };
    let dead = directory.path().join("dead");
    drop(UnixListener::bind(&dead).expect("a free path"));
    let server = bind(&dead).expect("nobody listens there");
    assert!(matches!(bind(&dead), Err(BindError::Unix { .. })), "somebody listens there");
    drop(server);
    assert!(!dead.exists());
    let file = directory.path().join("file");
    std::fs::write(&file, "no socket").expect("a free path");
    assert!(matches!(bind(&file), Err(BindError::Unix { .. })));
    assert_eq!(std::fs::read_to_string(&file).expect("it is still there"), "no socket");
}
