/* SPDX-License-Identifier: Apache-2.0 */
/* millrace why: which records a step consumed, which steps consumed a record, and where two runs
 * differ; from the ledgers that --ledger wrote. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <millrace/pipeline/formats/ledger/ledger.h>
#include <millrace/pipeline/memory/alloc.h>
#include "../cli.h"

typedef struct why_opts {
    int64_t step, element;
    bool has_step, has_element;
    const char *record; /* as it was given */
    const char *file;   /* of it; not ended by a zero byte */
    size_t file_size;
    uint64_t ordinal;
} why_opts;

static const char *unit(const why_opts *o, const mr_ledger_reader *r)
{
    if (o->has_step || o->has_element)
        return o->has_step ? "step" : "element";
    return mr_ledger_is_of_steps(r) ? "step" : "element";
}

/* ---- printing ---- */

static void print_record(const mr_ledger_reader *r, const mr_identity *id, bool first)
{
    const char *name = mr_ledger_name_of(r, id);
    printf("%s{\"source\": %" PRIu64 ", \"file\": %" PRIu64, first ? "" : ", ", id->source,
           id->file);
    if (name) {
        fputs(", \"name\": ", stdout);
        cli_print_string(stdout, name, strlen(name));
    }
    printf(", \"ordinal\": %" PRIu64 ", \"epoch\": %" PRIu64 "}", id->ordinal, id->epoch);
}

static void print_entry(const why_opts *o, const mr_ledger_reader *r, const mr_ledger_entry *e)
{
    printf("{\"%s\": %" PRId64 ", \"records\": [", unit(o, r), e->number);
    for (size_t i = 0; i < e->n; i++)
        print_record(r, &e->ids[i], i == 0);
    puts("]}");
}

/* ---- one ledger ---- */

static bool all_digits(const char *s, size_t n)
{
    return n > 0 && strspn(s, "0123456789") >= n;
}

/* FILE:N; FILE is a name, the last part of a name, or the number of a file. */
static int parse_record(why_opts *o)
{
    const char *colon = strrchr(o->record, ':');
    char *end;
    errno = 0;
    if (!colon || colon == o->record || !all_digits(colon + 1, strlen(colon + 1)) ||
        (o->ordinal = strtoull(colon + 1, &end, 10), errno))
        return cli_usage(&cli_why, "--record needs FILE:N, such as train-0.tfrecord:17, not '%s'",
                         o->record);
    o->file = o->record;
    o->file_size = (size_t)(colon - o->record);
    return -1;
}

static bool is_name(const why_opts *o, const char *name)
{
    return name && strlen(name) == o->file_size && memcmp(name, o->file, o->file_size) == 0;
}

static bool is_asked_for(const why_opts *o, const mr_ledger_reader *r, const mr_identity *id)
{
    char number[24];
    if (id->ordinal != o->ordinal)
        return false;
    snprintf(number, sizeof number, "%" PRIu64, id->file);
    const char *name = mr_ledger_name_of(r, id), *slash = name ? strrchr(name, '/') : NULL;
    return is_name(o, name) || is_name(o, number) || (slash && is_name(o, slash + 1));
}

/* Reduces the entry to this record; returns whether the entry contains it. */
static bool print_uses(const why_opts *o, const mr_ledger_reader *r, const mr_ledger_entry *e)
{
    bool any = false;
    for (size_t i = 0; i < e->n; i++)
        if (is_asked_for(o, r, &e->ids[i])) {
            if (!any)
                printf("{\"%s\": %" PRId64 ", \"records\": [", unit(o, r), e->number);
            print_record(r, &e->ids[i], !any);
            any = true;
        }
    if (any)
        puts("]}");
    return any;
}

/* Warns that `bare` of n entries name no record, so that an empty list does not look like a
 * result. */
static void note_bare(const char *path, const why_opts *o, const mr_ledger_reader *r, int64_t bare,
                      int64_t n)
{
    if (bare)
        fprintf(stderr,
                "millrace why: %s: %" PRId64 " of %" PRId64
                " %ss have no records: elements of a data service have none, nor do steps without "
                "rows\n",
                path, bare, n, unit(o, r));
}

