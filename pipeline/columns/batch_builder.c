/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/columns/batch_builder.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "pipeline/params/infer.h"

/* A batch up to this size is allocated at once for its maximum number of rows. A larger batch
 * starts small and grows with its rows: batch(10^9) of a window must not allocate memory for
 * 10^9 rows, and its result must not keep it. */
#define WHOLE_BYTES ((size_t)1 << 30)
#define FIRST_BYTES ((size_t)1 << 20)
#define SPARE_BYTES ((size_t)1 << 17) /* a half-empty batch frees more than this */
#define SHAPE_TEXT  96
#define NAME_TEXT   96

/* ---- segments ---- */

size_t mr__segment_bytes(const mr_destination *destination, size_t column)
{
    size_t bytes = 0;
    for (size_t i = 0; i < destination->n_segments; i++)
        bytes += destination->segments[column * destination->n_segments + i].bytes;
    return bytes;
}

/* Moves bytes between a stream position of a column's segments and memory. */
static void copy_segments(const mr_destination *destination, size_t column, size_t at, char *memory,
                          size_t bytes, bool out_of)
{
    for (size_t i = 0; i < destination->n_segments && bytes; i++) {
        const mr_segment *s = &destination->segments[column * destination->n_segments + i];
        if (at >= s->bytes) {
            at -= s->bytes;
            continue;
        }
        size_t n = s->bytes - at < bytes ? s->bytes - at : bytes;
        if (out_of)
            memcpy(memory, (char *)s->data + at, n);
        else
            memcpy((char *)s->data + at, memory, n);
        memory += n;
        bytes -= n;
        at = 0;
    }
}

static bool has_room(const mr_destination *destination, size_t column, const mr_array *a,
                     size_t rows)
{
    size_t bytes = mr_array_row_bytes(a);
    return a->storage == MR_DENSE && bytes && !__builtin_mul_overflow(bytes, rows, &bytes) &&
           bytes <= mr__segment_bytes(destination, column);
}

void mr__place(mr_block *out)
{
    if (!out->destination || out->destination->n_columns != out->n_columns)
        return;
    for (size_t c = 0; c < out->n_columns; c++) {
        mr_array *a = &out->columns[c];
        if (!has_room(out->destination, c, a, a->rows))
            continue;
        copy_segments(out->destination, c, 0, a->data, a->rows * mr_array_row_bytes(a), false);
        mr_buffer_unref(a->owner);
        a->owner = NULL;
        a->data = NULL;
        a->storage = MR_PLACED;
    }
}

/* ---- collecting ---- */

static bool can_place(const mr_block *src, const mr_destination *destination, size_t limit)
{
    if (!destination || destination->n_columns != src->n_columns)
        return false;
    for (size_t c = 0; c < src->n_columns; c++)
        if (!has_room(destination, c, &src->columns[c], limit))
            return false;
    return true;
}

/* Bytes of one row, including its identities (one or more). */
static size_t row_bytes(const mr_block *b)
{
    size_t bytes = 1 + (b->ids.ids ? sizeof(mr_identity) + sizeof(uint64_t) : 0);
    for (size_t c = 0; c < b->n_columns; c++)
        bytes += b->columns[c].storage == MR_RAGGED ? sizeof(mr_row)
                                                    : mr_array_row_bytes(&b->columns[c]);
    return bytes;
}

static size_t first_capacity(const mr__batch_builder *s, const mr_block *src, size_t n)
{
    size_t bytes = row_bytes(src), first = FIRST_BYTES / bytes, limit = s->limit;
    if (s->most && s->most < limit)
        limit = n > s->most ? n : s->most;
    if (limit <= WHOLE_BYTES / bytes)
        return limit;
    first = n > first ? n : first;
    return first < limit ? (first ? first : 1) : limit;
}

/* Starts `rows` for `capacity` rows as those of src. */
static mr_code start_rows(mr__batch_builder *s, mr_block *rows, const mr_block *src,
                          size_t capacity, mr_status *st)
{
    if (!s->ragged && !s->placed)
        return mr_block_start(rows, src, capacity, st);
    /* Identities first, then headers or ragged columns. */
    mr_block bare = *src;
    bare.n_columns = 0;
    MR_TRY(mr_block_start(rows, &bare, capacity, st));
    mr_identities ids = rows->ids;
    rows->ids = (mr_identities){0};
    mr_code rc = mr_block_prepare(rows, src->n_columns, st);
    rows->ids = ids;
    for (size_t c = 0; c < src->n_columns && rc == MR_OK; c++) {
        mr_array like = src->columns[c];
        if (s->placed) {
            rows->columns[c] = like;
            rows->columns[c].owner = NULL;
            rows->columns[c].data = NULL;
            rows->columns[c].rows = 0;
        } else {
            like.storage = like.storage == MR_DATASETS ? MR_DATASETS : MR_RAGGED;
            rc = mr_array_start(&rows->columns[c], &like, capacity, st);
        }
    }
    if (rc != MR_OK)
        mr_block_clear(rows);
    return rc;
}

