/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_COLUMNS_ROW_STORE_H
#define MR_PIPELINE_COLUMNS_ROW_STORE_H
/* Rows in numbered slots, for shuffle: stores the rows of blocks, and gathers any slots.
 *
 * A column's rows are stored in one of these ways:
 *   COPY    dense rows, copied into chunks that grow with the rows
 *   POINT   resident rows: one address per slot, the rows stay where they are
 *   STRING  single strings, copied into cells of size classes (at most an eighth larger) that are
 *           reused
 *   VIEW    anything else (ragged rows, datasets, rows of differing shapes): one view per slot
 * Rows of a stream so occupy only their own size, and do not keep whole blocks alive. A column that
 * receives rows that do not fit its way becomes VIEW.
 *
 * Zeroed memory is an empty store. */
#include "pipeline/memory/block.h"

typedef enum mr__keep { MR_KEEP_COPY, MR_KEEP_POINT, MR_KEEP_STRING, MR_KEEP_VIEW } mr__keep;

enum { MR_STORE_CLASSES = 8 * 14 };

typedef struct mr__store_column {
    mr__keep keep;
    mr_array like;  /* dtype, rank, shape of the rows; no data */
    size_t stride;  /* bytes per slot */
    unsigned shift; /* 2^shift slots per chunk */
    mr_buffer **chunks;
    char **base; /* of each chunk */
    size_t n_chunks, chunks_capacity, bases_capacity;
    mr_buffer *holder;             /* POINT: keeps the rows alive */
    bool mixed;                    /* VIEW: the views' ranks differ */
    void *cells[MR_STORE_CLASSES]; /* STRING: free cells, by class */
    mr_buffer **slabs;             /* STRING: memory of the cells */
    size_t n_slabs, slabs_capacity;
    uint64_t put_bytes, put_rows; /* STRING: totals, for the mean size */
    char *fresh;                  /* STRING: unused end of the last slab */
    size_t fresh_bytes;
} mr__store_column;

typedef struct mr__row_store {
    /* The number of rows that it will hold, about; 0: not known. The owner may set it while the
     * store is empty: a store of few rows then has small chunks. A reset keeps it. */
    uint64_t expected;
    mr__store_column *columns;
    size_t n_columns;
    uint32_t *free_slots;
    size_t n_free, free_capacity;
    size_t n_slots;     /* ever used */
    mr_identities *ids; /* one view per slot, if the rows have identities */
    size_t ids_capacity;
    bool has_ids;
} mr__row_store;

/* Puts rows [from, from + n) of b into slots[0..n). On failure nothing is stored. */
mr_code mr__row_store_put(mr__row_store *s, const mr_block *b, size_t from, size_t n,
                          uint32_t *slots, mr_status *st) MR_NODISCARD;
/* out = the rows of n slots, in that order; the slots are then free. Writes to out->destination if
 * the rows fill it. On failure the slots keep their rows. */
mr_code mr__row_store_take(mr__row_store *s, const uint32_t *slots, size_t n, mr_block *out,
                           mr_status *st) MR_NODISCARD;
/* The same, but keeps the rows. */
mr_code mr__row_store_copy(mr__row_store *s, const uint32_t *slots, size_t n, mr_block *out,
                           mr_status *st) MR_NODISCARD;
/* Frees slots without gathering their rows. */
void mr__row_store_drop(mr__row_store *s, const uint32_t *slots, size_t n);
/* The number of these slots' rows that fit in one block: fewer than n only if their ranks
 * differ. */
size_t mr__row_store_fits(const mr__row_store *s, const uint32_t *slots, size_t n);
/* Bytes per row: exact for dense columns, the mean so far for strings. */
size_t mr__row_store_row_bytes(const mr__row_store *s);
void mr__row_store_reset(mr__row_store *s);
#endif
