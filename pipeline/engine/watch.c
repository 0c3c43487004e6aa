/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/engine/iterator_internal.h"
#include "pipeline/engine/watch.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/un.h>
#include <unistd.h>

#include "pipeline/engine/executor.h"
#include "pipeline/log.h"
#include "pipeline/params/literal.h"
#include "pipeline/remote/host_stats.h"
#include "pipeline/system/system.h"

enum {
    BACKLOG = 8,
    PATIENCE_MS = 1000, /* with a client that does not read */
    BREATH_MS = 100,    /* when accepting a client fails for lack of resources */
    STACK = 512 << 10
};

static struct {
    pthread_mutex_t turn;      /* held to start or end the thread */
    pthread_mutex_t lock;      /* guards the list */
    mr__watched *first, **end; /* end: where the next one is linked */
    int64_t last_number;
    bool serves;
    int fd, stop; /* listens; an eventfd that ends the thread */
    pthread_t thread;
} watch = {
    .turn = PTHREAD_MUTEX_INITIALIZER, .lock = PTHREAD_MUTEX_INITIALIZER, .end = &watch.first};

/* A child has no thread, and its parent's iterators do not work there. It closes the sockets, or
 * else their name would outlive the parent. */
static void empty_in_child(void)
{
    pthread_mutex_init(&watch.turn, NULL);
    pthread_mutex_init(&watch.lock, NULL);
    watch.first = NULL;
    watch.end = &watch.first;
    if (watch.serves) {
        mr__sys->close(watch.stop);
        mr__sys->close(watch.fd);
    }
    watch.serves = false;
}

__attribute__((constructor)) static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, empty_in_child);
}

/* ---- a report ---- */

static mr_code put_op(mr__text *t, const mr_op_stats *s, mr_status *st)
{
    char figures[320];
    MR_TRY(mr__text_puts(t, "op\t", st));
    MR_TRY(mr__text_puts(t, s->path, st));
    snprintf(figures, sizeof figures,
             "\t%.60s\t%" PRId64 "\t%" PRId64 "\t%" PRId64 "\t%.6f\t%.6f\t%" PRId64 "\t%" PRId64
             "\t%" PRId64 "\t%" PRId64 "\t%" PRId64 "\t%" PRId64 "\n",
             s->op, s->elements, s->blocks, s->bytes, s->busy_seconds, s->wait_seconds,
             s->queued_elements, s->queued_blocks, s->queued_bytes, s->room_elements,
             s->room_blocks, s->dropped);
    return mr__text_puts(t, figures, st);
}

static mr_code put_ops(mr__text *t, mr__stats *stats, mr_status *st)
{
    size_t room = mr__stats_read(stats, NULL, 0);
    mr_op_stats *ops = mr_calloc(room + 1, sizeof *ops);
    if (!ops)
        return mr_fail_memory(st, room * sizeof *ops, "statistics");
    size_t n = mr__stats_read(stats, ops, room); /* further ones follow in the next report */
    mr_code rc = MR_OK;
    for (size_t i = 0; i < n && i < room && rc == MR_OK; i++)
        rc = put_op(t, &ops[i], st);
    mr_free(ops);
    return rc;
}

static mr_code put_graph(mr__text *t, const mr_dataset *graph, mr_status *st)
{
    char *text;
    mr_status why;
    if (mr_dataset_to_text(graph, &text, &why) != MR_OK)
        return MR_OK; /* for example, with a function in C */
    mr_text_drop_secrets(text);
    mr_code rc = mr__text_puts(t, "graph\t", st);
    for (char *s = text; *s; s++) /* literals have escapes for them */
        if (*s == '\t' || *s == '\n')
            *s = ' ';
    if (rc == MR_OK)
        rc = mr__text_puts(t, text, st);
    mr_free(text);
    return rc == MR_OK ? mr__text_puts(t, "\n", st) : rc;
}

