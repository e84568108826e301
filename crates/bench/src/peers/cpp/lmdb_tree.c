// LMDB as an ordered map of words: one call works on a whole batch of keys, in one transaction when it reads
// and in one for every so many keys when it writes. Nothing is synced.

#include "../shim.h"

#include <lmdb.h>
#include <stdlib.h>
#include <string.h>

// Address space only: the file has holes where nothing was written.
static const size_t MAP_LEN = (size_t)1 << 36;

// As `Operation` in ordered.rs.
enum operation { INSERT = 0, LOOKUP = 1, SCAN = 2, REMOVE = 3 };

struct tree {
    MDB_env *env;
    MDB_dbi entries;
};

struct answer {
    uint64_t done, sum;
};

void lmdb_tree_close(struct tree *tree) {
    if (tree->env != NULL) mdb_env_close(tree->env);
    free(tree);
}

static int open_entries(struct tree *tree, const char *path) {
    MDB_txn *txn;
    int code = mdb_env_create(&tree->env);
    if (code == 0) code = mdb_env_set_mapsize(tree->env, MAP_LEN);
    if (code == 0) code = mdb_env_open(tree->env, path, MDB_NOSYNC | MDB_WRITEMAP, 0600);
    if (code == 0) code = mdb_txn_begin(tree->env, NULL, 0, &txn);
    if (code != 0) return code;
    code = mdb_dbi_open(txn, NULL, MDB_CREATE | MDB_INTEGERKEY, &tree->entries);
    if (code == 0) return mdb_txn_commit(txn);
    mdb_txn_abort(txn);
    return code;
}

// A tree in the existing directory `path`. NULL on failure.
struct tree *lmdb_tree_open(const char *path, char *error) {
    struct tree *tree = calloc(1, sizeof *tree);
    if (tree == NULL) {
        fail(error, "out of memory");
        return NULL;
    }
    int code = open_entries(tree, path);
    if (code == 0) return tree;
    fail(error, mdb_strerror(code));
    lmdb_tree_close(tree);
    return NULL;
}

static void add(struct answer *answer, const MDB_val *value) {
    uint64_t word;
    memcpy(&word, value->mv_data, sizeof word);
    answer->sum += word;
    answer->done++;
}

static int scan(MDB_cursor *cursor, uint64_t from, size_t count, struct answer *answer) {
    MDB_val key = {sizeof from, &from}, value;
    int code = mdb_cursor_get(cursor, &key, &value, MDB_SET_RANGE);
    while (code == 0) {
        add(answer, &value);
        if (--count == 0) return 0;
        code = mdb_cursor_get(cursor, &key, &value, MDB_NEXT);
    }
    return code == MDB_NOTFOUND ? 0 : code;
}

static int read_one(MDB_cursor *cursor, int operation, uint64_t word, size_t scan_len, struct answer *answer) {
    if (operation == SCAN) return scan(cursor, word, scan_len, answer);
    MDB_val key = {sizeof word, &word}, value;
    int code = mdb_cursor_get(cursor, &key, &value, MDB_SET_KEY);
    if (code == 0) add(answer, &value);
    return code == MDB_NOTFOUND ? 0 : code;
}

static int read_all(struct tree *tree, int operation, const uint64_t *keys, size_t n, size_t scan_len,
                    struct answer *answer) {
    MDB_txn *txn;
    MDB_cursor *cursor;
    int code = mdb_txn_begin(tree->env, NULL, MDB_RDONLY, &txn);
    if (code != 0) return code;
    code = mdb_cursor_open(txn, tree->entries, &cursor);
    if (code == 0) {
        for (size_t i = 0; i < n && code == 0; i++) code = read_one(cursor, operation, keys[i], scan_len, answer);
        mdb_cursor_close(cursor);
    }
    mdb_txn_abort(txn);
    return code;
}

static int write_one(struct tree *tree, MDB_txn *txn, int operation, uint64_t word, struct answer *answer) {
    MDB_val key = {sizeof word, &word}, value = {sizeof word, &word};
    int code = operation == INSERT ? mdb_put(txn, tree->entries, &key, &value, MDB_NOOVERWRITE)
                                   : mdb_del(txn, tree->entries, &key, NULL);
    if (code == 0) answer->done++;
    return code == MDB_NOTFOUND || code == MDB_KEYEXIST ? 0 : code;
}

static int write_all(struct tree *tree, int operation, const uint64_t *keys, size_t n, struct answer *answer) {
    MDB_txn *txn;
    int code = mdb_txn_begin(tree->env, NULL, 0, &txn);
    if (code != 0) return code;
    for (size_t i = 0; i < n && code == 0; i++) code = write_one(tree, txn, operation, keys[i], answer);
    if (code == 0) return mdb_txn_commit(txn);
    mdb_txn_abort(txn);
    return code;
}

// Performs one operation on each key; those that write, in transactions of at most `batch` keys.
int lmdb_tree_run(struct tree *tree, int operation, const uint64_t *keys, size_t n, size_t batch, size_t scan_len,
                  struct answer *answer, char *error) {
    int code = 0;
    if (operation == LOOKUP || operation == SCAN) {
        code = read_all(tree, operation, keys, n, scan_len, answer);
    } else {
        for (size_t i = 0; i < n && code == 0; i += batch)
            code = write_all(tree, operation, keys + i, n - i < batch ? n - i : batch, answer);
    }
    return code == 0 ? 0 : fail(error, mdb_strerror(code));
}
