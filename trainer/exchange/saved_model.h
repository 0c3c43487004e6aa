/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_EXCHANGE_SAVED_MODEL_H
#define MR_TRAINER_EXCHANGE_SAVED_MODEL_H
/* Saved models: a directory with everything that is needed to use a model again, on any number of
 * replicas.
 *
 *   model.txt            the model's text
 *   training.json        {"format": 2, "millrace": "0.1.0", "input": [28, 28],
 *                         "loss": "mse", "optimizer": "adam", "metrics": ["accuracy"],
 *                         "checksums": {"model.txt": "e1f02d3c"}, "crc32c": "1f2e3d4c"}
 *   weights.safetensors  variables by name, like "dense/kernel"
 *
 * "checksums" has the CRC-32C of other files; "crc32c" is that of training.json itself, computed
 * with 00000000 as its value.
 *
 * A checkpoint (checkpoint.h) is a saved model with additional files. A directory is written under
 * a temporary name and then renamed: a reader never sees a partial one.
 *
 *     mr_model_save(m, "out", &(mr_save_opts){.loss = loss}, &st);
 *
 *     mr_saved_open(&saved, "out", &st);
 *     mr_model_parse(&m, mr_saved_model_text(saved), &st);
 *     mr_saved_build(saved, m, s, NULL, &st);
 *     mr_saved_close(saved);
 *
 * thread   any; reading: immutable once open. Models: between steps
 * since    0.1 */
#include "../objectives/loss.h"
#include "../model/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The training setup, saved with the model; each field may be NULL or 0. */
typedef struct mr_save_opts {
    const mr_loss *loss;
    const mr_optimizer *optimizer; /* its text, not its state */
    const char *const *metrics;
    size_t n_metrics;
} mr_save_opts;

/* Saves a built model in the directory `path`, and creates its parent directories. Replaces an
 * existing saved model; a directory with any other content is left alone. With several processes,
 * call it in only one of them. opts NULL: saves the model alone.
 * errors   as open(2) and write(2) · MR_ALREADY_EXISTS: path has other content ·
 *          MR_FAILED_PRECONDITION: not built */
MR_API mr_code mr_model_save(const mr_model *m, const char *path, const mr_save_opts *opts,
                             mr_status *st) MR_NODISCARD;

/* Checks before a long run that a model can be saved at path; only creates the parent directories.
 * errors those of mr_model_save */
MR_API mr_code mr_check_save_path(const char *path, mr_status *st) MR_NODISCARD;

typedef struct mr_saved mr_saved;

/* Reads and checks a saved model, a checkpoint, or the latest checkpoint in a directory of them.
 * Returns owned.
 * errors   MR_NOT_FOUND: no such directory, or a file of it is missing · MR_DATA_LOSS: a damaged
 *          file, which st names · MR_FAILED_PRECONDITION: a newer Millrace wrote it */
MR_API mr_code mr_saved_open(mr_saved **out, const char *path, mr_status *st) MR_NODISCARD;
MR_API void mr_saved_close(mr_saved *s); /* NULL: nothing */

/* The directory that was opened, which is the latest checkpoint if path has checkpoints. Borrowed
 * until close, like all that follows. */
MR_API const char *mr_saved_path(const mr_saved *s);
/* The texts of the model, the loss, the optimizer, and the i-th of the metrics, counted from 0.
 * NULL: not saved. */
MR_API const char *mr_saved_model_text(const mr_saved *s);
MR_API const char *mr_saved_loss(const mr_saved *s);
MR_API const char *mr_saved_optimizer(const mr_saved *s);
MR_API size_t mr_saved_n_metrics(const mr_saved *s);
MR_API const char *mr_saved_metric(const mr_saved *s, size_t i);
/* The shape of one example, without the batch axis, for which the model was built. */
MR_API void mr_saved_input_shape(const mr_saved *s, int *rank, const int64_t **shape);

/* Sets the variables of a built model. Names, dtypes and shapes are compared first; if any
 * differ, no variable is changed.
 * errors   MR_INVALID_ARGUMENT: they differ; st names the first such variable and the difference */
MR_API mr_code mr_saved_load(const mr_saved *s, mr_model *m, mr_status *st) MR_NODISCARD;
/* Builds m, unless it is built already, and sets its variables. m was parsed from the saved text or
 * from another text with the same variables. opts NULL: builds in mixed precision if the saved
 * model was trained in it.
 * errors   those of mr_model_build and mr_saved_load */
MR_API mr_code mr_saved_build(const mr_saved *saved, mr_model *m, mr_strategy *s,
                              const mr_model_opts *opts, mr_status *st) MR_NODISCARD;

#ifdef __cplusplus
}
#endif
#endif
