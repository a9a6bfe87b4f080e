// Stands before the C library's locks, condition variables and polls in a process that is
// started with it in LD_PRELOAD, and makes the process D times slower. threads/probe.py
// reads what it counts.
//
// A thread that has used the processor for t owes D * t of the clock. It pays what is
// left by sleeping, before it asks for a lock, lets one go, wakes others or waits. So a
// lock is held D times as long, and threads that wait for it, or for a batch, wait D
// times as long: two cores, which are idle most of the time, run n threads as n cores
// would. Timeouts are D times as long too. The time that a thread sleeps too long, or
// waits for a core, it has paid.
//
// A thread that has slept finds less in the caches. So what it uses counts by a weight,
// of each kind of work: such that all of the kind takes what it takes without sleeping.

#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace {

template <typename Function>
Function* Real(const char* name) {
  // dlsym returns functions as objects.
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

constexpr int64_t kSecond = 1'000'000'000;

int64_t Now(clockid_t clock = CLOCK_MONOTONIC) {
  timespec time;
  clock_gettime(clock, &time);
  return int64_t{time.tv_sec} * kSecond + time.tv_nsec;
}

timespec TimeOf(int64_t nanoseconds) {
  return {.tv_sec = nanoseconds / kSecond, .tv_nsec = nanoseconds % kSecond};
}

std::atomic<int64_t> dilation{0};  // D; 0: nothing is watched
std::atomic<int64_t> pass{0};
enum Kind { kConsumer, kDecode, kClient, kLocked, kNumKinds };
std::array<double, kNumKinds> weights = {};
// Of the processor, between two payments without anything between them: the first did not
// have to sleep, or did and left a cold cache.
std::array<int64_t, 2> own_cost = {};
uintptr_t code_begin = 0;  // of the watched library
uintptr_t code_end = 0;

struct Site {
  uintptr_t address = 0;  // to which the call returns; 0: unused
  uintptr_t caller = 0;   // the same of the function that calls
  int64_t held = 0;       // nanoseconds of the processor
};

// A lock that a thread holds. One that is taken under another has no place: its time is
// the other's.
struct Held {
  const pthread_mutex_t* mutex = nullptr;
  Site* site = nullptr;
  int64_t since = 0;  // of the thread's locked time
};

// Written by one thread. Read after its end, or while it does nothing.
class Thread {
 public:
  static constexpr size_t kSites = 512;

  void Begin(int64_t present) {
    pass = present;
    sites = {};
    used = {};
    owed_ = num_waits = 0;
    Go();
  }
  // Pays what the thread owes.
  void Settle() {
    constexpr int64_t kLeast = 100'000;      // a sleep ends up to so much too late
    constexpr int64_t kCredit = -5'000'000;  // more than a wait for a core takes
    const int64_t now = Now();
    const int64_t all = Now(kOwn) - processor_;
    const int64_t spent = std::max<int64_t>(0, all - own_cost[has_slept_]);
    const Kind kind = num_held_ > 0 ? kLocked : own_kind;
    used[kind] += spent;
    const double due = weights[kind] * static_cast<double>(spent * dilation);
    owed_ = std::max(kCredit, owed_ + static_cast<int64_t>(due) - (now - clock_));
    has_slept_ = owed_ > kLeast;
    if (has_slept_) {
      const timespec length = TimeOf(owed_);
      const int64_t begin = Now();
      clock_nanosleep(CLOCK_MONOTONIC, 0, &length, nullptr);
      owed_ -= Now() - begin;
    }
    Go();
  }
  void Owe(int64_t nanoseconds) { owed_ = nanoseconds; }
  // After a wait. The work of the kernel to begin and end it was done meanwhile.
  void Resume() {
    owed_ = std::max<int64_t>(0, owed_);
    Go();
  }

  void Take(const pthread_mutex_t* mutex, const void* address, const void* of_caller) {
    if (num_held_ == held_.size()) return;
    Site* site = num_held_ == 0 ? At(address, of_caller) : nullptr;
    held_[num_held_++] = {mutex, site, used[kLocked]};
  }
  // Returns the place where the lock was taken; null if none was noted.
  Site* Release(const pthread_mutex_t* mutex) {
    for (size_t i = num_held_; i-- > 0;) {
      if (held_[i].mutex != mutex) continue;
      const Held lock = held_[i];
      std::move(held_.begin() + i + 1, held_.begin() + num_held_, held_.begin() + i);
      --num_held_;
      if (lock.site != nullptr) lock.site->held += used[kLocked] - lock.since;
      return lock.site;
    }
    return nullptr;
  }
  void TakeAgain(const pthread_mutex_t* mutex, Site* site) {
    if (site != nullptr) held_[num_held_++] = {mutex, site, used[kLocked]};
  }

  int64_t pass = 0;
  Kind own_kind = gettid() == getpid() ? kConsumer : kDecode;
  // Nanoseconds of the processor, without the probe's.
  std::array<int64_t, kNumKinds> used = {};
  int64_t num_waits = 0;
  std::array<Site, kSites> sites = {};
  bool has_ended = false;

 private:
  static constexpr clockid_t kOwn = CLOCK_THREAD_CPUTIME_ID;

  void Go() {
    clock_ = Now();
    processor_ = Now(kOwn);
  }
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

  // Of the clock and the processor, until which the thread has settled.
  int64_t clock_ = 0;
  int64_t processor_ = 0;
  int64_t owed_ = 0;  // nanoseconds; below 0: paid in advance
  bool has_slept_ = false;
  std::array<Held, 16> held_ = {};
  size_t num_held_ = 0;
};

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
  if (dilation.load(std::memory_order_acquire) == 0 || is_within) return nullptr;
  if (own == nullptr) {
    is_within = true;
    prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
    auto made = std::make_unique<Thread>();
    own = made.get();
    const std::lock_guard lock(threads_mutex);
    threads.push_back(std::move(made));
    is_within = false;
  }
  if (own->pass != pass) own->Begin(pass);
  return own;
}

