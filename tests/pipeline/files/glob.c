/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/files/glob.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pipeline/log.h"
#include "pipeline/memory/alloc.h"
#include "pipeline/system/system.h"
#include "tests/harness.h"
#include "tests/pipeline/memory/fail_nth.h"

MR_ONE_THREAD;

static void make_tree(void)
{
    static const char *const dirs[] = {"d1", "d2", "d2/sub"};
    static const char *const files[] = {"b",    "a",    ".hidden", "x[1]",
                                        "d1/f", "d2/f", "d2/g",    "{a,b}"};
    for (size_t i = 0; i < sizeof dirs / sizeof *dirs; i++)
        mkdir(mr_test_path(dirs[i]), 0777);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        mr_test_file(files[i], "");
    mr_eq_i64(chdir(mr_test_dir()), 0);
}

/* The matches of p (and q, if not NULL), joined by spaces. */
static const char *matches(const char *p, const char *q)
{
    static char text[1000];
    const char *patterns[] = {p, q};
    char **paths = NULL;
    size_t n = 0;
    mr_status st;
    mr_code rc = mr_glob(patterns, q ? 2 : 1, &paths, &n, &st);
    if (rc == MR_NOT_FOUND)
        return "none";
    mr_ok(rc, &st);
    text[0] = '\0';
    for (size_t i = 0; i < n; i++) {
        strcat(text, i ? " " : "");
        strcat(text, paths[i]);
    }
    mr_glob_free(paths, n);
    return text;
}

MR_TEST(patterns_match_as_fnmatch_with_pathname)
{
    make_tree();
    mr_eq_str(matches("*", NULL), ".hidden a b d1 d2 x[1] {a,b}");
    mr_eq_str(matches("?", NULL), "a b");
    mr_eq_str(matches("[!a]", NULL), "b");
    mr_eq_str(matches("[^a]", NULL), "b");
    mr_eq_str(matches("d*/f*", NULL), "d1/f d2/f");
    mr_eq_str(matches("**", NULL), matches("*", NULL));
    mr_eq_str(matches("d?/*", NULL), "d1/f d2/f d2/g d2/sub");
    mr_eq_str(matches("x\\[1\\]", NULL), "x[1]");
    mr_eq_str(matches("x\\[*", NULL), "x[1]");
    mr_eq_str(matches("{a,b}", NULL), "{a,b}");
    mr_eq_str(matches("d1//f", NULL), "d1//f");
    mr_eq_str(matches("d2/", NULL), "d2/");
    mr_eq_str(matches("nothing", NULL), "none");
    mr_eq_str(matches("a/*", NULL), "none");
    mr_eq_str(matches("", NULL), "none");
}

/* Names with the characters of patterns, and names that they match as patterns. */
static void make_odd_names(void)
{
    static const char *const dirs[] = {"run[1]", "run1", "r*", "r1", "b\\d", "bd"};
    static const char *const files[] = {"run[1]/f", "run[1]/g[2]", "run[1]/g2", "run1/f", "r*/f",
                                        "r1/f",     "b\\d/f[3]",   "b\\d/f3",   "bd/f3"};
    for (size_t i = 0; i < sizeof dirs / sizeof *dirs; i++)
        mkdir(mr_test_path(dirs[i]), 0777);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        mr_test_file(files[i], "");
    mr_eq_i64(chdir(mr_test_dir()), 0);
}

MR_TEST(a_part_that_exists_as_written_is_that_name)
{
    make_odd_names();
    mr_eq_str(matches("run[1]/f", NULL), "run[1]/f");
    mr_eq_str(matches("run[1]/*", NULL), "run[1]/f run[1]/g2 run[1]/g[2]");
    mr_eq_str(matches("run[1]/g[2]", NULL), "run[1]/g[2]");
    mr_eq_str(matches("run[1]//g[2]", NULL), "run[1]//g[2]");
    mr_eq_str(matches("run[12]/f", NULL), "run1/f");
    mr_eq_str(matches("run[[]1]/f", NULL), "run[1]/f");
    mr_eq_str(matches("b\\d/f[3]", NULL), "b\\d/f[3]");
    mr_eq_str(matches("b\\\\d/f*", NULL), "b\\d/f3 b\\d/f[3]");
    mr_eq_str(matches("run[1]/none[1]", NULL), "none");
}

static char logged[400];

static void keep_log(void *ctx, mr_log_level level, const char *text)
{
    (void)ctx;
    (void)level;
    snprintf(logged, sizeof logged, "%s", text);
}

MR_TEST(a_name_with_a_star_hides_what_it_matches_and_is_warned_about)
{
    make_odd_names();
    mr_log_set(keep_log, NULL, MR_LOG_WARNING);
    mr_eq_str(matches("r*/f", NULL), "r*/f");
    mr_has_str(logged, "r* exists, so it is read as a name");
    mr_has_str(logged, "3 other names");
    logged[0] = '\0';
    mr_eq_str(matches("r[*]/f", NULL), "r*/f");
    mr_eq_str(matches("run[1]/f", NULL), "run[1]/f");
    mr_eq_str(logged, "");
    mr_log_set(NULL, NULL, MR_LOG_WARNING);
}

