// RocksDB with all options as RocksDB chooses them.

#include "store.h"

#include <rocksdb/c.h>
#include <stdlib.h>
#include <string.h>

struct store {
    rocksdb_options_t *options;
    rocksdb_writeoptions_t *write;
    rocksdb_readoptions_t *read;
    rocksdb_writebatch_t *group;
    rocksdb_t *db;
    enum commit commit;
};

static void rocks_close(struct store *store) {
    if (store->db != NULL) rocksdb_close(store->db);
    rocksdb_writebatch_destroy(store->group);
    rocksdb_readoptions_destroy(store->read);
    rocksdb_writeoptions_destroy(store->write);
    rocksdb_options_destroy(store->options);
    free(store);
}

// Passes on what RocksDB says, whose text is ours to free; 0 when it says nothing.
static int told(char *error, char *text) {
    if (text == NULL) return 0;
    fail(error, text);
    rocksdb_free(text);
    return FAILED;
}

static struct store *rocks_open(const char *path, int commit, char *error) {
    struct store *store = calloc(1, sizeof *store);
    if (store == NULL) {
        fail(error, "out of memory");
        return NULL;
    }
    store->commit = commit;
    store->options = rocksdb_options_create();
    rocksdb_options_set_create_if_missing(store->options, 1);
    store->write = rocksdb_writeoptions_create();
    rocksdb_writeoptions_set_sync(store->write, commit != COMMIT_UNSYNCED);
    store->read = rocksdb_readoptions_create();
    store->group = rocksdb_writebatch_create();
    char *text = NULL;
    store->db = rocksdb_open(store->options, path, &text);
    if (told(error, text) == 0) return store;
    rocks_close(store);
    return NULL;
}

static int rocks_put(struct store *store, uint64_t key, const uint8_t *value, size_t len, char *error) {
    const char *key_bytes = (const char *)&key, *value_bytes = (const char *)value;
    if (store->commit == COMMIT_GROUPED) {
        rocksdb_writebatch_put(store->group, key_bytes, sizeof key, value_bytes, len);
        return 0;
    }
    char *text = NULL;
    rocksdb_put(store->db, store->write, key_bytes, sizeof key, value_bytes, len, &text);
    return told(error, text);
}

static ptrdiff_t rocks_get(struct store *store, uint64_t key, uint8_t *value, size_t room, char *error) {
    char *text = NULL;
    rocksdb_pinnableslice_t *slice =
        rocksdb_get_pinned(store->db, store->read, (const char *)&key, sizeof key, &text);
    if (told(error, text) != 0) return FAILED;
    if (slice == NULL) return ABSENT;
    size_t len;
    const char *bytes = rocksdb_pinnableslice_value(slice, &len);
    memcpy(value, bytes, len < room ? len : room);
    rocksdb_pinnableslice_destroy(slice);
    return (ptrdiff_t)len;
}

static int rocks_sync(struct store *store, char *error) {
    char *text = NULL;
    if (store->commit == COMMIT_UNSYNCED) rocksdb_flush_wal(store->db, 1, &text);
    if (store->commit == COMMIT_GROUPED) {
        rocksdb_write(store->db, store->write, store->group, &text);
        rocksdb_writebatch_clear(store->group);
    }
    return told(error, text);
}

const struct shim rocksdb_shim = {rocks_open, rocks_put, rocks_get, rocks_sync, rocks_close};
