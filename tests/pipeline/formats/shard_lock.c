/* SPDX-License-Identifier: Apache-2.0 */
/* Other files with the name of a shard writer's lock. */
#include "pipeline/formats/shards/shard_writer.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/harness.h"

MR_ONE_THREAD;

static char *fresh_directory(int n, char *prefix, size_t size)
{
    static char directory[512];
    snprintf(directory, sizeof directory, "%s/d%d", mr_test_dir(), n);
    snprintf(prefix, size, "%s/set", directory);
    mr_eq_i64(mkdir(directory, 0777), 0);
    return directory;
}

static int entries(const char *directory)
{
    int n = -2; /* . and .. */
    DIR *d = opendir(directory);
    mr_check(d != NULL);
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

/* A file with the lock's name that is not a lock belongs to the user. */
MR_TEST(a_file_in_the_place_of_the_lock_stays)
{
    static const char *const kinds[] = {"content", "symbolic link", "directory", "something else"};
    for (int kind = 0; kind < 4; kind++) {
        char prefix[600], lock[700], text[8] = "", *directory;
        struct stat before, after;
        mr_status st;
        mr_shard_writer *w;
        directory = fresh_directory(kind, prefix, sizeof prefix);
        snprintf(lock, sizeof lock, "%s/.set.lock", directory);
        if (kind == 0) {
            FILE *f = fopen(lock, "w");
            mr_check(f && fputs("data", f) >= 0 && fclose(f) == 0);
        } else
            mr_check((kind == 1   ? symlink("nowhere", lock)
                      : kind == 2 ? mkdir(lock, 0777)
                                  : mkfifo(lock, 0666)) == 0);
        mr_check(lstat(lock, &before) == 0);
        mr_code_is(mr_shard_writer_open(&w, prefix, 2, NULL, &st), MR_ALREADY_EXISTS, &st);
        mr_has_str(st.message, kinds[kind]);
        mr_has_str(st.message, "move it away");
        mr_has_str(st.file, ".set.lock");
        mr_code_is(mr_shard_writer_recover(prefix, &st), MR_ALREADY_EXISTS, &st);
        mr_check(lstat(lock, &after) == 0);
        mr_check(before.st_ino == after.st_ino && before.st_mode == after.st_mode);
        mr_eq_i64(entries(directory), 1);
        if (kind == 0) {
            FILE *g = fopen(lock, "r");
            mr_check(g && fgets(text, sizeof text, g));
            fclose(g);
            mr_eq_str(text, "data");
        }
    }
}

/* So is what was put there, or written into it, while the lock was held. */
MR_TEST(what_took_the_place_of_the_lock_stays)
{
    for (int written = 0; written < 2; written++) {
        char prefix[600], lock[700], *directory = fresh_directory(written, prefix, sizeof prefix);
        struct stat is;
        mr_shard_writer *w;
        mr_status st;
        snprintf(lock, sizeof lock, "%s/.set.lock", directory);
        mr_ok(mr_shard_writer_open(&w, prefix, 2, NULL, &st), &st);
        if (!written)
            mr_check(unlink(lock) == 0);
        FILE *f = fopen(lock, "w");
        mr_check(f && (!written || fputs("data", f) >= 0) && fclose(f) == 0);
        mr_shard_writer_abort(w);
        mr_check(stat(lock, &is) == 0);
    }
}
