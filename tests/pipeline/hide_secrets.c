/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/hide_secrets.h"

#include <stdio.h>
#include <string.h>

#include "pipeline/graph/dataset.h"
#include "pipeline/status.h"
#include "tests/harness.h"

MR_ONE_THREAD;

static const char *hidden(const char *text)
{
    static char room[1024];
    snprintf(room, sizeof room, "%s", text);
    mr__hide_secrets(room, sizeof room);
    return room;
}

MR_TEST(passwords_and_signatures_are_hidden)
{
    static const char *const cases[][2] = {
        {"https://h/a?X-Amz-Signature=abc&b=1", "https://h/a?X-Amz-Signature=...&b=1"},
        {"https://h/a?b=1&x-amz-credential=id%2Fx&sig=s",
         "https://h/a?b=1&x-amz-credential=...&sig=..."},
        {"https://user:word@h/a", "https://...@h/a"},
        {"cannot open 'http://u@h/a?Signature=x' and http://h/b?token=t, no",
         "cannot open 'http://...@h/a?Signature=...' and http://h/b?token=..., no"},
        {"https://h/a?sig=", "https://h/a?sig="},
        {"https://h/a@b?signature", "https://h/a@b?signature"},
        {"s3://b/k?sig=5", "s3://b/k?sig=..."},
        {"https://h/O'Reilly?sig=5", "https://h/O'Reilly?sig=..."},
        {"cannot open 'https://h/O'Reilly?sig=5': no",
         "cannot open 'https://h/O'Reilly?sig=...': no"},
        {"https://h/a?X-Amz-SignedHeaders=host;range&X-Amz-Signature=5",
         "https://h/a?X-Amz-SignedHeaders=host;range&X-Amz-Signature=..."},
        {"http://h/a?b=1,http://u:w@h/c?sig=2", "http://h/a?b=1,http://...@h/c?sig=..."},
        {"https://h/a#access_token=5", "https://h/a#access_token=5"},
        {"https://h/a?b=1#access_token=5", "https://h/a?b=1#access_token=..."},
        {"https://h/a?to=https://u:w@h/?token=2", "https://h/a?to=https://...@h/?token=..."},
        {"user:word@h/a?sig=5", "user:word@h/a?sig=5"},
        {"://", "://"},
        {"", ""}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mr_test_context("%s", cases[i][0]);
        mr_eq_str(hidden(cases[i][0]), cases[i][1]);
    }
}

MR_TEST(dots_that_do_not_fit_are_cut)
{
    static const char text[] = "http://u@h/?sig=1&key=2";
    for (size_t room = sizeof text; room <= sizeof text + 8; room++) {
        char v[64];
        memset(v, 'x', sizeof v);
        memcpy(v, text, sizeof text);
        mr__hide_secrets(v, room);
        mr_check(strlen(v) < room && v[room] == 'x');
        mr_check(!strstr(v, "=1") && !strstr(v, "=2") && !strstr(v, "u@"));
    }
}

MR_TEST(places_stay_where_they_are)
{
    char text[] = "f(\"https://u:w@h/a?sig=12&b=3\") + g";
    mr__hide_secrets(text, 0);
    mr_eq_str(text, "f(\"https://...@h/a?sig=..&b=3\") + g");
}

/* A part of a graph's text is shown that may begin within a URL. */
MR_TEST(errors_of_syntax_hide_them)
{
    char url[512], text[2048], shown[8192];
    snprintf(url, sizeof url, "\"https://user:s3cret@h/%0120d?X-Amz-Signature=s3crets3cret\"", 0);
    static const char *const forms[] = {"tfrecord(%s).foo()", "tfrecord(%s 3)", "range(%s)",
                                        "range(3) %s"};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        mr_dataset *ds = NULL;
        mr_status st;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        int n = snprintf(text, sizeof text, forms[i], url);
#pragma GCC diagnostic pop
        mr_test_context("%s", forms[i]);
        mr_eq_i64(mr_dataset_from_text(text, (size_t)n, NULL, &ds, &st), MR_INVALID_ARGUMENT);
        mr_status_format(&st, shown, sizeof shown);
        mr_check(strstr(shown, "^") && !strstr(shown, "s3c"));
    }
}

MR_TEST(errors_hide_them)
{
    mr_status st;
    char url[2048], text[8192];
    mr_fail(&st, MR_NOT_FOUND, "no %s", "https://h/a?sig=secret");
    mr_has_str(st.message, "sig=...");
    mr_status_prefix(&st, "%s", "https://id:secret@h");
    /* A long name keeps its tail, which has the signature. */
    snprintf(url, sizeof url, "https://h/%0900d?sig=secret&a=1", 1);
    mr_status_at(&st, url, -1, -1);
    mr_status_format(&st, text, sizeof text);
    mr_check(!strstr(text, "secret"));
    mr_has_str(text, "sig=...&a=1");
}

MR_TEST(secrets_are_dropped)
{
    static const char *const cases[][2] = {
        {"text_line(\"https://h/a?X-Amz-Date=1&X-Amz-Signature=s\").take(2)",
         "text_line(\"https://h/a\").take(2)"},
        {"[\"http://h/a?sig=1\", \"http://h/b?Expires=2&signature=3\"]",
         "[\"http://h/a\", \"http://h/b\"]"},
        {"http://h/a?id=1&x=sig=2", "http://h/a?id=1&x=sig=2"},
        {"http://h/a?id=1&design=2", "http://h/a?id=1&design=2"},
        {"s3://b/k?sig=5", "s3://b/k?sig=5"},
        {"http://h/a?sig=1", "http://h/a"},
        {"http://h/O'Reilly?a=b,c;d&sig=1", "http://h/O'Reilly?6e57ef19"},
        {"http://h/a?versionId=1&X-Amz-Signature=s", "http://h/a?4cba598e"},
        {"http://h/a?X-Amz-Date=2&versionId=1&X-Amz-Signature=t", "http://h/a?4cba598e"},
        {"http://h/a?versionId=2&X-Amz-Signature=s", "http://h/a?4cc29649"},
        {"[\"https://user:word@h/a\", \"http://u@h?b\"].take(2)",
         "[\"https://h/a\", \"http://h?b\"].take(2)"},
        {"http://h/a?b=1&token=2&c=3", "http://h/a?b=1&token=&c=3"},
        {"http://h/a?access_token=2 and http://h/?PASSWORD=1&",
         "http://h/a?access_token= and http://h/?PASSWORD=&"},
        {"http://h/a?to=http://u:w@h/?token=2&c#token=3",
         "http://h/a?to=http://h/?token=&c#token="},
        {"http://h/a?key=1", "http://h/a?key=1"},
        {"http://h/a?key=2", "http://h/a?key=2"},
        {"http://h/a?key=AIzaSyA-0123456789", "http://h/a?key=7ea56ddb"},
        {"://", "://"},
        {"?sig=1", "?sig=1"},
        {"", ""}};
    char room[256];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mr_test_context("%s", cases[i][0]);
        snprintf(room, sizeof room, "%s", cases[i][0]);
        mr_text_drop_secrets(room);
        mr_eq_str(room, cases[i][1]);
    }
}
