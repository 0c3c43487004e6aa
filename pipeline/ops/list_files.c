/* SPDX-License-Identifier: Apache-2.0 */
/* list_files: the names of files that match patterns, in one bytewise order. The list is made
 * once for all iterators of the dataset; a position contains its fingerprint. With shuffle, each
 * iterator emits it in a different order: that of shuffle with a buffer as large as the list. */
#include <string.h>

#include "pipeline/engine/philox.h"
#include "pipeline/engine/op_source.h"
#include "pipeline/ops/sources.h"
#include "pipeline/streams/sources/file_list.h"

struct params {
    mr_strs patterns;
    mr_list_files_opts o;
};

struct state {
    mr__file_list *list; /* NULL: nothing matched, which is still to be reported */
    mr_buffer *keep;     /* keeps the list for the blocks that point into it */
    uint64_t words[2];
    mr_buffer *order; /* uint32_t a file; NULL: as listed */
    size_t at;
    bool failed;
};

static void release_list(void *ctx, void *data)
{
    (void)data;
    mr__file_list_unref(ctx);
}

/* The oldest entry left replaces the one drawn (as in a shuffle of all elements). */
static mr_code make_order(struct state *s, mr_status *st)
{
    size_t n = s->list->n;
    MR_TRY(mr_buffer_alloc(&s->order, n * sizeof(uint32_t), st));
    uint32_t *p = mr_buffer_data(s->order);
    for (size_t i = 0; i < n; i++)
        p[i] = (uint32_t)i;
    mr__philox r;
    mr__philox_init(&r, s->words[0], s->words[1]);
    for (size_t i = 0; i < n; i++) {
        size_t j = i + mr__philox_next(&r) % (uint32_t)(n - i);
        uint32_t drawn = p[j];
        p[j] = p[i];
        p[i] = drawn;
    }
    return MR_OK;
}

static void drop(struct state *s)
{
    mr_buffer_unref(s->order);
    s->order = NULL;
    mr_buffer_unref(s->keep);
    s->keep = NULL;
    mr__file_list_unref(s->list);
    s->list = NULL;
}

/* Wraps s->list, if the patterns match anything, in a buffer for blocks to point into. */
static mr_code use_list(mr_iter *it, mr_status *st)
{
    const struct params *p = it->params;
    struct state *s = it->state;
    if (!s->list)
        return MR_OK;
    mr_code rc = mr_buffer_wrap(&s->keep, s->list->paths, 0, true, release_list, s->list, st);
    if (rc == MR_OK)
        mr__file_list_ref(s->list); /* the wrapped buffer's */
    if (rc == MR_OK && p->o.shuffle)
        rc = make_order(s, st);
    if (rc != MR_OK)
        drop(s);
    return rc;
}

static mr_code take_list(mr_iter *it, mr_status *st)
{
    const struct params *p = it->params;
    struct state *s = it->state;
    MR_TRY(mr__file_list_match(it, &p->patterns, true, &s->list, st));
    return use_list(it, st);
}

static mr_code open(mr_iter *it, mr_status *st)
{
    const struct params *p = it->params;
    struct state *s = it->state;
    if (p->o.shuffle)
        MR_TRY(mr__file_list_draw(it, p->o.has_seed ? &p->o.seed : NULL, s->words, st));
    /* The first next reports a failure, because a restore may precede it. */
    if (take_list(it, NULL) != MR_OK)
        drop(s);
    return MR_OK;
}

static void close(mr_iter *it)
{
    drop(it->state);
}

static mr_code set_identities(mr_iter *it, mr_block *b, size_t first, mr_status *st)
{
    const struct state *s = it->state;
    mr_identity *ids;
    if (!mr_iter_identities(it))
        return MR_OK;
    MR_TRY(mr_identities_alloc(&b->ids, b->rows, &ids, st));
    const uint32_t *order = s->order ? mr_buffer_data(s->order) : NULL;
    for (size_t i = 0; i < b->rows; i++)
        ids[i] = (mr_identity){.source = it->source,
                               .ordinal = order ? order[first + i] : first + i,
                               .epoch = mr_iter_epoch(it)};
    return MR_OK;
}

