//! A server on real sockets whose store misbehaves.

use std::borrow::Borrow;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use remanent_server::store::{Change, Description, Lag, StoreError, VolatileTree};
use remanent_server::{BindError, Config, Server, Store, Volatile};

/// A store that panics at one key, and whose disk may stand still.
struct Fragile(Volatile, Arc<Disk>);

#[derive(Default)]
struct Disk {
    stands_still: AtomicBool,
    syncs: AtomicU32,
}

const POISON: &[u8] = b"poison";

fn touch(key: &[u8]) {
    assert!(key != POISON, "this panic is part of a test");
}

impl Store for Fragile {
    type Tree = VolatileTree;

    fn get_with<R>(
        &self,
        key: &[u8],
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>, StoreError> {
        touch(key);
        self.0.get_with(key, read)
    }

    fn modify<R, T: Borrow<[u8]>>(
        &self,
        key: &[u8],
        change: impl FnMut(Option<&[u8]>) -> (Change<T>, R),
    ) -> Result<R, StoreError> {
        touch(key);
        self.0.modify(key, change)
    }

    /// Panics as well: it runs where long requests do.
    fn clear(&self) -> Result<(), StoreError> {
        touch(POISON);
        Ok(())
    }

    fn len(&self) -> Result<u64, StoreError> {
        self.0.len()
    }

    fn scan(
        &self,
        cursor: u64,
        limit: usize,
        visit: impl FnMut(&[u8], &[u8]),
    ) -> Result<u64, StoreError> {
        self.0.scan(cursor, limit, visit)
    }

    fn sync(&self) -> Result<(), StoreError> {
        while self.1.stands_still.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.1.syncs.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn lag(&self) -> Option<Lag> {
        let bytes = u64::from(self.1.stands_still.load(Ordering::SeqCst));
        Some(Lag { bytes, bytes_max: 1, age_max: Duration::from_secs(1) })
    }

    fn describe(&self) -> Description {
        self.0.describe()
    }

    fn tree(&self) -> Option<&VolatileTree> {
        self.0.tree()
    }

    fn create_tree(&self) -> Result<&VolatileTree, StoreError> {
        self.0.create_tree()
    }
}

/// Serves a fragile store while `test` runs, and ends when it is done.
fn with_server(test: impl FnOnce(SocketAddr)) {
    with_disk(&Arc::default(), test);
}

fn with_disk(disk: &Arc<Disk>, test: impl FnOnce(SocketAddr)) {
    let config = Config { listen: ([127, 0, 0, 1], 0).into(), threads: 1, ..Config::default() };
    with_config(disk, config, test);
}

fn with_config(disk: &Arc<Disk>, config: Config, test: impl FnOnce(SocketAddr)) {
    let server = Server::bind(Fragile(Volatile::new(1 << 20), Arc::clone(disk)), config)
        .expect("a free port");
    let address = server.address();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let stop = async { _ = stopped.await };
        runtime.expect("a runtime").block_on(server.run(stop)).expect("the server runs");
    });
    test(address);
    drop(stop);
    thread.join().expect("the server ends");
}

/// Sends a line and returns what comes back until the line ends, or the connection does.
fn exchange(stream: &mut TcpStream, line: &str) -> String {
    stream.write_all(format!("{line}\r\n").as_bytes()).expect("the server reads");
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n") {
        let mut byte = [0];
        match stream.read(&mut byte) {
            Ok(0) => break,
            Ok(_) => answer.push(byte[0]),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
            Err(error) => panic!("{error}"),
        }
    }
    String::from_utf8(answer).expect("text")
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the server accepts");
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a socket option");
    stream
}

#[test]
fn a_panic_closes_one_connection() {
    with_server(|address| {
        let mut bystander = connect(address);
        assert_eq!(exchange(&mut bystander, "SET key value"), "+OK\r\n");
        for line in ["GET poison", "INCR poison", "DEL poison", "FLUSHALL"] {
            let mut unlucky = connect(address);
            assert_eq!(exchange(&mut unlucky, "PING"), "+PONG\r\n");
            assert_eq!(exchange(&mut unlucky, line), "", "{line}");
            assert_eq!(exchange(&mut bystander, "STRLEN key"), ":5\r\n");
        }
        assert_eq!(exchange(&mut connect(address), "DBSIZE"), ":1\r\n");
    });
}

const SAFE: &str = "*2\r\n:1\r\n:0\r\n";
const NOT_SAFE: &str = "*2\r\n:0\r\n:0\r\n";

/// Reads an answer to `WAITAOF`.
fn receive_waited(stream: &mut TcpStream) -> String {
    let mut answer = [0; SAFE.len()];
    stream.read_exact(&mut answer).expect("an answer");
    String::from_utf8(answer.to_vec()).expect("text")
}