static mr_code resize(mr__batch_builder *s, size_t capacity, mr_status *st)
{
    mr_block other = MR_BLOCK_EMPTY;
    mr_code rc = start_rows(s, &other, &s->rows, capacity, st);
    if (rc == MR_OK)
        rc = mr_block_append(&other, &s->rows, 0, s->rows.rows, st);
    if (rc == MR_OK) {
        mr_block_move(&s->rows, &other);
        s->capacity = capacity;
    }
    mr_block_reset(&other);
    return rc;
}

static mr_code grow(mr__batch_builder *s, size_t need, mr_status *st)
{
    size_t capacity = s->capacity;
    while (capacity < need)
        capacity = capacity > s->limit / 2 ? s->limit : 2 * capacity;
    return resize(s, capacity, st);
}

static bool half_empty(const mr__batch_builder *s)
{
    size_t spare = s->capacity - s->rows.rows;
    return spare > s->rows.rows && spare > SPARE_BYTES / row_bytes(&s->rows);
}

static mr_code append_placed(mr__batch_builder *s, const mr_block *src, size_t from, size_t n,
                             mr_status *st)
{
    for (size_t c = 0; c < src->n_columns; c++) {
        size_t bytes = mr_array_row_bytes(&src->columns[c]);
        copy_segments(s->destination, c, s->rows.rows * bytes, mr_array_at(&src->columns[c], from),
                      n * bytes, false);
    }
    /* Counts the rows and takes their identities. */
    mr_block to = s->rows, bare = *src;
    to.n_columns = bare.n_columns = 0;
    MR_TRY(mr_block_append(&to, &bare, from, n, st));
    s->rows.rows = to.rows;
    s->rows.ids = to.ids;
    return MR_OK;
}

/* Moves rows back out of the segments: the next rows cannot be placed, or there are no more. */
static mr_code unplace(mr__batch_builder *s, mr_status *st)
{
    size_t rows = s->rows.rows;
    mr_block real = MR_BLOCK_EMPTY;
    s->placed = false;
    mr_code rc = start_rows(s, &real, &s->rows, s->capacity, st);
    if (rc == MR_OK) {
        mr_block to = real, bare = s->rows;
        to.n_columns = bare.n_columns = 0;
        rc = mr_block_append(&to, &bare, 0, rows, st);
        real.ids = to.ids;
    }
    for (size_t c = 0; c < real.n_columns && rc == MR_OK; c++) {
        mr_array *a = &real.columns[c];
        copy_segments(s->destination, c, 0, a->data, rows * mr_array_row_bytes(a), true);
        a->rows = rows;
    }
    real.rows = rows;
    if (rc == MR_OK)
        mr_block_move(&s->rows, &real);
    mr_block_reset(&real);
    return rc;
}

static bool all_dense(const mr_block *b)
{
    for (size_t c = 0; c < b->n_columns; c++)
        if (b->columns[c].storage != MR_DENSE)
            return false;
    return true;
}

/* "tags" of a record, 1 of a tuple. */
static void name_column(const mr__batch_builder *s, size_t column, char *out, size_t size)
{
    const char *const *names = s->spec ? mr_spec_leaf_names(s->spec) : NULL;
    const char *name = names ? names[column] : "";
    if (name[strspn(name, "0123456789")])
        snprintf(out, size, "\"%s\"", name);
    else
        snprintf(out, size, "%zu", column);
}

static void note_misfit(mr__batch_builder *s, const mr_array *first, const mr_array *other,
                        size_t row, size_t column, size_t element)
{
    char a[SHAPE_TEXT], b[SHAPE_TEXT], name[NAME_TEXT];
    name_column(s, column, name, sizeof name);
    mr_shape_format(first->rank, mr_array_row_shape(first, 0), a, sizeof a);
    mr_shape_format(other->rank, mr_array_row_shape(other, row), b, sizeof b);
    s->misfit = true;
    (void)mr_fail(&s->error, MR_INVALID_ARGUMENT,
                  "different shapes in component %s, first element had shape %s and element %zu "
                  "had shape %s; pad them (padded_batch), keep them as they are (ragged_batch) or "
                  "make them equal",
                  name, a, element, b);
}

