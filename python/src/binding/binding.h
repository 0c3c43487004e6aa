/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MRPY_BINDING_H
#define MRPY_BINDING_H
/* C functions of the package that Python calls through millrace._ffi. None needs Python. */
#include <millrace/millrace.h>

/* An empty dataset of these elements: what functions are typed with. */
mr_dataset *mrpy_given(const mr_spec *element);

/* mr_plugin_load, with the functions of the library visible to the plugin, which need not be linked
 * to it: elsewhere the program that loads it has them. */
mr_code mrpy_plugin_load(const char *path, mr_status *st) MR_NODISCARD;
/* mr_fail with a text that is not a format. */
void mrpy_fail(mr_status *st, mr_code code, const char *message);
/* Waits until fd can be read, or is closed by the other side: 0; or until cancel (NULL: nothing) is
 * triggered: 1. */
int mrpy_wait(int fd, mr_cancel *cancel);

/* What a run without a consumer took. */
typedef struct mrpy_run {
    int64_t elements, bytes;
    double seconds, cpu_seconds, first_element_seconds;
} mrpy_run;
/* Pulls up to `limit` elements (negative: all) for up to `seconds` (0: as long as it takes).
 * returns  MR_OK: either was reached; MR_END, or an error */
mr_code mrpy_drain(mr_iterator *it, int64_t limit, double seconds, mrpy_run *run,
                   mr_status *st) MR_NODISCARD;

/* Makes *out an Arrow stream of the elements of ds, which the stream keeps: structs of the
 * components, as in the files that `millrace write --format arrow` makes. The pass begins when
 * rows are asked for.
 * errors   MR_INVALID_ARGUMENT: components that Arrow has no type for */
mr_code mrpy_arrow_stream(struct ArrowArrayStream *out, mr_dataset *ds, mr_status *st) MR_NODISCARD;

/* Exports row 0 of a column of this leaf as an Arrow array: axis 0 of it are the entries, or the
 * one value. The type is the same for all elements of the leaf.
 * errors   as mr_export_arrow */
mr_code mrpy_export_row(struct ArrowArray *array, struct ArrowSchema *schema, const mr_array *a,
                        const mr_leaf *leaf, mr_status *st) MR_NODISCARD;
#endif
