/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/system/cgroup.h"

#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/log.h"
#include "pipeline/system/retry.h"
#include "pipeline/system/system.h"

enum { PATH_ROOM = 1024, LINE_ROOM = 4096 };

/* Of a file of any length; the rest of a longer line is left out. */
typedef struct lines {
    int fd;
    size_t at, n;
    char text[LINE_ROOM];
} lines;

/* The next byte; -1: the end. */
static int next_byte(lines *l)
{
    if (l->at == l->n) {
        ssize_t got = mr__read_all(l->fd, l->text, sizeof l->text, -1);
        l->n = got > 0 ? (size_t)got : 0;
        l->at = 0;
    }
    return l->at < l->n ? (unsigned char)l->text[l->at++] : -1;
}

static bool next_line(lines *l, char line[LINE_ROOM])
{
    size_t n = 0;
    int c;
    while ((c = next_byte(l)) >= 0 && c != '\n')
        if (n < LINE_ROOM - 1)
            line[n++] = (char)c;
    line[n] = '\0';
    return c >= 0 || n > 0;
}

/* True if the word, of n bytes, is in a list that commas separate. */
static bool lists(const char *list, const char *word, size_t n)
{
    for (const char *s = list;; s++) {
        size_t k = strcspn(s, ", \n");
        if (k == n && strncmp(s, word, n) == 0)
            return true;
        s += k;
        if (*s != ',')
            return false;
    }
}

/* The path in a line of /proc/self/cgroup if it is of that controller of version 1, or (NULL) of
 * version 2; else NULL. A line is "4:cpu,cpuacct:/path" or "0::/path". */
static const char *path_in(char *line, const char *controller)
{
    char *names = strchr(line, ':'), *path = names ? strchr(names + 1, ':') : NULL;
    if (!path || path[1] != '/')
        return NULL;
    *path = '\0';
    bool same =
        controller ? lists(names + 1, controller, strlen(controller)) : strcmp(line, "0:") == 0;
    return same ? path + 1 : NULL;
}

/* Sets path = the process's group, from its root; controller as in path_in. */
static bool own_group(const char *controller, char path[PATH_ROOM])
{
    lines l = {.fd = mr__open_again("/proc/self/cgroup", O_RDONLY)};
    char line[LINE_ROOM];
    const char *found = NULL;
    if (l.fd < 0)
        return false;
    while (!found && next_line(&l, line))
        if ((found = path_in(line, controller)))
            snprintf(path, PATH_ROOM, "%.*s", PATH_ROOM - 1, found);
    mr__sys->close(l.fd);
    return found;
}

/* Sets line = the first one of dir/name. */
static bool setting(const char *dir, const char *name, char line[LINE_ROOM])
{
    char path[LINE_ROOM];
    lines l;
    if (snprintf(path, sizeof path, "%s/%s", dir, name) >= (int)sizeof path)
        return false;
    l.fd = mr__open_again(path, O_RDONLY);
    if (l.fd < 0)
        return false;
    l.at = l.n = 0;
    bool read = next_line(&l, line);
    mr__sys->close(l.fd);
    return read;
}

static void take_cpus(int64_t quota, int64_t period, mr__cgroup *out)
{
    int64_t cpus = quota > 0 && period > 0 ? quota / period + (quota % period != 0) : INT_MAX;
    if (cpus < out->cpus)
        out->cpus = (int)cpus;
}

/* Version 1. A quota of -1, or a limit near 2^63, means no limit. */
static void limits_of_old(const char *dir, mr__cgroup *out)
{
    char line[LINE_ROOM];
    int64_t quota, period, bytes;
    if (setting(dir, "memory.limit_in_bytes", line) && sscanf(line, "%" SCNd64, &bytes) == 1 &&
        bytes > 0 && bytes < INT64_MAX / 2 && bytes < out->memory_max)
        out->memory_max = bytes;
    if (setting(dir, "cpu.cfs_quota_us", line) && sscanf(line, "%" SCNd64, &quota) == 1 &&
        setting(dir, "cpu.cfs_period_us", line) && sscanf(line, "%" SCNd64, &period) == 1)
        take_cpus(quota, period, out);
}

static void limits_of(const char *dir, mr__cgroup *out)
{
    char line[LINE_ROOM];
    int64_t quota, period, bytes;
    if (setting(dir, "memory.max", line) && sscanf(line, "%" SCNd64, &bytes) == 1 && bytes > 0 &&
        bytes < out->memory_max)
        out->memory_max = bytes;
    if (setting(dir, "cpu.max", line) && sscanf(line, "%" SCNd64 " %" SCNd64, &quota, &period) == 2)
        take_cpus(quota, period, out);
}

/* Of the group at path below a mount of the group `root`, and of all groups above it there. */
static void limits_below(const char *mount, const char *root, const char *path,
                         void (*limits_of_group)(const char *dir, mr__cgroup *out), mr__cgroup *out)
{
    char dir[2 * PATH_ROOM];
    size_t n = strlen(root), base = strlen(mount);
    if (strcmp(root, "/") == 0)
        n = 0;
    /* A group outside of the mount, as the one above a container's. */
    bool inside =
        strncmp(path, root, n) == 0 && (path[n] == '/' || !path[n]) && strncmp(path, "/..", 3) != 0;
    snprintf(dir, sizeof dir, "%s%s", mount, inside ? path + n : "");
    for (;;) {
        limits_of_group(dir, out);
        char *slash = strrchr(dir, '/');
        if (!slash || (size_t)(slash - dir) < base)
            return;
        *slash = '\0';
    }
}

mr__cgroup mr__cgroup_read(void)
{
    static const char *const controllers[] = {"cpu", "memory"};
    mr__cgroup out = {.memory_max = INT64_MAX, .cpus = INT_MAX};
    char path[PATH_ROOM], old[2][PATH_ROOM];
    bool has_path = own_group(NULL, path);
    bool has_old[2] = {own_group(controllers[0], old[0]), own_group(controllers[1], old[1])};
    if (has_path)
        limits_below("/sys/fs/cgroup", "/", path, limits_of, &out);
    lines l = {.fd = mr__open_again("/proc/self/mountinfo", O_RDONLY)};
    char line[LINE_ROOM], root[PATH_ROOM], mount[PATH_ROOM];
    while (l.fd >= 0 && next_line(&l, line)) {
        const char *is_new = strstr(line, " - cgroup2 "), *is_old = strstr(line, " - cgroup ");
        if ((!is_new && !is_old) || sscanf(line, "%*s %*s %*s %1023s %1023s", root, mount) != 2)
            continue;
        if (is_new && has_path && (strcmp(mount, "/sys/fs/cgroup") != 0 || strcmp(root, "/") != 0))
            limits_below(mount, root, path, limits_of, &out);
        for (size_t i = 0; is_old && i < 2; i++)
            if (has_old[i] && lists(strrchr(line, ' ') + 1, controllers[i], strlen(controllers[i])))
                limits_below(mount, root, old[i], limits_of_old, &out);
    }
    if (l.fd >= 0)
        mr__sys->close(l.fd);
    return out;
}

static mr__cgroup limits;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void read_once(void)
{
    limits = mr__cgroup_read();
    if (limits.cpus != INT_MAX)
        mr_log(MR_LOG_INFO, "the control group allows %d processors", limits.cpus);
    if (limits.memory_max != INT64_MAX)
        mr_log(MR_LOG_INFO, "the control group allows %" PRId64 " bytes of memory",
               limits.memory_max);
}

MR_API const mr__cgroup *mr__cgroup_limits(void)
{
    pthread_once(&once, read_once);
    return &limits;
}
