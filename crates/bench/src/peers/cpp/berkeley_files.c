// Has Berkeley DB read and write through the functions that it is given, by the hooks it has for that. Each file is an
// empty one in a directory, which has its name and number; what is in it lies where the functions put it.

#include <db.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <unistd.h>

// Functions return a number below zero on failure.
struct files {
    int (*open)(int descriptor, uint64_t file);
    void (*close)(int descriptor);
    // Zeros behind the end.
    int (*read)(int descriptor, uint64_t offset, uint8_t *bytes, size_t len);
    int (*write)(int descriptor, uint64_t offset, const uint8_t *bytes, size_t len);
    int (*truncate)(int descriptor, uint64_t len);
    int64_t (*len)(int descriptor);
    int (*remove)(uint64_t file);
};

enum { DESCRIPTORS = 1024 };

static const struct files *files;
// Where `read` and `write` go on.
static uint64_t positions[DESCRIPTORS];

static int failed(void) {
    errno = EIO;
    return -1;
}

static int hook_open(const char *path, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = (mode_t)va_arg(arguments, int);
    va_end(arguments);
    int descriptor = open(path, flags | O_CLOEXEC, mode);
    if (descriptor < 0) return -1;
    struct stat status;
    int is_open = descriptor < DESCRIPTORS && fstat(descriptor, &status) == 0 &&
                  files->open(descriptor, status.st_ino) == 0;
    if (is_open && (flags & O_TRUNC) != 0) is_open = files->truncate(descriptor, 0) == 0;
    if (is_open) {
        positions[descriptor] = 0;
        return descriptor;
    }
    close(descriptor);
    return failed();
}

static int hook_close(int descriptor) {
    files->close(descriptor);
    return close(descriptor);
}

static ssize_t hook_pread(int descriptor, void *bytes, size_t len, off_t offset) {
    return files->read(descriptor, (uint64_t)offset, bytes, len) == 0 ? (ssize_t)len : failed();
}

static ssize_t hook_pwrite(int descriptor, const void *bytes, size_t len, off_t offset) {
    return files->write(descriptor, (uint64_t)offset, bytes, len) == 0 ? (ssize_t)len : failed();
}

// Berkeley DB takes fewer bytes than it asked for as a failure here, also at the end of a file.
static ssize_t hook_read(int descriptor, void *bytes, size_t len) {
    ssize_t done = hook_pread(descriptor, bytes, len, (off_t)positions[descriptor]);
    if (done > 0) positions[descriptor] += (uint64_t)done;
    return done;
}

static ssize_t hook_write(int descriptor, const void *bytes, size_t len) {
    ssize_t done = hook_pwrite(descriptor, bytes, len, (off_t)positions[descriptor]);
    if (done > 0) positions[descriptor] += (uint64_t)done;
    return done;
}

static int hook_seek(int descriptor, off_t offset, int whence) {
    if (whence != SEEK_SET) return failed();
    positions[descriptor] = (uint64_t)offset;
    return 0;
}

// What was written is durable since then.
static int hook_fsync(int descriptor) {
    (void)descriptor;
    return 0;
}

static int hook_ftruncate(int descriptor, off_t len) {
    return files->truncate(descriptor, (uint64_t)len) == 0 ? 0 : failed();
}

static int hook_ioinfo(const char *path, int descriptor, u_int32_t *mbytes, u_int32_t *bytes, u_int32_t *io_len) {
    (void)path;
    int64_t len = files->len(descriptor);
    if (len < 0) return EIO;
    if (mbytes != NULL) *mbytes = (u_int32_t)(len >> 20);
    if (bytes != NULL) *bytes = (u_int32_t)(len & ((1 << 20) - 1));
    if (io_len != NULL) *io_len = 4096;
    return 0;
}

static int hook_unlink(const char *path) {
    struct stat status;
    if (stat(path, &status) != 0) return -1;
    if (files->remove(status.st_ino) != 0) return failed();
    return unlink(path);
}

// For all environments of the process that are opened from now on; without functions, files are files again.
void berkeley_use_files(const struct files *functions) {
    files = functions;
    int is_on = functions != NULL;
    db_env_set_func_open(is_on ? hook_open : NULL);
    db_env_set_func_close(is_on ? hook_close : NULL);
    db_env_set_func_pread(is_on ? hook_pread : NULL);
    db_env_set_func_pwrite(is_on ? hook_pwrite : NULL);
    db_env_set_func_read(is_on ? hook_read : NULL);
    db_env_set_func_write(is_on ? hook_write : NULL);
    db_env_set_func_seek(is_on ? hook_seek : NULL);
    db_env_set_func_fsync(is_on ? hook_fsync : NULL);
    db_env_set_func_ftruncate(is_on ? hook_ftruncate : NULL);
    db_env_set_func_ioinfo(is_on ? hook_ioinfo : NULL);
    db_env_set_func_unlink(is_on ? hook_unlink : NULL);
}