static bool check_fit(mr__batch_builder *s, const mr_block *src, size_t from)
{
    for (size_t c = 0; c < src->n_columns && !s->misfit; c++) {
        const mr_array *have = &s->rows.columns[c], *more = &src->columns[c];
        if (!mr_array_fits(have, more))
            note_misfit(s, have, more, from, c, s->n);
    }
    return !s->misfit;
}

mr_code mr__batch_builder_add(mr__batch_builder *s, const mr_block *src, size_t from, size_t n,
                              size_t limit, const mr_destination *destination, mr_status *st)
{
    if (s->n == 0) {
        s->limit = limit;
        s->destination = destination;
        s->placed = !s->ragged && can_place(src, destination, limit);
        s->capacity = s->placed ? limit : first_capacity(s, src, n);
        MR_TRY(start_rows(s, &s->rows, src, s->capacity, st));
    }
    if (!s->misfit && check_fit(s, src, from)) {
        if (s->placed && !all_dense(src))
            MR_TRY(unplace(s, st));
        if (s->placed)
            MR_TRY(append_placed(s, src, from, n, st));
        else {
            if (s->rows.rows + n > s->capacity)
                MR_TRY(grow(s, s->rows.rows + n, st));
            MR_TRY(mr_block_append(&s->rows, src, from, n, st));
        }
    }
    s->n += n;
    return MR_OK;
}

mr_code mr__batch_builder_view(mr__batch_builder *s, const mr_block *src, size_t from, size_t n,
                               mr_status *st)
{
    MR_TRY(mr_block_slice(&s->rows, src, from, n, st));
    s->n = s->limit = s->capacity = n;
    return MR_OK;
}

/* ---- finishing ---- */

static mr_code take_column(mr__batch_builder *s, size_t c, mr_array *out, mr_status *st)
{
    size_t odd = 0;
    mr_array *a = &s->rows.columns[c];
    if (s->placed) {
        *out = *a;
        out->storage = MR_PLACED;
        out->rows = s->rows.rows;
        return MR_OK;
    }
    mr_code rc = mr_array_to_dense(out, a, &odd, st);
    if (rc == MR_INVALID_ARGUMENT) {
        note_misfit(s, a, a, odd, c, odd);
        if (st)
            *st = s->error;
    }
    return rc;
}

mr_code mr__batch_builder_finish(mr__batch_builder *s, mr_block *out, mr_status *st)
{
    mr_code rc = MR_OK;
    if (s->misfit) {
        rc = s->error.code;
        if (st)
            *st = s->error;
        goto done;
    }
    if (s->placed && s->rows.rows < s->limit)
        rc = unplace(s, st);
    if (rc == MR_OK && !s->placed && half_empty(s))
        rc = resize(s, s->rows.rows, st);
    if (rc == MR_OK)
        rc = mr_block_prepare(out, s->rows.n_columns, st);
    for (size_t c = 0; c < s->rows.n_columns && rc == MR_OK; c++) {
        mr_array dense;
        rc = take_column(s, c, &dense, st);
        if (rc != MR_OK)
            break;
        if (dense.rank < MR_MAX_RANK)
            mr_array_group(&out->columns[c], &dense, s->rows.rows);
        else
            rc = mr_fail(st, MR_INVALID_ARGUMENT, "a batch would have a shape of more than %d axes",
                         MR_MAX_RANK);
        mr_array_reset(&dense);
    }
    if (rc == MR_OK)
        rc = mr_identities_group(&out->ids, &s->rows.ids, s->rows.rows, s->rows.rows, st);
    out->rows = 1;
done:
    mr__batch_builder_drop(s);
    return rc;
}

mr_code mr__batch_builder_take(mr__batch_builder *s, mr_block *out, mr_status *st)
{
    mr_code rc = s->placed ? unplace(s, st) : MR_OK;
    if (rc == MR_OK)
        mr_block_move(out, &s->rows);
    mr__batch_builder_drop(s);
    return rc;
}

void mr__batch_builder_drop(mr__batch_builder *s)
{
    mr_block_clear(&s->rows);
    s->n = 0;
    s->misfit = s->placed = false;
}

void mr__batch_builder_reset(mr__batch_builder *s)
{
    mr__batch_builder_drop(s);
    mr_block_reset(&s->rows);
}

/* ---- groups of adjacent rows ---- */

bool mr__can_group(const mr_block *b)
{
    for (size_t c = 0; c < b->n_columns; c++) {
        const mr_array *a = &b->columns[c];
        if (a->storage == MR_RAGGED || a->storage == MR_DATASETS || a->rank == MR_MAX_RANK)
            return false;
    }
    return true;
}

