/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_CLI_CLI_H
#define MR_CLI_CLI_H
/* What the commands of the program share: tables of flags, from which parsing and --help are
 * derived; exit statuses; printing. A command is one file,
 * commands/cmd_<verb>.c (those of millrace-train are all in cmd_train.c), and one line in
 * commands/millrace.c. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <millrace/pipeline/engine/iterator.h>
#include <millrace/pipeline/graph/dataset.h>
#include <millrace/pipeline/params/spec.h>
#include <millrace/transport/wire/tls.h>

/* CLI_AGAIN: EX_TEMPFAIL of sysexits.h, for launchers that start a job again. */
enum { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2, CLI_AGAIN = 75, CLI_INTERRUPTED = 130 };

typedef enum cli_kind {
    CLI_SWITCH, /* bool */
    CLI_INT,    /* int64_t; min.. */
    CLI_SIZE,   /* int64_t: bytes, at least 1; 512M is 512 << 20 (K, M, G, T) */
    CLI_FLOAT,  /* double */
    CLI_TEXT,   /* const char * */
    CLI_TEXTS,  /* cli_texts: all words up to the next flag */
    CLI_COMMAND /* not a flag: a command in the program's help, or its first word */
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
    bool *given;              /* set if the flag was given; may be NULL */
    int64_t min, max;         /* CLI_INT; both 0: any */
    const char *const *words; /* CLI_TEXT: the allowed values, NULL-terminated; NULL: any */
} cli_flag;

typedef struct cli_command {
    const char *name, *summary;        /* name "": the program itself */
    const char *usage;                 /* the words after the name, a line each */
    const char *details;               /* paragraphs of --help; may be NULL */
    int (*run)(int argc, char **argv); /* argv[0] is the verb */
} cli_command;

extern const cli_command cli_cache, cli_show, cli_explain, cli_ops, cli_inspect, cli_index,
    cli_reduce, cli_write, cli_train, cli_devices, cli_bench, cli_evaluate, cli_predict,
    cli_summary, cli_checkpoints, cli_export, cli_adapt, cli_server, cli_top, cli_why,
    cli_components, cli_position, cli_uploads;

/* Distinguishes the programs that share these files; each defines one. */
typedef struct cli_program {
    const cli_command *const
        *more; /* commands in addition to those of millrace, NULL-terminated, or NULL */
    mr_code (*add_ops)(mr_status *st); /* NULL: none */
    /* Prints where the parts of a graph run that do not run in this process; NULL: all do.
     * Returns an exit status. */
    int (*explain)(mr_dataset *ds, bool json);
    const char *next; /* suffix of the program with more commands and ops; NULL: none */
} cli_program;
extern const cli_program cli_this;

/* Executes the command argv[0] of millrace-train, which is installed next to this program. On
 * failure prints the reason and returns an exit status. */
int cli_exec_train(int argc, char **argv);
/* Executes the program with more commands and ops, with the same arguments. file (NULL: none) is
 * the value of -f, from which text was read: as it may be a pipe, the program receives the text
 * itself. Returns if there is no such program. */
void cli_try_service(const char *file, const char *text, size_t size);
/* Builds a graph from text; file as above. If that fails, the program with more ops is tried,
 * since the graph may contain an op of the service. Returns -1, or an exit status after printing
 * the error. */
int cli_dataset(const char *file, const char *text, size_t size, mr_dataset **out);

/* Parses argv[1..) by the flags of all tables (each ends with name NULL; tables ends with NULL);
 * other words go to rest (room for argc entries), *n_rest. "--" ends the flags. Returns -1 to
 * continue, or the exit status (--help was printed, or the usage is wrong). */
int cli_parse(const cli_command *cmd, const cli_flag *const *tables, int argc, char **argv,
              const char **rest, size_t *n_rest);
/* Prints the help of cmd in the form that word requests: "--help" for people, "--help=man" a manual
 * page, "--help=options" a line per option for shell completion: the option, the name of its value,
 * the help and the allowed values, separated by tabs. Returns the exit status. */
int cli_help(FILE *f, const cli_command *cmd, const cli_flag *const *tables, const char *word);
/* Allocates room for argc words, never freed; exits if out of memory. */
const char **cli_words(int argc);
/* The bytes of a size such as 512M (CLI_SIZE); 0: text is not a size. */
int64_t cli_size(const char *text);
/* From here on standard output is written line by line, each in one call: it may be a pipe that
 * other processes write to. */
