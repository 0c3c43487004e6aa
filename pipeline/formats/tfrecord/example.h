/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_TFRECORD_EXAMPLE_H
#define MR_PIPELINE_FORMATS_TFRECORD_EXAMPLE_H
/* tf.train.Example: serialized records to columns, and features to serialized records.
 *
 *   message    field  meaning
 *   Example    1      Features
 *   Features   1      repeated entry { 1: key, 2: Feature }
 *   Feature    1,2,3  one of BytesList, FloatList, Int64List
 *   *List      1      repeated bytes; float (packed or not); int64 varint (packed or not)
 *
 * A plan says which features are wanted; it is immutable, and any number of threads may parse with
 * it.
 *
 * source   tf.io.parse_example (TensorFlow 2.16), FixedLen and (as RAGGED columns) variable length
 * since    0.1 */
#include "../../memory/array.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One wanted feature. */
typedef struct mr_example_feature {
    const char *name;
    size_t name_size;
    mr_dtype dtype; /* MR_INT64, MR_FLOAT32 or MR_STRING */
    bool ragged;    /* any number of values, a 1-D RAGGED row; a record may lack it: no values */
    int rank;       /* fixed: 0 to MR_MAX_RANK */
    int64_t shape[MR_MAX_RANK];
    const void *default_values; /* fixed: prod(shape) values (int64_t, float, mr_bytes) for records
                                   that lack it; NULL: they are an error */
    size_t n_default_values;
} mr_example_feature;

typedef struct mr_example_plan mr_example_plan;

/* Copies what it is given. The columns of a parse come in the order of `features`.
 * errors   MR_INVALID_ARGUMENT: another dtype, an empty or repeated list, a shape with a negative
 *          dimension, a default of another size */
MR_API mr_code mr_example_plan_new(mr_example_plan **out, const mr_example_feature *features,
                                   size_t n, mr_status *st) MR_NODISCARD;
MR_API void mr_example_plan_free(mr_example_plan *p); /* NULL: nothing */
MR_API size_t mr_example_plan_columns(const mr_example_plan *p);

/* Called for each bad record, in row order; st is valid during the call. */
typedef void (*mr_example_error_fn)(void *ctx, size_t row, const mr_status *st);

/* Parses n records into plan_columns() columns of n rows each (overwritten): fixed shapes DENSE, or
 * BYTES for strings; variable length RAGGED of rank 1. Strings are views into the records: the
 * caller makes the columns' owners hold the records' memory (mr_buffer_hold, mr_buffer_hold_all).
 *
 * A bad record keeps its place: its row has zeros or no values, and on_error hears of it. With
 * on_error NULL the first bad record fails the call.
 *
 * names    for messages: NULL, or n example names
 * errors   MR_INVALID_ARGUMENT (of a record): not a message; a required feature is missing, has
 *          another type or another number of values: names the feature, the row and both
 *          MR_RESOURCE_EXHAUSTED: fails the call, nothing is left in columns
 * memory   no allocation per row; every byte is checked against the record's size */
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

/* Appends the Example to *buffer (of *capacity bytes, *size of them used; grown with mr_realloc,
 * the caller frees it): entries sorted by name, lists packed. At most 2 GiB an Example. errors
 * MR_RESOURCE_EXHAUSTED, MR_INVALID_ARGUMENT (another dtype; a name twice) */
MR_API mr_code mr_example_encode(const mr_example_value *features, size_t n, uint8_t **buffer,
                                 size_t *capacity, size_t *size, mr_status *st) MR_NODISCARD;

/* For people and tools: goes over the features of one record, as they stand in it. visit may be
 * NULL: whether the bytes are an Example at all.
 * visit's values are valid during the call: int64_t, float or mr_bytes by dtype; dtype MR_DATASET:
 * no list is set. Stops when visit returns anything but MR_OK and returns that.
 * errors   MR_INVALID_ARGUMENT: not an Example */
typedef mr_code (*mr_example_visit_fn)(void *ctx, const mr_example_value *feature, mr_status *st);
MR_API mr_code mr_example_visit(const void *record, size_t size, mr_example_visit_fn visit,
                                void *ctx, mr_status *st) MR_NODISCARD;

#ifdef __cplusplus
}
#endif
#endif
