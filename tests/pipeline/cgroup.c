/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/system/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pipeline/engine/iterator.h"
#include "pipeline/graph/dataset.h"
#include "pipeline/log.h"
#include "pipeline/ops/sequence.h"
#include "pipeline/system/system.h"
#include "tests/harness.h"

/* /proc/self and /sys/fs/cgroup are directories of the test: all of their files are made by it. */
static int open_there(const char *path, int flags, mode_t mode)
{
    const char *name = strncmp(path, "/proc/self/", 11) == 0      ? path + 11
                       : strncmp(path, "/sys/fs/cgroup", 14) == 0 ? path + 5
                       : strncmp(path, "/other/", 7) == 0         ? path + 1
                                                                  : NULL;
    if (name && !strcmp(name, "statm"))
        name = NULL;
    return mr__system_real()->open(name ? mr_test_path(name) : path, flags, mode);
}

static void use_files(const char *group, const char *mounts)
{
    static const char *const dirs[] = {"fs",    "fs/cgroup", "fs/cgroup/a", "fs/cgroup/a/b",
                                       "other", "other/c"};
    static mr__system table;
    for (size_t i = 0; i < sizeof dirs / sizeof *dirs; i++)
        mkdir(mr_test_path(dirs[i]), 0777);
    mr_test_file("cgroup", group);
    mr_test_file("mountinfo", mounts);
    table = *mr__system_real();
    table.open = open_there;
    mr__system_set(&table);
}

#define MOUNT "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n"

static void limits_are(int64_t memory, int cpus)
{
    mr__cgroup c = mr__cgroup_read();
    mr_eq_i64(c.memory_max, memory);
    mr_eq_i64(c.cpus, cpus);
}

MR_TEST(without_a_group_there_is_no_limit)
{
    use_files("", "");
    limits_are(INT64_MAX, INT_MAX);
    use_files("1:memory:/a\n", MOUNT);
    mr_test_file("fs/cgroup/memory.max", "1000\n");
    limits_are(INT64_MAX, INT_MAX);
    use_files("0::/a/b\n", "");
    limits_are(1000, INT_MAX); /* where it usually is */
    mr_test_file("fs/cgroup/memory.max", "max\n");
    mr_test_file("fs/cgroup/cpu.max", "max 100000\n");
    limits_are(INT64_MAX, INT_MAX);
    mr_test_file("fs/cgroup/memory.max", "");
    mr_test_file("fs/cgroup/cpu.max", "few\n");
    limits_are(INT64_MAX, INT_MAX);
}

MR_TEST(the_smallest_limit_of_the_group_and_those_above_it_applies)
{
    use_files("1:cpu:/x\n0::/a/b\n", MOUNT);
    mr_test_file("fs/cgroup/a/b/memory.max", "3000\n");
    mr_test_file("fs/cgroup/a/b/cpu.max", "max 100000\n");
    mr_test_file("fs/cgroup/a/cpu.max", "150000 100000\n");
    limits_are(3000, 2);
    mr_test_file("fs/cgroup/a/memory.max", "2000\n");
    mr_test_file("fs/cgroup/a/b/cpu.max", "400000 100000\n");
    limits_are(2000, 2);
    mr_test_file("fs/cgroup/a/b/cpu.max", "10000 100000\n");
    limits_are(2000, 1);
    use_files("0::/a\n", MOUNT);
    limits_are(2000, 2);
    use_files("0::/a/gone (deleted)\n", MOUNT);
    limits_are(2000, 2);
    use_files("0::/\n", MOUNT);
    limits_are(INT64_MAX, INT_MAX);
}

MR_TEST(a_group_is_found_below_the_group_that_is_mounted)
{
    char mounts[9000];
    /* A line longer than the reader keeps, as of an overlay of many layers. */
    int n = snprintf(mounts, sizeof mounts,
                     "29 23 0:25 / / rw - overlay overlay rw,lowerdir=%06000d\n", 0);
    snprintf(mounts + n, sizeof mounts - (size_t)n, "%s",
             "31 23 0:26 /pod/a /other rw,nosuid shared:4 - cgroup2 cgroup2 rw\n"
             "32 23 0:27 / /proc rw - proc proc rw");
    use_files("0::/pod/a/c\n", mounts);
    mr_test_file("other/memory.max", "max\n");
    mr_test_file("other/c/memory.max", "5000\n");
    limits_are(5000, INT_MAX);
    mr_test_file("other/cpu.max", "300000 100000\n");
    limits_are(5000, 3);
    use_files("0::/pod/ab/c\n", mounts); /* not below /pod/a */
    limits_are(INT64_MAX, 3);
    use_files("0::/../x\n", mounts);
    limits_are(INT64_MAX, 3);
}

#define OLD_MOUNTS                                                                                 \
    "33 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"                                            \
    "34 33 0:29 / /sys/fs/cgroup/a rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct\n"            \
    "35 33 0:30 /pod/x /other rw,nosuid - cgroup cgroup rw,memory\n"

