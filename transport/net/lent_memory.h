/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_NET_LENT_MEMORY_H
#define MR_TRANSPORT_NET_LENT_MEMORY_H
/* Blocks of bytes that go from one process to another of the same host without a copy on the way
 * out: the lender writes them into shared memory and says where each is; the borrower uses them
 * where they are, for as long as it likes and in any order, and then says that it is done.
 *
 *     lender                   shared memory                         borrower
 *     take --> writes -->  [ held | free | held | ... ]  --wrap-->  mr_buffer, read-only
 *     give  <------------------ where it began ----------------- <- its last reference goes
 *
 * What the lender has from a file need not be written a second time: it is read into a landing,
 * a buffer in the same memory, and a block names the parts of it that are its own. The landing
 * stays as it is while such a block is held, which keeps it.
 *
 * Where bytes begin and how many there are is said on the socket of the two, whose end is the end
 * of both; nothing in the memory itself says it, so that whoever writes there can spoil the bytes
 * of blocks and no more. The borrower cannot write at all.
 *
 * thread   any */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "pipeline/memory/buffer.h"

/* Bytes of shared memory between a lender and a borrower. The first free place is used first, so
 * that only as much of it is ever touched as was held at one time. */
#define MR__LENT_BYTES ((size_t)256 << 20)
/* What landings have of it at most: a cache of the lender's may keep them for ever. */
enum { MR__LANDED_PART = 4 };

typedef struct mr__lender mr__lender;
/* *fd is the caller's, to be sent and closed.
 * errors   MR_RESOURCE_EXHAUSTED, ... */
mr_code mr__lender_new(mr__lender **out, size_t bytes, int *fd, mr_status *st) MR_NODISCARD;
mr__lender *mr__lender_ref(mr__lender *l); /* returns l */
void mr__lender_unref(mr__lender *l);      /* NULL: nothing */
/* Room for n bytes (at least 1) at the address returned, *at bytes from the beginning; NULL: there
 * is none now. */
void *mr__lender_take(mr__lender *l, size_t n, uint64_t *at);
/* What was taken there keeps `keeps` (another reference) until it is given; false: nothing was, or
 * there is no borrower any more. */
bool mr__lender_keep(mr__lender *l, uint64_t at, mr_buffer *keeps);
/* What was taken there is free again; false: nothing was. */
bool mr__lender_give(mr__lender *l, uint64_t at);
/* The borrower has gone: nothing is kept for it any more, and no landing is had. */
void mr__lender_end(mr__lender *l);
/* A landing of n bytes, MR_SLACK readable ones after it: a buffer as any, free again with its last
 * reference. NULL: there is none; also where the borrower could write to it. */
mr_buffer *mr__lender_land(mr__lender *l, size_t n);
/* The memory, and how much of it is: what lies in it, the borrower sees. */
const uint8_t *mr__lender_memory(const mr__lender *l, size_t *bytes);
/* Bytes that are not free. */
size_t mr__lender_held(mr__lender *l);

typedef struct mr__borrower mr__borrower;
/* Maps what the lender sent; fd stays the caller's.
 * errors   as mr__shared_memory_map */
mr_code mr__borrower_new(mr__borrower **out, int fd, size_t bytes, mr_status *st) MR_NODISCARD;
mr__borrower *mr__borrower_ref(mr__borrower *b); /* returns b */
/* NULL: nothing. The memory stays mapped while a buffer of it is there. */
void mr__borrower_unref(mr__borrower *b);
/* *out = the n bytes at `at`. worth: bytes that are free when it goes, those that it keeps among
 * them.
 * errors   MR_DATA_LOSS: they do not lie in it; MR_RESOURCE_EXHAUSTED */
mr_code mr__borrower_wrap(mr__borrower *b, uint64_t at, uint64_t n, uint64_t worth, mr_buffer **out,
                          mr_status *st) MR_NODISCARD;
/* The memory, to be read, and how much of it is. */
const uint8_t *mr__borrower_memory(const mr__borrower *b, size_t *bytes);
/* Places (at most `most`) of buffers that went since it was asked, once these are worth least_bytes
 * together; their number. */
size_t mr__borrower_done(mr__borrower *b, size_t least_bytes, uint64_t *at, size_t most);
#endif
