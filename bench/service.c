/* SPDX-License-Identifier: Apache-2.0 */
/* The data service with one dispatcher, one worker and one client on this host:
 *
 *   - 1 MiB elements over TCP, against blocking sends and receives of 1 MiB over loopback
 *   - 1 MiB elements through shared memory, against a loop that copies each element once, into as
 *     much memory as the service has in flight; also with elements that share one buffer, a
 *     constant of the graph
 *   - 1 KiB records, verified on the worker and batched here, against the local pipeline in one
 *     thread; also by CPU seconds, which a busy machine changes less
 *   - exactly once, against parallel_epochs
 *
 * For the records, worker and client are each kept on one core, and the local pipeline on that of
 * the worker: if they shared one or moved, the rate would only show where they were placed. The
 * local pipeline never waits, so that other programs account for any part of its core that it did
 * not get. They take less from a worker, which sleeps and is scheduled first; the ratio of rates is
 * then too high.
 *
 *     service [MIB]     in each round, default 1024, at least 256: with less, most of the data
 *                       was in flight before the round
 *
 * Each part needs a separate core: on a busy machine, or with fewer than three cores, the ratios
 * mean little. */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <millrace/millrace-transport.h>
#include <millrace/millrace.h>

#include "ceiling.h"

enum {
    BATCH = 128,
    MIB = 1 << 20,
    SOURCE = 16,
    ON_THE_WAY = 32,
    RECORDS = 200000,
    LEAST = 8 * ON_THE_WAY,
    MOST = 1 << 20,
    MOST_CHILDREN = 8
};

/* 16 elements of 1 MiB, which the worker has in memory from the second pass on. */
static const char elements[] = "range(2097152).batch(131072).cache().repeat(1000000)";
/* The same 1 MiB each time. */
static const char constant[] = "from_tensors(zeros([262144])).repeat(1000000)";

static pid_t children[MOST_CHILDREN];
static size_t n_children;

static void end_children(void)
{
    for (size_t i = 0; i < n_children; i++)
        kill(children[i], SIGTERM);
    for (size_t i = 0; i < n_children; i++)
        waitpid(children[i], NULL, 0);
}