static mr_code put_pipeline(mr__text *t, mr__watched *w, mr_status *st)
{
    char line[160];
    mr_run *run = w->run;
    pthread_mutex_lock(&run->lock);
    int threads = run->executor ? mr__executor_threads(run->executor) : 0;
    pthread_mutex_unlock(&run->lock);
    snprintf(line, sizeof line, "pipeline\t%" PRId64 "\t%.6f\t%d\t%" PRId64 "\n", w->number,
             mr_iter_now() - run->stats.start_seconds, threads, run->memory.limit);
    MR_TRY(mr__text_puts(t, line, st));
    MR_TRY(put_graph(t, w->graph, st));
    return put_ops(t, &run->stats, st);
}

static mr_code put_hosts(mr__text *t, mr_status *st)
{
    size_t room = mr_host_stats_read(NULL, 0);
    mr_host_stats *v = mr_calloc(room + 1, sizeof *v);
    if (!v)
        return mr_fail_memory(st, room * sizeof *v, "statistics");
    size_t n = mr_host_stats_read(v, room); /* further ones follow in the next report */
    mr_code rc = MR_OK;
    for (size_t i = 0; i < n && i < room && rc == MR_OK; i++) {
        char figures[240];
        rc = mr__text_puts(t, "host\t", st);
        if (rc == MR_OK)
            rc = mr__text_puts(t, v[i].host, st);
        snprintf(figures, sizeof figures,
                 "\t%" PRId64 "\t%" PRId64 "\t%" PRId64 "\t%" PRId64 "\t%.6f", v[i].bytes,
                 v[i].requests, v[i].retries, v[i].open_connections, v[i].first_byte_seconds);
        if (rc == MR_OK)
            rc = mr__text_puts(t, figures, st);
        for (size_t k = 0; k <= MR_HOST_BOUNDS && rc == MR_OK; k++) {
            snprintf(figures, sizeof figures, "\t%" PRId64, v[i].first_bytes[k]);
            rc = mr__text_puts(t, figures, st);
        }
        snprintf(figures, sizeof figures, "\t%" PRId64 "\t%" PRId64 "\t%" PRId64 "\n",
                 v[i].cached_bytes, v[i].cache_hits, v[i].cache_misses);
        if (rc == MR_OK)
            rc = mr__text_puts(t, figures, st);
    }
    mr_free(v);
    return rc;
}

/* *out owned, NUL-ended. */
static mr_code make_report(char **out, mr_status *st)
{
    char head[80];
    mr__text t = {0};
    snprintf(head, sizeof head, "millrace-top\t1\nprocess\t%" PRId64 "\n", mr__memory_resident());
    mr_code rc = mr__text_puts(&t, head, st);
    if (rc == MR_OK)
        rc = put_hosts(&t, st);
    pthread_mutex_lock(&watch.lock);
    for (mr__watched *w = watch.first; w && rc == MR_OK; w = w->next)
        rc = put_pipeline(&t, w, st);
    pthread_mutex_unlock(&watch.lock);
    if (rc == MR_OK)
        rc = mr__text_puts(&t, "end\n", st);
    if (rc == MR_OK)
        rc = mr__text_finish(&t, out, st);
    mr_free(t.s);
    return rc;
}

/* ---- the thread ---- */

/* Waits for `events` of fd (-1: only sleeps). false: not within ms, or the thread must end. */
static bool wait_for(int fd, short events, int ms)
{
    struct pollfd p[2] = {{.fd = watch.stop, .events = POLLIN}, {.fd = fd, .events = events}};
    int n;
    while ((n = mr__sys->poll(p, 2, ms)) < 0 && errno == EINTR)
        ;
    return n > 0 && !p[0].revents;
}

static bool may_look(int fd)
{
    struct ucred peer;
    socklen_t size = sizeof peer;
    return mr__sys->getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
           (peer.uid == geteuid() || peer.uid == 0);
}