Thread* Settled() {
  Thread* thread = Own();
  if (thread != nullptr) thread->Settle();
  return thread;
}

template <typename Wait>
int Await(pthread_mutex_t* mutex, const Wait& wait) {
  Thread* thread = Settled();
  if (thread == nullptr) return wait();
  Site* site = thread->Release(mutex);
  thread->num_waits += site != nullptr;
  const int result = wait();
  thread->Resume();
  thread->TakeAgain(mutex, site);
  return result;
}

// The moment D times as far away. That a clock shows little says which one it is.
timespec Dilated(const timespec& until) {
  const clockid_t clock = until.tv_sec < kSecond ? CLOCK_MONOTONIC : CLOCK_REALTIME;
  const int64_t now = Now(clock);
  const int64_t left = int64_t{until.tv_sec} * kSecond + until.tv_nsec - now;
  if (left <= 0 || dilation == 0) return until;
  return TimeOf(now + left * dilation);
}

// The time of a lock that guards nothing, for a thread that owes so much.
int64_t OwnCost(int64_t owed) {
  std::mutex mutex;
  std::array<int64_t, 101> costs;
  for (int64_t& cost : costs) {
    Own()->Owe(owed);
    mutex.lock();
    cost = -Own()->used[Own()->own_kind];
    mutex.unlock();
    cost += Own()->used[Own()->own_kind];
  }
  std::ranges::sort(costs);
  return costs[costs.size() / 2];
}

struct Start {
  void* (*function)(void*);
  void* argument;
};

void* Begin(void* given) {
  const std::unique_ptr<Start> start(static_cast<Start*>(given));
  Own();
  void* result = start->function(start->argument);
  if (Thread* thread = Settled()) thread->has_ended = true;
  return result;
}

}  // namespace

extern "C" {

int pthread_mutex_lock(pthread_mutex_t* mutex) {
  // Libraries lock before this one is ready.
  if (real_lock == nullptr) return Real<decltype(pthread_mutex_lock)>(__func__)(mutex);
  Thread* thread = Settled();
  if (thread == nullptr) return real_lock(mutex);
  int result = pthread_mutex_trylock(mutex);
  if (result != 0) {
    result = real_lock(mutex);
    thread->Resume();
  }
  // std::mutex::lock may be a function of its own. The watched library has frame
  // pointers.
  const void* address = __builtin_return_address(0);
  if (IsWatched(address)) thread->Take(mutex, address, __builtin_return_address(1));
  return result;
}

int pthread_mutex_unlock(pthread_mutex_t* mutex) {
  if (real_unlock == nullptr) {
    return Real<decltype(pthread_mutex_unlock)>(__func__)(mutex);
  }
  if (Thread* thread = Settled()) thread->Release(mutex);
  return real_unlock(mutex);
}

int pthread_cond_signal(pthread_cond_t* condition) {
  static auto* const real = Real<decltype(pthread_cond_signal)>(__func__);
  Settled();
  return real(condition);
}

int pthread_cond_broadcast(pthread_cond_t* condition) {
  static auto* const real = Real<decltype(pthread_cond_broadcast)>(__func__);
  Settled();
  return real(condition);
}

int pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* mutex) {
  static auto* const real = Real<decltype(pthread_cond_wait)>(__func__);
  return Await(mutex, [&] { return real(condition, mutex); });
}