mr_code mr__group(mr_block *out, const mr_block *src, size_t from, size_t groups, size_t n,
                  mr_status *st)
{
    MR_TRY(mr_block_prepare(out, src->n_columns, st));
    for (size_t c = 0; c < src->n_columns; c++) {
        mr_array rows;
        mr_array_slice(&rows, &src->columns[c], from, groups * n);
        mr_array_group(&out->columns[c], &rows, n);
        mr_array_reset(&rows);
    }
    out->rows = groups;
    mr_identities ids;
    mr_identities_take(&ids, &src->ids, from, groups * n);
    mr_code rc = mr_identities_group(&out->ids, &ids, groups * n, n, st);
    mr_identities_reset(&ids);
    return rc;
}

/* ---- specs ---- */

static mr_code leaves_of(const mr_spec *in, mr_leaf **leaves, mr_status *st)
{
    size_t n = mr_spec_n_leaves(in);
    *leaves = mr_calloc(n ? n : 1, sizeof **leaves);
    if (!*leaves)
        return mr_fail_memory(st, n * sizeof **leaves, "a spec");
    for (size_t i = 0; i < n; i++)
        (*leaves)[i] = *mr_spec_leaf(in, i);
    return MR_OK;
}

mr_code mr__batched_spec(const mr_spec *in, int64_t size, mr_spec **out, mr_status *st)
{
    mr_leaf *leaves;
    MR_TRY(leaves_of(in, &leaves, st));
    mr_code rc = MR_OK;
    for (size_t i = 0; i < mr_spec_n_leaves(in) && rc == MR_OK; i++) {
        mr_leaf *leaf = &leaves[i];
        if (leaf->dtype == MR_DATASET)
            rc =
                mr_fail(st, MR_INVALID_ARGUMENT,
                        "component %zu is a dataset, which cannot be batched; flatten it first", i);
        else if (leaf->rank == MR_MAX_RANK)
            rc = mr_fail(st, MR_INVALID_ARGUMENT,
                         "component %zu has %d axes already, a batch can have no more", i,
                         MR_MAX_RANK);
        else if (leaf->rank >= 0) {
            memmove(leaf->shape + 1, leaf->shape, (size_t)leaf->rank * sizeof *leaf->shape);
            leaf->shape[0] = size;
            leaf->rank++;
        }
    }
    if (rc == MR_OK)
        rc = mr__inferred(mr_spec_with_leaves(in, leaves), out, st);
    mr_free(leaves);
    return rc;
}

/* Whether the known lengths of axis 0 are equal, and their value (-1: unknown). */
static mr_code common_axis(const mr_spec *in, int64_t *size, mr_status *st)
{
    *size = -1;
    for (size_t i = 0; i < mr_spec_n_leaves(in); i++) {
        const mr_leaf *leaf = mr_spec_leaf(in, i);
        if (leaf->rank <= 0 || leaf->shape[0] < 0)
            continue;
        if (*size >= 0 && leaf->shape[0] != *size)
            return mr_fail(st, MR_INVALID_ARGUMENT,
                           "components must agree in axis 0, found %lld and %lld (component %zu)",
                           (long long)*size, (long long)leaf->shape[0], i);
        *size = leaf->shape[0];
    }
    return MR_OK;
}

static mr_code without_axis_0(const mr_spec *in, mr_spec **out, mr_status *st)
{
    mr_leaf *leaves;
    MR_TRY(leaves_of(in, &leaves, st));
    mr_code rc = MR_OK;
    for (size_t i = 0; i < mr_spec_n_leaves(in) && rc == MR_OK; i++) {
        mr_leaf *leaf = &leaves[i];
        if (leaf->rank < 0)
            continue;
        if (leaf->rank == 0) {
            rc = mr_fail(st, MR_INVALID_ARGUMENT,
                         "component %zu is a scalar, which has no axis 0 to split; batch the "
                         "dataset first",
                         i);
            break;
        }
        leaf->rank--;
        memmove(leaf->shape, leaf->shape + 1, (size_t)leaf->rank * sizeof *leaf->shape);
        leaf->ragged = false;
    }
    if (rc == MR_OK)
        rc = mr__inferred(mr_spec_with_leaves(in, leaves), out, st);
    mr_free(leaves);
    return rc;
}

mr_code mr__unbatched_spec(const mr_spec *in, int64_t *size, mr_spec **out, mr_status *st)
{
    int64_t rows;
    MR_TRY(common_axis(in, &rows, st));
    MR_TRY(without_axis_0(in, out, st));
    if (size)
        *size = rows;
    return MR_OK;
}

mr_code mr__rows_spec(const mr_spec *in, int64_t *size, mr_spec **out, mr_status *st)
{
    if (common_axis(in, size, NULL) != MR_OK)
        *size = -1;
    return without_axis_0(in, out, st);
}
