/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_ARROW_IPC_ARROW_IPC_TABLE_H
#define MR_PIPELINE_FORMATS_ARROW_IPC_ARROW_IPC_TABLE_H
/* FlatBuffers, the subset that Arrow IPC metadata needs: reading in place, with every offset
 * checked, and writing.
 *
 *   root       u32 offset of the root table
 *   table      i32 distance back to its vtable, then its fields
 *   vtable     u16 bytes of the vtable, u16 bytes of the table, u16 offset in the table for each
 *              field, in the order of their numbers; 0, or absent: the default
 *   vector     u32 count, then the items; of tables and strings: u32 offsets
 *   string     a vector of bytes, and a zero
 *   offset     u32, relative to its own position, forward
 *
 * All numbers are little-endian. After damage a reader continues with zeros and remembers it, so
 * one check of `bad` after a group of reads is enough.
 *
 * thread   one at a time per object
 * source   FlatBuffers, "Binary Format" */
#include "pipeline/memory/array.h"

typedef struct mr__flat {
    const uint8_t *v;
    size_t n;
    bool bad; /* an offset led outside, or a value is invalid */
} mr__flat;

/* at 0: the table is absent, and all of its fields have their defaults. */
typedef struct mr__flat_table {
    size_t at, vtable;
    uint16_t vtable_size;
} mr__flat_table;

typedef struct mr__flat_vector {
    size_t at, n; /* first item; number of items */
} mr__flat_vector;

mr__flat_table mr__flat_root(mr__flat *f);
/* Integer field of `size` bytes (1, 2, 4 or 8), sign-extended; `otherwise` if it is not set. */
int64_t mr__flat_int(mr__flat *f, const mr__flat_table *t, unsigned field, unsigned size,
                     int64_t otherwise);
bool mr__flat_bool(mr__flat *f, const mr__flat_table *t, unsigned field);
mr__flat_table mr__flat_child(mr__flat *f, const mr__flat_table *t, unsigned field);
/* A vector field of items of item_size bytes, checked to be within the buffer. */
mr__flat_vector mr__flat_items(mr__flat *f, const mr__flat_table *t, unsigned field,
                               size_t item_size);
/* data NULL: the field is not set. */
mr_bytes mr__flat_string(mr__flat *f, const mr__flat_table *t, unsigned field);
/* Item i of a vector of tables (item_size 4). */
mr__flat_table mr__flat_table_at(mr__flat *f, const mr__flat_vector *v, size_t i);
/* The little-endian integer of `size` bytes at byte `at`. */
int64_t mr__flat_read(mr__flat *f, size_t at, unsigned size);

/* ---- writing: from the end of the buffer to its front, so that what a table points at is written
 * before it. A place is counted from the end. A failed allocation sets `bad`, which mr__flat_finish
 * reports. ---- */

enum { MR__FLAT_FIELDS = 8 };

typedef struct mr__flat_writer {
    uint8_t *v;
    size_t used, capacity;
    bool bad;
    size_t fields[MR__FLAT_FIELDS]; /* of the open table: place of the value; 0: not set */
    size_t table_end;
} mr__flat_writer;

void mr__flat_begin_table(mr__flat_writer *w);
/* Within a table: values that differ from the default. */
void mr__flat_put_int(mr__flat_writer *w, unsigned field, unsigned size, int64_t v);
void mr__flat_put_place(mr__flat_writer *w, unsigned field, size_t place); /* 0: not set */
size_t mr__flat_end_table(mr__flat_writer *w);
/* Before a table. Structs are copied as they are, `size` bytes each, aligned to 8. */
size_t mr__flat_put_string(mr__flat_writer *w, const char *s, size_t n);
size_t mr__flat_put_structs(mr__flat_writer *w, const void *v, size_t n, size_t size);
size_t mr__flat_put_places(mr__flat_writer *w, const size_t *places, size_t n);
/* The buffer with its root, padded to a multiple of 8 bytes; borrowed from w. */
mr_code mr__flat_finish(mr__flat_writer *w, size_t root, mr_bytes *out, mr_status *st) MR_NODISCARD;
void mr__flat_writer_clear(mr__flat_writer *w); /* for the next buffer; keeps the memory */
void mr__flat_writer_reset(mr__flat_writer *w);
#endif
