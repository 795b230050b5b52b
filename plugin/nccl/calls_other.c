/* SPDX-License-Identifier: Apache-2.0
 *
 * calls_other.c: what else NCCL keeps until a group ends, and then does nothing of the group if it was called wrongly.
 * The plugin has no part in it. Functions whose errors NCCL does not hold against a group (ncclRedOpCreatePreMulSum,
 * ncclMemAlloc) stay with forward.S.
 */
#include "plugin/nccl/calls.h"

int ncclSend(const void* send, size_t count, int type, int peer, void* comm, void* stream) {
  PASS_ON(ncclSend, send, count, type, peer, comm, stream);
}
TWIN(int, ncclSend, const void* send, size_t count, int type, int peer, void* comm, void* stream);

int ncclRecv(void* receive, size_t count, int type, int peer, void* comm, void* stream) {
  PASS_ON(ncclRecv, receive, count, type, peer, comm, stream);
}
TWIN(int, ncclRecv, void* receive, size_t count, int type, int peer, void* comm, void* stream);

int ncclPutSignal(const void* local, size_t count, int type, int peer, void* window, size_t offset, int signal,
                  int context, unsigned flags, void* comm, void* stream) {
  PASS_ON(ncclPutSignal, local, count, type, peer, window, offset, signal, context, flags, comm, stream);
}
TWIN(int, ncclPutSignal, const void* local, size_t count, int type, int peer, void* window, size_t offset, int signal,
     int context, unsigned flags, void* comm, void* stream);

int ncclSignal(int peer, int signal, int context, unsigned flags, void* comm, void* stream) {
  PASS_ON(ncclSignal, peer, signal, context, flags, comm, stream);
}
TWIN(int, ncclSignal, int peer, int signal, int context, unsigned flags, void* comm, void* stream);

int ncclWaitSignal(int count, void* signals, void* comm, void* stream) {
  PASS_ON(ncclWaitSignal, count, signals, comm, stream);
}
TWIN(int, ncclWaitSignal, int count, void* signals, void* comm, void* stream);

int ncclCommWindowRegister(void* comm, void* buffer, size_t bytes, void** window, int flags) {
  PASS_ON(ncclCommWindowRegister, comm, buffer, bytes, window, flags);
}
TWIN(int, ncclCommWindowRegister, void* comm, void* buffer, size_t bytes, void** window, int flags);

int ncclCommSuspend(void* comm, int flags) {
  PASS_ON(ncclCommSuspend, comm, flags);
}
TWIN(int, ncclCommSuspend, void* comm, int flags);

int ncclCommResume(void* comm) {
  PASS_ON(ncclCommResume, comm);
}
TWIN(int, ncclCommResume, void* comm);

int ncclDevCommCreate(void* comm, const void* requirements, void* dev_comm) {
  PASS_ON(ncclDevCommCreate, comm, requirements, dev_comm);
}
TWIN(int, ncclDevCommCreate, void* comm, const void* requirements, void* dev_comm);