static int missing(const char *path, const why_opts *o, const mr_ledger_reader *r, int64_t n)
{
    if (o->record)
        return cli_error(&cli_why, CLI_FAILED, "%s: no %s has the record %s", path, unit(o, r),
                         o->record);
    return cli_error(&cli_why, CLI_FAILED, "%s: there is no %s %" PRId64 "; it has %" PRId64, path,
                     unit(o, r), o->has_step ? o->step : o->element, n);
}

static int look_up(const char *path, const why_opts *o)
{
    mr_ledger_reader *r = NULL;
    mr_ledger_entry e;
    mr_status st;
    int64_t n = 0, bare = 0, seen = 0;
    bool one = o->has_step || o->has_element, found = !one && !o->record;
    mr_code rc = mr_ledger_open(path, &r, &st);
    while (rc == MR_OK && !(one && found) && (rc = mr_ledger_next(r, &e, &st)) == MR_OK) {
        bool asked = !one || e.number == (o->has_step ? o->step : o->element);
        n = e.number + 1;
        seen += asked;
        bare += asked && e.n == 0;
        if (o->record)
            found |= print_uses(o, r, &e);
        else if (asked) {
            print_entry(o, r, &e);
            found = true;
        }
    }
    int status = CLI_OK;
    if (rc < 0)
        status = cli_fail(&st, CLI_FAILED);
    else if (status == CLI_OK && !found)
        status = missing(path, o, r, n);
    if (rc >= 0)
        note_bare(path, o, r, bare, seen);
    mr_ledger_reader_close(r);
    return cli_flush(status);
}

/* ---- two ledgers ---- */

typedef struct side {
    const char *path;
    mr_ledger_reader *r;
    mr_ledger_entry e;
    mr_identity *sorted;
    size_t room;
    int64_t n; /* entries */
} side;

static int in_order(const void *a, const void *b)
{
    const mr_identity *x = a, *y = b;
    if (x->source != y->source)
        return x->source < y->source ? -1 : 1;
    if (x->file != y->file)
        return x->file < y->file ? -1 : 1;
    if (x->ordinal != y->ordinal)
        return x->ordinal < y->ordinal ? -1 : 1;
    return x->epoch == y->epoch ? 0 : x->epoch < y->epoch ? -1 : 1;
}

static mr_code sort_side(side *s, mr_status *st)
{
    MR_TRY(MR_GROW(s->sorted, s->room, s->e.n, SIZE_MAX / sizeof *s->sorted,
                   "the records of a step", st));
    if (s->e.n)
        memcpy(s->sorted, s->e.ids, s->e.n * sizeof *s->sorted);
    if (s->e.n > 1)
        qsort(s->sorted, s->e.n, sizeof *s->sorted, in_order);
    return MR_OK;
}

/* Prints the records of a that b lacks, each as many times as it is missing. Returns their
 * number. */
static size_t print_only(const side *a, const side *b)
{
    size_t n = 0;
    for (size_t i = 0, k = 0; i < a->e.n; i++) {
        while (k < b->e.n && in_order(&b->sorted[k], &a->sorted[i]) < 0)
            k++;
        if (k < b->e.n && in_order(&b->sorted[k], &a->sorted[i]) == 0)
            k++;
        else
            print_record(a->r, &a->sorted[i], n++ == 0);
    }
    return n;
}

static mr_code print_difference(const why_opts *o, side s[2], mr_status *st)
{
    MR_TRY(sort_side(&s[0], st));
    MR_TRY(sort_side(&s[1], st));
    printf("{\"%s\": %" PRId64 ", \"only_first\": [", unit(o, s[0].r), s[0].e.number);
    size_t n = print_only(&s[0], &s[1]);
    fputs("], \"only_second\": [", stdout);
    n += print_only(&s[1], &s[0]);
    printf("], \"order_differs\": %s}\n", n ? "false" : "true");
    return MR_OK;
}

static bool is_same(const mr_ledger_entry *a, const mr_ledger_entry *b)
{
    bool same = a->n == b->n;
    for (size_t i = 0; same && i < a->n; i++)
        same = in_order(&a->ids[i], &b->ids[i]) == 0;
    return same;
}

