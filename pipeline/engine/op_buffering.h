/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_ENGINE_OP_BUFFERING_H
#define MR_PIPELINE_ENGINE_OP_BUFFERING_H
/* For ops that hold rows of their input, read ahead, or work in other threads: threads, memory, and
 * how a position accounts for the rows that are held.
 *
 * An op that holds rows saves one of two things: the rows (mr_state_put_block), or its input's
 * position from before they were pulled, to pull them again. The second is smaller, and possible
 * only if mr_iter_replays and not mr_iter_pulls_count.
 *
 * since    0.1 */
#include "op_iterator.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- threads and memory ---- */

MR_API mr_executor *mr_iter_executor(mr_iter *it); /* never NULL; may have 0 threads */
/* Work of an op outside its next, in a task. Its time is counted from begin to end, which must be
 * called on the same thread. */
typedef struct mr_iter_work {
    int64_t began, waited, inner, inner_waited, entered; /* the engine's */
    const mr_iter *above, *outer;
    size_t bound; /* the limit of one allocation before begin */
} mr_iter_work;
MR_API void mr_iter_work_begin(const mr_iter *it, mr_iter_work *w);
MR_API void mr_iter_work_end(mr_iter *it, mr_iter_work *w);

/* For the op's own buffers: reserves up to `most` bytes of the memory that the limit leaves after
 * the graph's needs, and returns the number reserved (`most` without a limit). The second function
 * releases them. */
MR_API int64_t mr_iter_take_memory(mr_iter *it, int64_t most);
MR_API void mr_iter_give_memory(mr_iter *it, int64_t bytes);

/* As MR_OP_MAY_BLOCK, for an op of which only some iterators wait for an outside producer: call it
 * in `open`, or later. */
MR_API void mr_iter_set_may_block(const mr_iter *it);

/* ---- rows that are held ---- */

/* *position = the state of `it` as bytes; NULL if positions are off. Call it before a block is read
 * ahead; mr_state_put_bytes writes it into a state. The second function restores `it`, which may be
 * new or used. */
MR_API mr_code mr_iter_position(mr_iter *it, mr_buffer **position, mr_status *st) MR_NODISCARD;
MR_API mr_code mr_iter_restore_position(mr_iter *it, const void *bytes, size_t n,
                                        mr_status *st) MR_NODISCARD;
/* true: pulling `it` has effects that iterators opened later observe: an op above opens it again,
 * and it draws, is counted or recorded. Only rows that the consumer requested may have such
 * effects, so save the rows instead of pulling them again. thread the one that pulls `it` */
MR_API bool mr_iter_pulls_count(const mr_iter *it);
/* true: an op above opens `it` again, maybe before its end. */
MR_API bool mr_iter_opened_again(const mr_iter *it);
/* Called by an op with MR_OP_REMEMBERS: whether it records the elements that are pulled. */
MR_API void mr_iter_set_records(mr_iter *it, bool does);
/* false: this iterator or one below it, ever opened, cannot emit the same elements again
 * (MR_OP_NO_REPLAY, mr_iter_set_no_replay): save the rows. thread any */
MR_API bool mr_iter_replays(const mr_iter *it);

#ifdef __cplusplus
}
#endif
#endif