static mr_code next(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    struct state *s = it->state;
    if (s->failed)
        return MR_END;
    if (!s->list) {
        mr_code rc = take_list(it, st);
        if (rc != MR_OK)
            mr_iter_fail_given(it, rc, st);
        s->failed = rc != MR_OK && !mr_status_is_of_no_element(st);
        if (rc != MR_OK)
            return rc;
    }
    if (s->at >= s->list->n)
        return MR_END;
    size_t left = s->list->n - s->at, rows = mr_iter_block_rows(it, want, 64);
    rows = rows < left ? rows : left;
    MR_TRY(mr_block_prepare(out, 1, st));
    MR_TRY(mr_array_alloc(&out->columns[0], MR_STRING, 0, NULL, rows, st));
    MR_TRY(mr_buffer_hold(out->columns[0].owner, s->keep, st));
    const uint32_t *order = s->order ? mr_buffer_data(s->order) : NULL;
    mr_bytes *v = out->columns[0].data;
    for (size_t i = 0; i < rows; i++) {
        const char *path = s->list->paths[order ? order[s->at + i] : s->at + i];
        v[i] = (mr_bytes){path, strlen(path)};
    }
    out->rows = rows;
    MR_TRY(set_identities(it, out, s->at, st));
    s->at += rows;
    return MR_OK;
}

/* Position: names delivered, failed, the two words of the order. */
static mr_code save(mr_iter *it, mr_state_w *w, mr_status *st)
{
    const struct state *s = it->state;
    MR_TRY(mr_state_put_u64(w, s->at, st));
    MR_TRY(mr_state_put_u64(w, s->failed, st));
    MR_TRY(mr_state_put_u64(w, s->words[0], st));
    return mr_state_put_u64(w, s->words[1], st);
}

static mr_code restore(mr_iter *it, mr_state_r *r, mr_status *st)
{
    const struct params *p = it->params;
    struct state *s = it->state;
    uint64_t at, failed;
    MR_TRY(mr_state_get_u64(r, &at, st));
    MR_TRY(mr_state_get_u64(r, &failed, st));
    MR_TRY(mr_state_get_u64(r, &s->words[0], st));
    MR_TRY(mr_state_get_u64(r, &s->words[1], st));
    drop(s); /* as in the list of the position */
    MR_TRY(mr__file_list_rematch(it, &p->patterns, true, &s->list, st));
    MR_TRY(use_list(it, st));
    s->failed = failed;
    s->at = (size_t)at;
    if (failed > 1 || at > (s->list ? s->list->n : 0))
        return mr_fail(st, MR_INVALID_ARGUMENT, "damaged position: invalid index of a file");
    return MR_OK;
}

static mr_code check(const void *params, mr_status *st)
{
    return mr__file_names_check(&((const struct params *)params)->patterns, st);
}

static const mr_param table[] = {
    MR_PARAM_WITH(struct params, patterns, MR_P_POSITIONAL | MR_P_VARIADIC,
                  .doc = "Patterns of paths; * ? and [..] match within one part of a path. A "
                         "part that exists as it is written is a name."),
    MR_OPT(struct params, shuffle, .flags = MR_P_SHUFFLES,
           .doc = "Emits the names in a different order in each epoch."),
    MR_OPT(struct params, seed, .has_at = offsetof(struct params, o.has_seed),
           .doc = "Fixes the order of shuffle; drawn at random if absent."),
    {0}};

const mr_op mr_op_list_files = {
    .abi = MR_ABI_VERSION,
    .name = "list_files",
    .doc = "The names of the files that match patterns, sorted.",
    .example = "list_files(\"*.md\")",
    .order_doc = "by name; random with shuffle",
    .memory_doc = "all names",
    .state_doc = "a counter, and two numbers of the order",
    .count_doc = "unknown",
    .params = table,
    .params_size = sizeof(struct params),
    .iter_size = sizeof(struct state),
    .role = MR_ROLE_SOURCE,
    .props = MR_OP_FILE_NAMES | MR_OP_RANDOM | MR_OP_REORDERS,
    .check = check,
    .infer = mr__file_infer,
    .open = open,
    .next = next,
    .close = close,
    .save = save,
    .restore = restore,
    .save_shared = mr__file_list_save_shared,
    .restore_shared = mr__file_list_restore_shared,
};

mr_dataset *mr_list_files(const char *const *patterns, size_t n, const mr_list_files_opts *opts)
{
    struct params p = {0};
    if (opts)
        p.o = *opts;
    return mr__file_names_dataset(&mr_op_list_files, &p, patterns, n, false);
}
