/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_FILES_SAFETENSORS_H
#define MR_TRAINER_FILES_SAFETENSORS_H
/* safetensors files: named tensors, for the weights of models. Little-endian.
 *
 *   offset  size  meaning
 *   0       8     H, length of the header, uint64
 *   8       H     JSON: {"dense/kernel": {"dtype": "F32", "shape": [784, 10],
 *                 "data_offsets": [0, 31360]}, ..., "__metadata__": {"format": "millrace 2",
 *                 "crc32c": "1f2e3d4c"}}, padded with blanks so that H is a multiple of 8
 *   8+H           the tensors' values, rows contiguous, back to back in the order of their offsets
 *
 * A file is read whole, and checked before any tensor is accessible: the header is an object of
 * this form without duplicate names, shapes and dtypes agree with the sizes of the data, and the
 * data have no gaps or overlaps and end at the end of the file. In format "millrace 2", "crc32c" is
 * the CRC-32C of the whole file, in hexadecimal, computed with 00000000 as its value; without
 * the right value, a file is damaged. In other formats "crc32c" is optional, and covers the bytes
 * from 8+H on.
 *
 * thread   reading: any, immutable once open
 * since    0.1 */
#include "../../pipeline/memory/array.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mr_safetensors mr_safetensors;

/* One tensor. When read: borrowed from the file; data may be unaligned. */
typedef struct mr_named_tensor {
    const char *name;
    mr_dtype dtype; /* MR_BOOL to MR_FLOAT64 */
    int rank;
    int64_t shape[MR_MAX_RANK];
    const void *data;
} mr_named_tensor;

/* Size of its values in bytes. The dtype and shape must be valid. */
MR_API uint64_t mr_named_tensor_bytes(const mr_named_tensor *t);

/* Reads a file. Returns owned.
 * errors   as open(2) · MR_DATA_LOSS: truncated, damaged, or another kind of file; says what and
 *          where · MR_UNIMPLEMENTED: a dtype or rank that Millrace does not support */
MR_API mr_code mr_safetensors_open(mr_safetensors **out, const char *path,
                                   mr_status *st) MR_NODISCARD;
/* Parses a file in memory, which is copied. */
MR_API mr_code mr_safetensors_parse(mr_safetensors **out, const void *bytes, size_t size,
                                    mr_status *st) MR_NODISCARD;
MR_API void mr_safetensors_close(mr_safetensors *f); /* NULL: nothing */

/* Number of tensors. */
MR_API size_t mr_safetensors_count(const mr_safetensors *f);
/* The i-th tensor, from 0, in the order of the data; the tensor called name (NULL: not found). Both
 * are borrowed until close. */
MR_API const mr_named_tensor *mr_safetensors_at(const mr_safetensors *f, size_t i);
MR_API const mr_named_tensor *mr_safetensors_find(const mr_safetensors *f, const char *name);
/* A value of __metadata__, borrowed until close; NULL: not found. */
MR_API const char *mr_safetensors_metadata(const mr_safetensors *f, const char *key);

/* Writes the tensors in the order given, atomically: to a temporary file that is then renamed.
 * errors   as open(2) and write(2) · MR_INVALID_ARGUMENT: a duplicate name, or one that is not
 *          UTF-8, a dtype or shape that cannot be written */
MR_API mr_code mr_safetensors_write(const char *path, const mr_named_tensor *tensors, size_t n,
                                    mr_status *st) MR_NODISCARD;

#ifdef __cplusplus
}
#endif
#endif