/* Starts one of the service's programs, on these CPUs unless NULL; *address = where it listens. */
static void start(const char *program, const cpu_set_t *cpus, const char *verb, const char *option,
                  const char *value, char address[128])
{
    int ends[2];
    char line[256] = "";
    if (pipe(ends) != 0)
        bench_die("cannot create a pipe");
    pid_t child = fork();
    if (child == 0) {
        if (cpus && sched_setaffinity(0, sizeof *cpus, cpus) != 0)
            _exit(1);
        dup2(ends[1], 1);
        close(ends[0]);
        close(ends[1]);
        if (!freopen("/dev/null", "w", stderr))
            _exit(1);
        execl(program, "millrace", verb, option, value, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    children[n_children++] = child;
    FILE *f = fdopen(ends[0], "r");
    if (!f || !fgets(line, sizeof line, f) || sscanf(line, "ready %127s", address) != 1)
        bench_die("the service does not start; is build/millrace there?");
    fclose(f);
}

/* ---- measured loops ---- */

typedef struct job {
    size_t n; /* elements in a round */
    mr_dataset *ds[2];
    mr_iterator *it[2]; /* measured, ceiling */
    int64_t threads;    /* of iterators opened for each round */
    int tcp;
    char *source, *target;
    size_t at;
    bool is_apart;     /* worker and client of records have a core each: */
    cpu_set_t cpus[3]; /* the worker's, this client's, all of this process */
    clockid_t worker;  /* its CPU time, for records */
    double seconds[3]; /* of CPU, for records: the worker's, this client's, the local pipeline's */
    double rows[2];    /* batches: from the service, local */
    double local_time; /* wall-clock time of the local pipeline */
} job;

static mr_iterator *open_one(mr_dataset *ds, bool one_thread)
{
    mr_status st;
    mr_iterator *it = NULL;
    bench_must(mr_iterator_open(&it, ds, &(mr_iterator_opts){.has_threads = one_thread}, &st), &st);
    return it;
}

static mr_dataset *parse(const char *text)
{
    mr_status st;
    mr_dataset *ds;
    bench_must(mr_dataset_from_text(text, strlen(text), NULL, &ds, &st), &st);
    return ds;
}

static double read_elements(mr_iterator *it, size_t n)
{
    mr_block b = MR_BLOCK_EMPTY;
    mr_status st;
    for (size_t rows = 0; rows < n; rows += b.rows) {
        bench_must(mr_iterator_next(it, 1, &b, &st), &st);
        if (mr_array_row_bytes(&b.columns[0]) != MIB)
            bench_die("an element has an unexpected size");
    }
    mr_block_reset(&b);
    return (double)n * MIB;
}

static double measured(void *ctx)
{
    job *j = ctx;
    return read_elements(j->it[0], j->n);
}

static double other_mode(void *ctx)
{
    job *j = ctx;
    return read_elements(j->it[1], j->n);
}

static double all_rows(mr_dataset *ds, bool one_thread)
{
    mr_iterator *it = open_one(ds, one_thread);
    mr_block b = MR_BLOCK_EMPTY;
    mr_status st;
    mr_code rc;
    size_t batches = 0;
    while ((rc = mr_iterator_next(it, 1, &b, &st)) == MR_OK)
        batches += b.rows;
    if (rc != MR_END)
        bench_must(rc, &st);
    mr_block_reset(&b);
    mr_iterator_close(it);
    return (double)batches;
}

static double cpu(clockid_t of)
{
    struct timespec t;
    if (clock_gettime(of, &t) != 0)
        bench_die("cannot read the CPU time of the worker");
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void keep_to(const cpu_set_t *cpus)
{
    if (sched_setaffinity(0, sizeof *cpus, cpus) != 0)
        bench_die("cannot keep a thread on one core");
}

/* Opens, reads and closes on these CPUs, so that its threads start there. */
static double all_rows_on(const job *j, int cpus, mr_dataset *ds, bool one_thread)
{
    if (j->is_apart)
        keep_to(&j->cpus[cpus]);
    double batches = all_rows(ds, one_thread);
    if (j->is_apart)
        keep_to(&j->cpus[2]);
    return batches;
}

static double served_rows(void *ctx)
{
    job *j = ctx;
    double worker = cpu(j->worker), client = cpu(CLOCK_PROCESS_CPUTIME_ID);
    double rows = all_rows_on(j, 1, j->ds[0], false);
    j->seconds[0] += cpu(j->worker) - worker;
    j->seconds[1] += cpu(CLOCK_PROCESS_CPUTIME_ID) - client;
    j->rows[0] += rows;
    return rows;
}

static double local_rows(void *ctx)
{
    job *j = ctx;
    double local = cpu(CLOCK_PROCESS_CPUTIME_ID), began = bench_now();
    double rows = all_rows_on(j, 0, j->ds[1], true);
    j->local_time += bench_now() - began;
    j->seconds[2] += cpu(CLOCK_PROCESS_CPUTIME_ID) - local;
    j->rows[1] += rows;
    return rows;
}

/* ---- ceilings ---- */

/* The other end sends 1 MiB at a time, blocking. */
static void start_sender(job *j)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    int one = 1, door = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(door, (struct sockaddr *)&at, size) != 0 || listen(door, 1) != 0 ||
        getsockname(door, (struct sockaddr *)&at, &size) != 0)
        bench_die("cannot listen");
    pid_t child = fork();
    int fd = child == 0 ? socket(AF_INET, SOCK_STREAM, 0) : accept(door, NULL, NULL);
    if (child == 0 && connect(fd, (struct sockaddr *)&at, size) != 0)
        _exit(1);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5);
    if (child == 0)
        for (;;)
            for (size_t i = 0; i < SOURCE; i++)
                if (send(fd, j->source + i * MIB, MIB, MSG_NOSIGNAL) <= 0)
                    _exit(0);
    close(door);
    children[n_children++] = child;
    j->tcp = fd;
}

