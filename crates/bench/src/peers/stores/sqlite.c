// SQLite with a write-ahead log and the key as rowid, all else as SQLite chooses.

#include "store.h"

#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

enum statement { PUT, GET, BEGIN, COMMIT, STATEMENTS };

static const char *const TEXTS[STATEMENTS] = {
    [PUT] = "REPLACE INTO entries (key, value) VALUES (?1, ?2)",
    [GET] = "SELECT value FROM entries WHERE key = ?1",
    [BEGIN] = "BEGIN IMMEDIATE",
    [COMMIT] = "COMMIT",
};

static const char SCHEMA[] =
    "PRAGMA journal_mode = WAL;"
    "CREATE TABLE IF NOT EXISTS entries (key INTEGER PRIMARY KEY, value BLOB NOT NULL)";

struct store {
    sqlite3 *db;
    sqlite3_stmt *statements[STATEMENTS];
    enum commit commit;
    // Whether a transaction is gathering puts.
    int in_group;
};

static void sqlite_close(struct store *store) {
    for (int i = 0; i < STATEMENTS; i++) sqlite3_finalize(store->statements[i]);
    sqlite3_close(store->db);
    free(store);
}

static int open_entries(struct store *store, const char *path) {
    int code = sqlite3_open(path, &store->db);
    if (code == SQLITE_OK) code = sqlite3_exec(store->db, SCHEMA, NULL, NULL, NULL);
    const char *synchronous =
        store->commit == COMMIT_UNSYNCED ? "PRAGMA synchronous = NORMAL" : "PRAGMA synchronous = FULL";
    if (code == SQLITE_OK) code = sqlite3_exec(store->db, synchronous, NULL, NULL, NULL);
    for (int i = 0; i < STATEMENTS && code == SQLITE_OK; i++) {
        code = sqlite3_prepare_v3(store->db, TEXTS[i], -1, SQLITE_PREPARE_PERSISTENT,
                                  &store->statements[i], NULL);
    }
    return code;
}

static struct store *sqlite_open(const char *path, int commit, char *error) {
    char file[4096];
    struct store *store = calloc(1, sizeof *store);
    int len = snprintf(file, sizeof file, "%s/entries.sqlite", path);
    if (store == NULL || len < 0 || (size_t)len >= sizeof file) {
        fail(error, store == NULL ? "out of memory" : "the path is too long");
        free(store);
        return NULL;
    }
    store->commit = commit;
    if (open_entries(store, file) == SQLITE_OK) return store;
    fail(error, sqlite3_errmsg(store->db));
    sqlite_close(store);
    return NULL;
}

// Runs a statement that returns no rows, and makes it ready for the next time.
static int run(struct store *store, enum statement statement, char *error) {
    sqlite3_step(store->statements[statement]);
    int code = sqlite3_reset(store->statements[statement]);
    return code == SQLITE_OK ? 0 : fail(error, sqlite3_errmsg(store->db));
}

static int sqlite_put(struct store *store, uint64_t key, const uint8_t *value, size_t len, char *error) {
    if (store->commit == COMMIT_GROUPED && !store->in_group) {
        if (run(store, BEGIN, error) != 0) return FAILED;
        store->in_group = 1;
    }
    sqlite3_bind_int64(store->statements[PUT], 1, (sqlite3_int64)key);
    // The value outlives the statement's run, so no copy is made.
    sqlite3_bind_blob64(store->statements[PUT], 2, value, len, SQLITE_STATIC);
    return run(store, PUT, error);
}

static ptrdiff_t sqlite_get(struct store *store, uint64_t key, uint8_t *value, size_t room, char *error) {
    sqlite3_stmt *get = store->statements[GET];
    sqlite3_bind_int64(get, 1, (sqlite3_int64)key);
    int code = sqlite3_step(get);
    ptrdiff_t found = code == SQLITE_DONE ? ABSENT : FAILED;
    if (code == SQLITE_ROW) {
        const void *bytes = sqlite3_column_blob(get, 0);
        size_t len = (size_t)sqlite3_column_bytes(get, 0);
        if (len > 0) memcpy(value, bytes, len < room ? len : room);
        found = (ptrdiff_t)len;
    }
    if (found == FAILED) fail(error, sqlite3_errmsg(store->db));
    sqlite3_reset(get);
    return found;
}

// Syncs the write-ahead log, as a commit does with synchronous = FULL. What was committed without is then
// durable, at the price of one sync of one file; a checkpoint would write the pages a second time.
static int sync_log(struct store *store, char *error) {
    sqlite3_file *log = NULL;
    int code = sqlite3_file_control(store->db, "main", SQLITE_FCNTL_JOURNAL_POINTER, &log);
    if (code != SQLITE_OK || log == NULL || log->pMethods == NULL) {
        return fail(error, "there is no write-ahead log to sync");
    }
    code = log->pMethods->xSync(log, SQLITE_SYNC_NORMAL);
    return code == SQLITE_OK ? 0 : fail(error, sqlite3_errstr(code));
}

static int sqlite_sync(struct store *store, char *error) {
    if (store->commit == COMMIT_UNSYNCED) return sync_log(store, error);
    if (!store->in_group) return 0;
    store->in_group = 0;
    return run(store, COMMIT, error);
}

const struct shim sqlite_shim = {sqlite_open, sqlite_put, sqlite_get, sqlite_sync, sqlite_close};