static void send_all(int fd, const char *text)
{
    for (size_t left = strlen(text); left;) {
        struct iovec v = {(char *)(uintptr_t)text, left};
        const struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
        ssize_t n = mr__sys->sendmsg(fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN && wait_for(fd, POLLOUT, PATIENCE_MS))
            continue;
        if (n < 0 && errno != EINTR)
            return;
        text += n > 0 ? n : 0;
        left -= n > 0 ? (size_t)n : 0;
    }
}

static void serve_client(int fd)
{
    char *text;
    mr_status st;
    if (may_look(fd) && make_report(&text, &st) == MR_OK) {
        send_all(fd, text);
        mr_free(text);
    }
    mr__sys->close(fd);
}

static void *serve(void *unused)
{
    (void)unused;
    while (wait_for(watch.fd, POLLIN, -1)) {
        int fd = mr__sys->accept4(watch.fd, NULL, NULL, SOCK_CLOEXEC);
        if (fd >= 0)
            serve_client(fd);
        else if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
            (void)wait_for(-1, 0, BREATH_MS);
    }
    return NULL;
}

/* Returns 0 or an errno. The thread blocks all signals: they belong to the program. */
static int start_thread(void)
{
    sigset_t all, old;
    pthread_attr_t attr;
    int err = pthread_attr_init(&attr);
    if (err)
        return err;
    (void)pthread_attr_setstacksize(&attr, STACK);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    err = pthread_create(&watch.thread, &attr, serve, NULL);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attr);
    return err;
}

/* 0 or an errno. */
static int listen_here(void)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    /* The first byte of the path is 0: an abstract name, not a file. */
    int n = snprintf(at.sun_path + 1, sizeof at.sun_path - 1, "millrace-top-%ld", (long)getpid());
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
    watch.fd = mr__sys->socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (watch.fd < 0)
        return errno;
    int err = mr__sys->bind(watch.fd, (const struct sockaddr *)&at, size) ||
                      mr__sys->listen(watch.fd, BACKLOG)
                  ? errno
                  : 0;
    if (!err && (watch.stop = mr__sys->eventfd(0, EFD_CLOEXEC)) < 0)
        err = errno;
    if (!err && (err = start_thread()))
        mr__sys->close(watch.stop);
    if (err)
        mr__sys->close(watch.fd);
    return err;
}

static void end_thread(void)
{
    static const uint64_t one = 1;
    while (mr__sys->write(watch.stop, &one, sizeof one) < 0)
        ; /* an eventfd accepts it */
    pthread_join(watch.thread, NULL);
    mr__sys->close(watch.stop);
    mr__sys->close(watch.fd);
}

/* ---- watched iterators ---- */

void mr__watch_start(mr__watched *w, mr_run *run, const mr_dataset *graph)
{
    w->run = run;
    w->graph = graph;
    pthread_mutex_lock(&watch.turn);
    pthread_mutex_lock(&watch.lock);
    w->number = ++watch.last_number;
    w->next = NULL;
    w->at = watch.end;
    *w->at = w;
    watch.end = &w->next;
    pthread_mutex_unlock(&watch.lock);
    int err = watch.serves ? 0 : listen_here();
    watch.serves = err == 0;
    pthread_mutex_unlock(&watch.turn);
    if (err)
        mr_log(MR_LOG_INFO, "millrace top cannot look at this process: %s", strerror(err));
}

void mr__watch_stop(mr__watched *w)
{
    if (!w->run)
        return;
    pthread_mutex_lock(&watch.turn);
    pthread_mutex_lock(&watch.lock);
    *w->at = w->next;
    if (w->next)
        w->next->at = w->at;
    else
        watch.end = w->at;
    w->run = NULL;
    bool last = !watch.first;
    pthread_mutex_unlock(&watch.lock);
    if (last && watch.serves) {
        watch.serves = false; /* before the sockets are closed, which a child would close too */
        end_thread();
    }
    pthread_mutex_unlock(&watch.turn);
}
