/* SPDX-License-Identifier: Apache-2.0 */
/* millrace top: observes the pipelines of a running program. It requests a report from the
 * program at intervals (pipeline/engine/watch.h describes the format); rates are differences of
 * two reports. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <millrace/pipeline/memory/alloc.h>
#include "../cli.h"
#include "../host_table.h"

enum {
    OP_FIELDS = 14,
    HOST_FIELDS = 7 + MR_HOST_BOUNDS + 1 + 3,
    MOST_REPORT = 64 << 20,
    PATIENCE = 10 /* seconds to wait for a report */
};

typedef struct op {
    const char *path, *name;
    int64_t elements, blocks, bytes;
    double busy_seconds, wait_seconds;
    int64_t queued_elements, queued_blocks, queued_bytes, room_elements, room_blocks, dropped;
} op;

typedef struct pipeline {
    int64_t number, threads, memory_limit;
    double seconds;
    const char *graph;      /* NULL: it has no text form */
    size_t first_op, n_ops; /* index into the report's ops */
} pipeline;

typedef struct report {
    char *text; /* all strings point into it */
    int64_t resident_bytes;
    pipeline *pipelines;
    op *ops;
    mr_host_stats *hosts;
    size_t n_pipelines, n_ops, n_hosts;
} report;

typedef struct top_opts {
    int64_t pid;
    double interval;
    bool has_interval, once, json;
} top_opts;

/* ---- the program ---- */

/* The command line of a process, its words separated by blanks, without the secrets of URLs; "": it
 * has ended, or is a kernel thread. Returns false if the process does not exist. */
static bool command_of(int64_t pid, char *out, size_t room)
{
    char path[64], line[8192];
    snprintf(path, sizeof path, "/proc/%" PRId64 "/cmdline", pid);
    FILE *f = fopen(path, "rb");
    *out = '\0';
    if (!f)
        return errno != ENOENT && errno != ESRCH;
    size_t n = fread(line, 1, sizeof line - 1, f);
    fclose(f);
    while (n && !line[n - 1])
        n--;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)line[i] < 32 || line[i] == 127)
            line[i] = ' ';
    line[n] = '\0';
    mr_text_drop_secrets(line);
    n = strlen(line) < room ? strlen(line) : room - 1;
    memcpy(out, line, n);
    out[n] = '\0';
    return true;
}

static bool is_running(int64_t pid)
{
    char command[2];
    return command_of(pid, command, sizeof command) && *command;
}

/* Returns 0 and *fd, or an errno. */
static int connect_to(int64_t pid, int *fd)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int n = snprintf(at.sun_path + 1, sizeof at.sun_path - 1, "millrace-top-%" PRId64, pid);
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
    const struct timeval patience = {.tv_sec = PATIENCE};
    *fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (*fd < 0)
        return errno;
    if (setsockopt(*fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) ||
        setsockopt(*fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience) ||
        connect(*fd, (const struct sockaddr *)&at, size)) {
        int err = errno;
        close(*fd);
        return err;
    }
    return 0;
}

/* Returns -1 to continue, or an exit status. Any program may bind the name of the socket: only the
 * process with this number is trusted, and only if its user may be observed. */
static int check_peer(int fd, int64_t pid)
{
    struct ucred peer;
    socklen_t size = sizeof peer;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size))
        return cli_error(&cli_top, CLI_FAILED, "process %" PRId64 ": %s", pid, strerror(errno));
    if (peer.pid != pid)
        return cli_error(&cli_top, CLI_FAILED,
                         "the socket of process %" PRId64 " is bound by another process, %ld", pid,
                         (long)peer.pid);
    if (geteuid() != 0 && peer.uid != geteuid())
        return cli_error(
            &cli_top, CLI_FAILED,
            "process %" PRId64
            " belongs to another user (uid %ld); run millrace top as that user or as root",
            pid, (long)peer.uid);
    return -1;
}

static int no_answer(int64_t pid, int err)
{
    char command[200];
    if (!command_of(pid, command, sizeof command))
        return cli_error(&cli_top, CLI_FAILED, "there is no process %" PRId64, pid);
    if (!*command)
        return cli_error(&cli_top, CLI_FAILED, "process %" PRId64 " has ended", pid);
    if (err == ECONNREFUSED)
        return cli_error(&cli_top, CLI_FAILED,
                         "process %" PRId64
                         " (%s) runs no pipeline that can be watched; millrace commands do while "
                         "they read elements, other programs if they set mr_iterator_opts.watch",
                         pid, command);
    return cli_error(&cli_top, CLI_FAILED, "process %" PRId64 " (%s): %s", pid, command,
                     strerror(err));
}

