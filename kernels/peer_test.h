/* SPDX-License-Identifier: Apache-2.0
 *
 * peer_test.h: the test of peer memory before first use, which the host and the CUDA kernels do alike. Each rank writes
 * to its slot in every peer, as one-shot Lamport does: words that are their own arrival flags. Then, as one-shot sync
 * does, rounds of data followed by a flag with release; the peer looks at the data once it has seen the flag with
 * acquire, and has to find all of it. Last, it reads what the writer has staged in its own workspace. The receiver puts
 * the sentinels back.
 */
#ifndef ARFUSION_KERNELS_PEER_TEST_H_
#define ARFUSION_KERNELS_PEER_TEST_H_

#include <stdint.h>

/* In words of 32 bits. In a slot: first the words that are their own flags, then the rounds, each with its flag of 64
 * bits on a line of its own. In the stage: as many words for each reader, by rank. */
#define PEER_TEST_WORDS 1024
#define PEER_TEST_ROUNDS 4
#define PEER_TEST_ROUND_WORDS (PEER_TEST_WORDS + 32)
#define PEER_TEST_SLOT_WORDS (PEER_TEST_WORDS + PEER_TEST_ROUNDS * PEER_TEST_ROUND_WORDS)

/* Where a round's data begins in a slot, and its flag; what the flag is then. */
#define PEER_TEST_DATA(round) (PEER_TEST_WORDS + (round) * PEER_TEST_ROUND_WORDS)
#define PEER_TEST_FLAG(round) (PEER_TEST_DATA(round) + PEER_TEST_WORDS)
#define PEER_TEST_ARRIVED 0x7065657274657374ull

/* Kinds of words besides the rounds, which are 0 and up. */
#define PEER_TEST_LAMPORT 100
#define PEER_TEST_STAGE 101

/* The word at `index` from rank `from` to rank `to`; never the sentinel. */
#define PEER_TEST_WORD(from, to, kind, index)                   \
  (((((uint32_t)(from) * 16u + (uint32_t)(to)) * 0x9e3779b1u) ^ \
    (((uint32_t)(kind) * 0x85ebca77u + (uint32_t)(index)) * 0xc2b2ae3du)) | 1u)

#endif
