/* SPDX-License-Identifier: Apache-2.0 */
/* arrow: the rows of Arrow IPC files, one component per column. Rows are read batch by batch. */
#include <inttypes.h>
#include <stdio.h>

#include "pipeline/formats/arrow_ipc/arrow_ipc.h"
#include "pipeline/formats/table_flaws.h"
#include "pipeline/ops/sources.h"
#include "pipeline/streams/sources/file_source.h"
#include "pipeline/streams/sources/table_source.h"

struct state {
    mr__file_source source;
    mr__arrow_opts opts;
    mr_array *defaults; /* of the components; NULL: no component has one */
};

static mr_code count(const void *params, const char *path, int64_t *n, uint64_t *mark,
                     mr_status *st)
{
    (void)params;
    return mr__arrow_file_count(path, n, mark, st);
}

static const mr__file_kind kind = {.format = &mr__format_arrow,
                                   .compression_at = offsetof(mr__table_params, compression),
                                   .skips = true,
                                   .count = count};

static mr_code open(mr_iter *it, mr_status *st)
{
    struct state *s = it->state;
    MR_TRY(mr__table_defaults("arrow", it->params, it->spec, &s->defaults, st));
    s->opts = (mr__arrow_opts){
        .spec = it->spec, .all = mr__table_takes_all(it->params), .defaults = s->defaults};
    s->source.own = &s->opts;
    return mr__file_source_open(it, st);
}

static void close(mr_iter *it)
{
    struct state *s = it->state;
    mr__file_source_close(it);
    mr__table_defaults_free(s->defaults, it->spec);
}

/* The name of a component, "a.b" for field b of a. */
static const char *leaf_name(const mr_spec *spec, size_t leaf, char out[200])
{
    const char *const *names = mr_spec_leaf_names(spec);
    snprintf(out, 200, "%s", names ? names[leaf] : "");
    for (char *c = out; *c; c++)
        if (*c == '/')
            *c = '.';
    return out;
}

/* The rows without nulls; rows with nulls are errors. */
static mr_code split(mr_iter *it, mr_block *rows, const uint32_t *nulls, int64_t batch, size_t file,
                     mr_block *out, mr_row_errors *errors, mr_status *st)
{
    struct state *s = it->state;
    uint32_t *index = mr_malloc((rows->rows + 1) * sizeof *index), kept = 0;
    mr_code rc = index ? MR_OK : mr_fail_memory(st, rows->rows * sizeof *index, "rows");
    for (size_t i = 0; i < rows->rows && rc == MR_OK; i++) {
        mr_status why;
        if (nulls[i] == 0) {
            index[kept++] = (uint32_t)i;
            continue;
        }
        char name[200];
        mr_fail(&why, MR_INVALID_ARGUMENT, "batch %" PRId64 ", column '%.200s': %s", batch,
                leaf_name(it->spec, (nulls[i] & MR__ARROW_LEAF) - 1, name),
                nulls[i] & MR__ARROW_UNEVEN   ? MR__TABLE_UNEVEN
                : nulls[i] & MR__ARROW_WITHIN ? MR__TABLE_NULL_WITHIN
                                              : MR__TABLE_NULL);
        mr_status_at(&why, mr__file_source_path(&s->source, file), -1,
                     (int64_t)(s->source.first + i));
        rc = mr_row_errors_add(errors, i, &why, st);
    }
    if (rc == MR_OK && kept) {
        rc = mr_block_start(out, rows, kept, st);
        if (rc == MR_OK)
            rc = mr_block_append_rows(out, rows, index, kept, st);
    }
    mr_free(index);
    return rc;
}

static mr_code next(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    struct state *s = it->state;
    mr_block rows = MR_BLOCK_EMPTY, made = MR_BLOCK_EMPTY;
    mr_row_errors errors = MR_ROW_ERRORS_EMPTY;
    mr_array number = {0};
    mr_file_position at;
    const uint32_t *nulls = NULL;
    int64_t batch;
    size_t file, bad = 0;
    MR_TRY(mr__file_source_lines(it, want, &number, &file, &at, st));
    mr_code rc = mr__arrow_take_rows(s->source.reader, &rows, &nulls, &batch, st);
    if (rc == MR_OK)
        rc = mr__file_source_identify(it, &rows, file, s->source.first, st);
    for (size_t i = 0; rc == MR_OK && nulls && i < rows.rows; i++)
        bad += nulls[i] != 0;
    if (rc == MR_OK && bad)
        rc = split(it, &rows, nulls, batch, file, &made, &errors, st);
    if (rc != MR_OK) /* what was read is lost */
        mr__file_source_leave(it);
    else if (bad)
        rc = mr_iter_emit(it, want, &made, &errors, out, st);
    else
        mr_block_move(out, &rows);
    mr_block_reset(&rows);
    mr_block_reset(&made);
    mr_row_errors_reset(&errors);
    return rc;
}

/* ---- columns ---- */

static mr_code look(const char *path, const mr_strs *columns, mr_spec **out, mr_status *st)
{
    return mr__arrow_file_spec(path, columns->v, columns->n, out, st);
}

static mr_code infer(const mr_dataset *self, const void *params, mr_spec **out, mr_status *st)
{
    return mr__table_infer(self, params, look, out, st);
}

static mr_code check(const void *params, mr_status *st)
{
    return mr__table_check("arrow", params, st);
}

const mr_op mr_op_arrow = {
    .abi = MR_ABI_VERSION,
    .name = "arrow",
    .doc = "The rows of Arrow IPC files (streams and files), as records of their columns.",
    .example = "arrow(\"people-*.arrow\", schema={\"name\": bytes, \"age\": int64})",
    .order_doc = "by file, then by row",
    .memory_doc = "a record batch, and the dictionaries of the columns",
    .state_doc = "file and row",
    .count_doc = "the rows of all files; unknown for a pipe",
    .params = mr__table_param_list,
    .params_size = sizeof(mr__table_params),
    .iter_size = sizeof(struct state),
    .role = MR_ROLE_FILES,
    .props = MR_OP_LATE_COUNT,
    .kind = &kind,
    .check = check,
    .infer = infer,
    .cardinality = mr__file_source_counted,
    .open = open,
    .next = next,
    .close = close,
    .save = mr__file_source_save,
    .restore = mr__file_source_restore,
    .save_shared = mr__file_list_save_shared,
    .restore_shared = mr__file_list_restore_shared,
    .skip = mr__file_source_skip,
    .count = mr__file_source_count,
    .at = mr__file_source_at,
};

mr_dataset *mr_arrow(const char *const *files, size_t n, const mr_table_opts *opts)
{
    static const mr_table_opts unset = {0};
    const mr_table_opts *o = opts ? opts : &unset;
    mr__table_params p = {.columns = o->columns, .schema = o->schema};
    return mr__file_names_dataset(&mr_op_arrow, &p, files, n, o->paths);
}
