/* SPDX-License-Identifier: Apache-2.0 */
#include "train_processes.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <millrace/pipeline/memory/alloc.h>
#include "../cli.h"

enum { LINE = 4096, TURN_MS = 100, PATIENCE_S = 10 };

typedef struct process {
    pid_t pid;   /* 0: it has ended */
    int status;  /* of waitpid */
    bool killed; /* by this program */
    int err;     /* its standard error; -1: closed, or not read */
    char line[LINE];
    size_t n;
} process;

typedef struct job {
    process *v;
    int64_t n;
    bool failed;   /* one has ended with an error */
    int64_t turns; /* since then */
} job;

static volatile sig_atomic_t received;

static void on_signal(int sig)
{
    received = sig;
}

char **train_copy_arguments(char **argv)
{
    size_t n = 0, bytes = 0, i;
    for (; argv[n]; n++)
        bytes += strlen(argv[n]) + 1;
    char **copy = mr_malloc((n + 1) * sizeof *copy + bytes);
    char *to = copy ? (char *)(copy + n + 1) : NULL;
    for (i = 0; i < n && copy; i++) {
        size_t k = strlen(argv[i]) + 1;
        copy[i] = memcpy(to, argv[i], k);
        to += k;
    }
    if (copy)
        copy[n] = NULL;
    return copy;
}

/* ---- starting ---- */

/* A port that was free a moment ago; 0: none. */
static int free_port(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), port = 0;
    if (fd >= 0 && bind(fd, (struct sockaddr *)&a, size) == 0 &&
        getsockname(fd, (struct sockaddr *)&a, &size) == 0)
        port = ntohs(a.sin_port);
    if (fd >= 0)
        close(fd);
    return port;
}

/* Without the options that started this program. */
static char **arguments_of_child(char **all)
{
    static const char *const own[] = {"--processes", "--restarts", "--min-processes"};
    size_t n = 0, k = 0;
    while (all[n])
        n++;
    char **words = mr_malloc((n + 1) * sizeof *words);
    for (size_t i = 0; i < n && words; i++) {
        bool mine = false, with_value = false;
        for (size_t j = 0; j < sizeof own / sizeof *own; j++) {
            size_t m = strlen(own[j]);
            mine = mine || (strncmp(all[i], own[j], m) == 0 && (!all[i][m] || all[i][m] == '='));
            with_value = with_value || strcmp(all[i], own[j]) == 0;
        }
        if (!mine)
            words[k++] = all[i];
        i += with_value;
    }
    if (words)
        words[k] = NULL;
    return words;
}

static void set_number(const char *name, int64_t v)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRId64, v);
    setenv(name, text, 1);
}

/* In the new process; does not return. Signals of the terminal reach the parent alone, which passes
 * them on. */
static void become(char **words, int64_t rank, int64_t n, int port, int err, pid_t parent)
{
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        _exit(128 + SIGTERM);
    if (null >= 0)
        dup2(null, STDIN_FILENO);
    if (err >= 0) {
        dup2(err, STDOUT_FILENO);
        dup2(err, STDERR_FILENO);
    }
    set_number("RANK", rank);
    set_number("WORLD_SIZE", n);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    set_number("MASTER_PORT", port);
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    execv("/proc/self/exe", words);
    _exit(CLI_FAILED);
}

static bool start_one(process *p, char **words, int64_t rank, int64_t n, int port)
{
    int ends[2] = {-1, -1};
    pid_t parent = getpid();
    *p = (process){.err = -1};
    if (rank > 0 && pipe2(ends, O_CLOEXEC) != 0)
        return false;
    fflush(NULL);
    p->pid = fork();
    if (p->pid == 0)
        become(words, rank, n, port, ends[1], parent);
    int why = errno;
    if (ends[1] >= 0)
        close(ends[1]);
    p->err = ends[0];
    if (p->pid > 0)
        return true;
    p->pid = 0;
    errno = why;
    return false;
}

/* ---- running ---- */

static void send_all(job *j, int sig, bool kills)
{
    for (int64_t i = 0; i < j->n; i++)
        if (j->v[i].pid > 0 && kill(j->v[i].pid, sig) == 0)
            j->v[i].killed = j->v[i].killed || kills;
}

/* Prints whole lines, each with the rank. all: also one that has no end. */
static void print_lines(process *p, int64_t rank, bool all)
{
    size_t from = 0;
    for (size_t i = 0; i < p->n; i++)
        if (p->line[i] == '\n' || (i + 1 == p->n && (all || (from == 0 && p->n == LINE)))) {
            size_t end = p->line[i] == '\n' ? i : i + 1;
            fprintf(stderr, "[rank %" PRId64 "] %.*s\n", rank, (int)(end - from), p->line + from);
            from = i + 1;
        }
    memmove(p->line, p->line + from, p->n - from);
    p->n -= from;
}

