/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/model/layer_state.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "pipeline/crc32c.h"
#include "pipeline/functions/library/learned_lists.h"
#include "pipeline/memory/alloc.h"
#include "pipeline/remote/store_internal.h"
#include "pipeline/system/system.h"
#include "trainer/files/json_file.h"
#include "trainer/files/saved_files.h"
#include "trainer/model/statements.h"

static const char folder[] = "preprocessing";

enum { MAX_FILES = 1 << 16 };

/* The path of a file, given by its name or its directory; owned. */
static char *path_of(const mr_expr *e, const char *file)
{
    return mr__is_directory(e->text) ? mr__path_in(e->text, file) : mr_strdup(e->text);
}

static void drop(void *field)
{
    mr__learned *v = field;
    mr_expr_unref(v->e);
    mr_free(v->a.v);
    mr_free(v->b.v);
    mr_free(v->bytes);
    *v = (mr__learned){0};
}

static bool is_name(const mr_expr *e)
{
    return e->kind == MR_EX_STRING && e->text_size > 0 && !memchr(e->text, 0, e->text_size);
}

/* A file that does not exist yet is looked up again when it is needed. */
static mr_code parse_vocabulary(const mr_param *p, const mr_expr *e, void *field, mr_status *st)
{
    mr__learned *v = field;
    mr_status why;
    struct stat is;
    if (!is_name(e) && e->kind != MR_EX_LIST)
        return mr_expr_fail_at(st, e, "%s must be a list of tokens or the name of a file", p->name);
    char *path = is_name(e) ? path_of(e, "vocabulary.txt") : NULL;
    if (path && mr__sys->stat(path, &is) == 0 && S_ISREG(is.st_mode) &&
        mr_file_read(path, &(mr_file_read_opts){.most = MR_VOCABULARY_MOST}, &v->bytes, &v->size,
                     &why) != MR_OK)
        v->bytes = NULL;
    mr_free(path);
    v->e = mr_expr_ref(e);
    return MR_OK;
}

/* ---- lists of numbers in JSON files ---- */

static mr_code read_moments(mr__learned *out, mr_status *st)
{
    return mr_learned_moments(out->bytes, out->size, &out->a, &out->b, st);
}

static mr_code read_boundaries(mr__learned *out, mr_status *st)
{
    return mr_learned_boundaries(out->bytes, out->size, &out->a, st);
}

static mr_code parse_file(const mr_expr *e, const char *file,
                          mr_code (*read)(mr__learned *out, mr_status *st), mr__learned *out,
                          mr_status *st)
{
    mr_status why;
    char *path = path_of(e, file), message[700];
    mr_status_init(&why);
    mr_code rc = path ? mr_file_read(path, &(mr_file_read_opts){.most = MR_LEARNED_LIST_MOST},
                                     &out->bytes, &out->size, &why)
                      : mr_fail_memory(&why, 0, "a file name");
    if (rc == MR_OK)
        rc = read(out, &why);
    if (rc == MR_OK)
        out->e = mr_expr_ref(e);
    else {
        drop(out);
        if (rc == MR_RESOURCE_EXHAUSTED && st)
            *st = why;
        else {
            snprintf(message, sizeof message, "%.300s: %.390s", path ? path : "", why.message);
            rc = mr_expr_fail_at(st, e, "%s", message);
        }
    }
    mr_free(path);
    return rc;
}

static mr_code parse_moments(const mr_param *p, const mr_expr *e, void *field, mr_status *st)
{
    if (!is_name(e))
        return mr_expr_fail_at(st, e, "%s must be the name of a file or directory", p->name);
    return parse_file(e, "normalization.json", read_moments, field, st);
}

static mr_code read_numbers(const mr_expr *e, mr_floats *out, mr_status *st)
{
    if (!(out->v = mr_calloc(e->n, sizeof *out->v)))
        return mr_fail_memory(st, e->n * sizeof *out->v, "boundaries");
    for (size_t i = 0; i < e->n; i++) {
        const mr_expr *v = e->children[i], *of = v;
        bool minus = v->kind == MR_EX_UNARY && v->op == '-';
        if (minus)
            of = v->children[0];
        if (of->kind != MR_EX_INT && of->kind != MR_EX_FLOAT)
            return mr_expr_fail_at(st, v, "a boundary must be a number");
        double number = of->kind == MR_EX_INT ? (double)of->i : of->f;
        out->v[out->n++] = minus ? -number : number;
    }
    return MR_OK;
}

