// If the variable TORCHPARQUET_SCHEDULE is set, threads are held up by chance before
// they lock a mutex, after they unlock it, and before they wake others. The number in it
// is the seed. A thread is quick for a while, then slow, so that others overtake it by
// far: faults that need a rare order of events come up within hundreds of runs. At its
// end the process tells how many threads there were to hold up.
//
// The linker leads calls of the functions here (--wrap), so sanitizers see all of them.

#include <pthread.h>
#include <sched.h>
#include <time.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "split_mix.h"
#include "tried.h"

namespace {

using torchparquet::testing::SplitMix64;

const uint64_t schedule_seed = torchparquet::testing::ScheduleSeed();
std::atomic<uint64_t> num_threads{0};

void TellThreads() {
  std::fprintf(stderr, "threads held up: %lu\n", static_cast<unsigned long>(num_threads));
}
const int told_at_exit = schedule_seed == 0 ? 0 : std::atexit(TellThreads);

struct Pace {
  std::optional<SplitMix64> words;
  uint64_t steps_left = 0;
  uint64_t slowness = 0;
};
thread_local Pace pace;

void Sleep(uint64_t microseconds) {
  const timespec length{.tv_sec = 0, .tv_nsec = static_cast<long>(microseconds) * 1000};
  nanosleep(&length, nullptr);
}

void HoldUp() {
  if (schedule_seed == 0) return;
  if (!pace.words) {
    pace.words.emplace((schedule_seed - 1) * 0xD1342543DE82EF95 + ++num_threads);
  }
  const uint64_t drawn = pace.words->Next();
  if (pace.steps_left-- == 0) {
    pace.steps_left = drawn % 64;
    pace.slowness = (drawn >> 8) % 8;
  }
  const uint64_t chance = (drawn >> 16) % 64;
  if (pace.slowness == 0 && chance < 16) {
    Sleep(chance * 20);
  } else if (pace.slowness < 4 && chance < 32) {
    sched_yield();
  }
}

}  // namespace

extern "C" {
int __real_pthread_mutex_lock(pthread_mutex_t* mutex);
int __real_pthread_mutex_unlock(pthread_mutex_t* mutex);
void __real__ZNSt18condition_variable10notify_allEv(void* condition);
void __real__ZNSt18condition_variable10notify_oneEv(void* condition);

int __wrap_pthread_mutex_lock(pthread_mutex_t* mutex) {
  HoldUp();
  return __real_pthread_mutex_lock(mutex);
}

int __wrap_pthread_mutex_unlock(pthread_mutex_t* mutex) {
  const int result = __real_pthread_mutex_unlock(mutex);
  HoldUp();
  return result;
}

void __wrap__ZNSt18condition_variable10notify_allEv(void* condition) {
  HoldUp();
  __real__ZNSt18condition_variable10notify_allEv(condition);
}

void __wrap__ZNSt18condition_variable10notify_oneEv(void* condition) {
  HoldUp();
  __real__ZNSt18condition_variable10notify_oneEv(condition);
}
}  // extern "C"