/* Reads the whole report, NUL-terminated and owned; or NULL and errno, ECONNRESET if it is
 * empty. */
static char *read_all(int fd)
{
    char *text = NULL;
    size_t room = 0, n = 0;
    for (;;) {
        if (MR_GROW(text, room, n + 65536, MOST_REPORT, "a report", NULL) != MR_OK) {
            mr_free(text);
            errno = ENOMEM;
            return NULL;
        }
        ssize_t got = recv(fd, text + n, room - n - 1, 0);
        if (got < 0 && errno == EINTR && !cli_interrupted())
            continue;
        if (got < 0) {
            int err = errno;
            mr_free(text);
            errno = err;
            return NULL;
        }
        n += (size_t)got;
        if (got == 0)
            break;
    }
    if (n == 0) {
        mr_free(text);
        errno = ECONNRESET;
        return NULL;
    }
    text[n] = '\0';
    return text;
}

/* ---- its report ---- */

static void free_report(report *r)
{
    mr_free(r->text);
    mr_free(r->pipelines);
    mr_free(r->ops);
    mr_free(r->hosts);
    *r = (report){0};
}

/* Splits a line at its tabs. Returns the number of fields. */
static size_t fields_of(char *line, const char **fields, size_t room)
{
    size_t n = 0;
    for (char *at = line; at && n < room; n++) {
        char *tab = strchr(at, '\t');
        if (tab)
            *tab++ = '\0';
        fields[n] = at;
        at = tab;
    }
    return n;
}

static int64_t whole(const char *s)
{
    return strtoll(s, NULL, 10);
}

/* Processes of 0.1 do not report what was dropped. */
static void take_op(report *r, const char *const *f, size_t n)
{
    r->ops[r->n_ops++] = (op){.path = f[1],
                              .name = f[2],
                              .elements = whole(f[3]),
                              .blocks = whole(f[4]),
                              .bytes = whole(f[5]),
                              .busy_seconds = strtod(f[6], NULL),
                              .wait_seconds = strtod(f[7], NULL),
                              .queued_elements = whole(f[8]),
                              .queued_blocks = whole(f[9]),
                              .queued_bytes = whole(f[10]),
                              .room_elements = whole(f[11]),
                              .room_blocks = whole(f[12]),
                              .dropped = n > 13 ? whole(f[13]) : 0};
    r->pipelines[r->n_pipelines - 1].n_ops++;
}

static void take_host(report *r, const char *const *f)
{
    mr_host_stats *s = &r->hosts[r->n_hosts++];
    *s = (mr_host_stats){.bytes = whole(f[2]),
                         .requests = whole(f[3]),
                         .retries = whole(f[4]),
                         .open_connections = whole(f[5]),
                         .first_byte_seconds = strtod(f[6], NULL)};
    snprintf(s->host, sizeof s->host, "%s", f[1]);
    for (size_t i = 0; i <= MR_HOST_BOUNDS; i++)
        s->first_bytes[i] = whole(f[7 + i]);
    f += 7 + MR_HOST_BOUNDS + 1;
    s->cached_bytes = whole(f[0]);
    s->cache_hits = whole(f[1]);
    s->cache_misses = whole(f[2]);
}

/* Returns false if it is not a line of a report. */
static bool take_line(report *r, char *line)
{
    const char *f[HOST_FIELDS];
    size_t n = fields_of(line, f, HOST_FIELDS);
    if (strcmp(f[0], "process") == 0 && n == 2)
        r->resident_bytes = whole(f[1]);
    else if (strcmp(f[0], "pipeline") == 0 && n == 5)
        r->pipelines[r->n_pipelines++] = (pipeline){.number = whole(f[1]),
                                                    .seconds = strtod(f[2], NULL),
                                                    .threads = whole(f[3]),
                                                    .memory_limit = whole(f[4]),
                                                    .first_op = r->n_ops};
    else if (strcmp(f[0], "graph") == 0 && n == 2 && r->n_pipelines)
        r->pipelines[r->n_pipelines - 1].graph = f[1];
    else if (strcmp(f[0], "op") == 0 && n >= OP_FIELDS - 1 && r->n_pipelines)
        take_op(r, f, n);
    else if (strcmp(f[0], "host") == 0 && n == HOST_FIELDS)
        take_host(r, f);
    else
        return false;
    return true;
}

