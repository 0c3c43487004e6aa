/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_TFRECORD_EXAMPLE_H
#define MR_PIPELINE_FORMATS_TFRECORD_EXAMPLE_H
/* tf.train.Example: parses serialized records into columns, serializes features into records.
 *
 *   message    field  meaning
 *   Example    1      Features
 *   Features   1      repeated entry { 1: key, 2: Feature }
 *   Feature    1,2,3  one of BytesList, FloatList, Int64List
 *   *List      1      repeated bytes; float (packed or not); int64 varint (packed or not)
 *
 * A plan lists the features to parse. It is immutable; any number of threads may parse with it.
 *
 * source   tf.io.parse_example (TensorFlow 2.16), FixedLen and (as RAGGED columns) variable length
 * since    0.1 */
#include "../../memory/array.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One feature to parse. */
typedef struct mr_example_feature {
    const char *name;
    size_t name_size;
    mr_dtype dtype; /* MR_INT64, MR_FLOAT32 or MR_STRING */
    bool ragged; /* any number of values, a 1-D RAGGED row; empty if the record lacks the feature */
    int rank;    /* fixed: 0 to MR_MAX_RANK */
    int64_t shape[MR_MAX_RANK];
    /* Fixed shape: prod(shape) values (int64_t, float, mr_bytes) for records that lack the feature.
     * NULL: such a record is an error. */
    const void *default_values;
    size_t n_default_values;
} mr_example_feature;

typedef struct mr_example_plan mr_example_plan;

/* Makes a plan; copies its arguments. The columns of a parse have the order of `features`.
 * errors   MR_INVALID_ARGUMENT: an unsupported dtype, an empty list, a repeated feature, a shape
 *          with a negative dimension, a default value of the wrong size */
MR_API mr_code mr_example_plan_new(mr_example_plan **out, const mr_example_feature *features,
                                   size_t n, mr_status *st) MR_NODISCARD;
MR_API void mr_example_plan_free(mr_example_plan *p); /* NULL: no effect */
MR_API size_t mr_example_plan_columns(const mr_example_plan *p);

/* Called for each bad record, in row order; st is valid during the call. */
typedef void (*mr_example_error_fn)(void *ctx, size_t row, const mr_status *st);

/* Parses n records into plan_columns() columns of n rows each, which are overwritten: DENSE, or
 * BYTES for strings, for fixed shapes; RAGGED of rank 1 for variable length. Strings are views into
 * the records: the caller makes the owners of the columns hold the memory of the records
 * (mr_buffer_hold, mr_buffer_hold_all).
 *
 * A bad record keeps its row, filled with zeros or no values, and is reported to on_error. If
 * on_error is NULL, the first bad record fails the call.
 *
 * names    for messages: NULL, or n example names
 * errors   MR_INVALID_ARGUMENT (of a record): not an Example message; a required feature is
 *          missing, or has the wrong type or number of values: names the feature, the row and both
 *          values
 *          MR_RESOURCE_EXHAUSTED: fails the call and leaves the columns empty
 * memory   no allocation per row; every byte is checked against the size of the record */
MR_API mr_code mr_example_parse(const mr_example_plan *plan, const mr_bytes *records, size_t n,
                                const mr_bytes *names, mr_array *columns,
                                mr_example_error_fn on_error, void *ctx,
                                mr_status *st) MR_NODISCARD;

/* One feature to write. */
typedef struct mr_example_value {
    const char *name;
    size_t name_size;
    mr_dtype dtype;     /* MR_INT64, MR_FLOAT32, MR_STRING */
    const void *values; /* int64_t, float or mr_bytes */
    size_t n;
} mr_example_value;

/* Appends an Example to *buffer, which has *capacity bytes, *size of them used. The buffer is grown
 * with mr_realloc; the caller frees it. Entries are sorted by name, lists are packed. An Example
 * has at most 2 GiB.
 * errors   MR_RESOURCE_EXHAUSTED; MR_INVALID_ARGUMENT: an unsupported dtype, a repeated name */
MR_API mr_code mr_example_encode(const mr_example_value *features, size_t n, uint8_t **buffer,
                                 size_t *capacity, size_t *size, mr_status *st) MR_NODISCARD;

/* Visits the features of one record in the order of the record, for tools and display. With visit
 * NULL it only checks that the bytes are an Example. The values that visit receives are valid
 * during the call: int64_t, float or mr_bytes by dtype; dtype MR_DATASET: no list is set. Stops
 * when visit returns anything but MR_OK, and returns that.
 * errors   MR_INVALID_ARGUMENT: not an Example */
typedef mr_code (*mr_example_visit_fn)(void *ctx, const mr_example_value *feature, mr_status *st);
MR_API mr_code mr_example_visit(const void *record, size_t size, mr_example_visit_fn visit,
                                void *ctx, mr_status *st) MR_NODISCARD;

#ifdef __cplusplus
}
#endif
#endif
