/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_LOOP_CALLBACK_IMPL_H
#define MR_TRAINER_LOOP_CALLBACK_IMPL_H
/* Shared by the callbacks of the library. */
#include "trainer/loop/callback_desc.h"
#include "trainer/settings.h"

/* save_freq and update_freq: "epoch", "batch" (equal to 1), or a number of steps; keep: all, or a
 * number. 0: "epoch", or all. */
extern const mr_param_kind mr__param_freq, mr__param_keep;
/* [[0, 1e-3], [3, 1e-4]]: from, value, from, value, with increasing from. */
typedef struct mr__pairs {
    double *v;
    size_t n; /* number of pairs */
} mr__pairs;
extern const mr_param_kind mr__param_pairs;

/* Whether a larger value of `monitor` is better. mode "auto": by the name, as in Keras. */
bool mr__prefers_more(const char *monitor, const char *mode);
extern const char *const mr__modes[]; /* "auto", "min", "max" */
/* Before the first step: logs a warning if no epoch will have the monitored value, because it needs
 * validation data that are missing. */
void mr__check_watched(const mr_train_event *e, const char *callback, const char *monitor);
/* The value that a callback monitors; false: the epoch has none, which is logged as a warning if
 * mr__check_watched did not. */
bool mr__watched(const mr_train_event *e, const char *callback, const char *monitor, double *v);

/* Adds a callback of mr_callback_parse with its arguments; nothing of another. */
mr_code mr__callback_settings(const mr_callback *c, mr__settings *out, mr_status *st) MR_NODISCARD;

/* A count from a callback's saved state; 0 if the number is invalid. */
int64_t mr__remembered_count(double v);

/* errors   MR_INVALID_ARGUMENT: the name of the callback's directory is empty */
mr_code mr__check_directory(const char *callback, const char *directory,
                            mr_status *st) MR_NODISCARD;

/* Whether this process writes files. */
bool mr__writes_files(const mr_train_event *e);
/* Values of on_error for a save: "fail", "warn". */
extern const char *const mr__reactions[];
/* Before the first step: checks that a checkpoint can be saved at path. Not checked with "warn".
 * errors   those of mr_check_save_path */
mr_code mr__check_place(const mr_train_event *e, const char *path, const char *on_error,
                        mr_status *st) MR_NODISCARD;
/* The result of a save that returned rc and `own`: rc, or MR_OK with a warning in the log. */
mr_code mr__save_ended(const mr_train_event *e, const char *on_error, mr_code rc,
                       const mr_status *own, mr_status *st) MR_NODISCARD;
/* Passes a line to mr_fit_opts.print: the text and the JSON object; logs the text if print is
 * NULL. */
void mr__print_line(const mr_train_event *e, const char *text, const char *json);
/* The shortest decimal number that reads as v. */
enum { MR__NUMBER_TEXT = 40 };
void mr__number_text(double v, char *text, size_t size);
/* The path with {epoch} and {step} replaced, owned.
 * errors   MR_INVALID_ARGUMENT: another name in braces */
mr_code mr__fill_path(const char *pattern, int64_t epoch, int64_t step, char **out,
                      mr_status *st) MR_NODISCARD;
#endif
