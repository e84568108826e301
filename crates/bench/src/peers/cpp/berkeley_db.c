// Berkeley DB as memcachedb opens it: an environment with transactions in one directory, a cache of 64 MB, a
// B-tree with pages of 4 KiB, and a transaction for each operation. All else is Berkeley DB's default, but that what
// memcachedb shares with other processes lies in the heap (DB_PRIVATE): there are no others, and else the cache would
// be files in the directory, too, which are written back at times.

#include "../shim.h"

#include <db.h>
#include <stdlib.h>

enum { CACHE_LEN = 64 << 20, LOG_BUFFER_LEN = 32 << 10, PAGE_LEN = 4096, KEY_LEN = 16 };

struct berkeley {
    DB_ENV *env;
    DB *db;
};

void berkeley_close(struct berkeley *store) {
    if (store->db != NULL) store->db->close(store->db, 0);
    if (store->env != NULL) store->env->close(store->env, 0);
    free(store);
}

static int open_env(struct berkeley *store, const char *path, int is_synced) {
    int code = db_env_create(&store->env, 0);
    if (code != 0) return code;
    DB_ENV *env = store->env;
    code = env->set_cachesize(env, 0, CACHE_LEN, 0);
    if (code == 0) code = env->set_lg_bsize(env, LOG_BUFFER_LEN);
    if (code == 0) code = env->set_lk_detect(env, DB_LOCK_YOUNGEST);
    if (code == 0 && !is_synced) code = env->set_flags(env, DB_TXN_NOSYNC, 1);
    if (code != 0) return code;
    u_int32_t flags = DB_CREATE | DB_THREAD | DB_RECOVER | DB_PRIVATE;
    flags |= DB_INIT_TXN | DB_INIT_LOG | DB_INIT_LOCK | DB_INIT_MPOOL;
    return env->open(env, path, flags, 0);
}

static int open_db(struct berkeley *store) {
    int code = db_create(&store->db, store->env, 0);
    if (code != 0) return code;
    DB *db = store->db;
    code = db->set_pagesize(db, PAGE_LEN);
    if (code != 0) return code;
    return db->open(db, NULL, "data.db", NULL, DB_BTREE, DB_CREATE | DB_THREAD | DB_AUTO_COMMIT, 0600);
}

// A store in the existing directory `path`. NULL on failure.
struct berkeley *berkeley_open(const char *path, int is_synced, char *error) {
    struct berkeley *store = calloc(1, sizeof *store);
    if (store == NULL) {
        fail(error, "out of memory");
        return NULL;
    }
    int code = open_env(store, path, is_synced);
    if (code == 0) code = open_db(store);
    if (code == 0) return store;
    fail(error, db_strerror(code));
    berkeley_close(store);
    return NULL;
}

static DBT thing(const void *bytes, size_t len) {
    return (DBT){.data = (void *)bytes, .size = (u_int32_t)len};
}

// The put is a transaction of its own, since the database was opened with DB_AUTO_COMMIT.
int berkeley_put(struct berkeley *store, const uint8_t *key, const uint8_t *value, size_t len, char *error) {
    DBT key_thing = thing(key, KEY_LEN), value_thing = thing(value, len);
    int code = store->db->put(store->db, NULL, &key_thing, &value_thing, 0);
    return code == 0 ? 0 : fail(error, db_strerror(code));
}

// As for `berkeley_put`; `ABSENT` when the key is not there.
int berkeley_delete(struct berkeley *store, const uint8_t *key, char *error) {
    DBT key_thing = thing(key, KEY_LEN);
    int code = store->db->del(store->db, NULL, &key_thing, 0);
    if (code == DB_NOTFOUND) return ABSENT;
    return code == 0 ? 0 : fail(error, db_strerror(code));
}

// The length of the value, of which as much is copied as there is room for.
ptrdiff_t berkeley_get(struct berkeley *store, const uint8_t *key, uint8_t *value, size_t room, char *error) {
    DBT key_thing = thing(key, KEY_LEN);
    DBT value_thing = {.data = value, .ulen = (u_int32_t)room, .flags = DB_DBT_USERMEM};
    int code = store->db->get(store->db, NULL, &key_thing, &value_thing, 0);
    if (code == DB_NOTFOUND) return ABSENT;
    if (code == 0 || code == DB_BUFFER_SMALL) return (ptrdiff_t)value_thing.size;
    return fail(error, db_strerror(code));
}

// Writes all pages, as memcachedb does every five minutes.
int berkeley_checkpoint(struct berkeley *store, char *error) {
    int code = store->env->txn_checkpoint(store->env, 0, 0, DB_FORCE);
    return code == 0 ? 0 : fail(error, db_strerror(code));
}
