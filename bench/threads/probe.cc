// Stands before the C library's locks and condition variables in a process that is
// started with it in LD_PRELOAD. Counts, for each place of the watched library that takes
// a lock, how often and how long, and notes when threads wait. threads/probe.py reads it.

#include <dlfcn.h>
#include <pthread.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <mutex>
#include <vector>

namespace {

template <typename Function>
Function* Real(const char* name) {
  // dlsym returns functions as objects.
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

int64_t Now(clockid_t clock = CLOCK_MONOTONIC) {
  timespec time;
  clock_gettime(clock, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

struct Site {
  uintptr_t address = 0;  // to which the call returns; 0: unused
  uintptr_t caller = 0;   // the same of the function that calls
  int64_t held = 0;       // nanoseconds
};

// A lock that a thread holds. One that is taken under another has no place: its time is
// the other's, and clocks would lengthen that.
struct Held {
  const pthread_mutex_t* mutex = nullptr;
  Site* site = nullptr;
  int64_t since = 0;
  int64_t used = 0;  // of the processor, before the lock was asked for
};

struct Wait {
  int64_t begin;
  int64_t end;
};

// Written by one thread. Read after its end, or while it does nothing.
struct Thread {
  static constexpr size_t kSites = 512;

  Site* At(const void* address, const void* of_caller) {
    const auto wanted = reinterpret_cast<uintptr_t>(address);
    const auto caller = reinterpret_cast<uintptr_t>(of_caller);
    for (size_t i = wanted / 4 + caller / 8;; ++i) {
      Site& site = sites[i % kSites];
      if (site.address == wanted && site.caller == caller) return &site;
      if (site.address != 0) continue;
      site.address = wanted;
      site.caller = caller;
      return &site;
    }
  }
  void Take(const Held& lock) {
    if (num_held < held.size()) held[num_held++] = lock;
  }
  // Returns the lock as it was taken; without a place if it was not.
  Held Release(const pthread_mutex_t* mutex) {
    for (size_t i = num_held; i-- > 0;) {
      if (held[i].mutex != mutex) continue;
      const Held lock = held[i];
      std::move(held.begin() + i + 1, held.begin() + num_held, held.begin() + i);
      --num_held;
      return lock;
    }
    return {};
  }
  // Counts a lock that was let go at `end`. Time in which the thread that held it waited
  // for a core does not count.
  static void Count(const Held& lock, int64_t end) {
    lock.site->held += std::min(end - lock.since, Used() - lock.used);
  }
  static int64_t Used() { return Now(CLOCK_THREAD_CPUTIME_ID); }

  std::array<Site, kSites> sites = {};
  std::array<Held, 16> held = {};
  size_t num_held = 0;
  std::vector<Wait> waits = {};
  int64_t pass = 0;
  int64_t began = 0;
  int64_t ended = 0;
  int64_t processor_time = 0;
};

std::atomic<int64_t> pass{0};  // 0: nothing is watched
uintptr_t code_begin = 0;      // of the watched library
uintptr_t code_end = 0;
std::mutex threads_mutex;  // taken by its real function, as the probe calls it
std::vector<std::unique_ptr<Thread>> threads;
thread_local Thread* own = nullptr;
thread_local bool is_within = false;  // the probe

decltype(pthread_mutex_lock)* const real_lock =
    Real<decltype(pthread_mutex_lock)>("pthread_mutex_lock");
decltype(pthread_mutex_unlock)* const real_unlock =
    Real<decltype(pthread_mutex_unlock)>("pthread_mutex_unlock");

bool IsWatched(const void* address) {
  const auto place = reinterpret_cast<uintptr_t>(address);
  return place >= code_begin && place < code_end;
}

// Returns null if nothing is watched, and within the probe itself.
Thread* Own() {
  const int64_t present = pass.load(std::memory_order_acquire);
  if (present == 0 || is_within) return nullptr;
  if (own == nullptr) {
    is_within = true;
    auto made = std::make_unique<Thread>();
    own = made.get();
    const std::lock_guard lock(threads_mutex);
    threads.push_back(std::move(made));
    is_within = false;
  }
  if (own->pass != present) {
    own->sites = {};
    own->waits.clear();
    own->pass = present;
    own->began = own->ended = 0;
  }
  return own;
}

template <typename Function, typename... Arguments>
int Await(Function* real, pthread_cond_t* condition, pthread_mutex_t* mutex,
          Arguments... arguments) {
  Thread* thread = Own();
  const Held lock = thread == nullptr ? Held{} : thread->Release(mutex);
  if (lock.site == nullptr) return real(condition, mutex, arguments...);
  const int64_t begin = Now();
  thread->Count(lock, begin);
  const int result = real(condition, mutex, arguments...);
  const int64_t end = Now();
  is_within = true;
  thread->waits.push_back({begin, end});
  is_within = false;
  thread->Take({mutex, lock.site, end, thread->Used()});
  return result;
}

struct Start {
  void* (*function)(void*);
  void* argument;
};

void* Begin(void* given) {
  const std::unique_ptr<Start> start(static_cast<Start*>(given));
  if (Thread* thread = Own()) thread->began = Now();
  void* result = start->function(start->argument);
  if (own != nullptr && own->began != 0) {
    own->ended = Now();
    own->processor_time = Now(CLOCK_THREAD_CPUTIME_ID);
  }
  return result;
}

}  // namespace

extern "C" {

int pthread_mutex_lock(pthread_mutex_t* mutex) {
  // Libraries lock before this one is ready.
  if (real_lock == nullptr) return Real<decltype(pthread_mutex_lock)>(__func__)(mutex);
  Thread* thread = IsWatched(__builtin_return_address(0)) ? Own() : nullptr;
  if (thread == nullptr) return real_lock(mutex);
  if (thread->num_held > 0) {
    const int result = real_lock(mutex);
    thread->Take({.mutex = mutex});
    return result;
  }
  // std::mutex::lock may be a function of its own. The watched library has frame
  // pointers.
  Site* site = thread->At(__builtin_return_address(0), __builtin_return_address(1));
  const int64_t used = thread->Used();
  const int result = real_lock(mutex);
  thread->Take({mutex, site, Now(), used});
  return result;
}

int pthread_mutex_unlock(pthread_mutex_t* mutex) {
  if (real_unlock == nullptr) {
    return Real<decltype(pthread_mutex_unlock)>(__func__)(mutex);
  }
  const Held lock = own == nullptr || own->num_held == 0 ? Held{} : own->Release(mutex);
  if (lock.site == nullptr) return real_unlock(mutex);
  const int64_t end = Now();
  const int result = real_unlock(mutex);
  own->Count(lock, end);
  return result;
}

int pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* mutex) {
  static auto* const real = Real<decltype(pthread_cond_wait)>(__func__);
  return Await(real, condition, mutex);
}

int pthread_cond_timedwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                           const timespec* until) {
  static auto* const real = Real<decltype(pthread_cond_timedwait)>(__func__);
  return Await(real, condition, mutex, until);
}

int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                           clockid_t clock, const timespec* until) {
  static auto* const real = Real<decltype(pthread_cond_clockwait)>(__func__);
  return Await(real, condition, mutex, clock, until);
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                   void* (*function)(void*), void* argument) {
  static auto* const real = Real<decltype(pthread_create)>(__func__);
  return real(thread, attributes, Begin, new Start{function, argument});
}

// Watches the library between these addresses, and forgets what was counted.
void probe_begin(uint64_t begin, uint64_t end) {
  code_begin = begin;
  code_end = end;
  const std::lock_guard lock(threads_mutex);
  std::erase_if(threads, [](const auto& thread) { return thread->ended != 0; });
  pass.fetch_add(1, std::memory_order_acq_rel);
}

// Writes what was counted since then: lines of a thread, its places and its waits.
void probe_write(const char* path) {
  const std::lock_guard lock(threads_mutex);
  std::FILE* out = std::fopen(path, "w");
  for (const auto& thread : threads) {
    if (thread->pass != pass) continue;
    std::fprintf(out, "thread %ld %ld %ld\n", thread->began, thread->ended,
                 thread->processor_time);
    for (const Site& site : thread->sites) {
      if (site.address == 0) continue;
      std::fprintf(out, "site %lu %lu %ld\n", site.address, site.caller, site.held);
    }
    for (const Wait& wait : thread->waits) {
      std::fprintf(out, "wait %ld %ld\n", wait.begin, wait.end);
    }
  }
  std::fclose(out);
}

}  // extern "C"
