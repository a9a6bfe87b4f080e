/* The threads of a reader: scheduler, batch ring, consumer, and an end at any moment.

   All interleavings of small cases are checked, for each by its -D options:

     THREADS    decode threads; the last one is the spare, which leaves a core to the consumer
     SLICES     slices of the share; slice s fills batch s, and the batch after it if SPANNING
     COLUMNS    tasks of each slice
     ROOM       batches in flight at most
     ENOUGH     complete batches at which the spare thread pauses
     WAKE_ROOM  batches for which there is room when the consumer wakes a thread, unless it
                is about to wait; 1 without it
     FAILS      any task may fail
     STOPS      the reader may be stopped at any moment
     LENT       the consumer lends the memory of batches, and lends it again after each

   Each lock, notification and atomic operation is a step of its own. Threads wake by
   notifications alone: neither by chance nor after a time, so that a lost one is a deadlock.

   The names are those of cpp/reader/decode_thread.cc and cpp/batches/batch_ring.cc. A define of
   PLANT plants a fault that the check must find. */

#ifndef PLANT
#define PLANT 0
#endif
#ifdef SPANNING
#define BATCHES (SLICES + 1)
#define SHARES(slice, batch) (batch == slice || batch == slice + 1)
#define CELLS(batch) ((batch == 0 || batch == SLICES) -> COLUMNS : 2 * COLUMNS)
#else
#define BATCHES SLICES
#define SHARES(slice, batch) (batch == slice)
#define CELLS(batch) COLUMNS
#endif
#ifndef WAKE_ROOM
#define WAKE_ROOM 1
#endif
#define NONE 255

/* ReaderState. */
bool mutex, stopping, failed;
byte num_opened_slices, num_running, lent, num_exited;
bool taken[SLICES * COLUMNS];

/* IdleThreads. */
bool waiting[THREADS], spare_waiting, spare_waits, may_find;
byte num_waiting, num_waking;

/* BatchRing. */
bool ring_mutex, consumer_waiting, ring_stopped, closed;
byte num_opened, num_taken, num_complete, failure_key = NONE;
byte missing[BATCHES];
bool is_complete[BATCHES];

bool consumer_ended, saw_failure, stop_ended;

#define LOCK(m) atomic { !m -> m = true }
#define UNLOCK(m) m = false

/* Any of those that wait. */
inline NotifyOne() {
  atomic {
    if
    :: waiting[0] -> waiting[0] = false
    :: waiting[THREADS / 2] -> waiting[THREADS / 2] = false
    :: waiting[THREADS - 1] -> waiting[THREADS - 1] = false
    :: else
    fi
  }
}

inline WakeAll() {
  d_step {
    may_find = true;
    waiting[0] = false;
    waiting[THREADS / 2] = false;
    waiting[THREADS - 1] = false;
    spare_waiting = false
  }
}

#define NotifyConsumer() consumer_waiting = false

#define IN_FLIGHT (num_opened - num_taken)
#define FRONT_COMPLETE (num_taken < num_opened && is_complete[num_taken])
#define HAS_NEXT (num_opened_slices < SLICES)
#ifdef SPANNING
#define NEXT_END (num_opened_slices + 2)
#else
#define NEXT_END (num_opened_slices + 1)
#endif
#define NEW_BATCHES (NEXT_END - num_opened)
#ifdef LENT
#define HAS_MEMORY (lent >= NEW_BATCHES)
#else
#define HAS_MEMORY true
#endif
#define CAN_OPEN (HAS_NEXT && HAS_MEMORY && IN_FLIGHT + NEW_BATCHES <= ROOM)
#define HAS_ENOUGH (num_complete >= ENOUGH && FRONT_COMPLETE)
/* Slices open in the order of their batches, so none is left to open before a failure. */
#define IS_FINAL (failed && num_running == 0 && (task == NONE || task / COLUMNS >= failure_key))
#define NUM_WAITING (waiting[0] + (THREADS > 2 && waiting[THREADS / 2]) + (THREADS > 1 && waiting[THREADS - 1]))
/* Threads between two tasks, and those that are about to wake one. */
#define NUM_AWAKE (THREADS - num_running - NUM_WAITING - spare_waiting - num_exited + num_waking)
#define IS_IN_VAIN(slice) (failed && failure_key < slice)

