/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_CLI_TRAIN_PROCESSES_H
#define MR_CLI_TRAIN_PROCESSES_H
/* `millrace train --processes P`: starts the processes of a job on this host, and starts them again
 * after one was lost. They find each other as those of torchrun do. */
#include <stdint.h>
#include <stdbool.h>

typedef struct train_processes {
    int64_t n, restarts, least; /* least 0: always n */
    int64_t peer_timeout;       /* seconds that a process needs to notice a lost one */
    bool has_n, has_restarts, has_least;
} train_processes;

/* A copy of the words of the command line, mr_malloc in one piece; NULL: out of memory. */
char **train_copy_arguments(char **argv);
/* Runs them until the job ends; arguments: from train_copy_arguments. Returns the exit status. */
int train_run_processes(const train_processes *p, char **arguments);
#endif