static mr_code parse_boundaries(const mr_param *p, const mr_expr *e, void *field, mr_status *st)
{
    mr__learned *out = field;
    mr_status why;
    if (is_name(e))
        return parse_file(e, "boundaries.json", read_boundaries, out, st);
    if (e->kind != MR_EX_LIST || e->n == 0)
        return mr_expr_fail_at(st, e, "%s must be a list of numbers or the name of a file",
                               p->name);
    mr_code rc = read_numbers(e, &out->a, st);
    if (rc == MR_OK && mr_learned_boundaries_check(&out->a, &why) != MR_OK)
        rc = mr_expr_fail_at(st, e, "%s", why.message);
    out->e = mr_expr_ref(e);
    if (rc != MR_OK)
        drop(out);
    return rc;
}

/* A file by its contents, since a saved model has a copy of it. */
static char *print(const void *field)
{
    const mr__learned *v = field;
    char *text;
    if (!v->e)
        return mr_strdup("none");
    if (v->bytes)
        return mr_strf("a file with the CRC-32C %08" PRIx32, mr_crc32c(v->bytes, v->size));
    return mr_expr_print(v->e, &text, NULL) == MR_OK ? text : NULL;
}

const mr_param_kind mr__param_vocabulary = {
    .size = sizeof(mr__learned), .parse = parse_vocabulary, .clear = drop, .print = print};
const mr_param_kind mr__param_moments = {
    .size = sizeof(mr__learned), .parse = parse_moments, .clear = drop, .print = print};
const mr_param_kind mr__param_boundaries = {
    .size = sizeof(mr__learned), .parse = parse_boundaries, .clear = drop, .print = print};

/* ---- text ---- */

/* A string literal; owned. NULL: out of memory. */
static char *quoted(const char *s)
{
    char *out = mr_malloc(2 * strlen(s) + 3);
    size_t n = 0;
    if (!out)
        return NULL;
    out[n++] = '"';
    for (; *s; s++) {
        if (*s == '"' || *s == '\\')
            out[n++] = '\\';
        out[n++] = *s;
    }
    out[n++] = '"';
    out[n] = '\0';
    return out;
}

/* A vocabulary as a pipeline expression: the list, or the name of the file. Owned. */
static mr_code vocabulary_text(const mr__learned *v, char **out, mr_status *st)
{
    if (v->e->kind == MR_EX_LIST)
        return mr_expr_print(v->e, out, st);
    char *path = path_of(v->e, "vocabulary.txt");
    bool there = true;
    *out = path ? quoted(path) : NULL;
    mr_code rc = *out ? mr__look_there(path, &there, st) : MR_OK;
    if (rc == MR_OK && !there) {
        rc = mr_fail(st, MR_NOT_FOUND, "no such vocabulary");
        mr_status_at(st, path, -1, -1);
    }
    mr_free(path);
    if (rc != MR_OK) {
        mr_free(*out);
        return rc;
    }
    return *out ? MR_OK : mr_fail_memory(st, strlen(v->e->text), "a file name");
}

mr_code mr__vocabulary_call(const mr__learned *v, const char *function, const char *x,
                            const char *parameter, int64_t value, char **out, mr_status *st)
{
    char *list;
    MR_TRY(vocabulary_text(v, &list, st));
    *out = mr_strf("%s(%s, vocabulary=%s, %s=%" PRId64 ")", function, x, list, parameter, value);
    mr_free(list);
    return *out ? MR_OK : mr_fail_memory(st, strlen(x), "a model's preprocessing");
}

/* Splits a text into lines, which point into it; they end with \n, \r\n or \r, and a byte order
 * mark before the first is skipped. */
