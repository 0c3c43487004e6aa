/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/params/guess.h"

#include "tests/harness.h"

MR_ONE_THREAD;

/* What is best of the names, which end with NULL. */
static const char *best(const char *word, const char *const *names)
{
    mr_guess g = {.word = word};
    for (; *names; names++)
        mr_guess_try(&g, *names);
    return g.best ? g.best : "none";
}

MR_TEST(the_nearest_name_the_first_of_those)
{
    static const char *const names[] = {"shuffle", "map", "zip", "batch", "take", "tape", NULL};
    static const struct {
        const char *word, *best;
    } cases[] = {
        {"shufle", "shuffle"}, {"suffl", "shuffle"}, {"suff", "none"}, {"BATCH", "batch"},
        {"tkae", "take"},      {"tabe", "take"},     {"tap", "map"},   {"mpa", "none"},
        {"m_a_p", "map"},      {"ip", "zip"},        {"a", "none"},    {"xyz", "none"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        mr_eq_str(best(cases[i].word, names), cases[i].best);
}

MR_TEST(a_name_within_the_word_where_none_is_near)
{
    static const char *const within[] = {"checkpoint", "validation", NULL};
    static const char *const nearer[] = {"checkpoint", "model_checkpoints", NULL};
    mr_eq_str(best("ModelCheckpoint", within), "checkpoint");
    mr_eq_str(best("validation-data", within), "validation");
    mr_eq_str(best("modelcheckpoint", nearer), "model_checkpoints");
    mr_eq_str(best("point", within), "none");
}