/// A client that waits for a disk holds no other client up, however long it waits, and shares one
/// sync with others that wait.
#[test]
fn waiting_for_the_disk_holds_nobody_up() {
    const WAITING: usize = 20;
    let disk = Arc::new(Disk::default());
    with_disk(&disk, |address| {
        disk.stands_still.store(true, Ordering::SeqCst);
        let mut waiting: Vec<TcpStream> = (0..WAITING).map(|_| connect(address)).collect();
        for stream in &mut waiting {
            assert_eq!(exchange(stream, "SET key value"), "+OK\r\n");
            stream.write_all(b"WAITAOF 1 0 0\r\nPING\r\n").expect("the server reads");
        }
        let mut hasty = connect(address);
        let start = Instant::now();
        hasty.write_all(b"WAITAOF 1 0 50\r\n").expect("the server reads");
        assert_eq!(receive_waited(&mut hasty), NOT_SAFE);
        assert!(start.elapsed() >= Duration::from_millis(50), "answered before the time was up");
        assert_eq!(exchange(&mut hasty, "INCR counter"), ":1\r\n");
        assert_eq!(disk.syncs.load(Ordering::SeqCst), 0);
        for stream in &mut waiting {
            stream.set_nonblocking(true).expect("a socket option");
            let early = stream.read(&mut [0]).map_err(|error| error.kind());
            assert_eq!(early, Err(ErrorKind::WouldBlock), "answered before it is safe");
            stream.set_nonblocking(false).expect("a socket option");
        }
        disk.stands_still.store(false, Ordering::SeqCst);
        for stream in &mut waiting {
            assert_eq!(receive_waited(stream), SAFE);
            let mut pong = [0; 7];
            stream.read_exact(&mut pong).expect("an answer");
            assert_eq!(&pong, b"+PONG\r\n", "what follows is answered in order");
        }
        let syncs = disk.syncs.load(Ordering::SeqCst);
        assert!(syncs <= 4, "{syncs} syncs for {WAITING} who waited at the same time");
        hasty.write_all(b"WAITAOF 1 0 60000\r\n").expect("the server reads");
        assert_eq!(receive_waited(&mut hasty), SAFE);
    });
}

/// What was acknowledged is safe when the server has ended.
#[test]
fn the_end_of_the_server_is_synced() {
    let disk = Arc::new(Disk::default());
    with_disk(&disk, |address| {
        assert_eq!(exchange(&mut connect(address), "SET key value"), "+OK\r\n");
        assert_eq!(disk.syncs.load(Ordering::SeqCst), 0);
    });
    assert_eq!(disk.syncs.load(Ordering::SeqCst), 1);
}

/// Nobody makes the disk work who has not given the password.
#[test]
fn strangers_cannot_sync() {
    let disk = Arc::new(Disk::default());
    let password = Some("secret".to_owned());
    let config = Config { password, listen: ([127, 0, 0, 1], 0).into(), ..Config::default() };
    with_config(&disk, config, |address| {
        for line in ["WAITAOF 1 0 0", "WAITAOF 1 0 1000", "WAITAOF 0 0 0"] {
            let answer = exchange(&mut connect(address), line);
            assert_eq!(answer, "-NOAUTH Authentication required.\r\n");
        }
        assert_eq!(disk.syncs.load(Ordering::SeqCst), 0);
    });
}

/// Whoever guesses and does not wait for the answer holds no place meanwhile.
#[test]
fn a_closed_connection_leaves_its_place_though_its_password_waits() {
    let (password, listen) = (Some("secret".to_owned()), ([127, 0, 0, 1], 0).into());
    let config = Config { password, listen, clients_max: 1, ..Config::default() };
    with_config(&Arc::default(), config, |address| {
        let mut guesser = connect(address);
        for _ in 0..4 {
            assert!(exchange(&mut guesser, "AUTH wrong").starts_with("-WRONGPASS"));
        }
        drop(guesser);
        // Answers wait for a second now. In at least one of several tries this machine causes no
        // delay of its own.
        let frees_at_once = || {
            let mut guesser = accepted(address);
            guesser.write_all(b"AUTH wrong\r\n").expect("the server reads");
            drop(guesser);
            let closed = Instant::now();
            accepted(address);
            closed.elapsed() < Duration::from_millis(700)
        };
        assert!((0..5).any(|_| frees_at_once()));
    });
}

/// A connection that is not told that there are too many.
fn accepted(address: SocketAddr) -> TcpStream {
    loop {
        let mut stream = connect(address);
        if exchange(&mut stream, "PING").starts_with("-NOAUTH") {
            return stream;
        }
    }
}

#[test]
fn connections_end_with_the_server() {
    let mut idle = None;
    with_server(|address| {
        let mut stream = connect(address);
        assert_eq!(exchange(&mut stream, "PING"), "+PONG\r\n");
        idle = Some(stream);
    });
    let mut rest = Vec::new();
    idle.expect("a connection").read_to_end(&mut rest).expect("an orderly end");
    assert!(rest.is_empty());
}

#[test]
fn strangers_are_kept_out() {
    let open = SocketAddr::from(([0, 0, 0, 0], 0));
    let bind = |config| Server::bind(Volatile::new(0), config).map(|server| server.address());
    let refused = bind(Config { listen: open, ..Config::default() });
    assert!(matches!(refused, Err(BindError::Unprotected(address)) if address == open));
    let guarded = Config { listen: open, password: Some("secret".into()), ..Config::default() };
    assert_ne!(bind(guarded).expect("a password is enough").port(), 0);
    let trusted = Config { listen: open, unprotected: true, ..Config::default() };
    assert_ne!(bind(trusted).expect("permission is enough").port(), 0);
}
