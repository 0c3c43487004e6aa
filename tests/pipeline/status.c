/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/status.h"
#include "tests/harness.h"

#include <errno.h>
#include <string.h>

MR_ONE_THREAD;

MR_TEST(failing_returns_the_code_and_clears_the_place)
{
    mr_status st;
    mr_status_init(&st);
    mr_eq_i64(mr_fail(&st, MR_DATA_LOSS, "%d bytes missing", 3), MR_DATA_LOSS);
    mr_status_at(&st, "a.tfrecord", 12, 1);
    mr_eq_i64(mr_fail(&st, MR_NOT_FOUND, "no such file"), MR_NOT_FOUND);
    mr_eq_str(st.file, "");
    mr_eq_i64(st.offset, -1);
    mr_eq_i64(st.record, -1);
}

MR_TEST(a_message_may_quote_the_status_it_replaces)
{
    mr_status st;
    mr_fail(&st, MR_DATA_LOSS, "inner");
    mr_fail(&st, MR_INTERNAL, "outer: %s", st.message);
    mr_eq_str(st.message, "outer: inner");
}

MR_TEST(a_place_once_set_stays)
{
    mr_status st;
    mr_fail(&st, MR_DATA_LOSS, "bad length");
    mr_status_at(&st, NULL, 40, -1);
    mr_status_at(&st, "a", 99, 7);
    mr_status_set_op(&st, "batch/tfrecord");
    mr_status_set_op(&st, "elsewhere");
    mr_eq_i64(st.offset, 40);
    mr_eq_i64(st.record, 7);
    char line[256];
    size_t n = mr_status_format(&st, line, sizeof line);
    mr_eq_str(line, "batch/tfrecord: a: record 7 at byte 40: data loss: bad length");
    mr_eq_u64(n, strlen(line));
}

MR_TEST(of_no_element_is_no_number)
{
    mr_status st;
    char line[64];
    mr_fail(&st, MR_UNAVAILABLE, "nobody answers");
    mr_status_set_element(&st, 3);
    mr_status_of_no_element(&st);
    mr_status_set_element(&st, 4);
    mr_eq_i64(st.element, MR_OF_NO_ELEMENT);
    mr_status_format(&st, line, sizeof line);
    mr_eq_str(line, "unavailable: nobody answers");
    mr_check(mr_status_is_of_no_element(&st));
    mr_status_init(&st);
    mr_status_of_no_element(&st);
    mr_eq_i64(st.element, -1);
    mr_check(!mr_status_is_of_no_element(&st));
    mr_fail(&st, MR_NOT_FOUND, "x");
    mr_check(!mr_status_is_of_no_element(&st));
}

MR_TEST(what_the_system_lacks_is_of_no_element)
{
    static const int lacks[] = {ENOMEM, ENOSPC, EDQUOT, EMFILE, ENFILE};
    static const int others[] = {ENOENT, EACCES, EIO, EEXIST, EISDIR};
    mr_status st;
    for (size_t i = 0; i < sizeof lacks / sizeof *lacks; i++) {
        mr_eq_i64(mr_fail_errno(&st, lacks[i], "x"), MR_RESOURCE_EXHAUSTED);
        mr_check(mr_status_is_of_no_element(&st));
        mr_fail_errno(&st, others[i], "x");
        mr_check(!mr_status_is_of_no_element(&st));
    }
    mr_fail_memory(&st, 8, "x");
    mr_check(mr_status_is_of_no_element(&st));
    mr_fail(&st, MR_RESOURCE_EXHAUSTED, "too large"); /* one element may be */
    mr_check(!mr_status_is_of_no_element(&st));
}

MR_TEST(a_prefix_keeps_the_place_and_costs_a_long_message_its_end)
{
    mr_status st;
    mr_fail(&st, MR_DATA_LOSS, "bad length");
    mr_status_at(&st, "a", 40, 7);
    mr_status_prefix(&st, "shard %d of %s", 3, st.file);
    mr_eq_str(st.message, "shard 3 of a: bad length");
    mr_eq_i64(st.code, MR_DATA_LOSS);
    mr_eq_i64(st.offset, 40);
    mr_eq_str(st.file, "a");
    mr_status_prefix(NULL, "nothing");

    memset(st.message, 'm', sizeof st.message - 1);
    st.message[sizeof st.message - 1] = '\0';
    mr_status_prefix(&st, "ab");
    mr_eq_u64(strlen(st.message), sizeof st.message - 1);
    mr_check(strncmp(st.message, "ab: mmm", 7) == 0);

    memset(st.message, 'm', sizeof st.message - 1);
    mr_status_prefix(&st, "%s", st.message);
    mr_eq_u64(strlen(st.message), sizeof st.message - 1);
}

MR_TEST(success_takes_no_place)
{
    mr_status st;
    mr_status_init(&st);
    mr_status_at(&st, "a", 1, 1);
    mr_status_set_op(&st, "range");
    mr_eq_str(st.file, "");
    mr_eq_str(st.op, "");
}

