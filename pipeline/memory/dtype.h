/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_MEMORY_DTYPE_H
#define MR_PIPELINE_MEMORY_DTYPE_H
/* Element types. MR_STRING is a byte string of any length, MR_DATASET a reference to a dataset.
 *
 * since    0.1 */
#include <stdbool.h>
#include "../status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum mr_dtype {
    MR_BOOL,
    MR_INT8,
    MR_INT16,
    MR_INT32,
    MR_INT64,
    MR_UINT8,
    MR_UINT16,
    MR_UINT32,
    MR_UINT64,
    MR_FLOAT16,
    MR_BFLOAT16,
    MR_FLOAT32,
    MR_FLOAT64,
    MR_STRING,
    MR_DATASET,
    MR_N_DTYPES
} mr_dtype;

/* Size of one value in an array: for MR_STRING sizeof(mr_bytes), for MR_DATASET that of a
 * pointer. */
MR_API size_t mr_dtype_size(mr_dtype t);
MR_API const char *mr_dtype_name(mr_dtype t); /* "int64"; static text */
/* Finds the dtype with this name of n bytes ("bytes" is MR_STRING too); false if unknown. */
MR_API bool mr_dtype_find(const char *name, size_t n, mr_dtype *out);
MR_API bool mr_dtype_is_integer(mr_dtype t);  /* int8..uint64 */
MR_API bool mr_dtype_is_floating(mr_dtype t); /* float16..float64 */

/* Convert IEEE half and bfloat16 to and from float and double, rounding once, to nearest even. */
MR_API float mr_half_to_float(uint16_t h);
MR_API uint16_t mr_float_to_half(float f);
MR_API uint16_t mr_double_to_half(double d);
MR_API float mr_bfloat_to_float(uint16_t h);
MR_API uint16_t mr_float_to_bfloat(float f);
MR_API uint16_t mr_double_to_bfloat(double d);

#ifdef __cplusplus
}
#endif
#endif
