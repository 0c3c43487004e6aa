/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_GRAPH_PLUGIN_H
#define MR_PIPELINE_GRAPH_PLUGIN_H
/* Shared objects that bring ops, functions and callbacks of their own. Such an object defines
 *
 *     mr_code mr_plugin_register(mr_status *st)
 *     {
 *         MR_TRY(mr_op_register(&my_op, st));
 *         return mr_function_register(&my_function, st);
 *     }
 *
 * and is built against the public headers of the same release: each descriptor says which it is
 * made for, and another one is refused. examples/own_op is a whole one.
 *
 * thread   one at a time; before other threads use the names
 * since    0.1 */
#include "../status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MR_PLUGIN_SYMBOL "mr_plugin_register"
typedef mr_code (*mr_plugin_fn)(mr_status *st);

/* Opens the shared object at path (a bare name is looked for where the system has its libraries)
 * and lets it register what it has. It stays open until the process ends.
 * errors   MR_NOT_FOUND: it cannot be opened; says why
 *          MR_FAILED_PRECONDITION: it does not define mr_plugin_register
 *          those of registering */
MR_API mr_code mr_plugin_load(const char *path, mr_status *st) MR_NODISCARD;

#ifdef __cplusplus
}
#endif
#endif
