/* SPDX-License-Identifier: Apache-2.0 */
/* lookup(x, vocabulary, oov=1, default=none): the index of each token in a list, or in the lines
 * of a file. The first token has index `oov`; what is not in the list goes to one of the buckets
 * before, by its hash, or is `default`. A list is indexed when the graph is built, a file when
 * the first block is looked up, because graphs are also built on machines that only forward
 * them. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "pipeline/formats/text/byte_order_mark.h"
#include "pipeline/formats/text/line_ends.h"
#include "pipeline/functions/compiler/deferred_file.h"
#include "pipeline/functions/library/learned_lists.h"
#include "pipeline/functions/library/texts.h"
#include "pipeline/memory/hash_index.h"

/* ---- tokens, as Keras's TextVectorization makes them ----
 * Letters A to Z in lower case, ASCII punctuation left out, parted at ASCII white space. */

static bool is_punctuation(char c)
{
    return c && strchr("!\"#$%&()*+,-./:;<=>?@[\\]^_`{|}~'", c);
}

/* The next token of *rest, which then begins after it; the token is in scratch, which has room
 * for all bytes of the text. false: no more tokens. */
static bool next_token(mr_bytes *rest, char *scratch, mr_bytes *token)
{
    size_t n = 0;
    while (rest->size > 0) {
        char c = *rest->data++;
        rest->size--;
        if (mr__is_space(c) && n > 0)
            break;
        if (!mr__is_space(c) && !is_punctuation(c))
            scratch[n++] = (char)(c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c);
    }
    *token = (mr_bytes){scratch, n};
    return n > 0;
}

/* ---- vocabularies ---- */

struct params {
    mr_value vocabulary;
    int64_t oov, default_;
    bool has_default;
};

/* Tokens and the index of them. Integers are their eight bytes. */
typedef struct words {
    mr_buffer *text; /* memory of the tokens; NULL: they are in the list */
    mr_bytes *v;
    size_t n;
    mr__hash_index index;
} words;

struct plan {
    bool replaces;          /* text_vectorization: its axis replaces the last one */
    mr__deferred_file late; /* guards the words */
    words words;
};

static void free_words(words *w)
{
    mr_free(w->v);
    mr__hash_reset(&w->index);
    mr_buffer_unref(w->text);
    *w = (words){0};
}

static void free_plan(void *plan)
{
    struct plan *p = plan;
    free_words(&p->words);
    mr__deferred_file_reset(&p->late);
    mr_free(p);
}

static bool same_token(const void *tokens, size_t place, const void *token)
{
    const mr_bytes *a = (const mr_bytes *)tokens + place, *b = token;
    return a->size == b->size && (!a->size || memcmp(a->data, b->data, a->size) == 0);
}

/* The place of a token, or MR__NO_PLACE. */
static size_t place_of(const words *w, mr_bytes token)
{
    return mr__hash_find(&w->index, mr__string_hash(token.data, token.size), same_token, w->v,
                         &token);
}

/* Indexes w's n tokens. *twice: the index of a token that occurred before, or n. */
static mr_code index_words(words *w, size_t *twice, mr_status *st)
{
    MR_TRY(mr__hash_reserve(&w->index, w->n, "a vocabulary", st));
    for (*twice = 0; *twice < w->n && place_of(w, w->v[*twice]) == MR__NO_PLACE; ++*twice)
        MR_TRY(mr__hash_add(&w->index, mr__string_hash(w->v[*twice].data, w->v[*twice].size),
                            *twice, "a vocabulary", st));
    return MR_OK;
}

/* ---- the vocabulary ---- */

static mr_code list_words(const mr_array *list, words *w, mr_status *st)
{
    w->n = mr_array_row_values(list);
    w->v = mr_calloc(w->n + 1, sizeof *w->v);
    if (!w->v)
        return mr_fail_memory(st, w->n * sizeof *w->v, "a vocabulary");
    for (size_t i = 0; i < w->n; i++)
        w->v[i] = list->dtype == MR_STRING ? ((const mr_bytes *)list->data)[i]
                                           : (mr_bytes){(const char *)list->data + 8 * i, 8};
    return MR_OK;
}

