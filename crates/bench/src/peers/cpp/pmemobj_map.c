// A chained hash map over libpmemobj transactions, as its users write one: a fixed array of bucket
// heads, one transaction an operation, snapshots of just the bytes that change. Batches of keys come
// in one call. Keys are `key_len` bytes and values `value_len`; the hash is the finaliser of
// MurmurHash3 over the key's words. A value is made of the key's first word, and of its complement
// after an update.

#include <libpmemobj.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "entry.h"

// Stripes are volatile: they order threads, not crashes.
enum { STRIPES = 1024, TYPE_NODE = 1, TYPE_BUCKETS = 2 };

struct node {
    PMEMoid next;
    // The key, then the value.
    char entry[];
};

struct root {
    PMEMoid buckets;
};

struct map {
    PMEMobjpool *pool;
    PMEMoid *buckets;
    uint64_t bucket_mask;
    size_t key_len;
    size_t value_len;
    pthread_mutex_t stripes[STRIPES];
};

static uint64_t hash_of(const char *key, size_t len) {
    uint64_t hash = 0;
    for (size_t at = 0; at < len; at += 8) {
        hash ^= word_at(key + at);
        hash = (hash ^ (hash >> 33)) * 0xff51afd7ed558ccdULL;
        hash = (hash ^ (hash >> 33)) * 0xc4ceb9fe1a85ec53ULL;
        hash ^= hash >> 33;
    }
    return hash;
}

// The link that leads to the key's node, or the null link that ends its chain.
static PMEMoid *find(const struct map *map, uint64_t hash, const char *key) {
    PMEMoid *link = &map->buckets[hash & map->bucket_mask];
    while (!OID_IS_NULL(*link)) {
        struct node *node = pmemobj_direct(*link);
        if (memcmp(node->entry, key, map->key_len) == 0) break;
        link = &node->next;
    }
    return link;
}

static uint64_t insert(struct map *map, uint64_t hash, const char *key) {
    if (!OID_IS_NULL(*find(map, hash, key))) return 0;
    PMEMoid *head = &map->buckets[hash & map->bucket_mask];
    volatile uint64_t done = 0;
    TX_BEGIN(map->pool) {
        PMEMoid oid = pmemobj_tx_alloc(sizeof(struct node) + map->key_len + map->value_len, TYPE_NODE);
        struct node *node = pmemobj_direct(oid);
        node->next = *head;
        memcpy(node->entry, key, map->key_len);
        write_value(node->entry + map->key_len, map->value_len, word_at(key));
        pmemobj_tx_add_range_direct(head, sizeof *head);
        *head = oid;
    } TX_ONCOMMIT {
        done = 1;
    } TX_END
    return done;
}

static uint64_t lookup(const struct map *map, uint64_t hash, const char *key, uint64_t *sum) {
    PMEMoid *link = find(map, hash, key);
    if (OID_IS_NULL(*link)) return 0;
    const struct node *node = pmemobj_direct(*link);
    *sum += read_value(node->entry + map->key_len, map->value_len);
    return 1;
}

static uint64_t update(struct map *map, uint64_t hash, const char *key) {
    PMEMoid *link = find(map, hash, key);
    if (OID_IS_NULL(*link)) return 0;
    char *value = ((struct node *)pmemobj_direct(*link))->entry + map->key_len;
    volatile uint64_t done = 0;
    TX_BEGIN(map->pool) {
        pmemobj_tx_add_range_direct(value, map->value_len);
        write_value(value, map->value_len, ~word_at(key));
    } TX_ONCOMMIT {
        done = 1;
    } TX_END
    return done;
}

static uint64_t erase(struct map *map, uint64_t hash, const char *key) {
    PMEMoid *link = find(map, hash, key);
    if (OID_IS_NULL(*link)) return 0;
    struct node *node = pmemobj_direct(*link);
    volatile uint64_t done = 0;
    TX_BEGIN(map->pool) {
        PMEMoid dead = *link;
        pmemobj_tx_add_range_direct(link, sizeof *link);
        *link = node->next;
        pmemobj_tx_free(dead);
    } TX_ONCOMMIT {
        done = 1;
    } TX_END
    return done;
}

static uint64_t run_one(struct map *map, int operation, const char *key, uint64_t *sum) {
    uint64_t hash = hash_of(key, map->key_len);
    pthread_mutex_t *stripe = &map->stripes[hash & map->bucket_mask & (STRIPES - 1)];
    uint64_t done = 0;
    pthread_mutex_lock(stripe);
    switch (operation) {
        case 0: done = insert(map, hash, key); break;
        case 1: done = lookup(map, hash, key, sum); break;
        case 2: done = update(map, hash, key); break;
        case 4: done = erase(map, hash, key); break;
    }
    pthread_mutex_unlock(stripe);
    return done;
}

// The mixed operation (3) alternates lookups and inserts.
uint64_t pmemobj_map_run(struct map *map, int operation, const char *keys, size_t n, uint64_t *sum) {
    uint64_t done = 0;
    for (size_t i = 0; i < n; i++) {
        int one = operation == 3 ? (i % 2 == 0 ? 1 : 0) : operation;
        done += run_one(map, one, keys + i * map->key_len, sum);
    }
    return done;
}

void pmemobj_map_free(struct map *map) {
    pmemobj_close(map->pool);
    for (int i = 0; i < STRIPES; i++) pthread_mutex_destroy(&map->stripes[i]);
    free(map);
}

static int allocate_buckets(struct map *map, uint64_t bucket_count) {
    PMEMoid root_oid = pmemobj_root(map->pool, sizeof(struct root));
    if (OID_IS_NULL(root_oid)) return -1;
    struct root *root = pmemobj_direct(root_oid);
    if (pmemobj_zalloc(map->pool, &root->buckets, bucket_count * sizeof(PMEMoid), TYPE_BUCKETS) != 0)
        return -1;
    map->buckets = pmemobj_direct(root->buckets);
    map->bucket_mask = bucket_count - 1;
    return 0;
}

// Creates a pool of `pool_len` bytes at `path`, to hold about `bucket_count` entries (a power of two)
// with keys of `key_len` bytes (a multiple of 8) and values of `value_len`. NULL on failure:
// pmemobj_errormsg says why.
struct map *pmemobj_map_new(const char *path, size_t pool_len, uint64_t bucket_count, size_t key_len,
                            size_t value_len) {
    // DRAM stands in for persistent memory: the library is to flush lines, not to call msync. It
    // reads this when it maps the first pool.
    setenv("PMEM_IS_PMEM_FORCE", "1", 1);
    struct map *map = calloc(1, sizeof *map);
    if (map == NULL) return NULL;
    map->key_len = key_len;
    map->value_len = value_len;
    for (int i = 0; i < STRIPES; i++) pthread_mutex_init(&map->stripes[i], NULL);
    map->pool = pmemobj_create(path, "remanent-bench", pool_len, 0600);
    if (map->pool == NULL) {
        free(map);
        return NULL;
    }
    if (allocate_buckets(map, bucket_count) != 0) {
        pmemobj_map_free(map);
        return NULL;
    }
    return map;
}

const char *pmemobj_map_error(void) { return pmemobj_errormsg(); }
