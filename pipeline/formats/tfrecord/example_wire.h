/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_TFRECORD_EXAMPLE_WIRE_H
#define MR_PIPELINE_FORMATS_TFRECORD_EXAMPLE_WIRE_H
/* The protobuf wire format, the subset that tf.train.Example needs, and internals of the plan.
 *
 *   wire type  meaning                    tag = field << 3 | wire type, a varint
 *   0          varint, 1 to 10 bytes      7 bits a byte, low ones first, top bit: more follow
 *   1          8 bytes, little-endian
 *   2          varint length, then bytes
 *   5          4 bytes, little-endian
 *
 * source   protobuf.dev/programming-guides/encoding */
#include <string.h>

#include "pipeline/formats/tfrecord/example.h"
#include "pipeline/varint.h"

/* Field numbers of the lists in a Feature. */
enum { MR__BYTES_LIST = 1, MR__FLOAT_LIST = 2, MR__INT64_LIST = 3 };

/* Joins the 7-bit groups of 8 bytes. */
static inline uint64_t mr__join_groups(uint64_t x)
{
    x = (x & 0x007f007f007f007f) | ((x & 0x7f007f007f007f00) >> 1);
    x = (x & 0x00003fff00003fff) | ((x & 0x3fff00003fff0000) >> 2);
    return (x & 0x000000000fffffff) | ((x & 0x0fffffff00000000) >> 4);
}

/* As mr__varint, without a branch on the length if 8 bytes may be read before e. */
static inline const uint8_t *mr__varint_any(const uint8_t *p, const uint8_t *e, uint64_t *v)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    if (e - p >= 8) {
        uint64_t w;
        memcpy(&w, p, 8);
        uint64_t stops = ~w & 0x8080808080808080;
        if (stops) {
            uint64_t upto = stops ^ (stops - 1); /* all bits up to the first stop */
            *v = mr__join_groups(w & upto & 0x7f7f7f7f7f7f7f7f);
            return p + (__builtin_ctzll(stops) >> 3) + 1;
        }
    }
#endif
    return mr__varint_slow(p, e, v);
}

/* Reads a varint of exactly the n bytes at p, 1 to 8; the 7 bytes before p may be read. false: the
 * bytes are not one varint. */
static inline bool mr__varint_of(const uint8_t *p, size_t n, uint64_t *v)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    uint64_t w, beyond = 8 * (8 - n);
    memcpy(&w, p + n - 8, 8);
    w >>= beyond;
    *v = mr__join_groups(w & 0x7f7f7f7f7f7f7f7f);
    return (w & 0x8080808080808080) == (uint64_t)0x0080808080808080 >> beyond;
#else
    return mr__varint(p, p + n, v) == p + n;
#endif
}

/* Reads a length and checks that this many bytes follow before e. Returns the end of the length, *n
 * is the length. NULL: cut short. */
static inline const uint8_t *mr__length(const uint8_t *p, const uint8_t *e, size_t *n)
{
    uint64_t v;
    p = mr__varint(p, e, &v);
    if (!p || v > (uint64_t)(e - p))
        return NULL;
    *n = (size_t)v;
    return p;
}

/* Skips the value of an unknown field. */
static inline const uint8_t *mr__skip_field(const uint8_t *p, const uint8_t *e, uint64_t tag)
{
    uint64_t v;
    size_t n;
    if (tag >> 3 == 0 || tag > UINT32_MAX)
        return NULL;
    switch (tag & 7) {
    case 0:
        return mr__varint(p, e, &v);
    case 1:
        return e - p >= 8 ? p + 8 : NULL;
    case 2:
        p = mr__length(p, e, &n);
        return p ? p + n : NULL;
    case 5:
        return e - p >= 4 ? p + 4 : NULL;
    default:
        return NULL;
    }
}

/* One entry of the map: its key and Feature, NULL where not set. */
typedef struct mr__entry {
    const uint8_t *key, *value;
    size_t n_key, n_value;
} mr__entry;

/* Walks the entries of a record, whose Features messages are found through `outer`. mr__next_entry
 * returns 1 with *entry, 0 at the end, -1: not an Example. Start with p = end = NULL and outer at
 * the record. */
typedef struct mr__walker {
    const uint8_t *p, *end; /* in the current Features */
    const uint8_t *outer, *outer_end;
} mr__walker;
int mr__next_entry(mr__walker *w, mr__entry *entry);

/* Decodes the varints in [p, e), which must fill it, at most `most` of them; *count were written to
 * `to`. false: malformed, or more than `most`. The record has at least 8 bytes before p. */
bool mr__packed_ints(const uint8_t *p, const uint8_t *e, int64_t *to, size_t most, size_t *count);

/* The list in a Feature; kind 0: none. from: start of its fields. false: malformed. */
typedef struct mr__list {
    int kind;
    const uint8_t *from, *end;
} mr__list;
bool mr__find_list(const uint8_t *value, size_t n, mr__list *out);
/* Number of its values; false: malformed. */
bool mr__count_values(const mr__list *list, size_t *count);
/* Decodes the values (int64_t, float or mr_bytes) to `to`, which has room for as many values as the
 * list has bytes, or as were counted. Sets *count. false: malformed. */
bool mr__decode_values(const mr__list *list, void *to, size_t *count);

/* Dtype of a kind of list; MR_DATASET for kind 0. */
mr_dtype mr__list_dtype(int kind);
#endif
