/* SPDX-License-Identifier: Apache-2.0
 *
 * sync.pml: one-shot sync (kernels/cuda/sync.cuh). Each block of a rank stages its input in one of two halves, tells
 * the same block of every peer by a flag, waits for theirs, and reads their stages. A flag is the number of operations
 * begun; it is never reset, and wraps. Operations of other algorithms come in between, which stage nothing.
 *
 * Claims: every stage read is of this operation, a release makes what was staged before it visible, nobody waits for
 * ever, also where the numbers wrap.
 * Broken: ONE_HALF FLAG_RELAXED FLAG_EQUAL FLAG_NOT_WRAPPED BLOCKS_MIXED
 */
#include "operations.pml"

#if RANKS == 2
#define BLOCKS 2
#else
#define BLOCKS 1
#endif
#define EMPTY 0
#ifdef ONE_HALF
#define HALF 0
#else
#define HALF (epoch % 2)
#endif
#define STAGE(r, b) (((r) * 2 + HALF) * BLOCKS + (b))
#define FLAG(d, s, b) (((d) * RANKS + (s)) * BLOCKS + (b))
#define STAGES (RANKS * 2 * BLOCKS)
#define FLAGS (RANKS * RANKS * BLOCKS)

byte stage[STAGES], staging[STAGES]; /* memory, and stores to it under way */
byte flag[FLAGS], flagging[FLAGS];   /* flagging: one more than the number, 0: none */

proctype stage_word(byte i) {
  do
  :: d_step { staging[i] != EMPTY -> stage[i] = staging[i]; staging[i] = EMPTY }
  od
}

/* A release comes after the stores of its block. */
#ifdef FLAG_RELAXED
#define MAY_LAND(r, b) 1
#else
#define MAY_LAND(r, b) (staging[(r) * 2 * BLOCKS + (b)] == EMPTY && staging[((r) * 2 + 1) * BLOCKS + (b)] == EMPTY)
#endif

proctype flag_word(byte i) {
  do
  :: d_step {
       flagging[i] != 0 && MAY_LAND((i / BLOCKS) % RANKS, i % BLOCKS) ->
       flag[i] = flagging[i] - 1;
       flagging[i] = 0
     }
  od
}

/* The flag's number, as the kernels': of operations begun. One that is still under way may be overtaken by the next. */
#define TARGET ((epoch + 1) % EPOCHS)
inline block_stage(b) {
  assert(staging[STAGE(me, b)] == EMPTY);
  staging[STAGE(me, b)] = TAG(epoch);
  flagging[FLAG(PEER(1), me, b)] = TARGET + 1;
#if RANKS == 3
  flagging[FLAG(PEER(2), me, b)] = TARGET + 1;
#endif
  staged = staged | (1 << b)
}

#ifdef BLOCKS_MIXED /* as if one flag of a rank stood for all its blocks */
#define OF_BLOCK(b) 0
#else
#define OF_BLOCK(b) (b)
#endif
#if defined(FLAG_EQUAL)
#define REACHED(f) ((f) == TARGET)
#elif defined(FLAG_NOT_WRAPPED)
#define REACHED(f) ((f) >= TARGET)
#else
#define REACHED(f) ((f) == TARGET || (f) == (TARGET + 1) % EPOCHS)
#endif
#define READY(k, b) (staged & (1 << (b))) && !(read & BIT(k, b)) && REACHED(flag[FLAG(me, PEER(k), OF_BLOCK(b))])
#define BIT(k, b) (1 << ((b) * RANKS + (k)))

inline block_read(k, b) {
  assert(stage[STAGE(PEER(k), b)] == TAG(epoch));
  read = read | BIT(k, b)
}

#define EACH_PEER ((1 << RANKS) - 2)
#if BLOCKS == 2
#define READ_ALL (EACH_PEER * (1 + (1 << RANKS)))
#else
#define READ_ALL EACH_PEER
#endif

proctype rank(byte me) {
  byte epoch = 0, staged = 0, read = 0, next_choice;
  do
  :: if /* of two operations in a row at most one is without stages */
     :: next_choice = 0
     :: next_choice = 1
     fi;
     d_step {
       if
       :: choice[(epoch + EPOCHS - 1) % EPOCHS] == 0 -> next_choice = 1 /* else flags get so old that they look new */
       :: else
       fi;
       operation_begin();
       next_choice = 0
     }
     do
     :: d_step { choice[epoch] == 1 && !(staged & 1) -> block_stage(0) }
     :: d_step { READY(1, 0) -> block_read(1, 0) }
#if RANKS == 2
     :: d_step { choice[epoch] == 1 && !(staged & 2) -> block_stage(1) }
     :: d_step { READY(1, 1) -> block_read(1, 1) }
#else
     :: d_step { READY(2, 0) -> block_read(2, 0) }
#endif
     :: d_step { read == READ_ALL -> staged = 0; read = 0; operation_end() }
        break
     :: d_step { choice[epoch] == 0 && HAS_BEGUN(PEER(1)) && HAS_BEGUN(PEER(RANKS - 1)) -> operation_end() }
        break
     od
  od
}

init {
  byte i;
  atomic {
    for (i : 0 .. STAGES - 1) { run stage_word(i) }
    for (i : 0 .. FLAGS - 1) {
      if
      :: i / BLOCKS % RANKS != i / (BLOCKS * RANKS) -> run flag_word(i)
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
