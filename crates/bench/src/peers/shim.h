// How C shims report failure. Functions that can fail return a number below zero and write why into `error`.

#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { ERROR_LEN = 256 };

enum { FAILED = -1, ABSENT = -2 };

static inline int fail(char *error, const char *text) {
    snprintf(error, ERROR_LEN, "%s", text);
    return FAILED;
}
