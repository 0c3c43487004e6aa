/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_MEMORY_IMPORT_H
#define MR_PIPELINE_MEMORY_IMPORT_H
/* Columns of other libraries' memory: DLPack tensors and arrays of the Arrow C data interface. A
 * column keeps what it was made of until the last view of it goes, and is never written to.
 *
 *   DLPack               column
 *   axes in C's order    DENSE, no copy; axis 0 becomes the rows
 *   other strides        DENSE, one copy
 *   bool                 DENSE, one copy: every byte but 0 is true
 *
 *   Arrow                                     column
 *   integers, floats                          DENSE, no copy (one where they are not aligned)
 *   dates, times, durations                   DENSE, no copy: the integers that they are stored as
 *   bool                                      DENSE, one copy: bits to bytes
 *   (large_)binary, (large_)utf8,             BYTES, no copy of the bytes; views are made
 *   fixed_size_binary
 *   fixed_size_list                           an axis of each row
 *   (large_)list                              RAGGED, no copy of the values
 *   (large_)list of (large_)list              RAGGED, axis 1 ragged within the row; deeper: even
 *   dictionary                                its values, one copy
 *
 * mr_from_arrow (ops/sources.h) makes a dataset of a stream of them; mr_from_arrays of columns.
 *
 * thread   any; what was imported is released in whatever thread the last view goes
 * source   DLPack 0.8 (dlpack.h), Arrow columnar format 1.0 (C data interface)
 * since    0.1 */
#include "export.h"

#ifdef __cplusplus
extern "C" {
#endif

/* *out = a tensor of host memory, taken over: its deleter is called when the column goes. On
 * failure it stays the caller's.
 * errors   MR_INVALID_ARGUMENT: no axis, too many of them, memory of a device, a type that columns
 *          do not have
 *          MR_RESOURCE_EXHAUSTED */
MR_API mr_code mr_import_dlpack(mr_array *out, mr_dl_managed_tensor *tensor,
                                mr_status *st) MR_NODISCARD;

/* *out = a row for each entry of *array, whose type *schema says. array is moved from: its release
 * is NULL afterwards. On failure it stays the caller's, as schema does always.
 * errors   MR_INVALID_ARGUMENT: a null among the values, offsets that go backwards, a type that
 *          columns do not have (structs among them: import their children)
 *          MR_RESOURCE_EXHAUSTED */
MR_API mr_code mr_import_arrow(mr_array *out, struct ArrowArray *array,
                               const struct ArrowSchema *schema, mr_status *st) MR_NODISCARD;

#ifdef __cplusplus
}
#endif
#endif
