/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_NET_LENT_MEMORY_H
#define MR_TRANSPORT_NET_LENT_MEMORY_H
/* Sends blocks of bytes to another process on the same host without a copy: the lender writes them
 * into shared memory and announces the position of each; the borrower uses them in place, for any
 * time and in any order, and then returns them.
 *
 *     lender                   shared memory                         borrower
 *     take --> writes -->  [ held | free | held | ... ]  --wrap-->  mr_buffer, read-only
 *     give  <------------------ where it began ----------------- <- its last reference goes
 *
 * Data that the lender reads from a file need not be written a second time: they are read into a
 * landing, a buffer in the same memory, and a block refers to its parts of the landing. A block
 * that is held keeps a reference to the landing, which stays unchanged.
 *
 * Positions and sizes are sent over the socket between the two processes; when it closes, both
 * sides end. The memory itself contains no positions or sizes, so a stray write can only damage
 * the bytes of blocks. The borrower cannot write at all.
 *
 * thread   any */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "pipeline/memory/buffer.h"

/* Bytes of shared memory between a lender and a borrower. Allocation is first fit, so that only
 * the maximum that was held at one time is ever touched. */
#define MR__LENT_BYTES ((size_t)256 << 20)
/* Landings use at most 1 / MR__LANDED_PART of it: the lender may cache them forever. */
enum { MR__LANDED_PART = 4 };

typedef struct mr__lender mr__lender;
/* *fd belongs to the caller, who sends it and closes it.
 * errors   MR_RESOURCE_EXHAUSTED, ... */
mr_code mr__lender_new(mr__lender **out, size_t bytes, int *fd, mr_status *st) MR_NODISCARD;
mr__lender *mr__lender_ref(mr__lender *l); /* returns l */
void mr__lender_unref(mr__lender *l);      /* NULL: nothing */
/* Allocates n bytes (at least 1), *at bytes from the beginning; NULL: no room now. */
void *mr__lender_take(mr__lender *l, size_t n, uint64_t *at);
/* The allocation there keeps a reference to `keeps` until it is freed; false: nothing is allocated
 * there, or the borrower is gone. */
bool mr__lender_keep(mr__lender *l, uint64_t at, mr_buffer *keeps);
/* Frees the allocation there; false: nothing is allocated there. */
bool mr__lender_give(mr__lender *l, uint64_t at);
/* The borrower is gone: releases all that was kept for it; no more landings are allocated. */
void mr__lender_end(mr__lender *l);
/* A landing of n bytes, followed by MR_SLACK readable ones: an ordinary buffer, freed with its last
 * reference. NULL: no room, or the borrower could write to it. */
mr_buffer *mr__lender_land(mr__lender *l, size_t n);
/* The memory and its size; the borrower sees everything in it. */
const uint8_t *mr__lender_memory(const mr__lender *l, size_t *bytes);
/* Bytes that are not free. */
size_t mr__lender_held(mr__lender *l);

typedef struct mr__borrower mr__borrower;
/* Maps the memory that the lender sent; fd still belongs to the caller.
 * errors   as mr__shared_memory_map */
mr_code mr__borrower_new(mr__borrower **out, int fd, size_t bytes, mr_status *st) MR_NODISCARD;
/* NULL: nothing. The memory stays mapped while a buffer refers to it. */
void mr__borrower_unref(mr__borrower *b);
/* *out = the n bytes at `at`. worth: bytes that its release frees, including those that it keeps.
 * errors   MR_DATA_LOSS: outside of the memory; MR_RESOURCE_EXHAUSTED */
mr_code mr__borrower_wrap(mr__borrower *b, uint64_t at, uint64_t n, uint64_t worth, mr_buffer **out,
                          mr_status *st) MR_NODISCARD;
/* The memory (read-only) and its size. */
const uint8_t *mr__borrower_memory(const mr__borrower *b, size_t *bytes);
/* at = positions (at most `most`) of the buffers released since the last call, once they are worth
 * at least least_bytes together; returns their number. */
size_t mr__borrower_done(mr__borrower *b, size_t least_bytes, uint64_t *at, size_t most);
#endif
