// The bounded buffer of "Cache-line transactions" over libpmemobj transactions, in two forms. One is
// the library's best: a snapshot of the whole object, one a transaction. The other is the paper's
// Figure 1: a range for each field that is assigned, as its `p<>` logs it. Several calls in one
// transaction are plain code in it, which is cheaper than the nested transactions that the figure's
// methods would be. Repetitions of a scenario come in one call.

#include <libpmemobj.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { SIZE = 29, CAPACITY = SIZE - 1, LINE_LEN = 64 };

struct buffer {
    uint8_t bytes[SIZE];
    uint8_t next_in;
    uint8_t next_out;
};

struct peer {
    PMEMobjpool *pool;
    // In a line of its own, as ours is.
    struct buffer *buffer;
    int per_field;
};

// Logs the whole object at the beginning of a transaction, where that is the form.
static void touch_object(const struct peer *peer) {
    if (!peer->per_field) pmemobj_tx_add_range_direct(peer->buffer, sizeof *peer->buffer);
}

// Logs a field before it is assigned, where that is the form.
static void touch_field(const struct peer *peer, const uint8_t *field) {
    if (peer->per_field) pmemobj_tx_add_range_direct(field, sizeof *field);
}

static uint8_t following(uint8_t place) {
    return place + 1 < SIZE ? place + 1 : 0;
}

static int add_in_transaction(const struct peer *peer, uint8_t byte) {
    struct buffer *buffer = peer->buffer;
    uint8_t next = following(buffer->next_in);
    if (next == buffer->next_out) return 0;
    touch_field(peer, &buffer->bytes[buffer->next_in]);
    buffer->bytes[buffer->next_in] = byte;
    touch_field(peer, &buffer->next_in);
    buffer->next_in = next;
    return 1;
}

static int take_in_transaction(const struct peer *peer, uint8_t *byte) {
    struct buffer *buffer = peer->buffer;
    if (buffer->next_out == buffer->next_in) return 0;
    *byte = buffer->bytes[buffer->next_out];
    touch_field(peer, &buffer->next_out);
    buffer->next_out = following(buffer->next_out);
    return 1;
}

static int clear(const struct peer *peer) {
    volatile int done = 1;
    TX_BEGIN(peer->pool) {
        touch_object(peer);
        touch_field(peer, &peer->buffer->next_in);
        peer->buffer->next_in = 0;
        touch_field(peer, &peer->buffer->next_out);
        peer->buffer->next_out = 0;
    } TX_ONABORT {
        done = 0;
    } TX_END
    return done;
}

// One call, a transaction of its own.
static int add(const struct peer *peer, uint8_t byte) {
    volatile int done = 0;
    TX_BEGIN(peer->pool) {
        touch_object(peer);
        done = add_in_transaction(peer, byte);
    } TX_ONABORT {
        done = 0;
    } TX_END
    return done;
}

static int take(const struct peer *peer, uint8_t *byte) {
    volatile int done = 0;
    TX_BEGIN(peer->pool) {
        touch_object(peer);
        done = take_in_transaction(peer, byte);
    } TX_ONABORT {
        done = 0;
    } TX_END
    return done;
}

// As many calls as there are places, in one transaction; how many bytes were stored.
static int fill(const struct peer *peer, const uint8_t *bytes) {
    volatile int done = 0;
    TX_BEGIN(peer->pool) {
        touch_object(peer);
        int stored = 0;
        for (int i = 0; i < SIZE; i++) stored += add_in_transaction(peer, bytes[i]);
        done = stored;
    } TX_ONABORT {
        done = 0;
    } TX_END
    return done;
}

static int drain(const struct peer *peer, uint8_t *bytes) {
    volatile int done = 0;
    TX_BEGIN(peer->pool) {
        touch_object(peer);
        int taken = 0;
        for (int i = 0; i < SIZE; i++) taken += take_in_transaction(peer, &bytes[taken]);
        done = taken;
    } TX_ONABORT {
        done = 0;
    } TX_END
    return done;
}

static int add_one_by_one(const struct peer *peer, const uint8_t *bytes) {
    int stored = 0;
    for (int i = 0; i < SIZE; i++) stored += add(peer, bytes[i]);
    return stored;
}

static int take_one_by_one(const struct peer *peer, uint8_t *bytes) {
    int taken = 0;
    for (int i = 0; i < SIZE; i++) taken += take(peer, &bytes[taken]);
    return taken;
}

// Whether every call of the scenario did what it should.
static int run_once(const struct peer *peer, int scenario, const uint8_t *bytes) {
    uint8_t found[SIZE];
    int stored = 0, taken = 0;
    switch (scenario) {
        case 1: return clear(peer) && add_one_by_one(peer, bytes) == CAPACITY;
        case 2:
            stored = add_one_by_one(peer, bytes);
            taken = take_one_by_one(peer, found);
            break;
        case 3:
            stored = fill(peer, bytes);
            taken = drain(peer, found);
            break;
    }
    return stored == CAPACITY && taken == CAPACITY && memcmp(bytes, found, CAPACITY) == 0;
}

// Runs a scenario so often, each time with another first byte; how often all went as it should.
// The buffer is empty before and after.
uint64_t pmemobj_buffer_run(struct peer *peer, int scenario, const uint8_t *source, uint64_t repetitions) {
    uint8_t bytes[SIZE];
    uint64_t right = 0;
    memcpy(bytes, source, SIZE);
    for (uint64_t turn = 0; turn < repetitions; turn++) {
        bytes[0] = (uint8_t)turn;
        right += run_once(peer, scenario, bytes);
    }
    return scenario == 1 && !clear(peer) ? 0 : right;
}

void pmemobj_buffer_free(struct peer *peer) {
    pmemobj_close(peer->pool);
    free(peer);
}

// Creates a pool at `path` with an empty buffer. NULL on failure: pmemobj_errormsg says why.
struct peer *pmemobj_buffer_new(const char *path, int per_field) {
    // As for the map: lines are to be flushed, not msync called.
    setenv("PMEM_IS_PMEM_FORCE", "1", 1);
    struct peer *peer = calloc(1, sizeof *peer);
    if (peer == NULL) return NULL;
    peer->per_field = per_field;
    peer->pool = pmemobj_create(path, "remanent-bench", PMEMOBJ_MIN_POOL, 0600);
    if (peer->pool == NULL) {
        free(peer);
        return NULL;
    }
    PMEMoid root = pmemobj_root(peer->pool, 2 * LINE_LEN);
    if (OID_IS_NULL(root)) {
        pmemobj_buffer_free(peer);
        return NULL;
    }
    uintptr_t address = (uintptr_t)pmemobj_direct(root);
    peer->buffer = (struct buffer *)((address + LINE_LEN - 1) / LINE_LEN * LINE_LEN);
    return peer;
}
