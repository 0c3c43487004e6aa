/* SPDX-License-Identifier: Apache-2.0 */
/* tar: the records of tar archives, one component per member.
 *
 * A graph must know the names of the components when it is built. Unless they are given, they are
 * read from the first archive; a copy of the op that reads only some of the files receives them
 * (MR_P_OF_SPEC). The reader returns a row of strings for each record, in the order of the
 * components. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/files/file_name.h"
#include "pipeline/files/glob.h"
#include "pipeline/formats/shards/data_files.h"
#include "pipeline/formats/tar.h"
#include "pipeline/ops/sources.h"
#include "pipeline/params/infer.h"
#include "pipeline/streams/sources/file_source.h"
#include "pipeline/system/system.h"

struct params {
    mr_strs files;
    mr_tar_opts o;
};

struct state {
    mr__file_source source;
    mr__tar_opts members; /* of each component; borrowed from params and spec, the list is owned */
};

static const mr__file_kind kind = {.format = &mr__format_tar,
                                   .compression_at = offsetof(struct params, o.compression),
                                   .detects = true};

/* The members of a component, as they are asked for: it has the name of the first. */
static const char *wanted(const struct params *p, const char *component)
{
    size_t n, length = strlen(component);
    if (strcmp(component, MR__TAR_KEY) == 0)
        return MR__TAR_KEY;
    for (size_t i = 0; i < p->o.members.n; i++) {
        const char *at = p->o.members.v[i].data, *name = mr__tar_name(&at, &n);
        if (n == length && memcmp(name, component, n) == 0)
            return p->o.members.v[i].data;
    }
    return component;
}

static mr_code open(mr_iter *it, mr_status *st)
{
    struct state *s = it->state;
    s->members.n = mr_spec_n_children(it->spec);
    const char **list = mr_calloc(s->members.n, sizeof *list);
    if (!list)
        return mr_fail_memory(st, s->members.n * sizeof *list, "names of members");
    s->members.wanted = list;
    for (size_t i = 0; i < s->members.n; i++)
        list[i] = wanted(it->params, mr_spec_child_name(it->spec, i));
    s->source.own = &s->members;
    return mr__file_source_open(it, st);
}

static void close(mr_iter *it)
{
    struct state *s = it->state;
    mr__file_source_close(it);
    mr_free((void *)(uintptr_t)s->members.wanted);
}

/* The index of the first member that a record lacks, has twice or has as a link; the number of
 * members: none. */
static size_t first_fault(const mr_bytes *row, size_t n)
{
    size_t i = 0;
    while (i < n && row[i].data != mr__tar_missing && row[i].data != mr__tar_twice &&
           row[i].data != mr__tar_linked)
        i++;
    return i;
}

static mr_code report(const struct state *s, const mr_array *rows, size_t row, size_t i,
                      mr_row_errors *errors, mr_status *st)
{
    const mr_bytes *v = mr_array_at(rows, row);
    size_t key = 0;
    mr_status why;
    while (strcmp(s->members.wanted[key], MR__TAR_KEY) != 0)
        key++;
    mr_fail(&why, MR_INVALID_ARGUMENT,
            v[i].data == mr__tar_missing
                ? "record %.*s lacks the member %s; members selects those to read"
            : v[i].data == mr__tar_twice
                ? "record %.*s has more than one member %s"
                : "record %.*s has its member %s as a link or special file, whose data the archive "
                  "does not contain there; tar --dereference --hard-dereference stores them",
            (int)v[key].size, v[key].data, s->members.wanted[i]);
    mr_buffer_locate(rows->owner, v[key].data, &why);
    return mr_row_errors_add(errors, row, &why, st);
}

/* Component i of the complete rows. */
static mr_code take_column(const mr_array *rows, size_t i, size_t n, size_t kept, mr_array *out,
                           mr_status *st)
{
    mr_array a;
    MR_TRY(mr_array_alloc(&a, MR_STRING, 0, NULL, kept, st));
    mr_code rc = mr_buffer_hold(a.owner, rows->owner, st);
    mr_bytes *to = a.data;
    for (size_t row = 0; row < rows->rows && rc == MR_OK; row++) {
        const mr_bytes *v = mr_array_at(rows, row);
        if (first_fault(v, n) == n)
            *to++ = v[i];
    }
    if (rc == MR_OK)
        *out = a;
    else
        mr_array_reset(&a);
    return rc;
}

