/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_MEMORY_EXPORT_H
#define MR_PIPELINE_MEMORY_EXPORT_H
/* Exports columns to other libraries: DENSE columns as DLPack tensors, all columns except datasets
 * through the Arrow C data interface. The exported object holds its own reference, so the block it
 * came from may be released.
 *
 *   column     DLPack                Arrow
 *   DENSE      no copy               no copy (bool: one copy, to bits); each axis of a row is a
 *                                    fixed_size_list
 *   BYTES      -                     large_binary; no copy of the bytes if the strings are
 *                                    contiguous in memory, else one copy; offsets are built
 *   RAGGED     -                     each axis is a large_list; no copy of the values if those of
 *                                    the rows are contiguous in memory, else one copy
 *
 * If elements may differ in shape, a block whose elements do not differ is DENSE or BYTES. Apply
 * mr_array_to_ragged first to export all blocks of the component with the same Arrow type.
 *
 * A column exported without a copy is shared with all its other users. The consumer must not write
 * to it, except to a DLPack tensor of version 1 without MR_DL_READ_ONLY. The values of a whole
 * column start 64-byte aligned, those of a slice at any row.
 *
 * thread   any; exported objects may be released from any thread
 * source   DLPack 0.8 and 1.1 (dlpack.h), Arrow columnar format 1.0 (C data interface)
 * since    0.1 */
#include "array.h"

#ifdef __cplusplus
extern "C" {
#endif

/* These have the memory layout of DLPack's DLTensor, DLManagedTensor and DLManagedTensorVersioned;
 * pointers may be cast. */
typedef struct mr_dl_tensor {
    void *data;
    int32_t device_type; /* 1: host */
    int32_t device_id;
    int32_t ndim; /* rank of a row + 1 */
    uint8_t code; /* 0 int, 1 uint, 2 float, 4 bfloat, 6 bool */
    uint8_t bits;
    uint16_t lanes;
    int64_t *shape;   /* [ndim]: rows first */
    int64_t *strides; /* [ndim], in values */
    uint64_t byte_offset;
} mr_dl_tensor;

typedef struct mr_dl_managed_tensor mr_dl_managed_tensor;
struct mr_dl_managed_tensor {
    mr_dl_tensor tensor;
    void *manager_ctx;
    void (*deleter)(mr_dl_managed_tensor *self); /* the consumer calls it once */
};

#define MR_DL_READ_ONLY UINT64_C(1) /* a flag: the consumer must not write the values */
#define MR_DL_IS_COPIED UINT64_C(2)

typedef struct mr_dl_versioned_tensor mr_dl_versioned_tensor;
struct mr_dl_versioned_tensor {
    uint32_t major, minor; /* version of DLPack: 1.0; the rest is read only if major is known */
    void *manager_ctx;
    void (*deleter)(mr_dl_versioned_tensor *self); /* the consumer calls it once; may be NULL */
    uint64_t flags;
    mr_dl_tensor tensor;
};

/* Layout, names and include guards are those of the Arrow specification, so the definitions of
 * other libraries are compatible. */
#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE

#define ARROW_FLAG_DICTIONARY_ORDERED 1
#define ARROW_FLAG_NULLABLE           2
#define ARROW_FLAG_MAP_KEYS_SORTED    4

struct ArrowSchema {
    const char *format, *name, *metadata;
    int64_t flags, n_children;
    struct ArrowSchema **children, *dictionary;
    void (*release)(struct ArrowSchema *);
    void *private_data;
};

struct ArrowArray {
    int64_t length, null_count, offset, n_buffers, n_children;
    const void **buffers;
    struct ArrowArray **children, *dictionary;
    void (*release)(struct ArrowArray *);
    void *private_data;
};
#endif
#ifndef ARROW_C_STREAM_INTERFACE
#define ARROW_C_STREAM_INTERFACE

struct ArrowArrayStream {
    int (*get_schema)(struct ArrowArrayStream *, struct ArrowSchema *out);
    int (*get_next)(struct ArrowArrayStream *, struct ArrowArray *out);
    const char *(*get_last_error)(struct ArrowArrayStream *);
    void (*release)(struct ArrowArrayStream *);
    void *private_data;
};
#endif

/* Exports a column as a tensor of shape (rows, row shape...). Returns owned in *out; the consumer
 * calls its deleter.
 * errors   MR_INVALID_ARGUMENT: the column is not DENSE
 *          MR_RESOURCE_EXHAUSTED */
MR_API mr_code mr_export_dlpack(mr_dl_managed_tensor **out, const mr_array *a,
                                mr_status *st) MR_NODISCARD;

/* The same as version 1.0 of DLPack, which "dltensor_versioned" capsules contain. The flags have
 * MR_DL_READ_ONLY unless the column is writable (mr_array_writable) before the call; the caller
 * then no longer reads it. since 0.2 */
MR_API mr_code mr_export_dlpack_versioned(mr_dl_versioned_tensor **out, const mr_array *a,
                                          mr_status *st) MR_NODISCARD;

/* Exports a column to *array and *schema, each released through its own callback. name (NULL: "")
 * is copied. A row of rank 0 is one value, a row of rank r a list of lists nested r deep. If an
 * axis of a RAGGED row is empty, the sizes of the axes below it are lost. The array has no nulls.
 * errors   MR_INVALID_ARGUMENT: the column holds datasets, is MR_PLACED, or is bfloat16, which
 *          Arrow does not support
 *          MR_RESOURCE_EXHAUSTED */
MR_API mr_code mr_export_arrow(struct ArrowArray *array, struct ArrowSchema *schema,
                               const mr_array *a, const char *name, mr_status *st) MR_NODISCARD;

#ifdef __cplusplus
}
#endif
#endif
