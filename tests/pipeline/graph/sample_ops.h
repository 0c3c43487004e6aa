/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TESTS_SAMPLE_OPS_H
#define MR_TESTS_SAMPLE_OPS_H
/* Ops that exist in these tests only, one for each shape that a table can have. They make no
 * elements. */
#include "pipeline/graph/op.h"

typedef struct sample_opts {
    int64_t size, depth, seed;
    bool has_seed, flag;
    mr_tri order;
    double rate;
    char *codec;
    mr_fn *fn;
    mr_value value;
    mr_ints sizes;
    mr_floats weights;
} sample_opts;
struct sample_all {
    int64_t n;
    sample_opts o;
};

/* Registers them for the process; any number of calls. */
void sample_ops(void);
const mr_op *sample_op(const char *name);

/* sample_source(n, size=, ...): a parameter of every type. n -1 fails in check, 99 in infer. */
mr_dataset *sample_source(int64_t n, const sample_opts *o);
/* sample_pass(n): one input. */
mr_dataset *sample_pass(mr_dataset *input, int64_t n);
/* sample_join(...): any number of inputs, a function in text. */
mr_dataset *sample_join(mr_dataset *const *inputs, size_t n);
/* sample_files(name, ...), patterns; sample_values(v, ...). */
mr_dataset *sample_files(const char *const *names, const bool *is_path, size_t n);
mr_dataset *sample_values(mr_value v);

/* The i-th parameter of op set to v (taken), all others unset, over one input or none (taken). */
mr_dataset *sample_with(const char *op, const char *param, mr_value v, mr_dataset *input);
mr_value sample_tuple(mr_value *items, size_t n); /* takes the items */
mr_value sample_string(const char *s);
mr_value sample_tensor(mr_dtype t, int rank, const int64_t *shape, const void *data);
/* The function of an expression's text, without captures. */
mr_fn *sample_fn(const char *text);
/* mr_dataset_to_text, checked; valid until the fourth next call. */
const char *sample_text(const mr_dataset *ds);
const char *sample_error(const mr_dataset *ds);
#endif