static mr_code split(const struct state *s, mr_block *in, mr_block *out, mr_row_errors *errors,
                     mr_status *st)
{
    const mr_array *rows = &in->columns[0];
    size_t n = s->members.n;
    uint32_t *index = mr_malloc((rows->rows + 1) * sizeof *index), kept = 0;
    mr_code rc = index ? MR_OK : mr_fail_memory(st, rows->rows * sizeof *index, "rows");
    for (size_t row = 0; row < rows->rows && rc == MR_OK; row++) {
        size_t i = first_fault(mr_array_at(rows, row), n);
        if (i < n)
            rc = report(s, rows, row, i, errors, st);
        else
            index[kept++] = (uint32_t)row;
    }
    if (rc == MR_OK && kept)
        rc = mr_block_prepare(out, n, st);
    for (size_t i = 0; i < n && rc == MR_OK && kept; i++)
        rc = take_column(rows, i, n, kept, &out->columns[i], st);
    if (rc == MR_OK && kept && in->ids.ids) {
        if (kept == rows->rows)
            mr_identities_take(&out->ids, &in->ids, 0, kept);
        else {
            mr_identity *ids;
            rc = mr_identities_alloc(&out->ids, kept, &ids, st);
            for (size_t i = 0; i < kept && rc == MR_OK; i++)
                ids[i] = in->ids.ids[index[i]];
        }
    }
    out->rows = rc == MR_OK ? kept : 0;
    mr_free(index);
    return rc;
}

static mr_code next(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    const struct state *s = it->state;
    mr_block rows = MR_BLOCK_EMPTY, made = MR_BLOCK_EMPTY;
    mr_row_errors errors = MR_ROW_ERRORS_EMPTY;
    mr_code rc = mr__file_source_next(it, want, &rows, st);
    if (rc == MR_OK)
        rc = split(s, &rows, &made, &errors, st);
    if (rc == MR_OK)
        rc = mr_iter_emit(it, want, &made, &errors, out, st);
    mr_block_reset(&rows);
    mr_block_reset(&made);
    mr_row_errors_reset(&errors);
    return rc;
}

/* ---- components ---- */

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* A record of n names, and the key if it is not among them. */
static mr_code record_of(char *const *members, size_t n, mr_spec **out, mr_status *st)
{
    const char **names = mr_calloc(n + 1, sizeof *names), *twice = NULL;
    mr_spec **parts = mr_calloc(n + 1, sizeof *parts);
    mr_code rc = names && parts ? MR_OK : mr_fail_memory(st, n * sizeof *names, "a spec");
    size_t k = 0;
    if (rc == MR_OK)
        names[k++] = MR__TAR_KEY;
    for (size_t i = 0; i < n && rc == MR_OK; i++)
        if (strcmp(members[i], MR__TAR_KEY) != 0)
            names[k++] = members[i];
    if (rc == MR_OK)
        rc = mr__name_twice((char *const *)(uintptr_t)names, k, &twice, st);
    if (rc == MR_OK && twice)
        rc = mr_fail(st, MR_INVALID_ARGUMENT, "tar: member %s is requested twice", twice);
    if (rc == MR_OK) {
        qsort((void *)(uintptr_t)names, k, sizeof *names, by_name);
        for (size_t i = 0; i < k; i++)
            parts[i] = mr_spec_scalar(MR_STRING);
        rc = mr__inferred(mr_spec_record(names, parts, k), out, st);
    }
    mr_free((void *)(uintptr_t)names);
    mr_free(parts);
    return rc;
}

/* The same of members that are given: the first name of each is the component's. */
static mr_code record_of_given(const mr_strs *members, mr_spec **out, mr_status *st)
{
    char **names = mr_calloc(members->n, sizeof *names);
    mr_code rc = names ? MR_OK : mr_fail_memory(st, members->n * sizeof *names, "names of members");
    for (size_t i = 0, n; i < members->n && rc == MR_OK; i++) {
        const char *at = members->v[i].data, *name = mr__tar_name(&at, &n);
        names[i] = mr_strf("%.*s", (int)n, name);
        if (!names[i])
            rc = mr_fail_memory(st, n + 1, "a member's name");
    }
    if (rc == MR_OK)
        rc = record_of(names, members->n, out, st);
    for (size_t i = 0; names && i < members->n; i++)
        mr_free(names[i]);
    mr_free(names);
    return rc;
}

/* name: of the first file, or a pattern. */
static mr_code look_into(const struct params *p, const char *name, mr_spec **out, mr_status *st)
{
    struct stat s;
    bool input = strcmp(name, "-") == 0;
    if ((input ? mr__sys->fstat(fileno(stdin), &s) : mr__sys->stat(name, &s)) == 0 &&
        (S_ISFIFO(s.st_mode) || S_ISSOCK(s.st_mode)))
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "tar: members must be given for a pipe, which can be read only once, as in "
                       "tar(\"-\", members=[\"jpg\", \"cls\"])");
    char **paths = NULL, **members = NULL;
    size_t n_paths = 0, n = 0;
    mr_file_opts o = {0};
    mr_compression_find(p->o.compression ? p->o.compression : "", &o.compression);
    if (o.compression == MR_COMPRESSION_NONE)
        o.compression = MR_COMPRESSION_PROVEN;
    if (mr__file_is_pattern(&p->files, 0)) {
        MR_TRY(mr_data_files(&name, 1, &paths, &n_paths, st));
        name = paths[0];
    }
    mr_code rc = mr__tar_members(name, &o, &members, &n, st);
    if (rc == MR_OK) {
        rc = record_of(members, n, out, st);
        for (size_t i = 0; i < n; i++)
            mr_free(members[i]);
        mr_free(members);
    }
    mr_glob_free(paths, n_paths);
    return rc;
}

