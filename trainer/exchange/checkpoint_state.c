/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/exchange/checkpoint_state.h"
#include <stdio.h>
#include "trainer/files/json_file.h"

void mr__position_name(char name[MR__POSITION_NAME], size_t worker)
{
    snprintf(name, MR__POSITION_NAME, "position-%zu", worker);
}

/* Checks the totals of every metric of every replica. */
static bool check_totals(const json_t *all, const mr__train_state *s)
{
    if (json_array_size(all) != (size_t)s->replicas)
        return false;
    for (size_t r = 0; r < json_array_size(all); r++) {
        const json_t *of = json_array_get(all, r);
        if (!json_is_array(of) || json_array_size(of) != (size_t)s->n_metrics)
            return false;
        for (size_t i = 0; i < json_array_size(of); i++) {
            const json_t *totals = json_array_get(of, i);
            double v;
            if (json_array_size(totals) == 0)
                return false;
            for (size_t k = 0; k < json_array_size(totals); k++)
                if (!mr__read_json_number(json_array_get(totals, k), &v))
                    return false;
        }
    }
    return true;
}

mr_code mr__read_state(const json_t *root, mr__train_state *s, mr_status *st)
{
    int64_t seed, steps;
    const struct {
        const char *name;
        int64_t *to;
    } integers[] = {{"epoch", &s->epoch},     {"epoch_step", &s->epoch_step},
                    {"step", &s->step},       {"seed", &seed},
                    {"model_steps", &steps},  {"iterations", &s->iterations},
                    {"slots", &s->n_slots},   {"rows", &s->rows},
                    {"workers", &s->workers}, {"replicas", &s->replicas}};
    const struct {
        const char *name;
        double *to;
    } numbers[] = {
        {"learning_rate", &s->learning_rate}, {"loss_sum", &s->loss_sum}, {"loss", &s->loss}};
    const struct {
        const char *name;
        bool *to;
    } flags[] = {
        {"epoch_over", &s->epoch_over}, {"pass_over", &s->pass_over}, {"scheduled", &s->scheduled}};
    const char *bad = NULL;
    for (size_t i = 0; i < sizeof integers / sizeof *integers && !bad; i++) {
        const json_t *v = json_object_get(root, integers[i].name);
        *integers[i].to = json_integer_value(v);
        bool is_seed = integers[i].to == &seed;
        if (!json_is_integer(v) || (*integers[i].to < 0 && !is_seed))
            bad = integers[i].name;
    }
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers && !bad; i++)
        if (!mr__read_json_number(json_object_get(root, numbers[i].name), numbers[i].to))
            bad = numbers[i].name;
    for (size_t i = 0; i < sizeof flags / sizeof *flags && !bad; i++) {
        const json_t *v = json_object_get(root, flags[i].name);
        *flags[i].to = json_is_true(v);
        if (!json_is_boolean(v))
            bad = flags[i].name;
    }
    s->slots_from = json_integer_value(json_object_get(root, "slots_from")); /* missing: 0 */
    s->optimizer = json_string_value(json_object_get(root, "optimizer"));
    s->metric_totals = json_object_get(root, "metric_totals");
    s->n_metrics = (int64_t)json_array_size(json_array_get(s->metric_totals, 0));
    s->output_sums = json_object_get(root, "output_loss_sums");
    for (size_t i = 0; i < json_array_size(s->output_sums) && !bad; i++) {
        double v;
        if (!mr__read_json_number(json_array_get(s->output_sums, i), &v))
            bad = "output_loss_sums";
    }
    if (!bad && !s->optimizer)
        bad = "optimizer";
    if (!bad && (s->slots_from < 0 || s->slots_from > s->iterations))
        bad = "slots_from";
    if (!bad && (s->workers < 1 || s->replicas < 1 || s->replicas > 1 << 20))
        bad = "replicas";
    if (!bad && !check_totals(s->metric_totals, s))
        bad = "metric_totals";
    if (bad)
        return mr_fail(st, MR_DATA_LOSS, "state.json: %s is missing or invalid", bad);
    s->seed = (uint64_t)seed;
    s->model_steps = (uint64_t)steps;
    return MR_OK;
}