void cli_print_whole_lines(void);
/* Prints "millrace show: <message>" on stderr (cmd NULL: "millrace: <message>"), with unprintable
 * characters escaped; returns status. */
int cli_error(const cli_command *cmd, int status, const char *fmt, ...) MR_PRINTF(3, 4);
/* "millrace show: <message>; see 'millrace show --help'"; returns CLI_USAGE. */
int cli_usage(const cli_command *cmd, const char *fmt, ...) MR_PRINTF(2, 3);
/* Prints "millrace: <status>" on stderr; returns status. */
int cli_fail(const mr_status *st, int status);
/* Flushes stdout; a failed write is reported on stderr: CLI_FAILED. */
int cli_flush(int status);

/* Fills table with the flags of a side that accepts connections, or connects, or both. */
enum { CLI_TLS_FLAGS = 7 };
void cli_tls_flags(mr_tls_opts *o, bool accepts, bool connects, cli_flag *table);
/* Sets the environment's variables for those that were given. */
void cli_tls_export(const mr_tls_opts *o);
/* SIGHUP calls reload in a daemon that has a certificate. */
void cli_tls_heed_hangup(const mr_tls_opts *o, void (*reload)(int signal));

/* Options of every command that runs a graph. */
typedef struct cli_run {
    mr_iterator_opts opts;
    int64_t seed;
    bool verbose;
    const char *file; /* -f */
    const char *token_file, *cluster_token_file;
    const char *cache_dir;
    int64_t cache_limit;
    bool offline;
    mr_tls_opts tls;
} cli_run;
/* Fills table (room for CLI_RUN_FLAGS) with flags that write into r. Without a flag, the memory
 * limit is that of MILLRACE_MEMORY_LIMIT; an invalid one ends the program. */
enum { CLI_CACHE_FLAGS = 4, CLI_RUN_FLAGS = 16 + CLI_CACHE_FLAGS - 1 };
void cli_run_flags(cli_run *r, cli_flag *table, bool with_file);
/* Fills table (room for CLI_CLUSTER_FLAGS) with those of commands whose processes find each other,
 * which write into r too. */
enum { CLI_CLUSTER_FLAGS = 3 };
void cli_cluster_flags(cli_run *r, cli_flag *table);
/* The flags of the cache of remote objects alone, which are among those of cli_run_flags too; table
 * has room for CLI_CACHE_FLAGS. */
void cli_cache_flags(cli_run *r, cli_flag *table);
/* After parsing: exports the settings of the cache, for this process and those that it starts. */
void cli_cache_start(const cli_run *r);
/* After parsing: starts the log, sets the seed, and exports how to connect to the service and the
 * settings of the cache. */
void cli_run_start(cli_run *r);
/* The expression: rest[0] or the file named by -f. Owned, mr_free. -1, or an exit status. */
int cli_expression(const cli_command *cmd, const cli_run *r, const char *const *rest, size_t n_rest,
                   char **text, size_t *size);

/* Opens /dev/null for each of the descriptors 0 to 2 that is closed, sets up signals, and registers
 * the ops of this program; the first call in main. */
void cli_start(char **argv);
/* Loads the plugins of --load and MILLRACE_PLUGINS; after cli_start. Exits on failure. Returns argc
 * without these options, which are removed from argv. */
int cli_load_plugins(int argc, char **argv);
char **cli_arguments(void); /* as passed to cli_start */
/* The cancel object that SIGINT triggers: pass it to everything that may wait. NULL: it could
 * not be allocated, and SIGINT ends the program. */
mr_cancel *cli_cancel(void);
bool cli_interrupted(void); /* has SIGINT been received? */
/* From now on SIGTERM acts as SIGINT, for commands with something to clean up. */
void cli_catch_termination(void);
/* So does SIGHUP (a closed terminal), unless it is ignored (nohup). */
void cli_catch_hangup(void);
/* 128 + the signal received. */
int cli_interrupt_status(void);

/* Element `row` of b as JSON (docs/grammar.md), without a line end. */
mr_code cli_print_element(FILE *f, const mr_spec *spec, const mr_block *b, size_t row,
                          const mr_iterator_opts *opts, mr_status *st);
/* The element and a line end; nothing if a dataset in it fails. */
mr_code cli_print_line(FILE *f, const mr_spec *spec, const mr_block *b, size_t row,
                       const mr_iterator_opts *opts, mr_status *st);
void cli_print_string(FILE *f, const char *s, size_t n); /* a JSON string or {"b64": ...} */
void cli_print_double(FILE *f, double v);
void cli_print_float(FILE *f, float v);
#endif
