/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_FORMAT_H
#define MR_PIPELINE_FORMATS_FORMAT_H
/* Interface of a record format: it finds the records in the bytes of a file. Opening, positions,
 * seeking and closing are implemented by reader.c. */
#include "pipeline/formats/byte_stream.h"

struct mr_format {
    size_t reader_size; /* of a struct that begins with mr_reader; allocated zeroed */
    /* Prepares to read from the first byte. own: mr_file_opts.own. NULL: no preparation. */
    mr_code (*start)(mr_reader *r, const void *own, mr_status *st);
    /* As mr_reader_read, for a reader that has not ended. An error is final: mr__reader_give_up. */
    mr_code (*read)(mr_reader *r, size_t want, size_t max_bytes, mr_array *out, mr_status *st);
    void (*moved)(mr_reader *r); /* called after in.at was repositioned; NULL: no effect */
    /* As mr_reader_seek, where `to` has not ended, and as mr_reader_skip, for formats that locate
     * records by other means than an offset. NULL: seeking moves in.at, skipping reads the
     * records. */
    mr_code (*seek)(mr_reader *r, const mr_file_position *to, mr_status *st);
    mr_code (*skip)(mr_reader *r, int64_t n, int64_t *skipped, mr_status *st);
    void (*stop)(mr_reader *r); /* before closing, also after a failed start; NULL: none */
};

struct mr_reader {
    const mr_format *format;
    mr__byte_stream in;
    mr_buffer *path; /* for the origin of chunks; NULL: they have none */
    int64_t record;  /* number of the record at in.at */
    bool ended, strict;
    bool has_place; /* the next record starts at `place`, and in.at is past it */
    int64_t place;
};

/* Sets r->path. */
mr_code mr__reader_keep_path(mr_reader *r, mr_status *st) MR_NODISCARD;

/* The window whose chunk has its origin set. Zeroed: none. */
typedef struct mr__origin_window {
    const mr_buffer *chunk;
    const uint8_t *start;
    int64_t offset;
} mr__origin_window;
/* Sets the origin of the records on the chunk, from the first record of a window, unless *w is that
 * window: no other holder has the chunk yet. record_of: as in mr_origin. */
void mr__reader_set_origin(const mr_reader *r, mr__origin_window *w, const uint8_t *first,
                           const void *(*record_of)(const void *at, const void *p, int64_t *n));

/* Makes the error in rc and *st final for this reader. Returns rc. */
mr_code mr__reader_give_up(mr_reader *r, mr_code rc, mr_status *st);
/* Doubles the window, for records whose end is searched for; *tail: it now reaches the end of the
 * file. too_long: the message if the window exceeds 1 GiB. Errors are final. */
mr_code mr__reader_widen(mr_reader *r, const char *too_long, bool *tail,
                         mr_status *st) MR_NODISCARD;

/* Turns `a`, an array of n views of which the first `rows` are set, into *out, which keeps the
 * current chunk alive. */
mr_code mr__reader_emit(const mr_reader *r, mr_array *a, size_t rows, mr_array *out,
                        mr_status *st) MR_NODISCARD;
#endif
