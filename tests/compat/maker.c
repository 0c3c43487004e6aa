/* SPDX-License-Identifier: Apache-2.0 */
/* Two things that make.py needs and no command offers. It compiles this file with the headers of
 * the version that writes the fixtures; the build of the tests does not.
 *
 *   millrace show --load maker.so ...      saves a position from the middle of a block, or after
 *                                          an error, which show never does:
 *       SAVE_EXPRESSION   the graph
 *       SAVE_CALLS        number of calls of mr_iterator_next
 *       SAVE_WANT         elements requested by each
 *       SAVE_ROWS         elements taken from the last block; "": all
 *       SAVE_FILE         file for the position; prints the number of elements before it
 *
 *   LD_PRELOAD=maker.so millrace write ... kills the process in place of rename number
 *                                          KILL_AT_RENAME, counted from 1 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <millrace/millrace.h>

int rename(const char *from, const char *to)
{
    static int n;
    const char *last = getenv("KILL_AT_RENAME");
    if (last && ++n == atoi(last))
        kill(getpid(), SIGKILL);
    int (*real)(const char *, const char *) =
        (int (*)(const char *, const char *))dlsym(RTLD_NEXT, "rename");
    return real(from, to);
}

static mr_code save(const char *expression, mr_status *st)
{
    const mr_iterator_opts opts = {.positions = true, .has_threads = true};
    const char *rows = getenv("SAVE_ROWS");
    mr_dataset *ds = NULL;
    mr_iterator *it = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    size_t n = 0, size;
    void *bytes;
    MR_TRY(mr_dataset_from_text(expression, strlen(expression), NULL, &ds, st));
    MR_TRY(mr_iterator_open(&it, ds, &opts, st));
    for (int i = atoi(getenv("SAVE_CALLS")); i > 0; i--) {
        mr_code rc = mr_iterator_next(it, (size_t)atoi(getenv("SAVE_WANT")), &b, st);
        n += rc == MR_OK ? b.rows : 0;
    }
    if (*rows) {
        MR_TRY(mr_iterator_save_at(it, &b, (size_t)atoi(rows), &bytes, &size, st));
        n -= b.rows - (size_t)atoi(rows);
    } else
        MR_TRY(mr_iterator_save(it, &bytes, &size, st));
    FILE *f = fopen(getenv("SAVE_FILE"), "wb");
    if (!f || fwrite(bytes, 1, size, f) != size || fclose(f) != 0)
        return mr_fail(st, MR_UNKNOWN, "the position cannot be written");
    printf("%zu\n", n);
    return MR_OK;
}

/* Ends the process after saving. */
mr_code mr_plugin_register(mr_status *st)
{
    const char *expression = getenv("SAVE_EXPRESSION");
    if (!expression)
        return MR_OK;
    MR_TRY(save(expression, st));
    exit(0);
}