/* The first task that nobody has taken. */
inline FindUntaken(task) {
  d_step {
    task = 0;
    do
    :: task < num_opened_slices * COLUMNS && taken[task] -> task++
    :: else -> break
    od;
    if
    :: task >= num_opened_slices * COLUMNS -> task = NONE
    :: else
    fi
  }
}

inline Wait(me) {
  atomic { may_find = false; num_waiting++; waiting[me] = true; UNLOCK(mutex) }
  !waiting[me];
  LOCK(mutex);
  num_waiting--
}

inline WaitAsSpare() {
  if
  :: num_waiting > 0 && may_find -> NotifyOne()
  :: else
  fi;
  atomic { spare_waits = true; spare_waiting = true; UNLOCK(mutex) }
  !spare_waiting;
  LOCK(mutex);
  spare_waits = false
}

/* BatchRing::CountDown, of one task's cell of a batch. */
inline CountDown(batch) {
  atomic { missing[batch]--; last = (missing[batch] == 0) }
  if
  :: last ->
     is_complete[batch] = true;
     num_complete++;
#if PLANT == 1
     /* Without the lock, the notification may come between the consumer's look and its wait. */
     is_front = (num_taken == batch);
#else
     LOCK(ring_mutex);
     is_front = (num_taken == batch);
     UNLOCK(ring_mutex);
#endif
     if
     :: is_front -> NotifyConsumer()
     :: else
     fi
  :: else
  fi
}

proctype Decode(byte me) {
  byte task, slice;
  bool last, is_front, is_over, is_for_others;
  LOCK(mutex);
  do
  :: stopping -> break
  :: else ->
     FindUntaken(task);
     LOCK(ring_mutex);
     is_over = IS_FINAL;
     UNLOCK(ring_mutex);
     if
     :: is_over ->
        LOCK(ring_mutex); closed = true; UNLOCK(ring_mutex);
        NotifyConsumer();
        break
     :: else
     fi;
     if
     :: me == THREADS - 1 && THREADS > 1 && (task != NONE || HAS_NEXT) && !failed ->
        LOCK(ring_mutex);
        is_over = HAS_ENOUGH;
        UNLOCK(ring_mutex);
        if
        :: is_over -> WaitAsSpare(); goto next
        :: else
        fi
     :: else
     fi;
     if
     :: task != NONE ->
        taken[task] = true;
        num_running++;
        slice = task / COLUMNS;
        FindUntaken(task);
        LOCK(ring_mutex);
        is_for_others = num_waiting > 0 && may_find && (task != NONE || (!failed && CAN_OPEN));
        UNLOCK(ring_mutex);
#if PLANT == 7
        is_for_others = false;
#endif
        num_waking = num_waking + is_for_others;
        /* No thread waits for what only threads in tasks could tell it of. */
        assert(task == NONE || failed || NUM_WAITING == 0 || NUM_AWAKE > 0);
        LOCK(ring_mutex);
        is_over = IS_IN_VAIN(slice);
        UNLOCK(ring_mutex);
        UNLOCK(mutex);
        if
        :: is_for_others -> atomic { NotifyOne(); num_waking-- }
        :: else
        fi;
#ifdef FAILS
        if
        :: is_over -> goto finish
        :: else
        fi;
        if
        :: true ->
           LOCK(mutex);
           if
           :: !stopping ->
              failed = true;
              LOCK(ring_mutex);
              if
#if PLANT == 6
              :: true -> failure_key = slice
#endif
              :: failure_key == NONE || slice < failure_key -> failure_key = slice
              :: else
              fi;
              UNLOCK(ring_mutex)
           :: else
           fi;
           UNLOCK(mutex);
           goto finish
        :: true
        fi;
#endif
        CountDown(slice);
#ifdef SPANNING
        CountDown(slice + 1);
#endif
finish: LOCK(mutex);
        num_running--;
        if
        :: failed ->
           skip;
#if PLANT != 2
           WakeAll()
#endif
        :: else
        fi
     :: else ->
        LOCK(ring_mutex);
        is_over = !failed && CAN_OPEN;
        if
        :: is_over ->
           /* OpenNext. */
           d_step {
             do
             :: num_opened < NEXT_END ->
                missing[num_opened] = CELLS(num_opened);
#ifdef LENT
                lent--;
#endif
                num_opened++
             :: else -> break
             od;
             num_opened_slices++
           };
           assert(IN_FLIGHT <= ROOM);
           UNLOCK(ring_mutex);
           may_find = true
        :: else ->
           UNLOCK(ring_mutex);
           if
           :: failed || !HAS_NEXT -> break
           :: else -> Wait(me)
           fi
        fi
     fi;
next: skip
  od;
#if PLANT != 2
  WakeAll();
#endif
  num_exited++;
  UNLOCK(mutex)
}

