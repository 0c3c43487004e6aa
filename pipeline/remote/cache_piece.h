/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_REMOTE_CACHE_PIECE_H
#define MR_PIPELINE_REMOTE_CACHE_PIECE_H
/* The pieces of an object in a cache, of 8 MiB each, the last one smaller. An object is identified
 * by the endpoint of its store, its URL, its ETag and its size. Of a presigned URL the query is
 * left out, but for a hash of its parameters that do not sign.
 *
 * A piece's file, integers little-endian:
 *
 *   offset  size  meaning
 *   0       8     "MRPIECE1"
 *   8       4     CRC-32C of the rest of the head
 *   12      4     H, bytes of the head, a multiple of 4096
 *   16      8     number of the piece
 *   24      8     size of the object
 *   32      8     hash of the query's other parameters
 *   40      4     bytes of the piece
 *   44      4     K, bytes of the three texts
 *   48      K     endpoint, URL, ETag, each with a NUL
 *   48+K    4n    CRC-32C of each block of 16 KiB
 *   H       ...   the piece
 *
 * thread   any */
#include "pipeline/remote/cache_directory.h"
#include "pipeline/remote/remote_object.h"

enum { MR__PIECE_BLOCK = 16 << 10 };
#define MR__PIECE        ((int64_t)8 << 20)
#define MR__PIECE_BLOCKS 512

typedef struct mr__cache_key {
    char *text; /* endpoint, URL, ETag; owned */
    size_t n_text;
    const char *url, *etag; /* in text */
    uint64_t query;
    int64_t size; /* of the object */
} mr__cache_key;

/* etag "" and size -1: of what is known under the URL, whatever its contents. Owned, mr_free(text).
 * errors   MR_RESOURCE_EXHAUSTED */
mr_code mr__cache_key_make(mr__cache_key *out, const char *url, const char *etag, int64_t size,
                           mr_status *st) MR_NODISCARD;
/* ending: "piece" */
void mr__cache_name(const mr__cache_key *k, int64_t number, const char *ending,
                    char out[MR__CACHE_NAME]);

/* A piece that is open for reading. */
typedef struct mr__piece {
    int fd; /* -1: none */
    int64_t number;
    uint32_t head, bytes;
    uint8_t *crcs; /* owned */
    struct stat is;
    uint64_t checked[MR__PIECE_BLOCKS / 64]; /* blocks, by this process */
} mr__piece;

typedef enum mr__piece_state {
    MR__PIECE_OPEN,
    MR__PIECE_ABSENT,
    MR__PIECE_DAMAGED,
    MR__PIECE_NO_MEMORY
} mr__piece_state;

mr__piece_state mr__piece_open(mr__cache *c, const mr__cache_key *k, int64_t number,
                               mr__piece *out);
void mr__piece_close(mr__piece *p);
/* Reads n bytes from `from` on, where a block begins, to the end of a block or of the piece. false:
 * damaged. Blocks that this process has checked are not checked again, unless the file has changed
 * or there have been thousands of other pieces since. */
bool mr__piece_read(mr__piece *p, uint32_t from, void *data, uint32_t n);
/* Reads n bytes from anywhere, if this process has checked their blocks. */
bool mr__piece_read_checked(const mr__piece *p, uint32_t from, void *data, uint32_t n);

/* Bytes of the head of a piece. */
uint32_t mr__piece_head(const mr__cache_key *k, uint32_t bytes);
/* Makes the head; out has room for mr__piece_head bytes. */
void mr__piece_make_head(const mr__cache_key *k, int64_t number, uint32_t bytes,
                         const uint8_t *crcs, uint8_t *out);

/* What the head of a file says. */
typedef struct mr__piece_note {
    char *text; /* owned */
    const char *endpoint, *url, *etag;
    uint64_t query;
    int64_t number, size;
    uint32_t bytes;
} mr__piece_note;

mr__piece_state mr__piece_note_read(mr__cache *c, const char *name, mr__piece_note *out);
#endif