/* Takes text. Returns -1 to continue, or an exit status. */
static int parse(char *text, int64_t pid, report *r)
{
    static const char head[] = "millrace-top\t";
    *r = (report){.text = text};
    size_t lines = 0, n = strlen(text);
    for (const char *s = text; *s; s++)
        lines += *s == '\n';
    bool complete = n >= 4 && strcmp(text + n - 4, "end\n") == 0;
    if (!complete || strncmp(text, head, sizeof head - 1) != 0)
        return cli_error(&cli_top, CLI_FAILED,
                         "process %" PRId64 " closed the connection before its report was complete",
                         pid);
    if (strncmp(text + sizeof head - 1, "1\n", 2) != 0)
        return cli_error(&cli_top, CLI_FAILED,
                         "process %" PRId64
                         " runs another version of millrace; use millrace top of that version",
                         pid);
    r->pipelines = mr_calloc(lines, sizeof *r->pipelines);
    r->ops = mr_calloc(lines, sizeof *r->ops);
    r->hosts = mr_calloc(lines, sizeof *r->hosts);
    if (!r->pipelines || !r->ops || !r->hosts)
        return cli_error(&cli_top, CLI_FAILED, "out of memory");
    text[n - 4] = '\0';
    for (char *line = strchr(text, '\n') + 1, *next; *line; line = next) {
        char *end = strchr(line, '\n');
        next = end + 1;
        *end = '\0';
        if (!take_line(r, line))
            return cli_error(&cli_top, CLI_FAILED,
                             "process %" PRId64 " sent an unreadable report: '%.40s'", pid, line);
    }
    return -1;
}

/* *err = why the program does not listen (0: it does). Returns -1 to continue, or an exit
 * status. */
static int ask(int64_t pid, report *r, int *err)
{
    int fd;
    *err = connect_to(pid, &fd);
    if (*err)
        return -1;
    int status = check_peer(fd, pid);
    if (status < 0) {
        char *text = read_all(fd);
        if (text)
            status = parse(text, pid, r);
        else if (cli_interrupted())
            status = CLI_INTERRUPTED;
        else if (errno == ECONNRESET) /* its last pipeline ended before it accepted us */
            *err = ECONNREFUSED;
        else
            status = cli_error(&cli_top, CLI_FAILED, "process %" PRId64 " sent no report: %s", pid,
                               strerror(errno));
    }
    close(fd);
    return status;
}

/* ---- rates ---- */

static const pipeline *find_pipeline(const report *r, int64_t number)
{
    for (size_t i = 0; i < r->n_pipelines; i++)
        if (r->pipelines[i].number == number)
            return &r->pipelines[i];
    return NULL;
}

/* Number of ops before ops[i] with the same path: two ops at one place share it. */
static size_t nth_of_path(const op *ops, size_t i)
{
    size_t n = 0;
    for (size_t k = 0; k < i; k++)
        n += strcmp(ops[k].path, ops[i].path) == 0;
    return n;
}

/* What op i of p did since `before`, or since the pipeline was opened if it is not in `before`.
 * *seconds = the duration. */
static op since(const report *r, const pipeline *p, size_t i, const report *before, double *seconds)
{
    op now = r->ops[p->first_op + i];
    const pipeline *old = find_pipeline(before, p->number);
    size_t nth = nth_of_path(r->ops + p->first_op, i);
    *seconds = p->seconds - (old ? old->seconds : 0);
    for (size_t k = 0; old && k < old->n_ops; k++) {
        const op *o = &before->ops[old->first_op + k];
        if (strcmp(o->path, now.path) != 0 || nth-- > 0)
            continue;
        now.elements -= o->elements;
        now.bytes -= o->bytes;
        now.busy_seconds -= o->busy_seconds;
        now.wait_seconds -= o->wait_seconds;
        break;
    }
    return now;
}

static double rate(double amount, double seconds)
{
    return seconds > 0 && amount > 0 ? amount / seconds : 0;
}

/* ---- printing ---- */

static void put_number(const char *key, double v)
{
    printf(", \"%s\": ", key);
    cli_print_double(stdout, v);
}

