/* SPDX-License-Identifier: Apache-2.0 */
#include "shard/cluster/env_launcher.h"
#include "tests/harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

MR_ONE_THREAD;

static const char *const all[] = {"TF_CONFIG",
                                  "SLURM_PROCID",
                                  "SLURM_STEP_NODELIST",
                                  "SLURM_NTASKS",
                                  "SLURM_JOB_ID",
                                  "SLURM_STEP_NUM_TASKS",
                                  "RANK",
                                  "WORLD_SIZE",
                                  "MASTER_ADDR",
                                  "MASTER_PORT",
                                  "MILLRACE_PORT",
                                  "TORCHELASTIC_USE_AGENT_STORE",
                                  "TORCHELASTIC_RUN_ID",
                                  "PMIX_NAMESPACE",
                                  "OMPI_MCA_ess_base_jobid",
                                  "PMI_RANK",
                                  "PMI_SIZE",
                                  "MPI_LOCALNRANKS",
                                  "PMI_JOBID",
                                  "HYDRA_JOBID",
                                  "OMPI_COMM_WORLD_RANK",
                                  "OMPI_COMM_WORLD_SIZE",
                                  "OMPI_COMM_WORLD_LOCAL_SIZE"};

/* Sets "A=1 B=2", and nothing else of what launchers set. */
static void environment(const char *text)
{
    char copy[1024], *rest = copy;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        unsetenv(all[i]);
    snprintf(copy, sizeof copy, "%s", text);
    for (char *word; (word = strsep(&rest, " ")) && *word;) {
        char *is = strchr(word, '=');
        *is = '\0';
        setenv(word, is + 1, 1);
    }
    mr_test_context("%s", text);
}

