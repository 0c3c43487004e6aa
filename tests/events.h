/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TESTS_EVENTS_H
#define MR_TESTS_EVENTS_H
/* What an iterator delivers, as text: one event for each element and each error.
 *
 * An element is its value: numbers, true and false, strings in "" (with \" and \\), tensors in [],
 * datasets as {their events}, (a,b) for several leaves, without blanks between them. An error is
 * "!" and its line, with blanks as "_"; in a dataset only "!". Needs nothing of harness.h, so that
 * separate programs can use it; memory is the C library's, which fault plans do not touch. */
#include <stdbool.h>
#include <stddef.h>

#include "pipeline/engine/iterator.h"
#include "pipeline/engine/random_access.h"

typedef struct mr_event {
    char *text;
    mr_identity *ids; /* NULL where identities were not asked for, and for errors */
    size_t n_ids;
} mr_event;

typedef struct mr_events {
    mr_event *v;
    size_t n, room;
    bool no_memory;  /* the last error was of memory */
    mr_status error; /* the last */
} mr_events;

/* Pulls once; what came is added. want rows at most, b is the caller's (its last block stays). */
mr_code mr_events_pull(mr_events *e, mr_iterator *it, size_t want, mr_block *b);
/* The same for a lookup of n numbers. */
mr_code mr_events_at(mr_events *e, mr_random_access *ra, const int64_t *index, size_t n,
                     mr_block *b);
/* Adds the rows of b. */
void mr_events_block(mr_events *e, const mr_block *b);
/* Pulls until the end, or until there are `most` events. */
void mr_events_run(mr_events *e, mr_iterator *it, size_t want, size_t most);
/* Adds the first n events of another list. */
void mr_events_copy(mr_events *e, const mr_events *from, size_t n);
void mr_events_add(mr_events *e, const char *text, size_t size);
/* Adds the texts in `list`, which blanks separate. */
void mr_events_split(mr_events *e, const char *list);
/* Sorts by text; of an error only its "!" remains. */
void mr_events_sort(mr_events *e);
/* All texts, separated by blanks. Owned: free. */
char *mr_events_join(const mr_events *e);
/* Forgets the events from number `from` on, and all memory with from = 0. */
void mr_events_reset(mr_events *e, size_t from);

/* Is this event the wanted one? "!part" is any error whose line holds part. Numbers with a point or
 * an exponent are equal within one part in a million. */
bool mr_event_is(const char *got, const char *wanted);
#endif
