// The bounded buffer of the paper's Figure 2: a plain class, an attribute, nothing else. What makes it
// persistent is in cache_line.ah. The paper's methods return nothing and 0; these say whether a byte
// was stored or taken, as every contender does.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <new>
#include <sys/mman.h>
#include <unistd.h>

#include "cache_line.ah"

enum { SIZE = 29, CAPACITY = SIZE - 1, PAGE_LEN = 4096 };

class [[NVM::transactional]] alignas(64) BoundedBuffer {
    unsigned char buf[SIZE];
    uint8_t in, out;

public:
    BoundedBuffer() : in(0), out(0) {}

    bool addByte(unsigned char data) {
        if ((in + 1) % SIZE == out) { return false; }
        buf[in] = data;
        in = (in + 1) % SIZE;
        return true;
    }

    bool getByte(unsigned char *data) {
        if (out == in) { return false; }
        *data = buf[out];
        out = (out + 1) % SIZE;
        return true;
    }

    void clear() {
        in = 0;
        out = 0;
    }

    // Both are one transaction: the calls inside join it.
    int fill(const unsigned char *data) {
        int stored = 0;
        for (int i = 0; i < SIZE; i++) { stored += addByte(data[i]); }
        return stored;
    }

    int drain(unsigned char *data) {
        int taken = 0;
        for (int i = 0; i < SIZE; i++) { taken += getByte(data + taken); }
        return taken;
    }

    int length() const { return (in + SIZE - out) % SIZE; }
};

static_assert(sizeof(BoundedBuffer) == 64, "both halves and the selector fill one cache line");

static int addOneByOne(BoundedBuffer &buffer, const unsigned char *bytes) {
    int stored = 0;
    for (int i = 0; i < SIZE; i++) { stored += buffer.addByte(bytes[i]); }
    return stored;
}

static int getOneByOne(BoundedBuffer &buffer, unsigned char *bytes) {
    int taken = 0;
    for (int i = 0; i < SIZE; i++) { taken += buffer.getByte(bytes + taken); }
    return taken;
}

// Whether every call of the scenario did what it should.
static bool runOnce(BoundedBuffer &buffer, int scenario, const unsigned char *bytes) {
    unsigned char found[SIZE];
    int stored = 0, taken = 0;
    switch (scenario) {
        case 1:
            buffer.clear();
            return addOneByOne(buffer, bytes) == CAPACITY;
        case 2:
            stored = addOneByOne(buffer, bytes);
            taken = getOneByOne(buffer, found);
            break;
        case 3:
            stored = buffer.fill(bytes);
            taken = buffer.drain(found);
            break;
    }
    return stored == CAPACITY && taken == CAPACITY && memcmp(bytes, found, CAPACITY) == 0;
}

extern "C" {

// A new buffer in a file at `path`; NULL with errno when it cannot be made or mapped.
void *aspect_buffer_new(const char *path) {
    int file = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (file < 0) { return NULL; }
    void *page = MAP_FAILED;
    if (ftruncate(file, PAGE_LEN) == 0) {
        page = mmap(NULL, PAGE_LEN, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    }
    close(file);
    return page == MAP_FAILED ? NULL : new (page) BoundedBuffer();
}

void aspect_buffer_free(void *page) { munmap(page, PAGE_LEN); }

// Runs a scenario so often, each time with another first byte; how often all went as it should. The
// buffer is empty before and after.
uint64_t aspect_buffer_run(void *page, int scenario, const uint8_t *source, uint64_t repetitions) {
    BoundedBuffer &buffer = *static_cast<BoundedBuffer *>(page);
    unsigned char bytes[SIZE];
    uint64_t right = 0;
    memcpy(bytes, source, SIZE);
    if (buffer.length() != 0) { return 0; }
    for (uint64_t turn = 0; turn < repetitions; turn++) {
        bytes[0] = static_cast<unsigned char>(turn);
        right += runOnce(buffer, scenario, bytes);
    }
    if (scenario == 1) { buffer.clear(); }
    return right;
}
}