MR_TEST(each_launcher_is_read)
{
    static const struct {
        const char *set;
        mr_cluster_source source;
        int64_t workers, rank;
        const char *first;
    } cases[] = {
        {"", MR_CLUSTER_ALONE, 1, 0, NULL},
        {"RANK=2 WORLD_SIZE=4 MASTER_ADDR=h0 MASTER_PORT=29500", MR_CLUSTER_TORCHRUN, 4, 2,
         "h0:29500"},
        {"RANK=0 WORLD_SIZE=2 MASTER_ADDR=::1 MASTER_PORT=1", MR_CLUSTER_TORCHRUN, 2, 0, "[::1]:1"},
        {"RANK=0 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=5 TORCHELASTIC_USE_AGENT_STORE=True",
         MR_CLUSTER_TORCHRUN, 2, 0, "h:6"},
        {"RANK=0 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=5 TORCHELASTIC_USE_AGENT_STORE=False",
         MR_CLUSTER_TORCHRUN, 2, 0, "h:5"},
        {"RANK=0 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=5 MILLRACE_PORT=7", MR_CLUSTER_TORCHRUN, 2,
         0, "h:7"},
        {"RANK=0 WORLD_SIZE=2 MASTER_ADDR=h MILLRACE_PORT=7", MR_CLUSTER_TORCHRUN, 2, 0, "h:7"},
        {"RANK=0 WORLD_SIZE=1", MR_CLUSTER_ALONE, 1, 0, NULL},
        {"SLURM_PROCID=3 SLURM_STEP_NODELIST=n[07-09] SLURM_STEP_NUM_TASKS=6 SLURM_NTASKS=9 "
         "SLURM_JOB_ID=4020001",
         MR_CLUSTER_SLURM, 6, 3, "n07:20001"},
        {"SLURM_PROCID=0 SLURM_STEP_NODELIST=gpu-b,gpu-a SLURM_NTASKS=2 SLURM_JOB_ID=39999",
         MR_CLUSTER_SLURM, 2, 0, "gpu-b:39999"},
        {"SLURM_PROCID=0 SLURM_STEP_NODELIST=a SLURM_NTASKS=2 SLURM_JOB_ID=1 MILLRACE_PORT=99",
         MR_CLUSTER_SLURM, 2, 0, "a:99"},
        {"SLURM_PROCID=0 SLURM_STEP_NODELIST=a SLURM_NTASKS=1 SLURM_JOB_ID=1", MR_CLUSTER_ALONE, 1,
         0, NULL},
        /* a batch script, not a step */
        {"SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_JOB_ID=1", MR_CLUSTER_ALONE, 1, 0, NULL},
        /* Slurm before torchrun's variables, which scripts copy from Slurm's; torchrun itself and
         * mpirun inside of a step before Slurm */
        {"SLURM_PROCID=1 SLURM_STEP_NODELIST=a SLURM_NTASKS=2 SLURM_JOB_ID=1 RANK=1 WORLD_SIZE=2 "
         "MASTER_ADDR=b MASTER_PORT=5",
         MR_CLUSTER_SLURM, 2, 1, "a:20001"},
        {"SLURM_PROCID=0 SLURM_STEP_NODELIST=a SLURM_NTASKS=1 SLURM_JOB_ID=1 RANK=1 WORLD_SIZE=4 "
         "MASTER_ADDR=b MASTER_PORT=5 TORCHELASTIC_RUN_ID=none",
         MR_CLUSTER_TORCHRUN, 4, 1, "b:5"},
        {"SLURM_PROCID=0 SLURM_STEP_NODELIST=a SLURM_NTASKS=1 SLURM_JOB_ID=1 MASTER_ADDR=a "
         "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 MILLRACE_PORT=5",
         MR_CLUSTER_MPI, 2, 1, "a:5"},
        {"OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 MASTER_ADDR=m MASTER_PORT=77",
         MR_CLUSTER_MPI, 2, 1, "m:77"},
        {"OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_SIZE=2 "
         "MILLRACE_PORT=78",
         MR_CLUSTER_MPI, 2, 1, "127.0.0.1:78"},
        {"PMI_RANK=0 PMI_SIZE=3 MPI_LOCALNRANKS=3 MILLRACE_PORT=79", MR_CLUSTER_MPI, 3, 0,
         "127.0.0.1:79"},
        {"TF_CONFIG={\"cluster\":{\"worker\":[\"a:1\",\"b:1\"]},\"task\":{\"type\":\"worker\","
         "\"index\":1}} RANK=0 WORLD_SIZE=3 MASTER_ADDR=h MASTER_PORT=5 MILLRACE_PORT=9",
         MR_CLUSTER_TF_CONFIG, 2, 1, "a:1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mr_status st;
        mr_cluster c = {0};
        int64_t rank;
        environment(cases[i].set);
        mr_ok(mr_cluster_from_launcher(&c, &st), &st);
        mr_eq_str(mr_cluster_source_name(c.source), mr_cluster_source_name(cases[i].source));
        mr_eq_i64(mr_cluster_num_workers(&c), cases[i].workers);
        mr_ok(mr_cluster_worker(&c, &rank, &st), &st);
        mr_eq_i64(rank, cases[i].rank);
        mr_check(mr_cluster_is_chief(&c) == (rank == 0));
        if (cases[i].first)
            mr_eq_str(c.tasks[MR_TASK_WORKER].addresses[0], cases[i].first);
        mr_cluster_reset(&c);
    }
}

MR_TEST(tasks_of_one_job_agree_on_its_hash_and_its_port)
{
    for (size_t f = 0; f < 2; f++) {
        uint64_t hash = 0;
        for (int rank = 0; rank < 3; rank++) {
            char text[200];
            mr_status st;
            mr_cluster c = {0};
            snprintf(text, sizeof text,
                     f ? "PMI_RANK=%d PMI_SIZE=3 MPI_LOCALNRANKS=3 PMI_JOBID=kvs"
                       : "RANK=%d WORLD_SIZE=3 MASTER_ADDR=h MASTER_PORT=2",
                     rank);
            environment(text);
            mr_ok(mr_cluster_from_launcher(&c, &st), &st);
            mr_check(rank == 0 || hash == mr_cluster_hash(&c));
            hash = mr_cluster_hash(&c);
            mr_cluster_reset(&c);
        }
    }
}

MR_TEST(what_is_wrong_is_named)
{
    static const char *const cases[][2] = {
        {"RANK=x WORLD_SIZE=4 MASTER_ADDR=h MASTER_PORT=5", "RANK must be a number"},
        {"RANK=-1 WORLD_SIZE=4 MASTER_ADDR=h MASTER_PORT=5", "found '-1'"},
        {"RANK=4 WORLD_SIZE=4 MASTER_ADDR=h MASTER_PORT=5", "RANK is 4, but WORLD_SIZE is"},
        {"RANK=0 WORLD_SIZE=0 MASTER_ADDR=h MASTER_PORT=5", "WORLD_SIZE must be a number from 1"},
        {"RANK=0 WORLD_SIZE=4x MASTER_ADDR=h MASTER_PORT=5", "found '4x'"},
        {"RANK=0 WORLD_SIZE=2 MASTER_PORT=5", "MASTER_ADDR"},
        {"RANK=0 WORLD_SIZE=2 MASTER_ADDR=h", "MASTER_PORT is not set"},
        {"RANK=0 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=0", "MASTER_PORT must be"},
        {"RANK=0 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=65536", "from 1 to 65535"},
        {"RANK=0 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=65535 TORCHELASTIC_USE_AGENT_STORE=True",
         "from 1 to 65534"},
        {"RANK=0 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=5 MILLRACE_PORT=x", "MILLRACE_PORT must"},
        {"RANK=0 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=99999999999999999999", "MASTER_PORT"},
        {"SLURM_PROCID=0 SLURM_STEP_NODELIST=a SLURM_JOB_ID=1", "SLURM_NTASKS is not set"},
        {"SLURM_PROCID=0 SLURM_STEP_NODELIST=a SLURM_NTASKS=2", "SLURM_JOB_ID is not set"},
        {"SLURM_PROCID=2 SLURM_STEP_NODELIST=a SLURM_NTASKS=2 SLURM_JOB_ID=1", "SLURM_PROCID is 2"},
        {"SLURM_PROCID=0 SLURM_STEP_NODELIST=a[ SLURM_NTASKS=2 SLURM_JOB_ID=1",
         "SLURM_STEP_NODELIST"},
        {"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE is not set"},
        {"OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_RANK is not set"},
        {"PMI_RANK=0", "PMI_SIZE is not set"},
        {"OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_SIZE=2",
         "4 tasks, 2 of them on this machine; set MASTER_ADDR"},
        {"TF_CONFIG={ RANK=0 WORLD_SIZE=1", "not JSON"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mr_status st;
        mr_cluster c = {0};
        environment(cases[i][0]);
        mr_check(mr_cluster_from_launcher(&c, &st) != MR_OK);
        mr_has_str(st.message, cases[i][1]);
        mr_check(!c.has_task && !c.tasks[MR_TASK_WORKER].n);
    }
}

static mr_code join(void *ctx, const char *name, mr_status *st)
{
    char *all_names = ctx;
    (void)st;
    snprintf(all_names + strlen(all_names), 4096 - strlen(all_names), "%s ", name);
    return MR_OK;
}

MR_TEST(lists_of_hosts_are_expanded)
{
    static const char *const cases[][2] = {
        {"a", "a "},
        {"a,b.example.com", "a b.example.com "},
        {"n[1-3]", "n1 n2 n3 "},
        {"n[1-3,7,9-10],m4", "n1 n2 n3 n7 n9 n10 m4 "},
        {"n[098-101]", "n098 n099 n100 n101 "},
        {"n[7]-ib,x", "n7-ib x "},
        {"r[0-1]s[1,3]", "r0s1 r0s3 r1s1 r1s3 "},
        {"a-[1-2]-b-[08-09]-c", "a-1-b-08-c a-1-b-09-c a-2-b-08-c a-2-b-09-c "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char got[4096] = "";
        mr_status st;
        mr_test_context("%s", cases[i][0]);
        mr_ok(mr__slurm_hosts(cases[i][0], join, got, &st), &st);
        mr_eq_str(got, cases[i][1]);
    }
}

static mr_code count(void *ctx, const char *name, mr_status *st)
{
    (void)name;
    (void)st;
    ++*(size_t *)ctx;
    return MR_OK;
}

MR_TEST(bad_lists_of_hosts_are_refused)
{
    static const char *const cases[][2] = {
        {"", "empty name"},
        {"a,", "empty name"},
        {",a", "empty name"},
        {"a[1-3", "'[' without ']'"},
        {"a1-3]", "']' without '['"},
        {"a[]", "no number"},
        {"a[x]", "no number"},
        {"a[1-]", "no number"},
        {"a[3-1]", "runs backwards"},
        {"a[1;2]", "not a range"},
        {"a[1[2]]", "not a range"},
        {"a b", "a blank"},
        {"a[1-9999999999]", "9 digits"},
        {"a[1-99999999]", "65536 hosts"},
        {"a[1][1][1][1][1]", "too many brackets"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t n = 0;
        mr_status st;
        mr_test_context("%s", cases[i][0]);
        mr_code_is(mr__slurm_hosts(cases[i][0], count, &n, &st), MR_INVALID_ARGUMENT, &st);
        mr_has_str(st.message, cases[i][1]);
    }
    char name[400];
    size_t n = 0;
    mr_status st;
    memset(name, 'a', sizeof name);
    memcpy(name + 254, "[12]", 5);
    mr_code_is(mr__slurm_hosts(name, count, &n, &st), MR_INVALID_ARGUMENT, &st);
    memcpy(name + 254, "[1]", 4);
    mr_ok(mr__slurm_hosts(name, count, &n, &st), &st);
}