/* *rc of each: the result of its last read. */
static mr_code compare(const why_opts *o, side s[2], int64_t *different, mr_status *st)
{
    for (;;) {
        mr_code rc[2];
        for (int i = 0; i < 2; i++) {
            rc[i] = mr_ledger_next(s[i].r, &s[i].e, st);
            if (rc[i] < 0)
                return rc[i];
            s[i].n += rc[i] == MR_OK;
        }
        if (rc[0] == MR_END && rc[1] == MR_END)
            return MR_OK;
        if (rc[0] == MR_OK && rc[1] == MR_OK && !is_same(&s[0].e, &s[1].e)) {
            ++*different;
            MR_TRY(print_difference(o, s, st));
        }
    }
}

static int compare_ledgers(const char *const *paths, const why_opts *o)
{
    side s[2] = {{.path = paths[0]}, {.path = paths[1]}};
    mr_status st;
    int64_t different = 0;
    mr_code rc = mr_ledger_open(paths[0], &s[0].r, &st);
    if (rc == MR_OK)
        rc = mr_ledger_open(paths[1], &s[1].r, &st);
    if (rc == MR_OK && mr_ledger_is_of_steps(s[0].r) != mr_ledger_is_of_steps(s[1].r))
        rc = mr_fail(
            &st, MR_INVALID_ARGUMENT,
            "one ledger records steps and the other elements; compare two of the same kind");
    if (rc == MR_OK)
        rc = compare(o, s, &different, &st);
    int status = rc < 0 ? cli_fail(&st, CLI_FAILED) : CLI_OK;
    if (status == CLI_OK && (different || s[0].n != s[1].n)) {
        const char *what = unit(o, s[0].r);
        fprintf(stderr,
                "millrace why: %" PRId64 " of %" PRId64
                " %ss that both have differ; %s has %" PRId64 ", %s %" PRId64 "\n",
                different, s[0].n < s[1].n ? s[0].n : s[1].n, what, paths[0], s[0].n, paths[1],
                s[1].n);
        status = CLI_FAILED;
    }
    for (int i = 0; i < 2; i++) {
        mr_ledger_reader_close(s[i].r);
        mr_free(s[i].sorted);
    }
    return cli_flush(status);
}

/* ---- the command ---- */

static int check_usage(why_opts *o, size_t n)
{
    int asked = o->has_step + o->has_element + (o->record != NULL);
    if (n != 1 && n != 2)
        return cli_usage(&cli_why, "expected one ledger, or two to compare");
    if (n == 2 && asked)
        return cli_usage(&cli_why, "--step, --element and --record need exactly one ledger");
    if (asked > 1)
        return cli_usage(&cli_why, "--step, --element and --record cannot be combined");
    return o->record ? parse_record(o) : -1;
}

/* Also while it waits for a pipe; there is nothing to clean up. */
static void end_at_once(int sig)
{
    _exit(128 + sig);
}

static int run(int argc, char **argv)
{
    why_opts o = {0};
    const cli_flag flags[] = {{.name = "step",
                               .kind = CLI_INT,
                               .value = &o.step,
                               .given = &o.has_step,
                               .what = "K",
                               .max = INT64_MAX,
                               .help = "the records of step K, from 0"},
                              {.name = "element",
                               .kind = CLI_INT,
                               .value = &o.element,
                               .given = &o.has_element,
                               .what = "K",
                               .max = INT64_MAX,
                               .help = "the records of element K, from 0"},
                              {.name = "record",
                               .kind = CLI_TEXT,
                               .value = &o.record,
                               .what = "FILE:N",
                               .help = "the steps or elements that record N of FILE (a name, its "
                                       "last part, or the number of a file) went to"},
                              {0}};
    const cli_flag *const tables[] = {flags, NULL};
    const char **rest = cli_words(argc);
    size_t n;
    int status = cli_parse(&cli_why, tables, argc, argv, rest, &n);
    if (status < 0)
        status = check_usage(&o, n);
    signal(SIGINT, end_at_once);
    if (status < 0)
        status = n == 2 ? compare_ledgers(rest, &o) : look_up(rest[0], &o);
    mr_free(rest);
    return status;
}

const cli_command cli_why = {
    .name = "why",
    .summary = "shows which records the steps of a run were made of, from its ledger",
    .usage = "LEDGER [--step K | --element K | --record FILE:N]\n"
             "LEDGER LEDGER",
    .details =
        "Reads what --ledger of show, bench, write and train wrote. Prints one JSON object per\n"
        "line: a step (or element) and its records; all of them unless one is selected. For two\n"
        "ledgers it prints the steps that differ; the exit status is 1 if any do.",
    .run = run,
};