static double blocking_loop(void *ctx)
{
    job *j = ctx;
    for (size_t i = 0; i < j->n; i++)
        if (recv(j->tcp, j->target + i % ON_THE_WAY * MIB, MIB, MSG_WAITALL) != MIB)
            bench_die("the TCP loop broke");
    return (double)j->n * MIB;
}

static double copy(job *j, size_t sources)
{
    for (size_t i = 0; i < j->n; i++)
        memcpy(j->target + i % ON_THE_WAY * MIB, j->source + i % sources * MIB, MIB);
    return (double)j->n * MIB;
}

static double copy_loop(void *ctx)
{
    return copy(ctx, SOURCE);
}

static double copy_of_one_loop(void *ctx)
{
    return copy(ctx, 1);
}

/* ---- rows ---- */

static void run(job *j, const char *at, const char *name, const char *graph, const char *options,
                bench_fn ceiling)
{
    char text[512];
    snprintf(text, sizeof text, "%s.distribute(\"%s\", %s)", graph, at, options);
    mr_dataset *ds = parse(text);
    j->it[0] = open_one(ds, false);
    (void)read_elements(j->it[0], 4 * SOURCE); /* fills the caches */
    bench_in_turns(name, "GB/s", 1e-9, 7, measured, ceiling, j);
    mr_iterator_close(j->it[0]);
    mr_dataset_unref(ds);
}

static void run_modes(job *j, const char *at)
{
    char text[512];
    mr_dataset *ds[2];
    for (int k = 0; k < 2; k++) {
        snprintf(text, sizeof text, "%s.distribute(\"%s\", processing_mode=\"%s\"%s)", elements, at,
                 k ? "parallel_epochs" : "exactly_once", k ? "" : ", streams=1");
        ds[k] = parse(text);
        j->it[k] = open_one(ds[k], false);
        (void)read_elements(j->it[k], 4 * SOURCE);
    }
    bench_in_turns("exactly once / one epoch each", "GB/s", 1e-9, 7, measured, other_mode, j);
    for (int k = 0; k < 2; k++) {
        mr_iterator_close(j->it[k]);
        mr_dataset_unref(ds[k]);
    }
}

static void write_records(const char *path)
{
    mr_status st;
    mr_tfrecord_writer *w;
    char record[1024];
    bench_must(mr_tfrecord_writer_open(&w, path, NULL, &st), &st);
    for (int i = 0; i < RECORDS; i++) {
        memset(record, i, sizeof record);
        bench_must(mr_tfrecord_writer_append(w, record, sizeof record, &st), &st);
    }
    bench_must(mr_tfrecord_writer_close(w, &st), &st);
}

/* The CPUs that share a core with this one, as the system writes them. */
static void siblings(size_t cpu, char line[256])
{
    char path[96];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%zu/topology/thread_siblings_list",
             cpu);
    FILE *f = fopen(path, "r");
    if (!f || !fgets(line, 256, f))
        snprintf(line, 256, "%zu", cpu);
    if (f)
        fclose(f);
}

/* Finds a core for the worker and one for the client, if this process may use two. */
static void part(job *j)
{
    cpu_set_t *all = &j->cpus[2];
    char line[2][256];
    int found = 0;
    if (sched_getaffinity(0, sizeof *all, all) != 0)
        return;
    for (size_t i = 0; i < CPU_SETSIZE && found < 2; i++) {
        if (!CPU_ISSET(i, all))
            continue;
        siblings(i, line[found]);
        if (found == 1 && strcmp(line[0], line[1]) == 0)
            continue;
        CPU_ZERO(&j->cpus[found]);
        CPU_SET(i, &j->cpus[found++]);
    }
    j->is_apart = found == 2 && sched_setaffinity(0, sizeof *all, all) == 0;
}

