/* ChunkCursor: THREADS threads claim the positions of RANK among POSITIONS, in a world of WORLD.

   Each load and each exchange is a step. An exchange may also fail by chance, as weak ones do, but
   only so often that the check ends. A define of PLANT plants a fault that the check must find. */

#ifndef PLANT
#define PLANT 0
#endif
#define MAX_CHANCES 2

byte next_position = RANK, num_exited, num_chances;
byte claims[POSITIONS];

proctype Claim() {
  byte position, next;
  int last = -1;
  bool exchanged;
  do
  :: position = next_position;
     do
     :: position >= POSITIONS -> goto over
     :: else ->
        next = (POSITIONS - position <= WORLD -> POSITIONS : position + WORLD);
        exchanged = false;
        if
        :: atomic { num_chances < MAX_CHANCES -> num_chances++; position = next_position }
#if PLANT == 1
        :: next_position = next; exchanged = true
#else
        :: atomic {
             if
             :: next_position == position -> next_position = next; exchanged = true
             :: else -> position = next_position
             fi
           }
#endif
        fi;
        if
        :: exchanged -> break
        :: else
        fi
     od;
     claims[position]++;
     assert(position > last && position % WORLD == RANK);
     last = position
  od;
over:
  num_exited++
}

init {
  byte i;
  atomic {
    for (i : 1 .. THREADS) { run Claim() }
  }
  num_exited == THREADS;
  for (i : 0 .. POSITIONS - 1) {
    assert(claims[i] == (i % WORLD == RANK -> 1 : 0))
  }
}