/* A line as an integer, written over its own beginning or into `numbers`. */
static bool line_integer(const mr_bytes *line, int64_t *out)
{
    char text[32], *end;
    if (line->size == 0 || line->size >= sizeof text)
        return false;
    memcpy(text, line->data, line->size);
    text[line->size] = '\0';
    int read = 0;
    bool good = sscanf(text, "%" SCNd64 "%n", out, &read) == 1 && (size_t)read == line->size;
    end = text + (text[0] == '-');
    return good && *end >= '0' && *end <= '9';
}

/* The lines of w's text, the file `path`; those of integers in 8 bytes each. */
static mr_code file_words(const char *path, size_t size, bool integers, words *w, mr_status *st)
{
    const char *at = mr_buffer_data(w->text), *end = at + size, *feed = NULL;
    const char *refusal = mr__utf_refusal(at, size);
    if (refusal)
        return mr_fail(st, MR_INVALID_ARGUMENT, "lookup: %s: %s", path, refusal);
    at += mr__byte_order_mark(at, size);
    size_t n = 0;
    for (const char *p = at; p < end; n++)
        p = mr__line_next(mr__line_end(p, end, &feed), end);
    feed = NULL;
    if (n >= UINT32_MAX / 4)
        return mr_fail(st, MR_INVALID_ARGUMENT, "lookup: %s has more than %u lines", path,
                       UINT32_MAX / 4);
    mr_buffer *numbers = NULL;
    w->v = mr_calloc(n + 1, sizeof *w->v);
    if (!w->v)
        return mr_fail_memory(st, n * sizeof *w->v, "a vocabulary");
    if (integers)
        MR_TRY(mr_buffer_alloc(&numbers, n * 8, st));
    int64_t *number = numbers ? mr_buffer_data(numbers) : NULL;
    mr_code rc = MR_OK;
    for (; w->n < n && rc == MR_OK; w->n++) {
        const char *stop = mr__line_end(at, end, &feed);
        mr_bytes line = {at, (size_t)(stop - at)};
        at = mr__line_next(stop, end);
        w->v[w->n] = line;
        if (!integers)
            continue;
        if (!line_integer(&line, &number[w->n]))
            rc = mr_fail(st, MR_INVALID_ARGUMENT, "lookup: %s: line %zu is not an integer", path,
                         w->n + 1);
        w->v[w->n] = (mr_bytes){(const char *)&number[w->n], 8};
    }
    if (numbers) {
        mr_buffer_unref(w->text);
        w->text = numbers;
    }
    return rc;
}

static mr_code open_file(const mr_rows *r, mr_status *st)
{
    struct plan *p = (struct plan *)(uintptr_t)r->plan;
    const char *name = ((const struct params *)r->params)->vocabulary.s;
    words w = {0};
    char *path = NULL;
    size_t size, twice = 0;
    mr_code rc = mr__deferred_file_read(r, &p->late, name, "vocabulary.txt", MR_VOCABULARY_MOST,
                                        &path, &w.text, &size, st);
    if (rc == MR_OK)
        rc = file_words(path, size, r->in[0].dtype != MR_STRING, &w, st);
    if (rc == MR_OK)
        rc = index_words(&w, &twice, st);
    if (rc == MR_OK && twice < w.n)
        rc = mr_fail(st, MR_INVALID_ARGUMENT, "lookup: %s: line %zu is a duplicate", path,
                     twice + 1);
    mr_free(path);
    if (rc == MR_OK)
        p->words = w;
    else
        free_words(&w);
    return rc;
}

/* ---- typing ---- */

static mr_code type(mr_call *c, mr_status *st)
{
    const struct params *o = c->params;
    const mr_value *v = &o->vocabulary;
    mr_dtype t = c->in[0]->dtype;
    bool integers = mr_dtype_is_integer(t);
    if (t != MR_STRING && !integers)
        return mr_call_fail(c, st, 0, "lookup expects strings or integers, not %s",
                            mr_dtype_name(t));
    struct plan *p = c->plan = mr_calloc(1, sizeof *p);
    if (!p)
        return mr_fail_memory(st, sizeof *p, "a vocabulary");
    mr__deferred_file_init(&p->late);
    c->out = *c->in[0];
    c->out.dtype = MR_INT64;
    if (v->kind == MR_V_STRING) {
        if (!v->size || memchr(v->s, 0, v->size))
            return mr_call_fail(
                c, st, -1, "lookup: the name of the vocabulary's file is empty or has a NUL byte");
        return MR_OK;
    }
    if (v->kind != MR_V_TENSOR || v->tensor.rank != 1 ||
        v->tensor.dtype != (integers ? MR_INT64 : MR_STRING))
        return mr_call_fail(
            c, st, -1, "lookup: the vocabulary must be a list of %s, or the name of a file of them",
            integers ? "integers" : "strings");
    size_t twice;
    MR_TRY(list_words(&v->tensor, &p->words, st));
    MR_TRY(index_words(&p->words, &twice, st));
    if (twice < p->words.n)
        return mr_call_fail(c, st, -1, "lookup: token %zu of the vocabulary is a duplicate", twice);
    p->late.ready = true;
    return MR_OK;
}

