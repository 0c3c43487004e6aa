/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_PARQUET_THRIFT_COMPACT_H
#define MR_PIPELINE_FORMATS_PARQUET_THRIFT_COMPACT_H
/* Thrift's compact protocol, the subset that heads and footers of Parquet files need.
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
 * The reader works on untrusted bytes. It stops for good at the first invalid one and sets `bad`;
 * from then on numbers are 0 and structs end. It never allocates memory.
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

/* A field of the current struct. */
typedef struct mr__thrift_field {
    int16_t id; /* 0 before the first field */
    uint8_t type;
} mr__thrift_field;

/* Advances to the next field; false: the struct has ended. The value must be read or skipped. */
bool mr__thrift_next(mr__thrift *t, mr__thrift_field *f);
/* Value of the field; if the field has another type, the bytes are bad. */
int64_t mr__thrift_int(mr__thrift *t, const mr__thrift_field *f); /* i8 to i64 */
bool mr__thrift_bool(mr__thrift *t, const mr__thrift_field *f);
mr_bytes mr__thrift_bytes(mr__thrift *t, const mr__thrift_field *f);
/* Enters a struct, whose fields follow. false: the field is not a struct, and the bytes are bad. */
bool mr__thrift_enter(mr__thrift *t, const mr__thrift_field *f);
/* Number of values of that type that follow, each of at least a byte. */
size_t mr__thrift_list(mr__thrift *t, const mr__thrift_field *f, uint8_t type);
/* Skips a value of any type. Structs may be nested 32 deep. */
void mr__thrift_skip(mr__thrift *t, const mr__thrift_field *f);

/* Writing to a growable buffer. The first failure is kept; later values are dropped. */
typedef struct mr__thrift_w {
    uint8_t *v;
    size_t n, capacity;
    int16_t last[16]; /* last field ids of the open structs */
    int depth;
    mr_code failed;
} mr__thrift_w;

void mr__thrift_w_reset(mr__thrift_w *w); /* frees; also for a zeroed one */
void mr__thrift_put_struct(mr__thrift_w *w, int16_t id);
void mr__thrift_put_end(mr__thrift_w *w); /* of the innermost open struct */
void mr__thrift_put_int(mr__thrift_w *w, int16_t id, uint8_t type, int64_t v);
void mr__thrift_put_bool(mr__thrift_w *w, int16_t id, bool v);
void mr__thrift_put_bytes(mr__thrift_w *w, int16_t id, const void *p, size_t n);
void mr__thrift_put_list(mr__thrift_w *w, int16_t id, uint8_t type, size_t n);
/* Values within a list. */
void mr__thrift_item_int(mr__thrift_w *w, int64_t v);
void mr__thrift_item_bytes(mr__thrift_w *w, const void *p, size_t n);
void mr__thrift_item_struct(mr__thrift_w *w);
#endif