/* Files in a directory that may be searched, but not listed. */
MR_TEST(a_name_in_a_directory_that_cannot_be_listed)
{
    if (geteuid() == 0)
        mr_skip_test("root may list everything");
    make_odd_names();
    mr_test_file("run1/f*", "");
    mr_eq_i64(chmod("run1", 0100), 0);
    mr_eq_str(matches("run1/f*", NULL), "run1/f*");
    mr_eq_i64(chmod("run1", 0700), 0);
}

MR_TEST(a_pattern_without_a_match_is_warned_about)
{
    make_tree();
    mr_log_set(keep_log, NULL, MR_LOG_WARNING);
    logged[0] = '\0';
    mr_eq_str(matches("b", "[ab]"), "a b b");
    mr_eq_str(logged, "");
    mr_eq_str(matches("a", "none-*"), "a");
    mr_has_str(logged, "no file matches none-*; files that match the other patterns are read");
    mr_log_set(NULL, NULL, MR_LOG_WARNING);
}

MR_TEST(a_quoted_text_matches_itself_only)
{
    static const char *const names[] = {"run[1]/g[2]", "r*/f", "b\\d/f[3]", "run1/f"};
    make_odd_names();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *quoted = mr_glob_quote(names[i]);
        char *prefix = mr_strf("%s*", quoted);
        mr_eq_str(matches(quoted, NULL), names[i]);
        mr_eq_str(matches(prefix, NULL), names[i]);
        mr_free(prefix);
        mr_free(quoted);
    }
    char *plain = mr_glob_quote("");
    mr_eq_str(plain, "");
    mr_free(plain);
}

MR_TEST(matches_of_all_patterns_are_sorted_together_and_doubles_kept)
{
    make_tree();
    mr_eq_str(matches("b", "[ab]"), "a b b");
    mr_eq_str(matches("d2/*", "a"), "a d2/f d2/g d2/sub");
    mr_eq_str(matches("none*", "a"), "a");
}

MR_TEST(no_match_names_the_patterns)
{
    const char *patterns[] = {"/no/such/*", "nor/this"};
    char **paths;
    size_t n;
    mr_status st;
    mr_code_is(mr_glob(patterns, 2, &paths, &n, &st), MR_NOT_FOUND, &st);
    mr_has_str(st.message, "/no/such/*, nor/this");
}

MR_TEST(a_link_to_nothing_matches)
{
    make_tree();
    mr_eq_i64(symlink("gone", "away"), 0);
    mr_eq_i64(symlink("away-2", "away-2"), 0); /* to itself */
    mr_eq_i64(symlink("gone", "d1/link"), 0);
    mr_eq_str(matches("a*", NULL), "a away away-2");
    mr_eq_str(matches("away", NULL), "away");
    mr_eq_str(matches("d1/*", NULL), "d1/f d1/link");
    mr_eq_str(matches("d?/link", NULL), "d1/link");
    mr_eq_str(matches("away/f", NULL), "none"); /* as a missing directory */
}

MR_TEST(a_link_to_nothing_for_a_directory_is_an_error)
{
    make_tree();
    mr_eq_i64(symlink("d1", "d3"), 0);
    mr_eq_i64(symlink("a", "d4"), 0); /* to a plain file, which has no entries */
    mr_eq_str(matches("d?/f", NULL), "d1/f d2/f d3/f");
    mr_eq_i64(symlink("gone", "d5"), 0);
    static const char *const patterns[] = {"d?/f", "d*/*", "[d]?/."};
    for (size_t i = 0; i < 3; i++) {
        char **paths;
        size_t n;
        mr_status st;
        mr_test_context("%s", patterns[i]);
        mr_code_is(mr_glob(&patterns[i], 1, &paths, &n, &st), MR_NOT_FOUND, &st);
        mr_eq_str(st.file, "d5");
        mr_has_str(st.message, "leads nowhere");
    }
    mr_eq_str(matches("d[12]/f", NULL), "d1/f d2/f");
}

static DIR *refused_opendir(const char *path)
{
    (void)path;
    errno = EACCES;
    return NULL;
}

static struct dirent *failing_readdir(DIR *dir)
{
    (void)dir;
    errno = EIO;
    return NULL;
}

MR_TEST(a_directory_that_cannot_be_read_is_an_error_with_its_name)
{
    const char *pattern = mr_test_path("*");
    char **paths;
    size_t n;
    mr_status st;
    mr__system table = *mr__system_real();
    table.opendir = refused_opendir;
    mr__system_set(&table);
    mr_code_is(mr_glob(&pattern, 1, &paths, &n, &st), MR_PERMISSION_DENIED, &st);
    mr_has_str(st.file, mr_test_dir());
    table = *mr__system_real();
    table.readdir = failing_readdir;
    mr_code_is(mr_glob(&pattern, 1, &paths, &n, &st), MR_DATA_LOSS, &st);
    mr__system_set(NULL);
}

MR_TEST(running_out_of_memory_is_reported)
{
    make_tree();
    make_odd_names();
    const char *patterns[] = {"d*/f*", "*", "r*/f", "run[1]/g[2]"};
    for (size_t nth = 0; fail_nth_next(nth); nth++) {
        char **paths = NULL;
        size_t n = 0;
        mr_status st;
        mr_code rc = mr_glob(patterns, 4, &paths, &n, &st);
        if (rc == MR_OK)
            mr_glob_free(paths, n);
        else
            mr_code_is(rc, MR_RESOURCE_EXHAUSTED, &st);
        fail_nth_end();
    }
}