static mr_code split_lines(mr__tokens *t, size_t size, mr_status *st)
{
    const char *at = t->text, *end = at + size;
    size_t n = 1;
    if (size >= 2 && (memcmp(at, "\xFF\xFE", 2) == 0 || memcmp(at, "\xFE\xFF", 2) == 0))
        return mr_fail(st, MR_INVALID_ARGUMENT, "a vocabulary in UTF-16; convert it to UTF-8");
    at += size >= 3 && memcmp(at, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
    for (const char *c = at; c < end; c++)
        n += *c == '\n' || *c == '\r';
    if (!(t->strings = mr_calloc(n, sizeof *t->strings)))
        return mr_fail_memory(st, n * sizeof *t->strings, "a vocabulary");
    while (at < end) {
        const char *stop = at;
        while (stop < end && *stop != '\n' && *stop != '\r')
            stop++;
        t->strings[t->n++] = (mr_bytes){at, (size_t)(stop - at)};
        at = stop + 1 + (end - stop > 1 && *stop == '\r' && stop[1] == '\n');
    }
    return MR_OK;
}

static mr_code list_tokens(const mr_expr *e, mr__tokens *out, mr_status *st)
{
    bool integers = e->n > 0 && e->children[0]->kind != MR_EX_STRING;
    if (integers)
        out->integers = mr_calloc(e->n, sizeof *out->integers);
    else
        out->strings = mr_calloc(e->n + 1, sizeof *out->strings);
    if (!out->integers && !out->strings)
        return mr_fail_memory(st, e->n * sizeof *out->strings, "a vocabulary");
    for (size_t i = 0; i < e->n; i++, out->n++) {
        const mr_expr *v = e->children[i];
        bool minus = v->kind == MR_EX_UNARY && v->op == '-';
        const mr_expr *of = minus ? v->children[0] : v;
        if (integers ? of->kind != MR_EX_INT : of->kind != MR_EX_STRING)
            return mr_expr_fail_at(st, v,
                                   "a vocabulary must consist of strings only or of integers only");
        if (integers)
            out->integers[i] = minus ? -of->i : of->i;
        else
            out->strings[i] = (mr_bytes){of->text, of->text_size};
    }
    return MR_OK;
}

mr_code mr__vocabulary_tokens(const mr__learned *v, mr__tokens *out, mr_status *st)
{
    *out = (mr__tokens){0};
    mr_code rc;
    if (v->e->kind == MR_EX_LIST)
        rc = list_tokens(v->e, out, st);
    else {
        size_t size;
        char *path = path_of(v->e, "vocabulary.txt");
        rc = path ? mr_file_read(path, &(mr_file_read_opts){.most = MR_VOCABULARY_MOST}, &out->text,
                                 &size, st)
                  : mr_fail_memory(st, strlen(v->e->text), "a file name");
        mr_free(path);
        if (rc == MR_OK)
            rc = split_lines(out, size, st);
    }
    if (rc != MR_OK)
        mr__tokens_drop(out);
    return rc;
}

void mr__tokens_drop(mr__tokens *t)
{
    mr_free(t->strings);
    mr_free(t->integers);
    mr_free(t->text);
    *t = (mr__tokens){0};
}

/* Replaces the bytes [begin, end) of *text (owned) by `what`. */
static mr_code replace(char **text, size_t begin, size_t end, const char *what, mr_status *st)
{
    char *made = mr_strf("%.*s%s%s", (int)begin, *text, what, *text + end);
    if (!made)
        return mr_fail_memory(st, strlen(*text), "a model's text");
    mr_free(*text);
    *text = made;
    return MR_OK;
}

/* ---- files of a saved model ---- */

typedef struct file {
    const mr__learned *v;
    const char *layer, *name;
} file;

typedef struct files {
    file *v;
    size_t n, capacity;
} files;

static const char *file_name(const mr_param *p)
{
    if (p->type != MR_PT_OWN)
        return NULL;
    return p->kind == &mr__param_vocabulary   ? "vocabulary.txt"
           : p->kind == &mr__param_moments    ? "normalization.json"
           : p->kind == &mr__param_boundaries ? "boundaries.json"
                                              : NULL;
}

static int in_text_order(const void *a, const void *b)
{
    const file *x = a, *y = b;
    return (x->v->e->begin > y->v->e->begin) - (x->v->e->begin < y->v->e->begin);
}

/* In the order of the text. */
static mr_code list_files(const mr_model *m, files *out, mr_status *st)
{
    for (size_t i = 0; i < m->n_layers; i++) {
        const mr_layer *l = &m->layers[i];
        for (const mr_param *p = l->desc->is.params; p && p->name && l->own; p++) {
            const char *name = file_name(p);
            const mr__learned *v = (const void *)((const char *)l->params + p->at);
            if (!name || !v->e || v->e->kind != MR_EX_STRING)
                continue;
            MR_TRY(MR_GROW(out->v, out->capacity, out->n + 1, MAX_FILES, "files", st));
            out->v[out->n++] = (file){v, l->name, name};
        }
    }
    if (out->n > 1)
        qsort(out->v, out->n, sizeof *out->v, in_text_order);
    return MR_OK;
}

/* The name of the copy in the model's directory. */
enum { COPY_NAME = 256 };
static void name_of_copy(const file *f, char name[COPY_NAME])
{
    snprintf(name, COPY_NAME, "%s/%.100s/%s", folder, f->layer, f->name);
}

static mr_code add_sum(const file *f, const void *bytes, size_t n, json_t *sums, mr_status *st)
{
    char name[COPY_NAME];
    name_of_copy(f, name);
    return mr__add_checksum(sums, name, bytes, n) ? MR_OK
                                                  : mr_fail_memory(st, COPY_NAME, "a checksum");
}

static mr_code copy_file(const file *f, const char *directory, json_t *sums, mr_status *st)
{
    void *read = NULL;
    size_t size = f->v->size;
    char *from = path_of(f->v->e, f->name), *above = mr__path_in(directory, folder);
    char *in = above ? mr__path_in(above, f->layer) : NULL,
         *to = in ? mr__path_in(in, f->name) : NULL;
    mr_code rc = from && to ? MR_OK : mr_fail_memory(st, strlen(directory), "a file name");
    if (rc == MR_OK && !f->v->bytes)
        rc = mr_file_read(from, &(mr_file_read_opts){.most = MR_VOCABULARY_MOST}, &read, &size, st);
    if (rc == MR_OK)
        rc = mr__make_directories(in, st);
    if (rc == MR_OK)
        rc = mr__write_in_place(to, read ? read : f->v->bytes, size, st);
    if (rc == MR_OK)
        rc = add_sum(f, read ? read : f->v->bytes, size, sums, st);
    if (rc == MR_OK && !mr__store_is_url(in))
        rc = mr_directory_sync(in, st);
    if (rc == MR_OK && !mr__store_is_url(in))
        rc = mr_directory_sync(above, st);
    mr_free(read);
    mr_free(to);
    mr_free(in);
    mr_free(above);
    mr_free(from);
    return rc;
}

static mr_code name_copy(const file *f, char **text, mr_status *st)
{
    char name[COPY_NAME], literal[COPY_NAME + 2];
    name_of_copy(f, name);
    snprintf(literal, sizeof literal, "\"%s\"", name);
    return replace(text, f->v->e->begin, f->v->e->end, literal, st);
}

mr_code mr__save_preprocessing(const mr_model *m, const char *directory, json_t *sums, char **text,
                               mr_status *st)
{
    files all = {0};
    *text = mr_strdup(mr_model_text(m));
    mr_code rc = *text ? list_files(m, &all, st)
                       : mr_fail_memory(st, strlen(mr_model_text(m)), "a model's text");
    for (size_t i = all.n; i-- > 0 && rc == MR_OK;) { /* from the end, so that positions stay
                                                         valid */
        rc = copy_file(&all.v[i], directory, sums, st);
        if (rc == MR_OK)
            rc = name_copy(&all.v[i], text, st);
    }
    mr_free(all.v);
    if (rc != MR_OK) {
        mr_free(*text);
        *text = NULL;
    }
    return rc;
}

/* Processes a tree from its end to its beginning. */
static mr_code find_in(const mr_expr *e, const char *directory, char **text, mr_status *st)
{
    if (e->kind == MR_EX_STRING && strncmp(e->text, folder, sizeof folder - 1) == 0 &&
        e->text[sizeof folder - 1] == '/' && !strstr(e->text, "/../")) {
        char *path = mr__path_in(directory, e->text), *literal = path ? quoted(path) : NULL;
        mr_code rc = literal ? replace(text, e->begin, e->end, literal, st)
                             : mr_fail_memory(st, strlen(directory), "a file name");
        mr_free(literal);
        mr_free(path);
        return rc;
    }
    for (size_t i = e->n; i-- > 0;)
        MR_TRY(find_in(e->children[i], directory, text, st));
    return MR_OK;
}

mr_code mr__find_preprocessing(const char *directory, char **text, mr_status *st)
{
    mr__statements all;
    mr_code rc = MR_OK;
    if (!strstr(*text, folder))
        return MR_OK;
    if (mr__statements_parse(*text, &all, NULL) != MR_OK)
        return MR_OK; /* mr_model_parse reports the error */
    for (size_t i = all.n; i-- > 0 && rc == MR_OK;)
        rc = find_in(all.v[i].e, directory, text, st);
    mr__statements_drop(&all);
    return rc;
}
