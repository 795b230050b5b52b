/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi.h: as much of MPI as nccl-tests calls, for processes of one host and without an MPI to install: they share the
 * file that RANKS_FILE names (empty at first), and are RANK 0 to WORLD_SIZE - 1. Without these variables there is one
 * process. Every collective is an all-gather of small messages between two barriers.
 */
#ifndef ARFUSION_TEST_MPI_H_
#define ARFUSION_TEST_MPI_H_

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef int MPI_Comm;
enum { MPI_COMM_WORLD = 0 };
enum MPI_Datatype { MPI_DATATYPE_NULL, MPI_BYTE, MPI_INT, MPI_LONG, MPI_LONG_LONG, MPI_INT64_T, MPI_DOUBLE };
enum MPI_Op { MPI_OP_NULL, MPI_SUM, MPI_MIN, MPI_MAX };
#define MPI_IN_PLACE ((void*)-1)

namespace ranks {

enum { MOST = 16, BYTES = 1 << 16, SECONDS = 300 };

struct Shared {
  uint32_t arrived, round;
  unsigned char message[MOST][BYTES];
};

inline Shared* shared;
inline int rank, count = 1;

[[noreturn]] inline void fail(const char* what) {
  fprintf(stderr, "mpi.h: %s\n", what);
  _exit(9);
}

inline int number(const char* name, int otherwise) {
  const char* text = getenv(name);
  return text ? atoi(text) : otherwise;
}

inline void barrier() {
  if (count == 1) return;
  const uint32_t round = __atomic_load_n(&shared->round, __ATOMIC_ACQUIRE);
  if (__atomic_add_fetch(&shared->arrived, 1, __ATOMIC_ACQ_REL) == (uint32_t)count) {
    __atomic_store_n(&shared->arrived, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&shared->round, round + 1, __ATOMIC_RELEASE);
    return;
  }
  for (int i = 0; __atomic_load_n(&shared->round, __ATOMIC_ACQUIRE) == round; ++i) {
    if (i > SECONDS * 20000) fail("a rank has not come");
    usleep(50);
  }
}

inline size_t bytes_of(int items, MPI_Datatype type) {
  static const size_t sizes[] = {0, 1, sizeof(int), sizeof(long), sizeof(long long), 8, sizeof(double)};
  const size_t bytes = (size_t)items * sizes[type];
  if (bytes > BYTES) fail("a message is too long");
  return bytes;
}

/* Everybody's message is in shared->message until `done`. */
inline void exchange(const void* own, size_t bytes) {
  memcpy(shared->message[rank], own, bytes);
  barrier();
}
inline void done() { barrier(); }

template <typename T>
T reduced(const T* own, int index, MPI_Op op) {
  T result = own[0];
  for (int r = 0; r < count; ++r) {
    T value;
    memcpy(&value, shared->message[r] + (size_t)index * sizeof value, sizeof value);
    if (r == 0) {
      result = value;
    } else {
      result = op == MPI_SUM ? result + value : (op == MPI_MIN) == (value < result) ? value : result;
    }
  }
  return result;
}

template <typename T>
void all_reduce(void* data, int items, MPI_Op op) {
  T* own = (T*)data;
  exchange(own, (size_t)items * sizeof(T));
  for (int i = 0; i < items; ++i) own[i] = reduced(own, i, op);
  done();
}

} /* namespace ranks */

inline int MPI_Init(int*, char***) {
  ranks::rank = ranks::number("RANK", 0);
  ranks::count = ranks::number("WORLD_SIZE", 1);
  if (ranks::count > ranks::MOST || ranks::rank >= ranks::count) ranks::fail("RANK or WORLD_SIZE is too large");
  int file = -1;
  if (ranks::count > 1) {
    const char* path = getenv("RANKS_FILE");
    file = path ? open(path, O_RDWR) : -1;
    if (file < 0 || ftruncate(file, sizeof(ranks::Shared))) ranks::fail("RANKS_FILE cannot be opened");
  }
  void* memory = mmap(NULL, sizeof(ranks::Shared), PROT_READ | PROT_WRITE,
                      file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) ranks::fail("no memory");
  if (file >= 0) close(file);
  ranks::shared = (ranks::Shared*)memory;
  return 0;
}

inline int MPI_Finalize() { return 0; }

/* What is split off is only asked for its size and rank, and only where all ranks stay together. */
inline int MPI_Comm_split(MPI_Comm, int color, int, MPI_Comm* comm) {
  int lowest = color, highest = color;
  ranks::all_reduce<int>(&lowest, 1, MPI_MIN);
  ranks::all_reduce<int>(&highest, 1, MPI_MAX);
  if (lowest != highest) ranks::fail("MPI_Comm_split into several is not there");
  *comm = MPI_COMM_WORLD;
  return 0;
}
inline int MPI_Comm_free(MPI_Comm*) { return 0; }
inline int MPI_Comm_size(MPI_Comm, int* size) { return *size = ranks::count, 0; }
inline int MPI_Comm_rank(MPI_Comm, int* rank) { return *rank = ranks::rank, 0; }
inline int MPI_Barrier(MPI_Comm) { return ranks::barrier(), 0; }

inline int MPI_Bcast(void* data, int items, MPI_Datatype type, int root, MPI_Comm) {
  const size_t bytes = ranks::bytes_of(items, type);
  ranks::exchange(data, bytes);
  memcpy(data, ranks::shared->message[root], bytes);
  ranks::done();
  return 0;
}

inline int MPI_Gather(const void* send, int items, MPI_Datatype type, void* receive, int, MPI_Datatype, int root,
                      MPI_Comm) {
  const size_t bytes = ranks::bytes_of(items, type);
  const void* own = send == MPI_IN_PLACE ? (char*)receive + bytes * (size_t)ranks::rank : send;
  ranks::exchange(own, bytes);
  if (ranks::rank == root) {
    for (int r = 0; r < ranks::count; ++r) memcpy((char*)receive + bytes * (size_t)r, ranks::shared->message[r], bytes);
  }
  ranks::done();
  return 0;
}

/* In place, as it is called. */
inline int MPI_Allgather(const void*, int, MPI_Datatype, void* receive, int items, MPI_Datatype type, MPI_Comm) {
  const size_t bytes = ranks::bytes_of(items, type);
  ranks::exchange((char*)receive + bytes * (size_t)ranks::rank, bytes);
  for (int r = 0; r < ranks::count; ++r) memcpy((char*)receive + bytes * (size_t)r, ranks::shared->message[r], bytes);
  ranks::done();
  return 0;
}

inline int MPI_Allreduce(const void*, void* data, int items, MPI_Datatype type, MPI_Op op, MPI_Comm) {
  ranks::bytes_of(items, type);
  switch (type) {
    case MPI_INT: ranks::all_reduce<int>(data, items, op); break;
    case MPI_LONG: ranks::all_reduce<long>(data, items, op); break;
    case MPI_LONG_LONG: ranks::all_reduce<long long>(data, items, op); break;
    case MPI_INT64_T: ranks::all_reduce<int64_t>(data, items, op); break;
    case MPI_DOUBLE: ranks::all_reduce<double>(data, items, op); break;
    default: ranks::fail("MPI_Allreduce of this type is not there");
  }
  return 0;
}

#endif
