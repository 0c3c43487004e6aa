/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_IMAGES_IDX_H
#define MR_PIPELINE_FORMATS_IMAGES_IDX_H
/* IDX files, such as MNIST, plain or gzipped: one tensor, read as rows along axis 0. Big-endian.
 *
 *   offset  size   meaning
 *   0       2      0
 *   2       1      type: 0x08 uint8, 0x09 int8, 0x0B int16, 0x0C int32, 0x0D float32, 0x0E float64
 *   3       1      rank R, 1 to 8
 *   4       4 * R  dimensions, uint32
 *   4+4*R          the values, last axis fastest
 *
 * thread   one at a time per reader
 * source   the format description on yann.lecun.com/exdb/mnist
 * since    0.1 */
#include "../../memory/array.h"
#include "../../wait/cancel.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mr_idx_reader mr_idx_reader;

/* Opens path; its first two bytes tell whether it is gzipped. cancel ends waits for a pipe, here
 * and in reads. It may be NULL and must outlive the reader.
 * errors   as open(2); MR_DATA_LOSS: not an IDX file, with file and offset; MR_CANCELLED */
MR_API mr_code mr_idx_reader_open(mr_idx_reader **out, const char *path, mr_cancel *cancel,
                                  mr_status *st) MR_NODISCARD;
MR_API void mr_idx_reader_close(mr_idx_reader *r);

/* Type of the values; number of rows, which is the first dimension of the file. */
MR_API mr_dtype mr_idx_reader_dtype(const mr_idx_reader *r);
MR_API int64_t mr_idx_reader_rows(const mr_idx_reader *r);
/* Shape of a row; *rank is the rank of the file less one. Borrowed until close. */
MR_API const int64_t *mr_idx_reader_shape(const mr_idx_reader *r, int *rank);

/* Returns the next 1 to `want` rows as a DENSE array in host byte order; *out must be empty. MR_END
 * at the end.
 * errors   MR_DATA_LOSS, with file and offset: the file ends early, or bytes follow the last row */
MR_API mr_code mr_idx_reader_read(mr_idx_reader *r, size_t want, mr_array *out,
                                  mr_status *st) MR_NODISCARD;

#ifdef __cplusplus
}
#endif
#endif
