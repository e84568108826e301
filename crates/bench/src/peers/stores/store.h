// What the shims of the stores have in common. Each offers one `struct shim`, and `struct store` is what it likes.

#include "../shim.h"

// As `Commit` in interface.rs.
enum commit { COMMIT_EACH = 0, COMMIT_UNSYNCED = 1, COMMIT_GROUPED = 2 };

struct store;

struct shim {
    // A store in the existing directory `path`, created when there is none. NULL on failure.
    struct store *(*open)(const char *path, int commit, char *error);
    int (*put)(struct store *store, uint64_t key, const uint8_t *value, size_t len, char *error);
    // The length of the value, of which as much is copied as there is room for.
    ptrdiff_t (*get)(struct store *store, uint64_t key, uint8_t *value, size_t room, char *error);
    int (*sync)(struct store *store, char *error);
    // Also closes a store that could not be opened to the end.
    void (*close)(struct store *store);
};
