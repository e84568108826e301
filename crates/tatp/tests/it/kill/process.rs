//! The process that is killed: workers that go on where the last one was killed, and tell their
//! places.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::{env, fs, thread};

use remanent_tatp::workers::{Place, Worker, race};

use super::Medium;

/// Where the process finds what it is to do; without it, the test is none.
pub(super) const ORDERS: &str = "REMANENT_TATP_ORDERS";

/// What a process is to do.
pub(super) struct Orders {
    pub(super) pool: PathBuf,
    pub(super) medium: Medium,
    pub(super) seed: u64,
    pub(super) places: Vec<Place>,
}

impl Orders {
    pub(super) fn write(&self, path: &Path) {
        let mut text = format!("{}\n{}\n{}\n", self.pool.display(), self.medium.name(), self.seed);
        self.places.iter().for_each(|place| text.push_str(&format!("{place}\n")));
        fs::write(path, text).unwrap();
    }

    fn read(path: &Path) -> Self {
        let text = fs::read_to_string(path).unwrap();
        let mut lines = text.lines();
        let mut line = || lines.next().expect("a line of the orders");
        let (pool, medium, seed) = (PathBuf::from(line()), line(), line().parse().unwrap());
        let places = lines.map(|line| line.parse().unwrap()).collect();
        Orders { pool, medium: Medium::named(medium), seed, places }
    }
}

/// Says something to who has started the process. It is there even if the process is killed next.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("@{line}\n").as_bytes()).and_then(|()| out.flush()).expect("a parent");
}

/// Not a test, but the process that [`super`] kills.
#[test]
fn serve() {
    let Some(path) = env::var_os(ORDERS) else { return };
    let orders = Orders::read(Path::new(&path));
    let pool = orders.medium.options().open(&orders.pool).unwrap();
    let database = orders.medium.open(&pool);
    say("open");
    thread::scope(|scope| {
        for (number, place) in (0..).zip(&orders.places) {
            let worker = Worker::new(&database, orders.seed, number).unwrap();
            scope.spawn(move || {
                worker.work(*place, |place| say(&format!("{number} {place}"))).unwrap()
            });
        }
        // Those of everybody, on which threads are in each other's way.
        for seed in 0..2 {
            let database = &database;
            scope.spawn(move || race(database, orders.seed ^ seed << 40).unwrap());
        }
    });
}
