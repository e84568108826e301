// Entries as all shims of maps make them: a value is made of one word, the first of its key. The Rust side is
// workloads/values.rs.

#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint64_t word_at(const void *bytes) {
    uint64_t word;
    memcpy(&word, bytes, sizeof word);
    return word;
}

// Repeats the word an odd number of times, so that all words combined by XOR are the word again. Zeros follow.
static inline void write_value(void *value, size_t len, uint64_t word) {
    char *bytes = (char *)value;
    size_t repeated = ((len / 8 - 1) | 1) * 8;
    for (size_t at = 0; at < repeated; at += 8) memcpy(bytes + at, &word, sizeof word);
    memset(bytes + repeated, 0, len - repeated);
}

// The word of which a value was made. Reads all bytes, so that a torn value is noticed.
static inline uint64_t read_value(const void *value, size_t len) {
    const char *bytes = (const char *)value;
    uint64_t word = 0, last = 0;
    size_t at = 0;
    for (; at + 8 <= len; at += 8) word ^= word_at(bytes + at);
    memcpy(&last, bytes + at, len - at);
    return word ^ last;
}
