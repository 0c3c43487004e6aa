/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_MEMORY_IMPORT_H
#define MR_PIPELINE_MEMORY_IMPORT_H
/* Imports columns from other libraries: DLPack tensors and arrays of the Arrow C data interface. A
 * column is read-only, and keeps the imported object until the last view of the column is released.
 *
 *   DLPack               column
 *   axes in C's order    DENSE, no copy; axis 0 becomes the rows
 *   other strides        DENSE, one copy
 *   bool                 DENSE, one copy: every byte but 0 is true
 *
 *   Arrow                                     column
 *   integers, floats                          DENSE, no copy (one copy if not aligned)
 *   dates, times, durations                   DENSE, no copy: the integers they are stored as
 *   bool                                      DENSE, one copy: bits to bytes
 *   (large_)binary, (large_)utf8,             BYTES, no copy of the bytes; views are built
 *   fixed_size_binary, string views
 *   fixed_size_list                           an axis of each row
 *   (large_)list                              RAGGED, no copy of the values
 *   (large_)list of (large_)list              RAGGED, axis 1 ragged within the row; lists below
 *                                             must have equal lengths
 *   dictionary                                its values, one copy
 *
 * mr_from_arrow (ops/sources.h) makes a dataset of an Arrow stream, mr_from_arrays one of columns.
 *
 * thread   any; the thread that releases the last view releases the imported object
 * source   DLPack 0.8 and 1.1 (dlpack.h), Arrow columnar format 1.0 (C data interface)
 * since    0.1 */
#include "export.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Imports a tensor in host memory as *out and takes it over: its deleter is called when the column
 * is released. On failure the caller keeps the tensor.
 * errors   MR_INVALID_ARGUMENT: no axis, too many axes, device memory, an unsupported type
 *          MR_RESOURCE_EXHAUSTED */
MR_API mr_code mr_import_dlpack(mr_array *out, mr_dl_managed_tensor *tensor,
                                mr_status *st) MR_NODISCARD;

/* The same for a tensor of version 1 of DLPack. since 0.2
 * errors   as above; MR_UNIMPLEMENTED: another major version */
MR_API mr_code mr_import_dlpack_versioned(mr_array *out, mr_dl_versioned_tensor *tensor,
                                          mr_status *st) MR_NODISCARD;

/* Imports each entry of *array, which has the type *schema, as a row of *out. The array is moved:
 * its release is NULL afterwards. On failure the caller keeps it. The caller always keeps schema.
 * errors   MR_INVALID_ARGUMENT: a null among the values, decreasing offsets, an unsupported type
 *          (a struct, for example: import its children instead)
 *          MR_RESOURCE_EXHAUSTED */
MR_API mr_code mr_import_arrow(mr_array *out, struct ArrowArray *array,
                               const struct ArrowSchema *schema, mr_status *st) MR_NODISCARD;

#ifdef __cplusplus
}
#endif
#endif