int pthread_cond_timedwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                           const timespec* until) {
  static auto* const real = Real<decltype(pthread_cond_timedwait)>(__func__);
  const timespec later = Dilated(*until);
  return Await(mutex, [&] { return real(condition, mutex, &later); });
}

int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                           clockid_t clock, const timespec* until) {
  static auto* const real = Real<decltype(pthread_cond_clockwait)>(__func__);
  const timespec later = Dilated(*until);
  return Await(mutex, [&] { return real(condition, mutex, clock, &later); });
}

int poll(pollfd* files, nfds_t num_files, int timeout) {
  static auto* const real = Real<decltype(poll)>(__func__);
  Thread* thread = Settled();
  if (thread == nullptr || timeout == 0) return real(files, num_files, timeout);
  if (thread->own_kind == kDecode) thread->own_kind = kClient;
  const int64_t later = int64_t{timeout} * dilation;
  const int result = real(files, num_files, static_cast<int>(std::min(later, kSecond)));
  thread->Resume();
  return result;
}

// Atomics wait by it.
long syscall(long number, ...) {
  static auto* const real = Real<long(long, ...)>(__func__);
  std::array<long, 6> given;
  va_list arguments;
  va_start(arguments, number);
  for (long& one : given) one = va_arg(arguments, long);
  va_end(arguments);
  Thread* thread = number == SYS_futex ? Settled() : nullptr;
  const auto [a, b, c, d, e, f] = given;
  const long result = real(number, a, b, c, d, e, f);
  if (thread != nullptr) thread->Resume();
  return result;
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                   void* (*function)(void*), void* argument) {
  static auto* const real = Real<decltype(pthread_create)>(__func__);
  Settled();
  return real(thread, attributes, Begin, new Start{function, argument});
}

// Watches the library between these addresses, forgets what was counted, and makes the
// process `factor` times slower; 1 only counts.
void probe_begin(uint64_t begin, uint64_t end, int64_t factor, const double* of_kinds) {
  dilation = 0;
  code_begin = begin;
  code_end = end;
  {
    const std::lock_guard lock(threads_mutex);
    std::erase_if(threads, [](const auto& thread) { return thread->has_ended; });
    pass.fetch_add(1, std::memory_order_acq_rel);
  }
  std::copy_n(of_kinds, kNumKinds, weights.begin());
  own_cost = {};
  dilation = factor;
  own_cost = {OwnCost(0), OwnCost(1'000'000)};
  pass.fetch_add(1, std::memory_order_acq_rel);  // forgets that
}

// Has the thread that calls pay what it owes.
void probe_settle() { Settled(); }

// Has threads work so often for `beside` nanoseconds of the processor by themselves and
// for `locked` under one lock. Returns the nanoseconds of the clock.
int64_t probe_try(int64_t num_threads, int64_t num_times, int64_t beside,
                  int64_t locked) {
  const auto work = [](int64_t nanoseconds) {
    const int64_t end = Now(CLOCK_THREAD_CPUTIME_ID) + nanoseconds;
    while (Now(CLOCK_THREAD_CPUTIME_ID) < end) continue;
  };
  std::mutex mutex;
  const int64_t begin = Now();
  {
    std::vector<std::jthread> started;
    for (int64_t i = 0; i < num_threads; ++i) {
      started.emplace_back([&] {
        for (int64_t j = 0; j < num_times; ++j) {
          work(beside);
          const std::lock_guard lock(mutex);
          work(locked);
        }
      });
    }
  }
  return Now() - begin;
}

// Writes what was counted: lines of a thread and its places.
void probe_write(const char* path) {
  dilation = 0;
  const std::lock_guard lock(threads_mutex);
  std::FILE* out = std::fopen(path, "w");
  for (const auto& thread : threads) {
    if (thread->pass != pass) continue;
    std::fprintf(out, "thread %d %ld", thread->own_kind, thread->num_waits);
    for (const int64_t used : thread->used) std::fprintf(out, " %ld", used);
    std::fprintf(out, "\n");
    for (const Site& site : thread->sites) {
      if (site.address == 0) continue;
      std::fprintf(out, "site %lu %lu %ld\n", site.address, site.caller, site.held);
    }
  }
  std::fclose(out);
}

}  // extern "C"
