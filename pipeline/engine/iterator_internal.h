/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_ENGINE_ITERATOR_INTERNAL_H
#define MR_PIPELINE_ENGINE_ITERATOR_INTERNAL_H
/* Options of an iterator that only Millrace's own layers set: shard/, transport/ and trainer/. */
#include "pipeline/engine/iterator.h"
#include "pipeline/engine/op_iterator.h"

typedef struct mr__iterator_internal {
    /* The user did not set mr_iterator_opts.seed: the seed there is only for random ops, and random
     * functions draw from function_seed. */
    bool seed_made_up;
    uint64_t function_seed;
    /* With a memory limit: the needs of all iterators with this flag are added up; opening one that
     * no longer fits fails with MR_RESOURCE_EXHAUSTED. */
    bool shares_memory;
    /* Another such iterator needs the memory that this one has read ahead. NULL: it keeps that.
     * Else opening the other one waits for mr__iterator_gave_back. Called by any thread, with a
     * lock: it must not wait nor call this iterator. */
    void (*give_back)(void *ctx);
    void *give_back_ctx;
    /* An op of another iterator rewinds this one, maybe before its end: what a pass draws, counts
     * or records must not depend on rows that were not requested. */
    bool opened_again;
    bool restores_silently; /* by name: another iterator of the same graph logs what differs */
    struct mr__elastic_host
        *elastic; /* for the ops of shard/distribute/elastic_*; borrowed until the iterator
                                         is closed; may be NULL */
    const mr_read_slots *read_slots; /* for the files that sources read (mr_file_opts); borrowed
                                        until the iterator is closed; may be NULL */
} mr__iterator_internal;

/* The internal options of opts; all zero if opts->internal is NULL. Borrowed with opts. */
static inline const mr__iterator_internal *mr__iterator_internal_of(const mr_iterator_opts *opts)
{
    static const mr__iterator_internal none;
    return opts->internal ? opts->internal : &none;
}

/* The seed that random functions of a run with these options draw from, besides their own. */
static inline uint64_t mr__function_seed(const mr_iterator_opts *opts)
{
    const mr__iterator_internal *internal = mr__iterator_internal_of(opts);
    return opts->has_seed && !internal->seed_made_up ? opts->seed : internal->function_seed;
}

/* For a handle of random access, whose iterator is never pulled: the number of elements, and the
 * elements of n numbers less than that, as op->at. */
mr_code mr__iterator_count(mr_iterator *it, uint64_t *n, mr_status *st) MR_NODISCARD;
mr_code mr__iterator_at(mr_iterator *it, const uint64_t *index, size_t n, mr_block *b,
                        mr_status *st) MR_NODISCARD;

/* false: it reads a pipe, or a cache would have to be filled again. Walks the graph. */
bool mr__iterator_can_give_back(const mr_iterator *it);
/* After give_back: mr_iterator_rest has freed what was read ahead, or it cannot be freed. */
void mr__iterator_gave_back(mr_iterator *it);

/* Before it rests or is closed, and what its ops read is stopped: an op that writes a file has it
 * complete if all elements were delivered. */
void mr__iterator_settle(mr_iterator *it);
/* The iterator is as newly opened, whatever it has run. */
mr_code mr__iterator_start_over(mr_iterator *it, mr_status *st) MR_NODISCARD;

/* *other = mr_iterator_restore would restore this position by name, since it is of another mixture.
 * errors   those of mr_iterator_restore that concern the graph */
mr_code mr__iterator_is_of_other_mixture(mr_iterator *it, const void *bytes, size_t size,
                                         bool *other, mr_status *st) MR_NODISCARD;

/* The text of the graph of a position, and its outline (NULL: it has no mixture). */
typedef struct mr__graph_texts {
    const char *text, *outline;
    size_t text_size, outline_size;
} mr__graph_texts;
/* *out = the outline of ds as positions have it, owned; NULL: it has no mixture. */
mr_code mr__graph_outline(const mr_dataset *ds, char **out, mr_status *st) MR_NODISCARD;
/* The graph with this text and outline (NULL: none) is another one than that of a position.
 * returns  MR_OK: only in its mixtures, and that is allowed
 * errors   MR_INVALID_ARGUMENT names the difference */
mr_code mr__graphs_differ(const char *text, const char *outline, const mr__graph_texts *theirs,
                          mr_on_mismatch allowed, mr_status *st) MR_NODISCARD;
/* true: a position of ds has a part for each source of a mixture, and the rows that ops above it
 * hold. */
bool mr__graph_is_mixed(const mr_dataset *ds);
/* true: what a pass over ds draws depends on how far the passes before it were read. */
bool mr__graph_draws_by_reading(const mr_dataset *ds);

/* For an op that runs its input in other processes, where it must draw the same as below the op.
 * *seed = what ops here draw from. false: at random. */
bool mr__iter_job_seed(const mr_iter *it, uint64_t *seed);
/* The op's place in the graph (graph/origin_internal.h). */
uint64_t mr__iter_place(const mr_iter *it);
/* An error as bytes (owned: mr_buffer_unref), as positions hold it, and back.
 * errors   MR_INVALID_ARGUMENT: other bytes; MR_RESOURCE_EXHAUSTED */
mr_code mr__status_to_bytes(const mr_status *e, mr_buffer **out, mr_status *st) MR_NODISCARD;
mr_code mr__status_from_bytes(const mr_buffer *bytes, mr_status *e, mr_status *st) MR_NODISCARD;
/* true: it, or an op below it, waits for an outside producer (mr_iter_set_may_block). An op that
 * has rows to deliver does so before it pulls such an input. Some sources know it from their first
 * pull on. */
bool mr__iter_may_block(const mr_iter *it);
/* The same for the op at the top. */
bool mr__iterator_may_block(const mr_iterator *it);
/* Call in open if saving `it` always fails with this message, and if so with NULL in close: ops
 * above then fail at once, and do not wait for what they read ahead. The second function returns
 * the message of `it` or of one of its inputs; NULL: saving may succeed. */
void mr__iter_set_no_position(mr_iter *it, const char *message);
const char *mr__iter_no_position(const mr_iter *it);
/* Call in open after a change to the state that the iterators of a node share: undo takes it back
 * if this op or one above it cannot be opened. */
void mr__iter_set_undo(mr_iter *it, void (*undo)(mr_iter *it));
/* Call in open if MR_END of the op ends only a part of its elements: it is asked again for the next
 * part. */
void mr__iter_set_goes_on(mr_iter *it);
bool mr__iter_goes_on(const mr_iter *it);
/* Resident bytes of this process. -1: not known. */
int64_t mr__memory_resident(void);
/* Adds bytes (may be negative) that a layer above holds ready of the iterators with shares_memory;
 * they count as read ahead. */
void mr__memory_held_above(int64_t bytes);
/* The memory limit in force if `chosen` bytes were set (0: none): the control group may allow less.
 * 0: no limit. */
int64_t mr__memory_limit_in_force(int64_t chosen);
/* The executor of an iterator that rests, from its next pass on; borrowed. NULL: its own. */
void mr__iterator_set_executor(mr_iterator *it, mr_executor *executor);
#endif