MR_TEST(a_long_path_keeps_its_tail)
{
    mr_status st;
    char path[2000];
    memset(path, 'd', sizeof path);
    memcpy(path + sizeof path - 9, "/z.idx.1", 9);
    mr_fail(&st, MR_NOT_FOUND, "gone");
    mr_status_at(&st, path, -1, -1);
    mr_eq_u64(strlen(st.file), sizeof st.file - 1);
    mr_eq_mem(st.file, "...", 3);
    mr_eq_str(st.file + sizeof st.file - 9, "/z.idx.1");
}

MR_TEST(errno_becomes_a_code_and_keeps_its_text)
{
    static const struct {
        int err;
        mr_code code;
    } cases[] = {{ENOENT, MR_NOT_FOUND},           {EACCES, MR_PERMISSION_DENIED},
                 {ENOSPC, MR_RESOURCE_EXHAUSTED},  {EIO, MR_DATA_LOSS},
                 {EHOSTUNREACH, MR_UNAVAILABLE},   {EADDRNOTAVAIL, MR_INVALID_ARGUMENT},
                 {EISDIR, MR_FAILED_PRECONDITION}, {ENOTEMPTY, MR_FAILED_PRECONDITION},
                 {EINVAL, MR_INVALID_ARGUMENT},    {EEXIST, MR_ALREADY_EXISTS}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mr_status st;
        mr_eq_i64(mr_fail_errno(&st, cases[i].err, "x"), cases[i].code);
        mr_eq_i64(st.sys_errno, cases[i].err);
        mr_has_str(st.message, strerror(cases[i].err));
    }
}

MR_TEST(a_null_status_is_allowed_everywhere)
{
    mr_status_init(NULL);
    mr_status_at(NULL, "a", 1, 1);
    mr_status_of_no_element(NULL);
    mr_status_set_op(NULL, "a");
    mr_eq_i64(mr_fail(NULL, MR_ABORTED, "x"), MR_ABORTED);
    mr_eq_i64(mr_fail_errno(NULL, ENOENT, "x"), MR_NOT_FOUND);
    mr_eq_i64(mr_fail_memory(NULL, 1, "x"), MR_RESOURCE_EXHAUSTED);
}

MR_TEST(formatting_into_a_small_buffer_cuts_and_ends)
{
    mr_status st;
    char small[8];
    mr_fail(&st, MR_DATA_LOSS, "bad length");
    mr_check(mr_status_format(&st, small, sizeof small) > sizeof small);
    mr_eq_u64(strlen(small), sizeof small - 1);
}

MR_TEST(control_bytes_of_names_are_shown_not_obeyed)
{
    mr_status st;
    char line[2048], small[6];
    mr_fail(&st, MR_NOT_FOUND, "no file matches %s", "a\x1b[2J\r\x7f");
    mr_status_at(&st,
                 "b\x1b]0;x\a\n\xc2\x9b"
                 "e\xc3\xa9",
                 -1, -1);
    mr_status_format(&st, line, sizeof line);
    mr_eq_str(line, "b\\x1b]0;x\\x07\\x0a\\xc2\\x9be\xc3\xa9: not found: no file matches "
                    "a\\x1b[2J\\x0d\\x7f");
    mr_fail(&st, MR_INVALID_ARGUMENT, "line 1\n  x\n  ^"); /* a message may have several lines */
    mr_status_format(&st, line, sizeof line);
    mr_eq_str(line, "invalid argument: line 1\n  x\n  ^");
    mr_status_prefix(&st, "--loss-weights");
    mr_status_format(&st, line, sizeof line);
    mr_eq_str(line, "invalid argument: --loss-weights: line 1\n  x\n  ^");
    mr_fail(&st, MR_INVALID_ARGUMENT, "--a: b: line 1\n  x\n  ^");
    mr_status_format(&st, line, sizeof line);
    mr_eq_str(line, "invalid argument: --a: b: line 1\\x0a  x\\x0a  ^");
    mr_eq_u64(mr_text_visible("a\nb", true, line, sizeof line), 3);
    mr_eq_u64(mr_text_visible("a\nb", false, small, sizeof small), 6);
    mr_eq_str(small, "a\\x0a");
}

MR_TEST(the_place_in_a_text_is_apart_from_the_words)
{
    mr_status st;
    mr_status_init(&st);
    mr_check(mr_status_place(&st) == NULL);
    mr_fail(&st, MR_INVALID_ARGUMENT, "line 1, column 7: expected a number\n  range(\n        ^");
    mr_eq_str(mr_status_place(&st), "  range(\n        ^");
    mr_fail(&st, MR_NOT_FOUND, "no file\nmatches\nthis");
    mr_check(mr_status_place(&st) == NULL);
}

MR_TEST(text_is_utf8_or_not)
{
    mr_check(mr_text_is_utf8("", 0) && mr_text_is_utf8("a\0\xc3\xa4\xf4\x8f\xbf\xbf", 8));
    mr_check(!mr_text_is_utf8("\xc3", 1) && !mr_text_is_utf8("\xc0\x80", 2));
    mr_check(!mr_text_is_utf8("\xed\xa0\x80", 3) && !mr_text_is_utf8("\xf4\x90\x80\x80", 4));
}