/* ---- running ---- */

/* The words, from the file if necessary. */
static mr_code words_of(const mr_rows *r, const words **out, mr_status *st)
{
    struct plan *p = (struct plan *)(uintptr_t)r->plan;
    MR_TRY(mr__deferred_file_get(r, &p->late, open_file, st));
    *out = &p->words;
    return MR_OK;
}

static void look_up(const mr_rows *r, const words *w, const mr_array *x, int64_t *z)
{
    const struct params *p = r->params;
    size_t per_row = mr_array_row_values(x), n = x->rows * per_row;
    for (size_t i = 0; i < n; i++) {
        mr_bytes s = x->dtype == MR_STRING ? ((const mr_bytes *)x->data)[i]
                                           : (mr_bytes){(const char *)x->data + 8 * i, 8};
        size_t place = place_of(w, s);
        if (place != MR__NO_PLACE)
            z[i] = p->oov + (int64_t)place;
        else if (p->has_default)
            z[i] = p->default_;
        else if (p->oov)
            z[i] = (int64_t)(mr__string_hash(s.data, s.size) % (uint64_t)p->oov);
        else {
            z[i] = 0;
            char number[24];
            snprintf(number, sizeof number, "%" PRId64,
                     x->dtype == MR_STRING ? 0 : ((const int64_t *)x->data)[i]);
            if (x->dtype == MR_STRING)
                mr_row_fail_at(r, i / per_row, 0, i % per_row, MR_NOT_FOUND,
                               "lookup: \"%.*s\" is not in the vocabulary",
                               (int)(s.size < 60 ? s.size : 60), s.size ? s.data : "");
            else
                mr_row_fail(r, i / per_row, MR_NOT_FOUND, "lookup: %s is not in the vocabulary",
                            number);
        }
    }
}

static mr_code run(const mr_rows *r, mr_array *out, mr_status *st)
{
    const mr_array *x = &r->in[0];
    const words *w;
    mr_array whole = {0};
    MR_TRY(words_of(r, &w, st));
    MR_TRY(mr__kernel_cast(x, x->dtype == MR_STRING ? MR_STRING : MR_INT64, &whole, st));
    mr_code rc = mr_array_alloc(out, MR_INT64, x->rank, x->shape, x->rows, st);
    if (rc == MR_OK)
        look_up(r, w, &whole, out->data);
    mr_array_reset(&whole);
    return rc;
}

static const mr_param table[] = {
    MR_INPUT(mr_input_tensor, "x", "Strings or integers."),
    MR_ARG(struct params, vocabulary,
           .doc = "A list of the tokens, the name of a file with one on each line (at most 1 GiB), "
                  "or the "
                  "directory of vocabulary.txt."),
    MR_PARAM(struct params, oov, .def.i = 1, .min.i = 0, .max.i = INT64_C(1) << 40,
             .doc = "The number of indices, from 0, for tokens that are not in the vocabulary."),
    {.name = "default",
     .doc = "The index for tokens that are not in the vocabulary, instead of the first ones.",
     .type = MR_PT_I64,
     .flags = MR_P_OPTIONAL | MR_P_NONE,
     .at = offsetof(struct params, default_),
     .has_at = offsetof(struct params, has_default)},
    {0}};
const mr_function mr_function_lookup = {
    .abi = MR_ABI_VERSION,
    .name = "lookup",
    .doc = "The index of each token in a vocabulary, an int64: oov for the first. Other tokens are "
           "spread over the indices below oov by their hash, or get the default; with neither they "
           "fail.",
    .example = "from_tensor_slices([\"b\", \"e\"]).map(x => lookup(x, [\"a\", \"b\"]))",
    .params = table,
    .params_size = sizeof(struct params),
    .props = MR_FUNCTION_READS,
    .type = type,
    .free_plan = free_plan,
    .run = run,
};

