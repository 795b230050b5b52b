/* SPDX-License-Identifier: Apache-2.0
 *
 * lamport.pml: one-shot Lamport (kernels/cuda/lamport.cuh). A rank stores its vectors into its slot at every peer,
 * where they arrive at any time and in any order; whoever has read a vector clears it, and that store is under way,
 * too, at most until its launch ends. Two buffers alternate.
 *
 * Claims: every vector read is of this operation and whole, nothing lands where something unread is or a clearing is
 * still under way, nobody waits for ever. In each of the broken variants spin must find one of them violated.
 * Broken: ONE_BUFFER NOT_CLEARED ENDS_BEFORE_CLEARED ONE_WORD_FOR_ALL
 */
#include "operations.pml"

#if RANKS == 2
#define VECTORS 2
#define WORDS 2 /* of a vector, which is read at once, but need not arrive at once */
#else
#define VECTORS 1
#define WORDS 1
#endif
#ifdef ONE_BUFFER
#define BUFFERS 1
#else
#define BUFFERS 2
#endif
#define EMPTY 0
#define WORD(d, s, v, w) (((((d) * RANKS + (s)) * BUFFERS + epoch % BUFFERS) * VECTORS + (v)) * WORDS + (w))
#define IS_USED(i) (i / (BUFFERS * VECTORS * WORDS) % RANKS != i / (BUFFERS * VECTORS * WORDS * RANKS))
#define ALL (RANKS * RANKS * BUFFERS * VECTORS * WORDS)

byte memory[ALL];
byte sending[ALL]; /* stores under way: what is sent, */
bit clearing[ALL]; /* and sentinels */

/* A word's memory: stores to it happen some time. */
proctype word(byte i) {
  do
  :: d_step {
       sending[i] != EMPTY ->
       assert(memory[i] == EMPTY && !clearing[i]); /* else something unread is overwritten, or this will be */
       memory[i] = sending[i];
       sending[i] = EMPTY
     }
  :: d_step { clearing[i] -> memory[i] = EMPTY; clearing[i] = 0 }
  od
}

inline word_send(d, v, w) {
  assert(sending[WORD(d, me, v, w)] == EMPTY);
  sending[WORD(d, me, v, w)] = TAG(epoch)
}

#define LAST (WORDS - 1)
inline vector_send(v) {
  word_send(PEER(1), v, 0);
#if RANKS == 2
  word_send(PEER(1), v, LAST);
#else
  word_send(PEER(2), v, 0);
#endif
  sent = sent | (1 << v)
}

#ifdef ONE_WORD_FOR_ALL
#define ARRIVED(s, v) (memory[WORD(me, s, v, LAST)] != EMPTY)
#else
#define ARRIVED(s, v) (memory[WORD(me, s, v, 0)] != EMPTY && memory[WORD(me, s, v, LAST)] != EMPTY)
#endif
#define BIT(k, v) (1 << ((v) * RANKS + (k)))
#define EACH_PEER ((1 << RANKS) - 2) /* BIT of all peers, of vector 0 */
#define UNREAD(k, v) (v < choice[epoch] && (sent & (1 << (v))) && !(read & BIT(k, v)))

inline vector_read(k, v) {
  assert(memory[WORD(me, PEER(k), v, 0)] == TAG(epoch) && memory[WORD(me, PEER(k), v, LAST)] == TAG(epoch));
#ifndef NOT_CLEARED
  clearing[WORD(me, PEER(k), v, 0)] = 1; clearing[WORD(me, PEER(k), v, LAST)] = 1;
#endif
  read = read | BIT(k, v)
}

/* Whether the launch's stores to its own memory have happened. */
#define CLEARED(k, v) (!clearing[WORD(me, PEER(k), v, 0)] && !clearing[WORD(me, PEER(k), v, LAST)])
#ifdef ENDS_BEFORE_CLEARED
#define NOTHING_CLEARING 1
#elif RANKS == 2
#define NOTHING_CLEARING (CLEARED(1, 0) && CLEARED(1, 1))
#else
#define NOTHING_CLEARING (CLEARED(1, 0) && CLEARED(2, 0))
#endif

/* The vectors' threads: each sends, then reads what the peers have sent. */
proctype rank(byte me) {
  byte epoch = 0, sent = 0, read = 0, wanted, next_choice;
  do
  :: /* as large as anybody likes */
     if
     :: next_choice = 1
     :: next_choice = VECTORS
     fi;
     d_step {
       operation_begin();
       next_choice = 0;
       wanted = (choice[epoch] == 1 -> EACH_PEER : EACH_PEER * (1 + (1 << RANKS)))
     }
     do
     :: d_step { !(sent & 1) -> vector_send(0) }
     :: d_step { UNREAD(1, 0) && ARRIVED(PEER(1), 0) -> vector_read(1, 0) }
#if RANKS == 3
     :: d_step { UNREAD(2, 0) && ARRIVED(PEER(2), 0) -> vector_read(2, 0) }
#endif
#if VECTORS == 2
     :: d_step { choice[epoch] == 2 && !(sent & 2) -> vector_send(1) }
     :: d_step { UNREAD(1, 1) && ARRIVED(PEER(1), 1) -> vector_read(1, 1) }
#endif
     :: d_step { read == wanted && NOTHING_CLEARING -> read = 0; sent = 0; operation_end() }
        break
     od
  od
}

init {
  byte i;
  atomic {
    for (i : 0 .. ALL - 1) {
      if
      :: IS_USED(i) -> run word(i)
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
