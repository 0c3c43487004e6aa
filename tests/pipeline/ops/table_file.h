/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TESTS_TABLE_FILE_H
#define MR_TESTS_TABLE_FILE_H
/* Files of rows for tests, of the elements of graphs, and files' bytes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/engine/iterator.h"
#include "pipeline/formats/table_writer.h"
#include "pipeline/graph/dataset.h"
#include "tests/harness.h"

typedef mr_code (*table_open)(mr__table_writer **out, const mr__table_opts *o, mr_status *st);

static inline mr_code table_put(void *ctx, const void *data, size_t n, mr_status *st)
{
    return fwrite(data, 1, n, ctx) == n ? MR_OK : mr_fail(st, MR_UNKNOWN, "cannot write");
}

/* File `name` of the test's directory holds the elements of the graph as rows, which are written
 * after every most_bytes bytes of values. */
static inline void table_file(table_open open, const char *name, const char *graph,
                              size_t most_bytes, mr_compression compression)
{
    mr_iterator *it = NULL;
    mr__table_writer *w = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    mr_status st;
    FILE *f = fopen(mr_test_path(name), "wb");
    mr_check(f != NULL);
    mr_dataset *ds = mr_test_graph(graph);
    mr_ok(mr_iterator_open(&it, ds, NULL, &st), &st);
    mr__table_opts o = {.spec = mr_iterator_spec(it),
                        .most_bytes = most_bytes,
                        .compression = compression,
                        .put = table_put,
                        .ctx = f};
    mr_code rc;
    while ((rc = mr_iterator_next(it, 100, &b, &st)) == MR_OK) {
        o.first = &b;
        if (!w)
            mr_ok(open(&w, &o, &st), &st);
        for (size_t i = 0; i < b.rows; i++)
            mr_ok(w->class_->append(w, &b, i, &st), &st);
    }
    mr_code_is(rc, MR_END, &st);
    o.first = NULL;
    if (!w)
        mr_ok(open(&w, &o, &st), &st);
    mr_ok(w->class_->finish(w, &st), &st);
    mr__table_writer_close(w);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
    mr_check(fclose(f) == 0);
}

static inline unsigned char *table_read(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    mr_check(f && fseek(f, 0, SEEK_END) == 0);
    *n = (size_t)ftell(f);
    rewind(f);
    unsigned char *v = malloc(*n + 1);
    mr_check(v && fread(v, 1, *n, f) == *n && fclose(f) == 0);
    return v;
}

/* The bytes of a file of the test's directory. Owned: free. */
static inline unsigned char *table_bytes(const char *name, size_t *n)
{
    return table_read(mr_test_path(name), n);
}

static inline void table_write(const char *name, const void *v, size_t n)
{
    FILE *f = fopen(mr_test_path(name), "wb");
    mr_check(f && fwrite(v, 1, n, f) == n && fclose(f) == 0);
}

/* The graph of this text cannot be built: the message has `part`. */
static inline void table_refused(const char *text, mr_code code, const char *part)
{
    mr_dataset *ds = NULL;
    mr_status st;
    mr_code_is(mr_dataset_from_text(text, strlen(text), NULL, &ds, &st), code, &st);
    mr_has_str(st.message, part);
    mr_dataset_unref(ds);
}
#endif
