/* SPDX-License-Identifier: Apache-2.0 */
/* What the daemons share: log, token, systemd, exit. */
#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <millrace/pipeline/log.h>
#include <millrace/transport/service/dispatcher/service_requests.h>
#include "service_commands.h"

enum { DRAIN_SECONDS = 5, MOST_ALIKE = 200 /* messages of a kind, in a minute */ };

int cli_address(const cli_command *cmd, const char *flag, const char *text, bool listens)
{
    mr_status st;
    if (!text || mr_service_check_address(text, listens, &st) == MR_OK)
        return -1;
    return cli_usage(cmd, "--%s: %s", flag, st.message);
}

static const char *const levels[] = {"debug", "info", "warning", "error"};

static void log_text(void *ctx, mr_log_level level, const char *message)
{
    char clean[4096];
    (void)ctx;
    mr_text_visible(message, false, clean, sizeof clean);
    fprintf(stderr, "millrace: %s: %s\n", levels[level], clean);
}

static void log_json(void *ctx, mr_log_level level, const char *message)
{
    struct timespec t;
    char clean[4096];
    (void)ctx;
    clock_gettime(CLOCK_REALTIME, &t);
    mr_text_visible(message, false, clean, sizeof clean);
    json_t *line = json_pack("{s:f, s:s, s:s}", "time", (double)t.tv_sec + (double)t.tv_nsec * 1e-9,
                             "level", levels[level], "message", clean);
    char *text = line ? json_dumps(line, JSON_REAL_PRECISION(16)) : NULL;
    if (text)
        fprintf(stderr, "%s\n", text);
    json_decref(line);
    free(text);
}

void cli_daemon_log(bool json)
{
    mr_log_set(json ? log_json : log_text, NULL, MR_LOG_INFO);
    mr_log_limit(MOST_ALIKE);
}

void cli_daemon_reload(int signal)
{
    (void)signal;
    mr_service_reload_certificates();
}

void cli_daemon_files(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur == files.rlim_max)
        return;
    files.rlim_cur = files.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &files) != 0)
        mr_log(MR_LOG_WARNING, "cannot raise the limit of open files: %s", strerror(errno));
}

void cli_notify(const char *state)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    size_t n = path ? strlen(path) : 0;
    if (n < 2 || n >= sizeof to.sun_path || (path[0] != '/' && path[0] != '@'))
        return;
    memcpy(to.sun_path, path, n);
    if (path[0] == '@') /* an abstract name */
        to.sun_path[0] = '\0';
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n);
    if (fd < 0 || sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&to, size) < 0)
        mr_log(MR_LOG_WARNING, "cannot report %s to %s: %s", state, path, strerror(errno));
    if (fd >= 0)
        close(fd);
}

void cli_daemon_drains(void)
{
    cli_notify("STOPPING=1");
    signal(SIGALRM, SIG_DFL);
    alarm(DRAIN_SECONDS);
}

int cli_daemon_status(int status)
{
    mr_log_limit(0); /* logs how many were left out */
    status = cli_flush(status);
    if (cli_interrupted() && cli_interrupt_status() == 128 + SIGTERM)
        exit(status);
    return status;
}
