/* SPDX-License-Identifier: Apache-2.0 */
/* Elements as JSON lines, as docs/grammar.md describes them. */
#include <stdlib.h>

#include <millrace/pipeline/streams/elements/element_json.h>
#include "cli.h"

void cli_print_string(FILE *f, const char *text, size_t n)
{
    mr_json_string(f, text, n);
}

void cli_print_double(FILE *f, double v)
{
    mr_json_double(f, v);
}

void cli_print_float(FILE *f, float v)
{
    mr_json_float(f, v);
}

mr_code cli_print_element(FILE *f, const mr_spec *spec, const mr_block *b, size_t row,
                          const mr_iterator_opts *opts, mr_status *st)
{
    return mr_json_element(f, spec, b, row, opts, st);
}

mr_code cli_print_line(FILE *f, const mr_spec *spec, const mr_block *b, size_t row,
                       const mr_iterator_opts *opts, mr_status *st)
{
    bool nested = false;
    for (size_t c = 0; c < b->n_columns; c++)
        nested = nested || b->columns[c].storage == MR_DATASETS;
    mr_code rc;
    if (nested) { /* it may fail part way through */
        char *text = NULL;
        size_t size = 0;
        FILE *line = open_memstream(&text, &size);
        if (!line)
            return mr_fail_memory(st, BUFSIZ, "a line of output");
        rc = cli_print_element(line, spec, b, row, opts, st);
        if (fclose(line) != 0 && rc == MR_OK)
            rc = mr_fail_memory(st, size, "a line of output");
        if (rc == MR_OK)
            fwrite(text, 1, size, f);
        free(text);
    } else
        rc = cli_print_element(f, spec, b, row, opts, st);
    if (rc == MR_OK)
        putc_unlocked('\n', f);
    return rc;
}
