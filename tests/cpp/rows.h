/* SPDX-License-Identifier: Apache-2.0 */
/* Structs whose tables rows.c writes with the macros of C and descriptors.cpp with those of C++. */
#ifndef MR_TESTS_CPP_ROWS_H
#define MR_TESTS_CPP_ROWS_H
#include <millrace/millrace.h>

struct options {
    int64_t seed;
    bool has_seed;
    bool again;
};
struct all_types {
    int64_t count;
    double rate;
    bool on;
    mr_tri maybe;
    char *word;
    mr_fn *fn;
    mr_value value;
    mr_ints ints;
    mr_floats floats;
    mr_strs strings;
    mr_dtype dtype;
    struct options o;
};
extern const mr_input_kind rows_kind;
extern const char *const rows_words[];

#ifdef __cplusplus
extern "C" {
#endif
const mr_param *rows_of_c(size_t *n);
#ifdef __cplusplus
}
#endif
#endif