static void read_errors(process *p, int64_t rank)
{
    ssize_t n = read(p->err, p->line + p->n, LINE - p->n);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    p->n += n > 0 ? (size_t)n : 0;
    print_lines(p, rank, n <= 0);
    if (n > 0)
        return;
    close(p->err);
    p->err = -1;
}

/* false: all have ended, and what they said was read. */
static bool take_turn(job *j, struct pollfd *fds)
{
    bool running = false;
    for (int64_t i = 0; i < j->n; i++) {
        process *p = &j->v[i];
        fds[i] = (struct pollfd){.fd = p->err, .events = POLLIN};
        if (p->pid > 0 && waitpid(p->pid, &p->status, WNOHANG) == p->pid) {
            p->pid = 0;
            j->failed = j->failed || p->status != 0;
        }
        running = running || p->pid > 0 || p->err >= 0;
    }
    if (running && poll(fds, (nfds_t)j->n, TURN_MS) > 0)
        for (int64_t i = 0; i < j->n; i++)
            if (fds[i].revents)
                read_errors(&j->v[i], i);
    return running;
}

/* Waits for all. Those that do not end after another has failed are killed. */
static void wait_for_all(job *j, int64_t peer_timeout, struct pollfd *fds)
{
    int passed_on = 0;
    int64_t most = (peer_timeout + PATIENCE_S) * (1000 / TURN_MS);
    while (take_turn(j, fds)) {
        if (received && received != passed_on) {
            passed_on = received;
            send_all(j, passed_on, false);
        }
        if (j->failed && ++j->turns == most)
            send_all(j, SIGKILL, true);
    }
}

/* ---- the end of a try ---- */

typedef enum outcome { DONE, LOST, FAILED, STOPPED } outcome;

/* *died: how many were killed by a signal that this program did not send; *status: the exit status
 * if it is not tried again. */
static outcome judge(const job *j, int64_t *died, int *status)
{
    outcome o = DONE;
    *died = 0;
    *status = CLI_OK;
    for (int64_t i = 0; i < j->n; i++) {
        const process *p = &j->v[i];
        int code = WIFEXITED(p->status) ? WEXITSTATUS(p->status) : 128 + WTERMSIG(p->status);
        bool by_signal = WIFSIGNALED(p->status) && !p->killed;
        if (by_signal) {
            fprintf(stderr, "millrace train: rank %" PRId64 " was killed by signal %d (%s)\n", i,
                    WTERMSIG(p->status), strsignal(WTERMSIG(p->status)));
            ++*died;
        }
        bool lost = by_signal || p->killed || code == CLI_AGAIN || code == 128 + SIGTERM;
        if (lost && o == DONE) {
            o = LOST;
            *status = code == 128 + SIGTERM ? code : CLI_AGAIN;
        }
        if (!lost && code != CLI_OK && o != FAILED) { /* the error is the cause */
            o = FAILED;
            *status = code;
        }
    }
    if (received) {
        o = STOPPED;
        *status = *status == CLI_OK ? CLI_OK : 128 + received;
    }
    return o;
}

/* Returns the outcome of one try. */
static outcome try_once(const train_processes *p, job *j, char **words, int64_t *died, int *status)
{
    struct pollfd *fds = mr_calloc((size_t)j->n, sizeof *fds);
    j->v = mr_calloc((size_t)j->n, sizeof *j->v);
    int port = free_port();
    bool started = fds && j->v && port > 0;
    for (int64_t i = 0; i < j->n && j->v; i++) {
        if (!started)
            j->v[i].err = -1;
        else if (!start_one(&j->v[i], words, i, j->n, port)) {
            *status =
                cli_error(NULL, CLI_FAILED, "train: cannot start a process: %s", strerror(errno));
            started = false;
            send_all(j, SIGKILL, true);
        }
    }
    if (fds && j->v)
        wait_for_all(j, p->peer_timeout, fds);
    outcome o = started ? judge(j, died, status) : FAILED;
    mr_free(fds);
    mr_free(j->v);
    return o;
}

int train_run_processes(const train_processes *p, char **arguments)
{
    const struct sigaction act = {.sa_handler = on_signal};
    char **words = arguments ? arguments_of_child(arguments) : NULL;
    int64_t died = 0, n = p->n, least = p->has_least ? p->least : p->n;
    int status = CLI_FAILED;
    if (!words)
        return cli_error(NULL, CLI_FAILED, "train: out of memory");
    sigaction(SIGINT, &act, NULL);
    sigaction(SIGTERM, &act, NULL);
    sigaction(SIGHUP, &act, NULL);
    for (int64_t k = 0;; k++) {
        job j = {.n = n};
        outcome o = try_once(p, &j, words, &died, &status);
        if (o != LOST || k == p->restarts)
            break;
        n = n - died < least ? least : n - died;
        fprintf(stderr,
                "millrace train: the job is started again with %" PRId64
                " process%s (restart %" PRId64 " of %" PRId64 ")\n",
                n, n == 1 ? "" : "es", k + 1, p->restarts);
    }
    mr_free(words);
    return status;
}
