/* SPDX-License-Identifier: Apache-2.0
 *
 * twoshot.pml: two-shot with Lamport slots in both halves (kernels/cuda/twoshot.cuh). Range q belongs to rank q modulo
 * the number of ranks: the others send it their contributions and wait for its sum. With few ranges there are ranks
 * that send each other nothing, and still two buffers must do.
 *
 * Claims: those of lamport.pml, of contributions and of sums.
 * Broken: ONE_BUFFER NOT_CLEARED ENDS_BEFORE_CLEARED SUM_SENT_FIRST
 */
#include "operations.pml"

#define RANGES 2 /* at most; an operation has as many as anybody likes */
#ifdef ONE_BUFFER
#define BUFFERS 1
#else
#define BUFFERS 2
#endif
#define EMPTY 0
/* Range q's place is the q / RANKS-th of its half: one is enough, as there are no more ranges than ranks. Slot s of
 * receiver d has in its half 0 what s contributes to d's range, in its half 1 the sum of the range of s. */
#define CELL(d, s, half) ((((d) * RANKS + (s)) * BUFFERS + epoch % BUFFERS) * 2 + (half))
#define ALL (RANKS * RANKS * BUFFERS * 2)
#define IS_USED(i) (i / (BUFFERS * 2) % RANKS != i / (BUFFERS * 2 * RANKS) && \
                    (i % 2 == 0 -> i / (BUFFERS * 2 * RANKS) : i / (BUFFERS * 2) % RANKS) < RANGES)

byte memory[ALL];
byte sending[ALL];
bit clearing[ALL];

proctype cell(byte i) {
  do
  :: d_step {
       sending[i] != EMPTY ->
       assert(memory[i] == EMPTY && !clearing[i]);
       memory[i] = sending[i];
       sending[i] = EMPTY
     }
  :: d_step { clearing[i] -> memory[i] = EMPTY; clearing[i] = 0 }
  od
}

inline cell_send(d, half) {
  assert(sending[CELL(d, me, half)] == EMPTY);
  sending[CELL(d, me, half)] = TAG(epoch)
}

inline cell_read(s, half) {
  assert(memory[CELL(me, s, half)] == TAG(epoch));
#ifndef NOT_CLEARED
  clearing[CELL(me, s, half)] = 1
#endif
}

#define ARRIVED(s, half) (memory[CELL(me, s, half)] != EMPTY)
#define HAS_RANGE(r) ((r) < choice[epoch])

/* What a rank has done of an operation, as bits: contributed to the range of its k-th peer, read that peer's
 * contribution to its own range, sent the own range's sum, read that peer's sum. */
#define CONTRIBUTED(k) (1 << (k))
#define ADDED(k) (8 << (k))
#define SUMMED 64
#define COLLECTED(k) (128 << (k))
#define TODO(bit) (wanted & (bit)) && !(done & (bit))
#define DONE(bits) ((done & (bits)) == (bits))
#if RANKS == 2
#define ADDED_ALL ADDED(1)
#else
#define ADDED_ALL (ADDED(1) | ADDED(2))
#endif
#ifdef SUM_SENT_FIRST
#define MAY_SUM 1
#else
#define MAY_SUM DONE(ADDED_ALL)
#endif

#define CLEARED(k) (!clearing[CELL(me, PEER(k), 0)] && !clearing[CELL(me, PEER(k), 1)])
#ifdef ENDS_BEFORE_CLEARED
#define NOTHING_CLEARING 1
#elif RANKS == 2
#define NOTHING_CLEARING CLEARED(1)
#else
#define NOTHING_CLEARING (CLEARED(1) && CLEARED(2))
#endif

inline want(k) {
  wanted = wanted | (HAS_RANGE(PEER(k)) -> CONTRIBUTED(k) | COLLECTED(k) : 0) | (HAS_RANGE(me) -> ADDED(k) | SUMMED : 0)
}

proctype rank(byte me) {
  byte epoch = 0, next_choice;
  short done = 0, wanted = 0;
  do
  :: if
     :: next_choice = 1
     :: next_choice = RANGES
     fi;
     d_step {
       operation_begin();
       next_choice = 0;
       want(1);
#if RANKS == 3
       want(2)
#endif
     }
     do
     :: d_step { TODO(CONTRIBUTED(1)) -> cell_send(PEER(1), 0); done = done | CONTRIBUTED(1) }
     :: d_step { TODO(ADDED(1)) && ARRIVED(PEER(1), 0) -> cell_read(PEER(1), 0); done = done | ADDED(1) }
     :: d_step { TODO(COLLECTED(1)) && DONE(CONTRIBUTED(1)) && ARRIVED(PEER(1), 1) ->
                 cell_read(PEER(1), 1); done = done | COLLECTED(1) }
#if RANKS == 3
     :: d_step { TODO(CONTRIBUTED(2)) -> cell_send(PEER(2), 0); done = done | CONTRIBUTED(2) }
     :: d_step { TODO(ADDED(2)) && ARRIVED(PEER(2), 0) -> cell_read(PEER(2), 0); done = done | ADDED(2) }
     :: d_step { TODO(COLLECTED(2)) && DONE(CONTRIBUTED(2)) && ARRIVED(PEER(2), 1) ->
                 cell_read(PEER(2), 1); done = done | COLLECTED(2) }
#endif
     :: d_step {
          TODO(SUMMED) && MAY_SUM ->
          cell_send(PEER(1), 1);
#if RANKS == 3
          cell_send(PEER(2), 1);
#endif
          done = done | SUMMED
        }
     :: d_step { done == wanted && NOTHING_CLEARING -> done = 0; wanted = 0; operation_end() }
        break
     od
  od
}

init {
  byte i;
  atomic {
    for (i : 0 .. ALL - 1) {
      if
      :: IS_USED(i) -> run cell(i)
      :: else
      fi
    }
    i = 0;
    run rank(0); run rank(1);
#if RANKS == 3
    run rank(2);
#endif
  }
}
