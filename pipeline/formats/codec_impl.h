/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_CODEC_IMPL_H
#define MR_PIPELINE_FORMATS_CODEC_IMPL_H
/* Encoders and decoders of compressed streams, one step at a time. Private to formats/.
 *
 * thread   one at a time per object */
#include <stddef.h>
#include <stdint.h>
#include "pipeline/formats/codec.h"

/* One stream being read or written. A step consumes from *in and writes to *out as far as it can,
 * and advances both. */
typedef struct mr__codec_io {
    const uint8_t *in;
    size_t n_in;
    uint8_t *out;
    size_t n_out;
} mr__codec_io;

typedef struct mr__codec mr__codec;
typedef struct mr__codec_class {
    /* in_ended: no bytes follow io->in. Decoding returns
     *   MR_OK    progress, or more input or room is needed
     *   MR_END   the end of the stream, trailer included; everything has been written to out
     *   MR_DATA_LOSS  invalid from here on, or cut short; the bytes written before are valid */
    mr_code (*step)(mr__codec *c, mr__codec_io *io, bool in_ended, mr_status *st);
    void (*close)(mr__codec *c);
} mr__codec_class;
struct mr__codec {
    const mr__codec_class *class_;
};

mr_code mr__codec_decode_open(mr__codec **out, mr_compression c, mr_status *st) MR_NODISCARD;
/* Encoding: step with in_ended returns MR_END when everything is written. */
mr_code mr__codec_encode_open(mr__codec **out, mr_compression c, mr_status *st) MR_NODISCARD;
void mr__codec_close(mr__codec *c); /* NULL: no effect */

/* The program that compressed a file which begins with these bytes; NULL: none that is known by
 * them, or none yet: *more says that further bytes may tell. *c is its compression, or NONE: one
 * that is not read. zlib leaves no such mark. */
const char *mr__compressor_seen(const uint8_t *b, size_t n, mr_compression *c, bool *more);
/* The same of a file that is neither text nor of the format expected, and may be in zlib. */
const char *mr__compressor_of_table(const uint8_t *b, size_t n);

/* MR_DATA_LOSS for a stream `name` that stops before its end; empty: it has no bytes at all. */
static inline mr_code mr__codec_cut_short(const char *name, bool empty, mr_status *st)
{
    if (empty)
        return mr_fail(st, MR_DATA_LOSS, "truncated %s stream: the file is empty", name);
    return mr_fail(st, MR_DATA_LOSS,
                   "truncated %s stream: the file stops before the end of the stream; was it "
                   "copied or written whole?",
                   name);
}

mr_code mr__zlib_decode_open(mr__codec **out, bool gzip, mr_status *st) MR_NODISCARD;
mr_code mr__zlib_encode_open(mr__codec **out, bool gzip, mr_status *st) MR_NODISCARD;
mr_code mr__zstd_decode_open(mr__codec **out, mr_status *st) MR_NODISCARD;
mr_code mr__zstd_encode_open(mr__codec **out, mr_status *st) MR_NODISCARD;
#endif