static void put_json_op(const op *o, const op *d, double seconds)
{
    printf("{\"op\": \"%s\", \"path\": \"%s\", \"elements\": %" PRId64 ", \"blocks\": %" PRId64
           ", \"bytes\": %" PRId64,
           o->name, o->path, o->elements, o->blocks, o->bytes);
    put_number("busy_seconds", o->busy_seconds);
    put_number("wait_seconds", o->wait_seconds);
    put_number("elements_per_second", rate((double)d->elements, seconds));
    put_number("bytes_per_second", rate((double)d->bytes, seconds));
    put_number("busy_threads", rate(d->busy_seconds, seconds));
    put_number("waiting_threads", rate(d->wait_seconds, seconds));
    printf(", \"queued_elements\": %" PRId64 ", \"queued_blocks\": %" PRId64
           ", \"queued_bytes\": %" PRId64 ", \"room_elements\": %" PRId64
           ", \"room_blocks\": %" PRId64 ", \"dropped\": %" PRId64 "}",
           o->queued_elements, o->queued_blocks, o->queued_bytes, o->room_elements, o->room_blocks,
           o->dropped);
}

static void print_json(int64_t pid, const char *command, const report *r, const report *before)
{
    printf("{\"pid\": %" PRId64 ", \"command\": ", pid);
    cli_print_string(stdout, command, strlen(command));
    printf(", \"resident_bytes\": %" PRId64 ", \"pipelines\": [", r->resident_bytes);
    for (size_t i = 0; i < r->n_pipelines; i++) {
        const pipeline *p = &r->pipelines[i];
        printf("%s{\"number\": %" PRId64 ", \"graph\": ", i ? ", " : "", p->number);
        if (p->graph)
            cli_print_string(stdout, p->graph, strlen(p->graph));
        else
            fputs("null", stdout);
        put_number("seconds", p->seconds);
        printf(", \"threads\": %" PRId64 ", \"memory_limit\": %" PRId64 ", \"ops\": [", p->threads,
               p->memory_limit);
        for (size_t k = 0; k < p->n_ops; k++) {
            double seconds;
            const op d = since(r, p, k, before, &seconds);
            fputs(k ? ", " : "", stdout);
            put_json_op(&r->ops[p->first_op + k], &d, seconds);
        }
        fputs("]}", stdout);
    }
    putchar(']');
    host_table_json(r->hosts, r->n_hosts);
    puts("}");
}

/* "12 of 16 blocks" */
static void put_fill(const op *o)
{
    if (o->room_elements)
        printf("  %" PRId64 " of %" PRId64 " elements", o->queued_elements, o->room_elements);
    else if (o->room_blocks || o->queued_blocks)
        printf(o->room_blocks ? "  %" PRId64 " of %" PRId64 " blocks" : "  %" PRId64 " blocks",
               o->queued_blocks, o->room_blocks);
    if (o->queued_bytes)
        printf(", %.1f MB", (double)o->queued_bytes * 1e-6);
    if (o->dropped)
        printf("  %" PRId64 " dropped", o->dropped);
}

static void print_ops(const report *r, const pipeline *p, const report *before)
{
    printf("  %-36s %14s %13s %11s %9s %8s %8s  %s\n", "op", "elements", "elements/s", "blocks",
           "MB/s", "threads", "waiting", "queue");
    for (size_t i = 0; i < p->n_ops; i++) {
        const op *o = &r->ops[p->first_op + i];
        double seconds;
        const op d = since(r, p, i, before, &seconds);
        printf("  %-36s %14" PRId64 " %13.0f %11" PRId64 " %9.1f %8.2f %8.2f", o->path, o->elements,
               rate((double)d.elements, seconds), o->blocks, rate((double)d.bytes, seconds) * 1e-6,
               rate(d.busy_seconds, seconds), rate(d.wait_seconds, seconds));
        put_fill(o);
        putchar('\n');
    }
}

static void print_text(int64_t pid, const char *command, const report *r, const report *before)
{
    printf("process %" PRId64 ": %s\n", pid, command);
    if (r->resident_bytes >= 0)
        printf("memory %.1f MiB\n", (double)r->resident_bytes / (1 << 20));
    if (!r->n_pipelines)
        puts("no pipeline is running");
    for (size_t i = 0; i < r->n_pipelines; i++) {
        const pipeline *p = &r->pipelines[i];
        printf("\npipeline %" PRId64 ", open for %.1f s, %" PRId64 " thread%s in its pool",
               p->number, p->seconds, p->threads, p->threads == 1 ? "" : "s");
        if (p->memory_limit)
            printf(", memory limit %.1f MiB", (double)p->memory_limit / (1 << 20));
        putchar('\n');
        if (p->graph)
            printf("  %.200s%s\n", p->graph, strlen(p->graph) > 200 ? " ..." : "");
        print_ops(r, p, before);
    }
    if (r->n_hosts)
        putchar('\n');
    host_table_text(r->hosts, r->n_hosts);
}