proctype Consume() {
  bool is_for_spare, is_for_one;
  do
  :: LOCK(ring_mutex);
     do
     :: ring_stopped || FRONT_COMPLETE || (closed && failure_key != NONE) || num_taken == BATCHES ->
        break
     :: else ->
        /* The consumer has less before it than the spare thread waits for. */
        assert(!spare_waiting);
        /* A step between the look and the wait, under the lock. */
        skip;
        atomic { consumer_waiting = true; UNLOCK(ring_mutex) }
        !consumer_waiting;
        LOCK(ring_mutex)
     od;
     if
     :: !ring_stopped && FRONT_COMPLETE ->
        /* In order, whole, and never beyond a failure that is first. */
        assert(missing[num_taken] == 0);
        assert(failure_key == NONE || num_taken <= failure_key);
        num_taken++;
        num_complete--;
        UNLOCK(ring_mutex);
#if PLANT != 5
        LOCK(mutex);
#endif
#ifdef LENT
        lent++;
#endif
        /* WakeAfterTake. */
        LOCK(ring_mutex);
        is_for_spare = spare_waits && !HAS_ENOUGH;
        is_for_one = failed || (CAN_OPEN && (!FRONT_COMPLETE || IN_FLIGHT + WAKE_ROOM <= ROOM));
        UNLOCK(ring_mutex);
        if
        :: is_for_one ->
           may_find = true;
           is_for_one = num_waiting > 0;
           num_waking = num_waking + is_for_one
        :: else
        fi;
#if PLANT != 5
        UNLOCK(mutex);
#endif
        if
#if PLANT != 3
        :: is_for_spare -> spare_waiting = false
#endif
        :: else
        fi;
        if
        :: is_for_one -> atomic { NotifyOne(); num_waking-- }
        :: else
        fi
     :: else ->
        saw_failure = !ring_stopped && failure_key != NONE;
        /* All batches before the failure were taken, or all at the end. */
        assert(ring_stopped || (saw_failure -> num_taken == failure_key : num_taken == BATCHES));
        UNLOCK(ring_mutex);
        break
     fi
  od;
  consumer_ended = true
}

proctype Stop() {
  if
  :: true
  :: true -> goto over
  fi;
  LOCK(ring_mutex);
  ring_stopped = true;
  UNLOCK(ring_mutex);
  NotifyConsumer();
#if PLANT == 4
  stopping = true;
#else
  LOCK(mutex);
  stopping = true;
  UNLOCK(mutex);
#endif
  WakeAll();
  num_exited == THREADS;
over:
  stop_ended = true
}

init {
  byte thread;
  atomic {
#ifdef LENT
    lent = ROOM;
#endif
    for (thread : 0 .. THREADS - 1) { run Decode(thread) }
    run Consume();
#ifdef STOPS
    run Stop();
#endif
  }
  /* Spin reports every state in which one of them can go on no more. */
  consumer_ended && num_exited == THREADS;
#ifdef STOPS
  stop_ended;
#endif
}
