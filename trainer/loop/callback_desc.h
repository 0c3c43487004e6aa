/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_LOOP_CALLBACK_DESC_H
#define MR_TRAINER_LOOP_CALLBACK_DESC_H
/* Named callbacks as data: a descriptor with a table of parameters and functions. The library has
 * one file per callback in trainer/loop/callbacks/; mr_callback_register adds others.
 *
 * thread   the functions: the thread that called mr_fit
 * since    0.1 */
#include "callback.h"
#include "../component.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mr_callback_desc {
    mr_component is;
    /* The functions (fit.h). Their ctx is the callback's state: state_size bytes, which begin
     * with a `const void *params` that points to the parsed arguments; the rest is zero.
     * calls.free frees what the state owns; the library frees the state itself. */
    mr_callback calls;
    size_t state_size; /* at least sizeof(void *) */
    /* Checks what the table of parameters cannot express. NULL: nothing to check. */
    mr_code (*check)(const void *params, mr_status *st);
} mr_callback_desc;

/* Makes a callback known to mr_callback_parse, in the whole process; d must stay valid.
 * errors   MR_ALREADY_EXISTS: the name is taken · MR_INVALID_ARGUMENT: another ABI version, an
 *          invalid name or table, no doc or example, or state_size too small
 * thread   any */
MR_API mr_code mr_callback_register(const mr_callback_desc *d, mr_status *st) MR_NODISCARD;

#ifdef __cplusplus
}
#endif
#endif
