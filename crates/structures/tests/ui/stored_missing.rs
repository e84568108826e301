use remanent_pmem::Pool;
use remanent_structures::{BlinkTree, HashMap, Stored};

#[derive(Clone)]
struct Plain(u64);

#[derive(Clone, Stored)]
struct Value(u64);

fn main() {
    let pool = Pool::options().create_in_memory().unwrap();
    let _: HashMap<u64, Plain> = HashMap::create(&pool, "values").unwrap();
    let _: HashMap<Value, u64> = HashMap::create(&pool, "keys").unwrap();
    let _: BlinkTree<Value, u64> = BlinkTree::create(&pool, "ordered").unwrap();
    let _: HashMap<usize, u64> = HashMap::create(&pool, "counts").unwrap();
}
