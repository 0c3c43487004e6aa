/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MRPY_BINDING_H
#define MRPY_BINDING_H
/* C functions of the package that Python calls through millrace._ffi. None needs Python. */
#include <millrace/millrace.h>

/* An empty dataset of these elements: what functions are typed with. */
mr_dataset *mrpy_given(const mr_spec *element);

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
 * components, as in the files that `millrace write --format arrow` makes.
 * errors   MR_INVALID_ARGUMENT: components that Arrow has no type for */
mr_code mrpy_arrow_stream(struct ArrowArrayStream *out, mr_dataset *ds,
                          const mr_iterator_opts *opts, mr_status *st) MR_NODISCARD;

/* Exports row 0 of a column as an Arrow array: axis 0 of it are the values.
 * errors   as mr_export_arrow */
mr_code mrpy_export_row(struct ArrowArray *array, struct ArrowSchema *schema, const mr_array *a,
                        mr_status *st) MR_NODISCARD;
#endif
