/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/servers/layout.h"
#include <string.h>
#include "tests/harness.h"

static mr_status st;

/* A kernel of 10 rows of 16 bytes, a bias of 4 values, means that are learned or not. */
static const char usual[] = "input(10).dense(4).batch_norm()";

static mr_model *build(mr_strategy **s, const char *text)
{
    mr_model *m;
    mr_ok(mr_strategy_one_device(s, "cpu:0", &st), &st);
    mr_ok(mr_model_parse(&m, text, &st), &st);
    int64_t shape = 10;
    mr_ok(mr_model_build(m, *s, 1, &shape, NULL, &st), &st);
    return m;
}

MR_TEST(variables_are_cut_and_dealt_in_turn)
{
    const struct {
        const char *how;
        size_t kernel, bias; /* pieces */
    } cases[] = {{NULL, 1, 1},
                 {"fixed_shards(3)", 3, 3},
                 {"fixed_shards(100)", 10, 4},
                 {"min_size(50, 2)", 2, 1},
                 {"min_size(50, 8)", 2, 1},
                 {"min_size(1000, 8)", 1, 1},
                 {"min_size(1, 2)", 2, 2},
                 {"min_size(16, 20)", 10, 1}, /* a row has just that */
                 {"min_size(32, 20)", 5, 1},
                 {"max_size(48)", 4, 1},
                 {"max_size(80)", 2, 1},
                 {"max_size(1)", 10, 4},
                 {"max_size(1000)", 1, 1}};
    mr_strategy *s;
    mr_model *m = build(&s, usual);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mr__layout l;
        size_t pieces[2] = {0}, most = 0, least = SIZE_MAX, at = 0;
        mr_test_context("%s", cases[i].how ? cases[i].how : "none");
        mr_ok(mr__layout_make(&l, m, cases[i].how, 3, &st), &st);
        for (size_t k = 0; k < l.n; k++) {
            const mr__piece *p = &l.v[k];
            mr_check(p->server == k % 3);
            mr_check(p->at == at);
            at += p->n;
            if (p->variable < 2)
                pieces[p->variable]++;
            if (p->variable == 0) {
                most = p->rows > most ? p->rows : most;
                least = p->rows < least ? p->rows : least;
                mr_check(p->n == p->rows * 4);
            }
        }
        mr_check(at == l.n_values && at == 10 * 4 + 4 + 4 * 4);
        mr_check(pieces[0] == cases[i].kernel);
        mr_check(pieces[1] == cases[i].bias);
        mr_check(most - least <= 1 || cases[i].how == NULL);
        mr__layout_reset(&l);
    }
    mr_model_free(m);
    mr_strategy_free(s);
}

MR_TEST(what_is_packed_comes_back)
{
    mr_strategy *s;
    mr_model *m = build(&s, usual);
    mr__layout l;
    float model[60], packed[60], back[60];
    size_t all = 0, pushed = 0;
    mr_ok(mr__layout_make(&l, m, "fixed_shards(2)", 2, &st), &st);
    mr_check(l.n_values == 60);
    for (size_t i = 0; i < 60; i++) {
        model[i] = (float)i + 1;
        back[i] = 0;
    }
    for (size_t k = 0; k < 2; k++) {
        size_t n = mr__layout_pack(&l, m, k, MR__ALL_VALUES, model, packed);
        mr_check(n == mr__layout_pack(&l, m, k, MR__ALL_VALUES, NULL, NULL));
        mr_check(n == mr__layout_unpack(&l, m, k, MR__ALL_VALUES, back, packed));
        all += n;
        pushed += mr__layout_pack(&l, m, k, MR__LEARNED_VALUES, NULL, NULL);
    }
    mr_check(all == 60);
    mr_check(pushed == 60 - 2 * 4); /* running means are not learned */
    mr_check(mr__layout_pack(&l, m, 0, MR__PUSHED_VALUES, NULL, NULL) +
                 mr__layout_pack(&l, m, 1, MR__PUSHED_VALUES, NULL, NULL) ==
             60);
    mr_check(memcmp(model, back, sizeof model) == 0);
    mr__layout_reset(&l);
    mr_model_free(m);
    mr_strategy_free(s);
}

MR_TEST(what_nobody_changes_is_not_pushed)
{
    mr_strategy *s;
    mr_model *m = build(&s, "input(10).normalization(mean=[1.0], variance=[4.0]).dense(4)");
    mr__layout l;
    mr_ok(mr__layout_make(&l, m, NULL, 1, &st), &st);
    mr_check(mr__layout_pack(&l, m, 0, MR__ALL_VALUES, NULL, NULL) == 2 * 10 + 10 * 4 + 4);
    mr_check(mr__layout_pack(&l, m, 0, MR__PUSHED_VALUES, NULL, NULL) == 10 * 4 + 4);
    mr__layout_reset(&l);
    mr_model_free(m);
    mr_strategy_free(s);
}

MR_TEST(bad_partitioners_are_refused)
{
    static const char *const bad[] = {"fixed_shards()", "fixed_shards(0)", "min_size(1)",
                                      "max_size(-1)",   "halves(2)",       "fixed_shards(2"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        mr_test_context("%s", bad[i]);
        mr_code_is(mr__partitioner_check(bad[i], &st), MR_INVALID_ARGUMENT, &st);
    }
    mr_ok(mr__partitioner_check("fixed_shards(2)", &st), &st);
}
