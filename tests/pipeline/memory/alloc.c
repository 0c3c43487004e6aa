/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/memory/alloc.h"

#include <string.h>

#include "tests/fault.h"
#include "tests/harness.h"

MR_ONE_THREAD;

MR_TEST(formatted_text_has_any_length)
{
    char long_text[5000];
    memset(long_text, 'x', sizeof long_text);
    mr_fault_each_allocation(n)
    {
        char *text = mr_strf("%.*s/%d", (int)sizeof long_text, long_text, 7);
        if (!text) {
            mr_check(mr_fault_seen());
            continue;
        }
        mr_eq_u64(strlen(text), sizeof long_text + 2);
        mr_eq_str(text + sizeof long_text, "/7");
        mr_free(text);
        text = mr_strf("%s", "");
        if (text)
            mr_eq_str(text, "");
        mr_free(text);
    }
}

MR_TEST(an_array_grows_and_keeps_its_elements)
{
    mr_fault_each_allocation(n)
    {
        mr_status st;
        int64_t *v = NULL;
        size_t capacity = 0, i = 0;
        mr_code rc = MR_OK;
        for (; i < 1000 && (rc = MR_GROW(v, capacity, i + 1, 1000, "numbers", &st)) == MR_OK; i++)
            v[i] = (int64_t)i;
        mr_fault_expect(rc, &st);
        mr_check(capacity >= i);
        for (size_t k = 0; k < i; k++)
            mr_eq_i64(v[k], k);
        mr_free(v);
    }
}

MR_TEST(an_array_does_not_grow_beyond_its_most)
{
    mr_status st;
    char *v = NULL;
    size_t capacity = 0;
    mr_ok(MR_GROW(v, capacity, 10, 10, "bytes", &st), &st);
    mr_eq_u64(capacity, 10);
    mr_code_is(MR_GROW(v, capacity, 11, 10, "bytes", &st), MR_RESOURCE_EXHAUSTED, &st);
    mr_eq_u64(capacity, 10);
    mr_free(v);
}