/* With a separate dispatcher and worker: those of the other rows may use all CPUs. */
static void run_records(job *j, const char *program)
{
    char path[] = "/tmp/millrace-bench-XXXXXX", text[512], at[128], worker[128];
    part(j);
    start(program, NULL, "dispatcher", "--listen", "127.0.0.1:0", at);
    start(program, j->is_apart ? &j->cpus[0] : NULL, "worker", "--dispatcher", at, worker);
    if (clock_getcpuclockid(children[n_children - 1], &j->worker) != 0)
        bench_die("cannot read the CPU time of the worker");
    int fd = mkstemp(path);
    if (fd < 0)
        bench_die("cannot create a file in /tmp");
    close(fd);
    write_records(path);
    snprintf(text, sizeof text,
             "tfrecord(\"%s\").repeat(8).distribute(\"%s\", streams=1).batch(%d)", path, at, BATCH);
    j->ds[0] = parse(text);
    snprintf(text, sizeof text, "tfrecord(\"%s\").repeat(8).batch(%d)", path, BATCH);
    j->ds[1] = parse(text);
    bench_in_turns("1 KiB records / local", "batches/s", 1, 7, served_rows, local_rows, j);
    double gb[2] = {j->rows[0] * BATCH * 1024e-9, j->rows[1] * BATCH * 1024e-9};
    double served = j->seconds[0] / gb[0], local = j->seconds[2] / gb[1];
    printf("%-28s worker %.3f, client %.3f, local %.3f s/GB   ratio of the worker %.2f\n",
           "1 KiB records, CPU", served, j->seconds[1] / gb[0], local, local / served);
    printf("%-28s %s; local had %.0f %% of its core\n", "1 KiB records, cores",
           j->is_apart ? "worker and local on one, client on another"
                       : "not on separate cores: only one is available",
           100 * j->seconds[2] / j->local_time);
    mr_dataset_unref(j->ds[0]);
    mr_dataset_unref(j->ds[1]);
    unlink(path);
}

/* MiB in each round, from the command line. */
static size_t round_size(int argc, char **argv)
{
    char *end = NULL;
    long n = argc > 1 ? strtol(argv[1], &end, 10) : 1024;
    if (argc <= 2 && (argc < 2 || (end != argv[1] && !*end)) && n >= LEAST && n <= MOST)
        return (size_t)n;
    fprintf(stderr,
            "usage: service [MIB]: MiB in each round, %d to %d; with less, most of a round would "
            "be in flight before it starts\n",
            LEAST, MOST);
    exit(2);
}

int main(int argc, char **argv)
{
    mr_status st;
    job j = {.n = round_size(argc, argv)};
    char program[4096], at[128], worker[128];
    const char *slash = strrchr(argv[0], '/');
    snprintf(program, sizeof program, "%.*s/../millrace", slash ? (int)(slash - argv[0]) : 1,
             slash ? argv[0] : ".");
    atexit(end_children);
    bench_must(mr_service_register_ops(&st), &st);
    j.source = malloc((size_t)SOURCE * MIB);
    j.target = malloc((size_t)ON_THE_WAY * MIB);
    if (!j.source || !j.target)
        bench_die("out of memory");
    memset(j.source, 1, (size_t)SOURCE * MIB);
    memset(j.target, 0, (size_t)ON_THE_WAY * MIB);
    start_sender(&j);
    start(program, NULL, "dispatcher", "--listen", "127.0.0.1:0", at);
    start(program, NULL, "worker", "--dispatcher", at, worker);
    const char *tcp = "streams=1, transfer=\"tcp\"";
    const char *shared = "streams=1, transfer=\"shared_memory\"";
    run(&j, at, "1 MiB elements, TCP", elements, tcp, blocking_loop);
    run(&j, at, "1 MiB elements, shared", elements, shared, copy_loop);
    run(&j, at, "one 1 MiB element, shared", constant, shared, copy_of_one_loop);
    run_modes(&j, at);
    run_records(&j, program);
    free(j.source);
    free(j.target);
    return 0;
}
