/* SPDX-License-Identifier: Apache-2.0
 *
 * mock_internal.h: what the files of the mock libnccl share.
 */
#ifndef ARFUSION_TEST_MOCK_INTERNAL_H_
#define ARFUSION_TEST_MOCK_INTERNAL_H_

#include <pthread.h>
#include <stdatomic.h>

#include "arfusion_plugin.h"
#define ARFUSION_NCCL_ABI_TYPES_ONLY
#include "plugin/nccl/nccl_abi.h"
#include "test/nccl/mock/mock.h"

enum { MOCK_MAX_RANKS = 32, MOCK_WINDOW = 64 /* operations of a clique under way */ };

/* What all ranks must agree on. */
struct mock_shape {
  int kind, type, operation, root;
  size_t count;
};

struct mock_meeting { /* of the ranks of one operation */
  struct mock_shape shape;
  uint64_t number; /* of the operation; 0: the place is free */
  int arrived, left, done;
  const void* send[MOCK_MAX_RANKS];
  void* receive[MOCK_MAX_RANKS];
};

struct mock_message { /* of ncclSend, on its way */
  struct mock_message* next;
  int from, to;
  uint64_t number; /* of those from and to these ranks */
  size_t bytes;
  unsigned char data[];
};

struct mock_split { /* the n-th of a clique */
  struct mock_split* next;
  int index, deposits, colors[MOCK_MAX_RANKS], keys[MOCK_MAX_RANKS];
};

/* The ranks of one communicator. */
struct mock_clique {
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  uint64_t key[3]; /* by which ranks find each other */
  uint64_t number;
  struct mock_clique* next;
  int nranks, joined, references;
  int aborted[MOCK_MAX_RANKS];
  float scale; /* of its PreMulSum */
  struct mock_meeting meetings[MOCK_WINDOW];
  struct mock_message* messages;
  int splits_of[MOCK_MAX_RANKS]; /* called by each rank so far */
  struct mock_split* splits;
};

struct mock_comm {
  struct mock_clique* clique;
  int rank, blocking, alive;
  int unmade;          /* until its group ends */
  uint64_t operations, sends[MOCK_MAX_RANKS], receives[MOCK_MAX_RANKS]; /* issued */
  void* stream;        /* what NULL stands for */
  /* A child that is being split off. */
  void** child_place;
  struct mock_split* child_split;
  int child_expected, child_blocking;
  struct mock_comm* next_free;
};

/* Records an error for ncclGetLastError and for the group, if one is open. */
int mock_error(int result, const char* text);

/* Ends the test. */
void mock_die(const char* text) __attribute__((noreturn));

/* mock_comm.c. What a group begins with communicators ends with it. */
int mock_comm_check(struct mock_comm* comm);
int mock_comm_check_ready(struct mock_comm* comm); /* NCCL's too says that of nonblocking ones alone */
int mock_comms_finish(void);
void mock_comms_forget(void);
int mock_aborts_last(void);
void mock_clique_get(struct mock_clique* clique);
void mock_clique_put(struct mock_clique* clique);

/* mock_group.c. The group is in progress when it has ended. */
int mock_group_is_open(void);
void mock_group_lasts(void);

/* mock_collective.c: operations of a group begin when it ends. */
void mock_operations_begin(void);
void mock_operations_forget(void);

#endif