/* ---- text_vectorization: the tokens of texts, looked up ---- */

enum { PADDING, UNKNOWN, FIRST_TOKEN }; /* Keras's indices */

struct text_params {
    struct params p;
    int64_t output_sequence_length;
};

static mr_code type_texts(mr_call *c, mr_status *st)
{
    const mr_leaf *x = c->in[0];
    int64_t length = ((const struct text_params *)c->params)->output_sequence_length;
    if (x->dtype != MR_STRING)
        return mr_call_fail(c, st, 0, "text_vectorization expects strings, not %s",
                            mr_dtype_name(x->dtype));
    MR_TRY(type(c, st));
    if (x->rank < 0)
        return mr_call_fail(c, st, 0, "text_vectorization: the number of axes is not known here");
    struct plan *p = c->plan;
    p->replaces = x->rank > 1 && x->shape[x->rank - 1] == 1;
    if (!p->replaces && x->rank == MR_MAX_RANK)
        return mr_call_fail(c, st, 0, "text_vectorization: there are too many axes");
    c->out.rank = (int8_t)(x->rank + !p->replaces);
    c->out.shape[c->out.rank - 1] = length;
    return MR_OK;
}

/* z[0..length) = the indices of a text's tokens. scratch: room for its bytes. */
static void look_up_text(const words *w, mr_bytes text, char *scratch, int64_t *z, int64_t length)
{
    mr_bytes rest = text, token;
    int64_t n = 0;
    while (n < length && next_token(&rest, scratch, &token)) {
        size_t place = place_of(w, token);
        z[n++] = place != MR__NO_PLACE ? FIRST_TOKEN + (int64_t)place : UNKNOWN;
    }
    while (n < length)
        z[n++] = PADDING;
}

static mr_code run_texts(const mr_rows *r, mr_array *out, mr_status *st)
{
    const mr_array *x = &r->in[0];
    const struct plan *plan = r->plan;
    int64_t length = ((const struct text_params *)r->params)->output_sequence_length;
    int64_t shape[MR_MAX_RANK];
    int rank = x->rank + !plan->replaces;
    const words *w;
    MR_TRY(words_of(r, &w, st));
    for (int d = 0; d < x->rank; d++)
        shape[d] = x->shape[d];
    shape[rank - 1] = length;
    MR_TRY(mr_array_alloc(out, MR_INT64, rank, shape, x->rows, st));
    size_t n = x->rows * mr_array_row_values(x), longest = 0;
    const mr_bytes *v = x->data;
    int64_t *z = out->data;
    for (size_t i = 0; i < n; i++)
        longest = v[i].size > longest ? v[i].size : longest;
    char *scratch = mr_malloc(longest + 1);
    if (!scratch) {
        mr_array_reset(out);
        return mr_fail_memory(st, longest, "a text");
    }
    for (size_t i = 0; i < n; i++, z += length) {
        if (w)
            look_up_text(w, v[i], scratch, z, length);
        else
            memset(z, 0, (size_t)length * sizeof *z);
    }
    mr_free(scratch);
    return MR_OK;
}

static const mr_param text_table[] = {
    MR_INPUT(mr_input_strings, "x", "Texts."),
    {.name = "vocabulary",
     .doc =
         "A list of the tokens, the name of a file with one on each line (at most 1 GiB), or the "
         "directory of vocabulary.txt.",
     .type = MR_PT_VALUE,
     .flags = MR_P_POSITIONAL,
     .at = offsetof(struct text_params, p.vocabulary)},
    MR_ARG(struct text_params, output_sequence_length, .min.i = 1, .max.i = 1 << 24,
           .doc =
               "The number of indices for each text: more are cut off, fewer are padded with 0."),
    {0}};
const mr_function mr_function_text_vectorization = {
    .abi = MR_ABI_VERSION,
    .name = "text_vectorization",
    .doc =
        "The indices of a text's tokens, an int64: in lower case, without punctuation, split at "
        "white space; 2 for the first of the vocabulary, 1 for tokens not in it, 0 after the end.",
    .example = "from_tensor_slices([\"A cat!\"]).map(x => text_vectorization(x, [\"cat\"], "
               "output_sequence_length=3))",
    .params = text_table,
    .params_size = sizeof(struct text_params),
    .props = MR_FUNCTION_READS,
    .type = type_texts,
    .free_plan = free_plan,
    .run = run_texts,
};
