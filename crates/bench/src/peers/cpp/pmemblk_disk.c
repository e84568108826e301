// Arrays of blocks of libpmemblk (PMDK), each written whole or not at all, as its users call it.

#include <libpmemblk.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

enum { BLOCK_LEN = 4096 };

// NULL when the pool cannot be made, or has fewer blocks than are wanted.
PMEMblkpool *pmemblk_disk_new(const char *path, size_t pool_len, uint64_t blocks) {
    // DRAM stands for persistent memory: lines are flushed as they would be there.
    setenv("PMEM_IS_PMEM_FORCE", "1", 1);
    PMEMblkpool *pool = pmemblk_create(path, BLOCK_LEN, pool_len, 0600);
    if (pool != NULL && pmemblk_nblock(pool) < blocks) {
        pmemblk_close(pool);
        return NULL;
    }
    return pool;
}

void pmemblk_disk_free(PMEMblkpool *pool) { pmemblk_close(pool); }

// 0 when all of them were written.
int pmemblk_disk_write(PMEMblkpool *pool, const char *bytes, uint64_t first, uint64_t count) {
    for (uint64_t i = 0; i < count; i++) {
        if (pmemblk_write(pool, bytes + i * BLOCK_LEN, (long long)(first + i)) != 0) return -1;
    }
    return 0;
}

int pmemblk_disk_read(PMEMblkpool *pool, char *bytes, uint64_t first, uint64_t count) {
    for (uint64_t i = 0; i < count; i++) {
        if (pmemblk_read(pool, bytes + i * BLOCK_LEN, (long long)(first + i)) != 0) return -1;
    }
    return 0;
}

const char *pmemblk_disk_error(void) { return pmemblk_errormsg(); }
