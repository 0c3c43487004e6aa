/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_CLI_CLI_H
#define MR_CLI_CLI_H
/* What the commands of the program share: flags as tables (parsing and --help come from them),
 * exit statuses, printing. A command is one file, cmd_<verb>.c (those of millrace-train are all in
 * cmd_train.c), and one line in millrace.c. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <millrace/pipeline/engine/iterator.h>
#include <millrace/pipeline/graph/dataset.h>
#include <millrace/pipeline/params/spec.h>

enum { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2, CLI_INTERRUPTED = 130 };

typedef enum cli_kind {
    CLI_SWITCH, /* bool */
    CLI_INT,    /* int64_t; min.. */
    CLI_SIZE,   /* int64_t: bytes, at least 1; 512M is 512 << 20 (K, M, G, T) */
    CLI_FLOAT,  /* double */
    CLI_TEXT,   /* const char * */
    CLI_TEXTS,  /* cli_texts: all words up to the next flag */
    CLI_COMMAND /* no flag: in the help of the program a command, of a command its first word */
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
    bool *given;              /* set when it was; may be NULL */
    int64_t min, max;         /* CLI_INT; both 0: any */
    const char *const *words; /* CLI_TEXT: what is allowed, NULL-ended; NULL: anything */
} cli_flag;

typedef struct cli_command {
    const char *name, *summary;        /* name "": the program itself */
    const char *usage;                 /* what follows the name, a line each */
    const char *details;               /* paragraphs of --help; may be NULL */
    int (*run)(int argc, char **argv); /* argv[0] is the verb */
} cli_command;

extern const cli_command cli_show, cli_explain, cli_ops, cli_inspect, cli_index, cli_reduce,
    cli_write, cli_train, cli_devices, cli_bench, cli_evaluate, cli_predict, cli_summary,
    cli_checkpoints, cli_export, cli_adapt, cli_server, cli_top, cli_why, cli_components;

/* What tells the programs apart that share these files; each has one. */
typedef struct cli_program {
    const cli_command *const *more;    /* commands beside those of millrace, NULL-ended, or NULL */
    mr_code (*add_ops)(mr_status *st); /* NULL: it has none of its own */
    /* Prints where the parts of a graph run that do not run here; NULL: all does. Returns an exit
     * status. */
    int (*explain)(mr_dataset *ds, bool json);
    const char *next; /* suffix of the program that knows more commands and ops; NULL: none does */
} cli_program;
extern const cli_program cli_this;

/* Goes on as millrace-train, which lies beside this program, for its command argv[0]. Where that
 * cannot be, says why and returns an exit status. */
int cli_exec_train(int argc, char **argv);
/* Goes on as the program that knows more, with the same arguments. file (NULL: none) is the value
 * of -f, from which text was read: it may be a pipe, so that the program gets the text itself.
 * Returns where there is no such program. */
void cli_try_service(const char *file, const char *text, size_t size);
/* Text to graph; file as above. One that cannot be built may hold an op of the service: the program
 * that knows more tries it then. -1, or an exit status after the error was printed. */
int cli_dataset(const char *file, const char *text, size_t size, mr_dataset **out);

/* Parses argv[1..) by the flags of all tables (each ends with name NULL; tables ends with NULL);
 * what is no flag goes to rest (argc entries of room), *n_rest. "--" ends the flags.
 * Returns -1 to go on, else the exit status (--help was printed, or the usage is wrong). */
int cli_parse(const cli_command *cmd, const cli_flag *const *tables, int argc, char **argv,
              const char **rest, size_t *n_rest);
/* Prints the help of cmd in the form that word asks for: "--help" for people, "--help=man" a manual
 * page, "--help=options" a line an option for the completion of shells: the option, what its value
 * is, the help and the words it may be, with tabs between. Returns the exit status. */
int cli_help(FILE *f, const cli_command *cmd, const cli_flag *const *tables, const char *word);
/* Room for argc words, until the program ends; ends the program when there is no memory. */
const char **cli_words(int argc);
/* Bytes of a size such as 512M (CLI_SIZE); 0: text is not a size. */
int64_t cli_size(const char *text);
/* Prints "millrace show: <message>" on stderr (cmd NULL: "millrace: <message>"), made printable;
 * returns status. */
int cli_error(const cli_command *cmd, int status, const char *fmt, ...) MR_PRINTF(3, 4);
/* "millrace show: <message>; see 'millrace show --help'"; returns CLI_USAGE. */
int cli_usage(const cli_command *cmd, const char *fmt, ...) MR_PRINTF(2, 3);
/* Prints "millrace: <status>" on stderr; returns status. */
int cli_fail(const mr_status *st, int status);
/* Flushes stdout; a failed write is reported on stderr: CLI_FAILED. */
int cli_flush(int status);

/* Options of every command that runs a graph. */
typedef struct cli_run {
    mr_iterator_opts opts;
    int64_t seed;
    bool verbose;
    const char *file; /* -f */
    const char *token_file;
} cli_run;
/* Fills table (room for CLI_RUN_FLAGS) with flags that write into r. The memory limit is what
 * MILLRACE_MEMORY_LIMIT says where no flag does; a bad one ends the program. */
enum { CLI_RUN_FLAGS = 9 };
void cli_run_flags(cli_run *r, cli_flag *table, bool with_file);
/* After parsing: starts the log, sets the seed, names the service's token to who reads it. */
void cli_run_start(cli_run *r);
/* The expression: rest[0] or the file named by -f. Owned, mr_free. -1, or an exit status. */
int cli_expression(const cli_command *cmd, const cli_run *r, const char *const *rest, size_t n_rest,
                   char **text, size_t *size);

/* Sets up signals, and makes this program's own ops known; first thing in main. */
void cli_start(char **argv);
/* Loads what --load and MILLRACE_PLUGINS name; after cli_start. Ends the program where that fails.
 * Returns argc without the options, which are taken out of argv. */
int cli_load_plugins(int argc, char **argv);
char **cli_arguments(void); /* as cli_start got them */
/* What SIGINT triggers: to be given to all that may wait. NULL: there was no memory for it, and
 * SIGINT ends the program. */
mr_cancel *cli_cancel(void);
bool cli_interrupted(void); /* was it? */
/* SIGTERM does as SIGINT from now on: for commands that have something to remove. */
void cli_catch_termination(void);
/* So does SIGHUP, a terminal that was closed, unless nohup had it ignored. */
void cli_catch_hangup(void);
/* 128 + the signal that came. */
int cli_interrupt_status(void);

/* Element `row` of b as JSON (docs/grammar.md), without a line end. */
mr_code cli_print_element(FILE *f, const mr_spec *spec, const mr_block *b, size_t row,
                          const mr_iterator_opts *opts, mr_status *st);
/* The element and the end of the line; nothing at all where a dataset in it fails. */
mr_code cli_print_line(FILE *f, const mr_spec *spec, const mr_block *b, size_t row,
                       const mr_iterator_opts *opts, mr_status *st);
void cli_print_string(FILE *f, const char *s, size_t n); /* a JSON string or {"b64": ...} */
void cli_print_double(FILE *f, double v);
void cli_print_float(FILE *f, float v);
#endif
