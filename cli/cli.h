/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_CLI_CLI_H
#define MR_CLI_CLI_H
/* What the commands of the program share: flags as tables (parsing and --help come from them),
 * exit statuses, printing. A command is one file, cmd_<verb>.c, and one line in millrace.c. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "pipeline/engine/iterator.h"
#include "pipeline/graph/dataset.h"
#include "pipeline/graph/spec.h"

enum { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2, CLI_INTERRUPTED = 130 };

typedef enum cli_kind {
    CLI_SWITCH, /* bool */
    CLI_INT,    /* int64_t; min.. */
    CLI_FLOAT,  /* double */
    CLI_TEXT,   /* const char * */
    CLI_TEXTS   /* cli_texts: all words up to the next flag */
} cli_kind;

typedef struct cli_texts {
    const char **v;
    size_t n;
} cli_texts;

typedef struct cli_flag {
    const char *name; /* without dashes; one letter: -x */
    cli_kind kind;
    void *value;
    const char *what; /* of the value, in --help; NULL for switches */
    const char *help;
    bool *given;              /* set when it was; NULL: nobody asks */
    int64_t min, max;         /* CLI_INT; both 0: any */
    const char *const *words; /* CLI_TEXT: what is allowed, NULL-ended; NULL: anything */
} cli_flag;

typedef struct cli_command {
    const char *name, *summary;
    const char *usage;                 /* what follows the name, a line each */
    const char *details;               /* paragraphs of --help; may be NULL */
    int (*run)(int argc, char **argv); /* argv[0] is the verb */
} cli_command;

extern const cli_command cli_show, cli_explain, cli_ops, cli_inspect, cli_write, cli_train,
    cli_bench;

/* Parses argv[1..) by the flags of all tables (each ends with name NULL; tables ends with NULL);
 * what is no flag goes to rest (argc entries of room), *n_rest. "--" ends the flags.
 * Returns -1 to go on, else the exit status (--help was printed, or the usage is wrong). */
int cli_parse(const cli_command *cmd, const cli_flag *const *tables, int argc, char **argv,
              const char **rest, size_t *n_rest);
/* Room for argc words, until the program ends; ends the program when there is no memory. */
const char **cli_words(int argc);
/* "millrace show: <message>; see 'millrace show --help'"; returns CLI_USAGE. */
int cli_usage(const cli_command *cmd, const char *fmt, ...) MR_PRINTF(2, 3);
/* Prints "millrace: <status>" on stderr; returns status. */
int cli_fail(const mr_status *st, int status);

/* Options of every command that runs a graph. */
typedef struct cli_run {
    mr_iterator_opts opts;
    int64_t seed;
    bool verbose;
    const char *file; /* -f */
} cli_run;
/* Fills table (room for CLI_RUN_FLAGS) with flags that write into r. */
enum { CLI_RUN_FLAGS = 7 };
void cli_run_flags(cli_run *r, cli_flag *table, bool with_file);
/* After parsing: starts the log, sets the seed. */
void cli_run_start(cli_run *r);
/* The expression: rest[0] or the file named by -f. Owned, mr_free. -1, or an exit status. */
int cli_expression(const cli_command *cmd, const cli_run *r, const char *const *rest, size_t n_rest,
                   char **text, size_t *size);

/* Sets up signals; first thing in main. */
void cli_start(void);
/* SIGINT runs cancel(object) of what was watched last and makes cli_interrupted true. cancel must
 * be safe in a signal handler; NULL: nothing is watched. */
void cli_watch(void (*cancel)(void *), void *object);
void cli_watch_iterator(mr_iterator *it); /* NULL: nothing */
bool cli_interrupted(void);

/* Element `row` of b as JSON (docs/grammar.md), without a line end. */
mr_code cli_print_element(FILE *f, const mr_spec *spec, const mr_block *b, size_t row,
                          const mr_iterator_opts *opts, mr_status *st);
/* The element and the end of the line; nothing at all where a dataset in it fails. */
mr_code cli_print_line(FILE *f, const mr_spec *spec, const mr_block *b, size_t row,
                       const mr_iterator_opts *opts, mr_status *st);
void cli_print_string(FILE *f, const char *s, size_t n); /* a JSON string or {"b64": ...} */
void cli_print_double(FILE *f, double v);
void cli_print_float(FILE *f, float v);
/* Flushes stdout; a failed write is told on stderr: CLI_FAILED. */
int cli_flush(int status);
#endif
