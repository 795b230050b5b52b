/* SPDX-License-Identifier: Apache-2.0
 *
 * operations.pml: what the models share. Ranks run operations one after the other, for ever; numbers of operations are
 * counted modulo EPOCHS, so that all of what they can do is finitely many states. What an operation is like (its size,
 * its algorithm) is any choice, and the same on all ranks: that of the rank which begins it first.
 *
 * No operation may end on a rank before all others have begun it: on that the kernels' buffers in rotation rest.
 */
#ifndef RANKS
#define RANKS 2
#endif
#define EPOCHS 4 /* enough, as ranks are never further apart than one operation, which is checked */
#define TAG(epoch) ((epoch) + 1)
#define PEER(k) ((me + (k)) % RANKS) /* k from 1 to RANKS - 1 */

byte newest = EPOCHS - 1; /* the operation that somebody has begun last */
byte choice[EPOCHS];
byte begun[RANKS];        /* the operation that a rank has begun last */

/* In a d_step. next_choice: what this rank would like. */
inline operation_begin() {
  if
  :: epoch == (newest + 1) % EPOCHS -> newest = epoch; choice[epoch] = next_choice
  :: else
  fi;
  begun[me] = epoch
}

/* That a rank has begun this operation or, being one ahead, the next. */
#define HAS_BEGUN(r) (begun[r] == epoch || begun[r] == (epoch + 1) % EPOCHS)

inline operation_end() {
  assert(HAS_BEGUN(PEER(1)));
#if RANKS == 3
  assert(HAS_BEGUN(PEER(2)));
#endif
  epoch = (epoch + 1) % EPOCHS
}
