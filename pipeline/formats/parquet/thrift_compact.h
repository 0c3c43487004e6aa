/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_PARQUET_THRIFT_COMPACT_H
#define MR_PIPELINE_FORMATS_PARQUET_THRIFT_COMPACT_H
/* Thrift's compact protocol, as far as the heads and footers of Parquet files need it.
 *
 *   struct   fields, then the byte 0
 *   field    (id - id of the field before) << 4 | type; or type alone and the id as a zigzag varint
 *   bool     its value is its type: 1 true, 2 false; in a list a byte
 *   i8       a byte
 *   i16-i64  a zigzag varint
 *   double   8 bytes, little-endian
 *   binary   a varint, its length, and the bytes
 *   list     length << 4 | type (15: a varint follows with the length), and the values
 *   map      a varint, its length; if that is not 0, types of key and value, and the pairs
 *
 * The reader goes over bytes that anybody may have written. It stops for good at the first that
 * cannot be, and says so by `bad`: numbers are 0 then, and structs end. Memory is never asked for.
 *
 * thread   one at a time per object
 * source   Apache Thrift, doc/specs/thrift-compact-protocol.md */
#include "pipeline/memory/array.h"

enum {
    MR__THRIFT_STOP,
    MR__THRIFT_TRUE,
    MR__THRIFT_FALSE,
    MR__THRIFT_I8,
    MR__THRIFT_I16,
    MR__THRIFT_I32,
    MR__THRIFT_I64,
    MR__THRIFT_DOUBLE,
    MR__THRIFT_BINARY,
    MR__THRIFT_LIST,
    MR__THRIFT_SET,
    MR__THRIFT_MAP,
    MR__THRIFT_STRUCT
};

typedef struct mr__thrift {
    const uint8_t *at, *end;
    bool bad;
} mr__thrift;

/* A field of the struct at hand. */
typedef struct mr__thrift_field {
    int16_t id; /* 0 before the first */
    uint8_t type;
} mr__thrift_field;

/* Goes to the next field; false: the struct has ended. Its value must be read or skipped. */
bool mr__thrift_next(mr__thrift *t, mr__thrift_field *f);
/* Values of the field; of another type than it has, the bytes are bad. */
int64_t mr__thrift_int(mr__thrift *t, const mr__thrift_field *f); /* i8 to i64 */
bool mr__thrift_bool(mr__thrift *t, const mr__thrift_field *f);
mr_bytes mr__thrift_bytes(mr__thrift *t, const mr__thrift_field *f);
/* false: the field is no struct, and the bytes are bad. Its fields follow. */
bool mr__thrift_enter(mr__thrift *t, const mr__thrift_field *f);
/* How many values of that type follow, each of at least a byte. */
size_t mr__thrift_list(mr__thrift *t, const mr__thrift_field *f, uint8_t type);
/* Goes past the value, whatever it is. Structs may lie 32 deep in each other. */
void mr__thrift_skip(mr__thrift *t, const mr__thrift_field *f);

/* Writing: bytes that grow. The first failure stays, and what is put after it is dropped. */
typedef struct mr__thrift_w {
    uint8_t *v;
    size_t n, capacity;
    int16_t last[16]; /* ids of the last fields of the structs that are open */
    int depth;
    mr_code failed;
} mr__thrift_w;

void mr__thrift_w_reset(mr__thrift_w *w); /* frees; also of a zeroed one */
void mr__thrift_put_struct(mr__thrift_w *w, int16_t id);
void mr__thrift_put_end(mr__thrift_w *w); /* of the struct that is open */
void mr__thrift_put_int(mr__thrift_w *w, int16_t id, uint8_t type, int64_t v);
void mr__thrift_put_bool(mr__thrift_w *w, int16_t id, bool v);
void mr__thrift_put_bytes(mr__thrift_w *w, int16_t id, const void *p, size_t n);
void mr__thrift_put_list(mr__thrift_w *w, int16_t id, uint8_t type, size_t n);
/* Values within a list. */
void mr__thrift_item_int(mr__thrift_w *w, int64_t v);
void mr__thrift_item_bytes(mr__thrift_w *w, const void *p, size_t n);
void mr__thrift_item_struct(mr__thrift_w *w);
#endif
