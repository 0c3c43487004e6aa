/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_NPY_H
#define MR_PIPELINE_FORMATS_NPY_H
/* NPY files of numpy, and NPZ files, which are zip archives of them. An entry is what lies at one
 * index of axis 0; it has a field for each array, or for each field of a structured type.
 *
 *   0    8  "\x93NUMPY", the version: 1.0, 2.0 or 3.0
 *   8    2  bytes of the head, little-endian; 4 bytes from version 2.0 on
 *   ...     head: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
 *   ...     the values; fortran_order: axis 0 varies fastest
 *
 * Numbers of either byte order, bools, strings ('S', 'U': without the zeros that fill them up) and
 * times ('M', 'm': as int64) are read. Python objects are not: to unpickle is to run code.
 *
 * thread   as readers; mr__npy_file_spec and mr__npy_file_count any
 * source   numpy.lib.format */
#include "pipeline/formats/format.h"
#include "pipeline/params/param.h"
#include "pipeline/params/spec.h"

typedef struct mr__npy_field {
    char *name; /* "": the only field, without a name */
    mr_dtype dtype;
    char kind;     /* numpy's: b i u f S U M m */
    size_t stored; /* bytes of a value in the file */
    bool swapped;  /* big-endian */
    int rank;
    int64_t shape[MR_MAX_RANK]; /* of an element */
    /* In an entry: `items` runs of `values` values, the first at `offset`, `stride` apart. */
    size_t items, values, offset, stride;
} mr__npy_field;

typedef struct mr__npy_type {
    mr__npy_field *fields;
    size_t n, room;
    int64_t count; /* entries */
    int rank;      /* of the array */
    int64_t shape[MR_MAX_RANK + 1];
    size_t item, entry; /* bytes of an item of the array, and of an entry */
    bool fortran, structured;
} mr__npy_type;

/* Bytes of the head and what is before it, from the first 12 bytes of a file.
 * errors   MR_DATA_LOSS: not an NPY file */
mr_code mr__npy_head_size(const uint8_t *p, size_t n, size_t *size, mr_status *st) MR_NODISCARD;
/* Reads these bytes. *out is overwritten and owned.
 * errors   MR_DATA_LOSS: damaged; MR_INVALID_ARGUMENT: a type that is not read, a scalar */
mr_code mr__npy_head_read(const uint8_t *p, size_t size, mr__npy_type *out,
                          mr_status *st) MR_NODISCARD;
void mr__npy_type_reset(mr__npy_type *t); /* also for a zeroed one */
/* The type of the elements: that of the field without a name, or a record. */
mr_code mr__npy_type_spec(const mr__npy_type *t, mr_spec **out, mr_status *st) MR_NODISCARD;

/* Options of the formats. */
typedef struct mr__npy_opts {
    const mr_spec *spec;   /* what elements must be; NULL: anything. Borrowed, as arrays */
    const mr_strs *arrays; /* NPZ: the members to read, without ".npy"; NULL or empty: all */
    bool heads_only;       /* read no values */
} mr__npy_opts;

/* A record is an entry. */
extern const mr_format mr__format_npy, mr__format_npz;
/* For readers of both: the columns of the records that were read. */
mr_code mr__npy_columns(const mr_reader *r, const mr_array *records, mr_array *columns,
                        mr_status *st) MR_NODISCARD;

mr_code mr__npy_file_spec(const mr_format *format, const char *path, const mr_strs *arrays,
                          mr_spec **out, mr_status *st) MR_NODISCARD;
/* *mark: as mr_file_opts.mark; may be NULL. */
mr_code mr__npy_file_count(const mr_format *format, const char *path, const mr_strs *arrays,
                           int64_t *rows, uint64_t *mark, mr_status *st) MR_NODISCARD;
#endif