/* ---- the command ---- */

static int print(const top_opts *o, const report *r, const report *before, bool first)
{
    char command[400];
    (void)command_of(o->pid, command, sizeof command);
    if (o->json)
        print_json(o->pid, command, r, before);
    else {
        if (!o->once && isatty(STDOUT_FILENO))
            fputs("\033[H\033[J", stdout);
        else if (!first)
            putchar('\n');
        print_text(o->pid, command, r, before);
    }
    int status = cli_flush(CLI_OK);
    return status == CLI_OK ? -1 : status;
}

static void sleep_for(double seconds)
{
    struct timespec t = {.tv_sec = (time_t)seconds};
    t.tv_nsec = (long)((seconds - (double)t.tv_sec) * 1e9);
    nanosleep(&t, NULL); /* a signal ends it */
}

/* A program that was observed once may be between two pipelines, or about to exit. */
static int watch(const top_opts *o)
{
    report before = {0};
    int status = -1;
    for (bool first = true; status < 0; first = false) {
        report r = {0};
        int err;
        status = ask(o->pid, &r, &err);
        if (status < 0 && err && first)
            status = no_answer(o->pid, err);
        else if (status < 0 && err && !is_running(o->pid)) {
            fprintf(stderr, "millrace top: process %" PRId64 " has ended\n", o->pid);
            status = CLI_OK;
        }
        if (status < 0 && err)
            r.resident_bytes = -1;
        if (status < 0)
            status = print(o, &r, &before, first);
        free_report(&before);
        before = r;
        if (status < 0 && o->once)
            status = CLI_OK;
        if (status < 0 && !cli_interrupted())
            sleep_for(o->interval);
        if (status < 0 && cli_interrupted())
            status = CLI_INTERRUPTED;
    }
    free_report(&before);
    return status;
}

static int check_usage(top_opts *o, const char *const *rest, size_t n)
{
    if (n != 1)
        return cli_usage(&cli_top, "expected the id of one process");
    char *end;
    errno = 0;
    o->pid = strtoll(rest[0], &end, 10);
    if (errno || *end || !*rest[0] || o->pid < 1 || o->pid > INT32_MAX)
        return cli_usage(&cli_top, "'%s' is not a process id", rest[0]);
    if (!(o->interval >= 0.01 && o->interval <= 86400))
        return cli_usage(&cli_top, "--interval must be 0.01 to 86400 seconds, not %g", o->interval);
    if (o->once && o->has_interval)
        return cli_usage(&cli_top, "--once and --interval cannot be combined");
    return -1;
}

static int run(int argc, char **argv)
{
    top_opts o = {.interval = 1};
    const cli_flag flags[] = {
        {.name = "once", .kind = CLI_SWITCH, .value = &o.once, .help = "print one report and exit"},
        {.name = "interval",
         .kind = CLI_FLOAT,
         .value = &o.interval,
         .given = &o.has_interval,
         .what = "S",
         .help = "seconds between two reports; default: 1"},
        {.name = "json",
         .kind = CLI_SWITCH,
         .value = &o.json,
         .help = "print each report as a JSON object on a line"},
        {0}};
    const cli_flag *const tables[] = {flags, NULL};
    const char **rest = cli_words(argc);
    size_t n;
    int status = cli_parse(&cli_top, tables, argc, argv, rest, &n);
    if (status < 0)
        status = check_usage(&o, rest, n);
    if (status < 0)
        status = watch(&o);
    mr_free(rest);
    return status;
}

const cli_command cli_top = {
    .name = "top",
    .summary = "shows what the operations of a running program's pipelines do",
    .usage = "PID [--once | --interval S] [--json]",
    .details =
        "PID is a process that runs a pipeline: show, bench, write, reduce, train, a worker of\n"
        "the data service, or a program that sets mr_iterator_opts.watch. It must belong to\n"
        "the same user, unless root asks.\n"
        "Rates, and the average numbers of threads that work and wait in an operation, are those\n"
        "since the previous report; in the first, and with --once, since the pipeline was opened.",
    .run = run,
};
