//! Compiles the shims of the C and C++ rivals whose packages are installed.
//!
//! A rival that is missing costs its rows, never the build: `has_tbb`, `has_pmemobj` and so on tell
//! the crate what there is, and the benches say on stderr what is absent.

fn main() {
    println!("cargo:rerun-if-changed=src/peers/cpp");
    println!("cargo:rerun-if-changed=src/peers/stores");
    println!("cargo:rerun-if-changed=src/peers/shim.h");
    println!("cargo:rustc-check-cfg=cfg(has_tbb, has_pmemobj, has_pmemblk, has_lmdb, has_rocksdb)");
    println!("cargo:rustc-check-cfg=cfg(has_berkeley_db, has_libcuckoo)");
    link("tbb", "tbb_map", "has_tbb", cpp("cpp/tbb_map.cpp"));
    let pmemobj = c(&["cpp/pmemobj_map.c", "cpp/pmemobj_buffer.c"]);
    link("libpmemobj", "pmemobj_peers", "has_pmemobj", pmemobj);
    link("libpmemblk", "pmemblk_disk", "has_pmemblk", c(&["cpp/pmemblk_disk.c"]));
    link("lmdb", "lmdb_peers", "has_lmdb", c(&["stores/lmdb.c", "cpp/lmdb_tree.c"]));
    link("rocksdb", "rocksdb_store", "has_rocksdb", c(&["stores/rocksdb.c"]));
    // SQLite is a crate's, since there can be only one in a program.
    let mut sqlite = c(&["stores/sqlite.c"]);
    let include = std::env::var("DEP_SQLITE3_INCLUDE").expect("the crate builds its own SQLite");
    sqlite.opt_level(3).include(include).compile("sqlite_store");
    let berkeley_db = c(&["cpp/berkeley_db.c", "cpp/berkeley_files.c"]);
    link_by_header("db.h", "berkeley_db", "has_berkeley_db", &["db"], berkeley_db);
    let cuckoo = "libcuckoo/cuckoohash_map.hh";
    link_by_header(cuckoo, "cuckoo_map", "has_libcuckoo", &[], cpp("cpp/cuckoo_map.cpp"));
}

/// A shim of these C files, by their paths below `src/peers`.
fn c(files: &[&str]) -> cc::Build {
    let mut build = cc::Build::new();
    build.std("gnu11").files(files.iter().map(|file| format!("src/peers/{file}")));
    build
}

/// A shim of this C++ file, by its path below `src/peers`.
fn cpp(file: &str) -> cc::Build {
    let mut build = cc::Build::new();
    build.cpp(true).std("c++17").file(format!("src/peers/{file}"));
    build
}

/// Builds one shim against `package` and sets `cfg`, or does nothing when either is impossible.
fn link(package: &str, shim: &str, cfg: &str, mut build: cc::Build) {
    // Link flags follow the shim that needs them, so they are printed only after it was built.
    let Ok(library) = pkg_config::Config::new().cargo_metadata(false).probe(package) else {
        look_again_after_installs();
        return;
    };
    // Rivals are built as their users build them: optimised, whatever the profile of this crate.
    build.opt_level(3).warnings(true).includes(&library.include_paths);
    if let Err(error) = build.try_compile(shim) {
        println!("cargo:warning={package} is installed but its shim does not build: {error}");
        return;
    }
    for path in &library.link_paths {
        println!("cargo:rustc-link-search=native={}", path.display());
    }
    for name in &library.libs {
        println!("cargo:rustc-link-lib={name}");
    }
    println!("cargo:rustc-cfg={cfg}");
}

/// As [`link`], of a package that pkg-config does not know: found by one of its headers.
fn link_by_header(header: &str, shim: &str, cfg: &str, libraries: &[&str], mut build: cc::Build) {
    if !std::path::Path::new("/usr/include").join(header).exists() {
        look_again_after_installs();
        return;
    }
    if let Err(error) = build.opt_level(3).warnings(true).try_compile(shim) {
        println!("cargo:warning={header} is installed but its shim does not build: {error}");
        return;
    }
    for name in libraries {
        println!("cargo:rustc-link-lib={name}");
    }
    println!("cargo:rustc-cfg={cfg}");
}

/// Has cargo run this again once packages were installed: Debian's record of them changes then.
fn look_again_after_installs() {
    const PACKAGES: &str = "/var/lib/dpkg/status";
    if std::path::Path::new(PACKAGES).exists() {
        println!("cargo:rerun-if-changed={PACKAGES}");
    }
}