MR_TEST(groups_of_version_1)
{
    use_files("12:memory:/pod/x/c\n4:cpu,cpuacct:/b\n1:name=systemd:/b\n0::/\n", OLD_MOUNTS);
    limits_are(INT64_MAX, INT_MAX);
    mr_test_file("fs/cgroup/a/b/cpu.cfs_period_us", "100000\n");
    mr_test_file("fs/cgroup/a/b/cpu.cfs_quota_us", "-1\n");
    mr_test_file("other/c/memory.limit_in_bytes", "9223372036854771712\n");
    limits_are(INT64_MAX, INT_MAX);
    mr_test_file("fs/cgroup/a/b/cpu.cfs_quota_us", "150000\n");
    mr_test_file("other/c/memory.limit_in_bytes", "5000\n");
    limits_are(5000, 2);
    mr_test_file("other/memory.limit_in_bytes", "4000\n"); /* the group above */
    mr_test_file("fs/cgroup/a/cpu.cfs_quota_us", "100000\n");
    mr_test_file("fs/cgroup/a/cpu.cfs_period_us", "100000\n");
    limits_are(4000, 1);
    mr_test_file("other/cpu.cfs_quota_us", "10000\n"); /* of another controller's mount */
    mr_test_file("other/cpu.cfs_period_us", "100000\n");
    use_files("12:memory:/pod/x/c\n4:cpuset:/b\n", OLD_MOUNTS); /* not cpu */
    unlink(mr_test_path("other/cpu.cfs_quota_us"));
    limits_are(4000, INT_MAX);
    use_files("4:cpu:/b\n", "34 33 0:29 / /sys/fs/cgroup/a rw - cgroup cgroup rw,cpuset\n");
    limits_are(INT64_MAX, INT_MAX);
}

MR_TEST(the_pool_has_a_thread_for_each_processor_of_the_group)
{
    use_files("0::/a\n", MOUNT);
    mr_test_file("fs/cgroup/a/cpu.max", "50000 100000\n");
    mr_eq_i64(mr_usable_cpus(), 1);
    mr_test_file("fs/cgroup/a/cpu.max", "max 100000\n"); /* it was read once */
    mr_eq_i64(mr_usable_cpus(), 1);
}

static char logged[400];

static void keep_log(void *ctx, mr_log_level level, const char *text)
{
    (void)ctx;
    (void)level;
    snprintf(logged, sizeof logged, "%s", text);
}

/* Runs the graph to its end. */
static mr_code run_all(mr_dataset *ds, int64_t limit, int64_t *rows, mr_status *st)
{
    mr_iterator *it = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    const mr_iterator_opts o = {.memory_limit = limit, .threads = 2, .has_threads = true};
    *rows = 0;
    mr_code rc = mr_iterator_open(&it, ds, &o, st);
    while (rc == MR_OK && (rc = mr_iterator_next(it, 1000, &b, st)) == MR_OK)
        *rows += (int64_t)b.rows;
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
    return rc;
}

static mr_dataset *parse(const char *text)
{
    mr_status st;
    mr_dataset *ds = NULL;
    mr_ok(mr_dataset_from_text(text, strlen(text), NULL, &ds, &st), &st);
    return ds;
}

MR_TEST(the_memory_of_the_group_is_the_limit_and_refuses_no_graph)
{
    int64_t rows;
    mr_status st;
    use_files("0::/a\n", MOUNT);
    mr_test_file("fs/cgroup/a/memory.max", "8000000000\n");
    mr_log_set(keep_log, NULL, MR_LOG_WARNING);
    /* By its buffer it would need 80 GB, but there are few elements. */
    mr_code_is(run_all(parse("range(100).shuffle(10000000000).prefetch(4)"), 0, &rows, &st), MR_END,
               &st);
    mr_eq_i64(rows, 100);
    mr_eq_str(logged, "");
    mr_code_is(run_all(parse("range(100).prefetch(4)"), 9000000000, &rows, &st), MR_END, &st);
    mr_eq_i64(rows, 100);
    mr_has_str(logged, "more than the control group allows; 7200000000 apply");
    mr_code_is(run_all(parse("range(100).shuffle(1000000)"), 1000000, &rows, &st),
               MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "memory_limit is 1000000 bytes");
    mr_log_set(NULL, NULL, MR_LOG_WARNING);
}

MR_TEST(what_the_memory_of_the_group_cannot_hold_is_an_error)
{
    int64_t rows;
    mr_status st;
    use_files("0::/a\n", MOUNT);
    mr_test_file("fs/cgroup/a/memory.max", "100000000\n");
    mr_code_is(run_all(parse("range(1000000).map(x => format(\"{:01000d}\", x)).shuffle(1000000)"),
                       0, &rows, &st),
               MR_RESOURCE_EXHAUSTED, &st);
    mr_has_str(st.message, "80000000 bytes that the control group sets is reached");
    mr_has_str(st.message, "raise the group's memory.max");
}
