//! TATP on the engine: shares, consistency, and the fences of each transaction.

mod kill;
mod workers;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;

use remanent_crashsim::{Sim, SimOptions};
use remanent_engine::Database;
use remanent_pmem::pool::Format;
use remanent_pmem::{Emulation, Pool};
use remanent_tatp::{Client, Kind, Mix, Population, Tables};

#[test]
fn each_transaction_takes_as_many_fences_as_it_has_statements_that_change() {
    let size_max = 64 << 20;
    let sim = Sim::new(SimOptions { capacity: size_max, ..SimOptions::default() });
    let pool: Pool<Arc<Sim>> = Pool::format(Arc::new(sim), &Format::new(size_max)).unwrap();
    let database = Database::create(&pool, "tatp").unwrap();
    let population = Population::new(200);
    population.load(&Tables::create(&database).unwrap()).unwrap();
    let client = Client::new(&database).unwrap();
    let mut mix = Mix::new(200, 7);
    // Chunks for versions are taken, and tiles are made.
    for _ in 0..2_000 {
        client.run(&mix.draw()).unwrap();
    }
    for (kind, _) in Kind::ALL {
        let mut counts = BTreeMap::new();
        let mut successes = 0;
        for _ in 0..400 {
            let request = mix.draw_of(kind);
            pool.medium().reset_counters();
            successes += u64::from(client.run(&request).unwrap());
            *counts.entry(pool.medium().counters().fences).or_insert(0u64) += 1;
        }
        let budget = match kind {
            Kind::GetSubscriberData | Kind::GetNewDestination | Kind::GetAccessData => 0,
            Kind::UpdateSubscriberData => 2,
            _ => 1,
        };
        // Folding, freeing, tiles and divisions of indexes come now and then.
        let within: u64 = counts.range(..=budget).map(|(_, count)| count).sum();
        let least = if budget == 0 { 400 } else { 320 };
        assert!(within >= least, "{}: {counts:?}", kind.name());
        assert!(successes > 20, "{}: {successes} of 400", kind.name());
    }
    assert!(database.check().unwrap().is_empty());
}

#[test]
fn clients_keep_the_tables_consistent() {
    let directory = tempfile::tempdir().unwrap();
    let options = Pool::options().emulation(Emulation::Nvram);
    let pool = options.create(directory.path().join("tatp.pool")).unwrap();
    let database = Database::create(&pool, "tatp").unwrap();
    let population = Population::new(2_000);
    population.load(&Tables::create(&database).unwrap()).unwrap();
    thread::scope(|scope| {
        for seed in 0..3 {
            let database = &database;
            scope.spawn(move || {
                let client = Client::new(database).unwrap();
                let mut mix = Mix::new(2_000, seed);
                let done = (0..20_000).filter(|_| client.run(&mix.draw()).unwrap()).count();
                // About three quarters of the mix find what they ask for.
                assert!((14_000..16_000).contains(&done), "{done} of 20,000");
            });
        }
    });
    let client = Client::new(&database).unwrap();
    assert_eq!(client.check().unwrap(), Vec::<String>::new());
    assert!(database.check().unwrap().is_empty());
}