static mr_code infer(const mr_dataset *self, const void *params, mr_spec **out, mr_status *st)
{
    const struct params *p = params;
    size_t n = p->o.members.n;
    if (n == 0 && mr_param_unknown(self, offsetof(struct params, files)))
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "tar: members must be given where the name of the file is computed, as in "
                       "tar(f, members=[\"jpg\", \"cls\"])");
    if (n == 0 && p->files.n == 0)
        return mr_fail(st, MR_INVALID_ARGUMENT, "tar expects at least one file");
    if (n > 0)
        return record_of_given(&p->o.members, out, st);
    char *name = NULL;
    MR_TRY(mr__file_name(p->files.v[0].data, &name, st));
    mr_code rc = look_into(p, name, out, st);
    mr_free(name);
    return rc;
}

/* Whether `name` is among the names of an earlier member, or earlier in its own. */
static bool is_named_before(const mr_strs *members, size_t i, const char *name, size_t n)
{
    for (size_t k = 0; k <= i; k++) {
        const char *at = members->v[k].data, *other;
        for (size_t m; (other = mr__tar_name(&at, &m)) && other != name;)
            if (mr__tar_same(other, m, name, n))
                return true;
    }
    return false;
}

static mr_code check_names(const mr_strs *members, size_t i, mr_status *st)
{
    const char *at = members->v[i].data, *name, *end = at + members->v[i].size;
    bool none = at == end || end[-1] == ';';
    for (size_t n; !none && (name = mr__tar_name(&at, &n));) {
        none = n == 0 || *name == '.';
        if (memchr(name, '?', n))
            return mr_fail(st, MR_INVALID_ARGUMENT,
                           "tar: a \"?\" makes a member optional and must be at the end, as in "
                           "\"txt?\" or \"jpg;png?\", not in \"%s\"",
                           members->v[i].data);
        if (is_named_before(members, i, name, n))
            return mr_fail(st, MR_INVALID_ARGUMENT, "tar: member %.*s is requested twice", (int)n,
                           name);
    }
    if (none)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "tar: a member is named by what follows the first dot, such as \"jpg\"");
    return MR_OK;
}

static mr_code check(const void *params, mr_status *st)
{
    const struct params *p = params;
    for (size_t i = 0; i < p->o.members.n; i++)
        MR_TRY(check_names(&p->o.members, i, st));
    return mr__file_source_check(params, st);
}

static const mr_param table[] = {
    MR_PARAM_WITH(struct params, files, MR_P_POSITIONAL | MR_P_VARIADIC | MR_P_PATTERN,
                  .doc = "Paths, or patterns; several are read in the order given."),
    MR_OPT(struct params, compression, .names = mr__compression_names,
           .doc = "Compression of the files as a whole; empty: detected by their first bytes."),
    MR_OPT(struct params, members, .flags = MR_P_OF_SPEC,
           .doc = "The members to read of each record; default: those of the first record of the "
                  "first file. \"jpg;jpeg;png\": whichever the record has, as component jpg; "
                  "\"txt?\": empty if it has none."),
    {0}};

const mr_op mr_op_tar = {
    .abi = MR_ABI_VERSION,
    .name = "tar",
    .doc = "The records of tar archives (WebDataset): {\"__key__\": bytes, \"jpg\": bytes, ...}.",
    .example = "tar(\"shard-*.tar\", members=[\"jpg\", \"cls\"])",
    .order_doc = "by archive, then in archive order",
    .memory_doc = "a record",
    .state_doc = "file and record",
    .count_doc = "unknown",
    .params = table,
    .params_size = sizeof(struct params),
    .iter_size = sizeof(struct state),
    .role = MR_ROLE_FILES,
    .kind = &kind,
    .check = check,
    .infer = infer,
    .open = open,
    .next = next,
    .close = close,
    .save = mr__file_source_save,
    .restore = mr__file_source_restore,
    .save_shared = mr__file_list_save_shared,
    .restore_shared = mr__file_list_restore_shared,
};

mr_dataset *mr_tar(const char *const *files, size_t n, const mr_tar_opts *opts)
{
    struct params p = {0};
    if (opts)
        p.o = *opts;
    return mr__file_names_dataset(&mr_op_tar, &p, files, n, p.o.paths);
}
