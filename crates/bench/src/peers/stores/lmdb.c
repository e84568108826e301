// LMDB with integer keys, all else as LMDB chooses.

#include "store.h"

#include <lmdb.h>
#include <stdlib.h>
#include <string.h>

// Address space only: the file grows as it is written.
static const size_t MAP_LEN = (size_t)1 << 36;

struct store {
    MDB_env *env;
    MDB_dbi entries;
    enum commit commit;
    // The transaction that is gathering puts, or NULL.
    MDB_txn *group;
};

static void lmdb_close(struct store *store) {
    if (store->group != NULL) mdb_txn_abort(store->group);
    if (store->env != NULL) mdb_env_close(store->env);
    free(store);
}

static int open_entries(struct store *store, const char *path) {
    MDB_txn *txn;
    int code = mdb_env_create(&store->env);
    if (code == 0) code = mdb_env_set_mapsize(store->env, MAP_LEN);
    unsigned flags = store->commit == COMMIT_UNSYNCED ? MDB_NOSYNC : 0;
    if (code == 0) code = mdb_env_open(store->env, path, flags, 0600);
    if (code == 0) code = mdb_txn_begin(store->env, NULL, 0, &txn);
    if (code != 0) return code;
    code = mdb_dbi_open(txn, NULL, MDB_CREATE | MDB_INTEGERKEY, &store->entries);
    if (code == 0) return mdb_txn_commit(txn);
    mdb_txn_abort(txn);
    return code;
}

static struct store *lmdb_open(const char *path, int commit, char *error) {
    struct store *store = calloc(1, sizeof *store);
    if (store == NULL) {
        fail(error, "out of memory");
        return NULL;
    }
    store->commit = commit;
    int code = open_entries(store, path);
    if (code == 0) return store;
    fail(error, mdb_strerror(code));
    lmdb_close(store);
    return NULL;
}

static int lmdb_put(struct store *store, uint64_t key, const uint8_t *value, size_t len, char *error) {
    MDB_txn *txn = store->group;
    int code = txn != NULL ? 0 : mdb_txn_begin(store->env, NULL, 0, &txn);
    if (code != 0) return fail(error, mdb_strerror(code));
    store->group = NULL;
    MDB_val key_val = {sizeof key, &key}, value_val = {len, (void *)value};
    code = mdb_put(txn, store->entries, &key_val, &value_val, 0);
    if (code != 0) {
        mdb_txn_abort(txn);
        return fail(error, mdb_strerror(code));
    }
    if (store->commit == COMMIT_GROUPED) {
        store->group = txn;
        return 0;
    }
    code = mdb_txn_commit(txn);
    return code == 0 ? 0 : fail(error, mdb_strerror(code));
}

static ptrdiff_t lmdb_get(struct store *store, uint64_t key, uint8_t *value, size_t room, char *error) {
    // A thread has one transaction at a time: the gathering one, where there is one, reads too.
    MDB_txn *txn = store->group;
    int code = txn != NULL ? 0 : mdb_txn_begin(store->env, NULL, MDB_RDONLY, &txn);
    if (code != 0) return fail(error, mdb_strerror(code));
    MDB_val key_val = {sizeof key, &key}, value_val;
    code = mdb_get(txn, store->entries, &key_val, &value_val);
    ptrdiff_t found = code == MDB_NOTFOUND ? ABSENT : FAILED;
    if (code == 0) {
        found = (ptrdiff_t)value_val.mv_size;
        memcpy(value, value_val.mv_data, value_val.mv_size < room ? value_val.mv_size : room);
    }
    if (txn != store->group) mdb_txn_abort(txn);
    if (found == FAILED) fail(error, mdb_strerror(code));
    return found;
}

static int lmdb_sync(struct store *store, char *error) {
    int code = 0;
    if (store->commit == COMMIT_UNSYNCED) code = mdb_env_sync(store->env, 1);
    if (store->group != NULL) code = mdb_txn_commit(store->group);
    store->group = NULL;
    return code == 0 ? 0 : fail(error, mdb_strerror(code));
}

const struct shim lmdb_shim = {lmdb_open, lmdb_put, lmdb_get, lmdb_sync, lmdb_close};
