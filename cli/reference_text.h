/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_CLI_REFERENCE_TEXT_H
#define MR_CLI_REFERENCE_TEXT_H
/* Tables of parameters as the reference shows them: `millrace ops` and `millrace components`. */
#include <millrace/pipeline/params/param.h>

/* Prints "a, b=1", all of a table (NULL: none), after a comma unless they are first. */
void cli_print_parameters(const mr_param *params, bool first);
/* Prints the documentation of each, one per line. */
void cli_describe_parameters(const mr_param *params, bool markdown);
/* , "params": [{...}, ...] */
void cli_print_parameters_json(const mr_param *params);
/* key: "text", or null. */
void cli_print_field(const char *key, const char *text);
#endif
