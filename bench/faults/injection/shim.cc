// Stands before the system's functions in a process that is started with it in
// LD_PRELOAD. Counts the calls of each kind that a reader makes, and makes the n-th of
// them fail, be short, be late or wait. injection/shim.py arms it.
//
// Calls about files count if they are about the watched folder. Mappings count if they
// come from watched code, and so do allocations; or, if that is asked for, all
// allocations on threads that std::thread began.

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <new>

extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
}

namespace {

// In the order of shim.Call and of shim.Effect.
enum Call {
  kOpen,
  kStat,
  kRead,
  kClose,
  kWrite,
  kRename,
  kMap,
  kMemfd,
  kTruncate,
  kThread,
  kAllocate,
  kNumCalls
};
enum Effect { kNone, kFail, kShort, kDelay, kWait };

constexpr int kMaxDescriptors = 65536;
constexpr int kMaxRanges = 16;
constexpr int kMaxFolder = 512;

// In memory that forked children share, so that the parent sees what fires in them.
struct Shared {
  std::atomic<int64_t> counts[kNumCalls];
  std::atomic<int64_t> fired;
  std::atomic<int64_t> clock_reads;
  std::atomic<int64_t> clock_offset_ns;
};

struct Fault {
  int call = 0;
  int64_t first = 0;  // 1: the first call of its kind
  int64_t times = 0;
  int effect = kNone;
  // An errno; of kShort the bytes, or if negative the bytes fewer than wanted, or 0 for
  // half of them; of kDelay milliseconds; of kWait a descriptor to read a byte from.
  int64_t value = 0;
};

Shared* shared = nullptr;
Fault fault;
std::atomic<bool> is_armed{false};
bool on_cpp_threads = false;
thread_local bool is_cpp_thread = false;
char folder[kMaxFolder];
size_t folder_length = 0;
struct Range {
  uintptr_t begin;
  uintptr_t end;
};
Range ranges[kMaxRanges];
int num_ranges = 0;
bool is_watched[kMaxDescriptors];
thread_local int is_inside = 0;  // the shim's own calls do not count

template <typename Function>
Function Real(const char* name) {
  ++is_inside;
  void* found = dlsym(RTLD_NEXT, name);
  --is_inside;
  return reinterpret_cast<Function>(found);
}

#define REAL(name) static const auto real = Real<decltype(&::name)>(#name)

bool IsInFolder(const char* path) {
  return folder_length > 0 && path != nullptr &&
         std::strncmp(path, folder, folder_length) == 0;
}

bool IsWatched(int descriptor) {
  return descriptor >= 0 && descriptor < kMaxDescriptors && is_watched[descriptor];
}

void Watch(int descriptor, bool on) {
  if (descriptor >= 0 && descriptor < kMaxDescriptors) is_watched[descriptor] = on;
}

bool IsOfWatchedCode(const void* caller) {
  const auto address = reinterpret_cast<uintptr_t>(caller);
  for (int i = 0; i < num_ranges; ++i) {
    if (ranges[i].begin <= address && address < ranges[i].end) return true;
  }
  return false;
}

// True if this call is one that the fault is for.
bool Strikes(int call) {
  if (!is_armed.load(std::memory_order_acquire) || is_inside > 0) return false;
  const int64_t number = shared->counts[call].fetch_add(1) + 1;
  if (call != fault.call || fault.effect == kNone) return false;
  if (number < fault.first || number - fault.first >= fault.times) return false;
  shared->fired.fetch_add(1);
  return true;
}

void Pause() {
  if (fault.effect == kDelay) {
    const timespec time{fault.value / 1000, fault.value % 1000 * 1'000'000};
    nanosleep(&time, nullptr);
  } else if (fault.effect == kWait) {
    ++is_inside;
    char byte;
    while (read(static_cast<int>(fault.value), &byte, 1) < 0 && errno == EINTR) {
    }
    --is_inside;
  }
}

// True if the call fails; sets errno. Otherwise it may have taken time.
bool Fails(int call, bool counts) {
  if (!counts || !Strikes(call)) return false;
  if (fault.effect == kFail) {
    errno = static_cast<int>(fault.value);
    return true;
  }
  Pause();
  return false;
}

size_t Shortened(size_t wanted) {
  const auto bytes = static_cast<int64_t>(wanted);
  if (fault.value > 0)
    return static_cast<size_t>(fault.value < bytes ? fault.value : bytes);
  const int64_t fewer = fault.value == 0 ? bytes / 2 : bytes + fault.value;
  return static_cast<size_t>(fewer > 1 ? fewer : 1);
}

// Like Fails for a read or a write, whose size it may shorten.
bool TransferFails(int call, bool counts, size_t* num_bytes) {
  if (!counts || !Strikes(call)) return false;
  if (fault.effect == kFail) {
    errno = static_cast<int>(fault.value);
    return true;
  }
  if (fault.effect == kShort && *num_bytes > 1) *num_bytes = Shortened(*num_bytes);
  Pause();
  return false;
}

bool AllocationFails(const void* caller) {
  if (!is_armed.load(std::memory_order_acquire)) return false;
  const bool counts = on_cpp_threads ? is_cpp_thread : IsOfWatchedCode(caller);
  return counts && Strikes(kAllocate);
}

__attribute__((constructor)) void Begin() {
  shared = static_cast<Shared*>(mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE,
                                     MAP_SHARED | MAP_ANONYMOUS, -1, 0));
}

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED void shim_watch_folder(const char* path) {
  folder_length = std::strlen(path);
  std::memcpy(folder, path, folder_length + 1);
}

EXPORTED void shim_watch_code(uintptr_t begin, uintptr_t end) {
  if (num_ranges < kMaxRanges) ranges[num_ranges++] = {begin, end};
}

EXPORTED void shim_arm(int call, int64_t first, int64_t times, int effect, int64_t value,
                       int with_cpp_threads) {
  is_armed.store(false, std::memory_order_release);
  for (auto& count : shared->counts) count = 0;
  shared->fired = 0;
  shared->clock_reads = 0;
  fault = {call, first, times, effect, value};
  on_cpp_threads = with_cpp_threads != 0;
  is_armed.store(true, std::memory_order_release);
}

EXPORTED void shim_disarm() { is_armed.store(false, std::memory_order_release); }
EXPORTED int64_t shim_count(int call) { return shared->counts[call]; }
EXPORTED int64_t shim_fired() { return shared->fired; }
EXPORTED void shim_forget() { shared->fired = 0; }
EXPORTED void shim_move_clock(int64_t nanoseconds) {
  shared->clock_offset_ns = nanoseconds;
}
EXPORTED int64_t shim_clock_reads() { return shared->clock_reads; }

// Files. The functions with 64 in their name are the same on Linux with 64 bits.

namespace {

int Opened(int descriptor, bool counts) {
  if (descriptor >= 0) Watch(descriptor, counts);
  return descriptor;
}

mode_t ModeOf(int flags, va_list arguments) {
  const bool has_mode = (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
  return has_mode ? va_arg(arguments, mode_t) : 0;
}

}  // namespace

#define DEFINE_OPEN(name)                                                 \
  EXPORTED int name(const char* path, int flags, ...) {                   \
    va_list arguments;                                                    \
    va_start(arguments, flags);                                           \
    const mode_t mode = ModeOf(flags, arguments);                         \
    va_end(arguments);                                                    \
    const bool counts = IsInFolder(path);                                 \
    if (Fails(kOpen, counts)) return -1;                                  \
    static const auto real = Real<int (*)(const char*, int, ...)>(#name); \
    return Opened(real(path, flags, mode), counts);                       \
  }
DEFINE_OPEN(open)
DEFINE_OPEN(open64)

#define DEFINE_OPENAT(name)                                                    \
  EXPORTED int name(int at, const char* path, int flags, ...) {                \
    va_list arguments;                                                         \
    va_start(arguments, flags);                                                \
    const mode_t mode = ModeOf(flags, arguments);                              \
    va_end(arguments);                                                         \
    const bool counts = IsInFolder(path) || IsWatched(at);                     \
    if (Fails(kOpen, counts)) return -1;                                       \
    static const auto real = Real<int (*)(int, const char*, int, ...)>(#name); \
    return Opened(real(at, path, flags, mode), counts);                        \
  }
DEFINE_OPENAT(openat)
DEFINE_OPENAT(openat64)

#define DEFINE_STAT(name, type)                                               \
  EXPORTED int name(const char* path, struct type* out) noexcept {            \
    if (Fails(kStat, IsInFolder(path))) return -1;                            \
    static const auto real = Real<int (*)(const char*, struct type*)>(#name); \
    return real(path, out);                                                   \
  }
DEFINE_STAT(stat, stat)
DEFINE_STAT(stat64, stat64)
DEFINE_STAT(lstat, stat)
DEFINE_STAT(lstat64, stat64)

#define DEFINE_FSTAT(name, type)                                      \
  EXPORTED int name(int descriptor, struct type* out) noexcept {      \
    if (Fails(kStat, IsWatched(descriptor))) return -1;               \
    static const auto real = Real<int (*)(int, struct type*)>(#name); \
    return real(descriptor, out);                                     \
  }
DEFINE_FSTAT(fstat, stat)
DEFINE_FSTAT(fstat64, stat64)

#define DEFINE_FSTATAT(name, type)                                                      \
  EXPORTED int name(int at, const char* path, struct type* out, int flags) noexcept {   \
    if (Fails(kStat, IsInFolder(path) || IsWatched(at))) return -1;                     \
    static const auto real = Real<int (*)(int, const char*, struct type*, int)>(#name); \
    return real(at, path, out, flags);                                                  \
  }
DEFINE_FSTATAT(fstatat, stat)
DEFINE_FSTATAT(fstatat64, stat64)

EXPORTED ssize_t read(int descriptor, void* out, size_t num_bytes) {
  if (TransferFails(kRead, IsWatched(descriptor), &num_bytes)) return -1;
  REAL(read);
  return real(descriptor, out, num_bytes);
}

#define DEFINE_PREAD(name)                                                           \
  EXPORTED ssize_t name(int descriptor, void* out, size_t num_bytes, off_t offset) { \
    if (TransferFails(kRead, IsWatched(descriptor), &num_bytes)) return -1;          \
    REAL(name);                                                                      \
    return real(descriptor, out, num_bytes, offset);                                 \
  }
DEFINE_PREAD(pread)
DEFINE_PREAD(pread64)

EXPORTED ssize_t write(int descriptor, const void* data, size_t num_bytes) {
  if (TransferFails(kWrite, IsWatched(descriptor), &num_bytes)) return -1;
  REAL(write);
  return real(descriptor, data, num_bytes);
}

#define DEFINE_PWRITE(name)                                                  \
  EXPORTED ssize_t name(int descriptor, const void* data, size_t num_bytes,  \
                        off_t offset) {                                      \
    if (TransferFails(kWrite, IsWatched(descriptor), &num_bytes)) return -1; \
    REAL(name);                                                              \
    return real(descriptor, data, num_bytes, offset);                        \
  }
DEFINE_PWRITE(pwrite)
DEFINE_PWRITE(pwrite64)

EXPORTED int rename(const char* from, const char* to) noexcept {
  if (Fails(kRename, IsInFolder(to))) return -1;
  REAL(rename);
  return real(from, to);
}

EXPORTED int close(int descriptor) {
  const bool counts = IsWatched(descriptor);
  Watch(descriptor, false);
  const bool fails = Fails(kClose, counts);
  const int code = errno;
  REAL(close);
  const int result = real(descriptor);  // Linux closes it whatever it says
  if (!fails) return result;
  errno = code;
  return -1;
}

#define DEFINE_TRUNCATE(name)                                   \
  EXPORTED int name(int descriptor, off_t num_bytes) noexcept { \
    if (Fails(kTruncate, IsWatched(descriptor))) return -1;     \
    REAL(name);                                                 \
    return real(descriptor, num_bytes);                         \
  }
DEFINE_TRUNCATE(ftruncate)
DEFINE_TRUNCATE(ftruncate64)

// Memory.

EXPORTED int memfd_create(const char* name, unsigned flags) noexcept {
  const bool counts = is_armed.load(std::memory_order_acquire);
  if (Fails(kMemfd, counts)) return -1;
  REAL(memfd_create);
  return Opened(real(name, flags), counts);
}

#define DEFINE_MMAP(name)                                                                \
  EXPORTED void* name(void* at, size_t num_bytes, int access, int flags, int descriptor, \
                      off_t offset) noexcept {                                           \
    const bool counts = is_armed.load(std::memory_order_acquire) &&                      \
                        IsOfWatchedCode(__builtin_return_address(0));                    \
    if (Fails(kMap, counts)) return MAP_FAILED;                                          \
    REAL(name);                                                                          \
    return real(at, num_bytes, access, flags, descriptor, offset);                       \
  }
DEFINE_MMAP(mmap)
DEFINE_MMAP(mmap64)

EXPORTED void* malloc(size_t num_bytes) noexcept {
  if (!AllocationFails(__builtin_return_address(0))) return __libc_malloc(num_bytes);
  errno = ENOMEM;
  return nullptr;
}

EXPORTED void* calloc(size_t count, size_t num_bytes) noexcept {
  if (!AllocationFails(__builtin_return_address(0)))
    return __libc_calloc(count, num_bytes);
  errno = ENOMEM;
  return nullptr;
}

EXPORTED void* realloc(void* data, size_t num_bytes) noexcept {
  if (!AllocationFails(__builtin_return_address(0)))
    return __libc_realloc(data, num_bytes);
  errno = ENOMEM;
  return nullptr;
}

EXPORTED void* aligned_alloc(size_t alignment, size_t num_bytes) noexcept {
  if (!AllocationFails(__builtin_return_address(0))) {
    return __libc_memalign(alignment, num_bytes);
  }
  errno = ENOMEM;
  return nullptr;
}

EXPORTED int posix_memalign(void** out, size_t alignment, size_t num_bytes) noexcept {
  if (AllocationFails(__builtin_return_address(0))) return ENOMEM;
  void* data = __libc_memalign(alignment, num_bytes);
  if (data == nullptr) return ENOMEM;
  *out = data;
  return 0;
}

namespace {

void* New(const void* caller, size_t alignment, size_t num_bytes) {
  if (AllocationFails(caller)) return nullptr;
  const size_t wanted = num_bytes > 0 ? num_bytes : 1;
  return alignment > 0 ? __libc_memalign(alignment, wanted) : __libc_malloc(wanted);
}

void* NewOrThrow(const void* caller, size_t alignment, size_t num_bytes) {
  void* data = New(caller, alignment, num_bytes);
  if (data == nullptr) throw std::bad_alloc();
  return data;
}

}  // namespace

#define CALLER __builtin_return_address(0)
#define VISIBLE __attribute__((visibility("default")))

VISIBLE void* operator new(size_t n) { return NewOrThrow(CALLER, 0, n); }
VISIBLE void* operator new[](size_t n) { return NewOrThrow(CALLER, 0, n); }
VISIBLE void* operator new(size_t n, std::align_val_t a) {
  return NewOrThrow(CALLER, static_cast<size_t>(a), n);
}
VISIBLE void* operator new[](size_t n, std::align_val_t a) {
  return NewOrThrow(CALLER, static_cast<size_t>(a), n);
}
VISIBLE void* operator new(size_t n, const std::nothrow_t&) noexcept {
  return New(CALLER, 0, n);
}
VISIBLE void* operator new[](size_t n, const std::nothrow_t&) noexcept {
  return New(CALLER, 0, n);
}

// Threads.

namespace {

struct Start {
  void* (*run)(void*);
  void* argument;
};

void* RunCppThread(void* data) {
  const Start start = *static_cast<Start*>(data);
  free(data);
  is_cpp_thread = true;
  return start.run(start.argument);
}

// True for what std::thread runs.
bool IsOfCpp(void* (*run)(void*)) {
  Dl_info found;
  return dladdr(reinterpret_cast<void*>(run), &found) != 0 &&
         std::strstr(found.dli_fname, "libstdc++") != nullptr;
}

}  // namespace

EXPORTED int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                            void* (*run)(void*), void* argument) noexcept {
  if (Strikes(kThread)) {
    if (fault.effect == kFail) return static_cast<int>(fault.value);
    Pause();
  }
  REAL(pthread_create);
  if (!IsOfCpp(run)) return real(thread, attributes, run, argument);
  auto* start = static_cast<Start*>(__libc_malloc(sizeof(Start)));
  if (start == nullptr) return EAGAIN;
  *start = {run, argument};
  const int result = real(thread, attributes, &RunCppThread, start);
  if (result != 0) free(start);
  return result;
}

// The clock that the system's time service sets.

namespace {

void Move(timespec* time) {
  shared->clock_reads.fetch_add(1);
  const int64_t moved =
      time->tv_sec * 1'000'000'000 + time->tv_nsec + shared->clock_offset_ns.load();
  time->tv_sec = moved / 1'000'000'000;
  time->tv_nsec = moved % 1'000'000'000;
}

}  // namespace

EXPORTED int clock_gettime(clockid_t clock, timespec* out) noexcept {
  REAL(clock_gettime);
  const int result = real(clock, out);
  const bool is_set = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
  if (result == 0 && is_set && shared != nullptr) Move(out);
  return result;
}

EXPORTED int gettimeofday(timeval* out, void* zone) noexcept {
  REAL(gettimeofday);
  const int result = real(out, zone);
  if (result == 0 && shared != nullptr) {
    timespec time{out->tv_sec, out->tv_usec * 1000};
    Move(&time);
    *out = {time.tv_sec, time.tv_nsec / 1000};
  }
  return result;
}

EXPORTED time_t time(time_t* out) noexcept {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  if (out != nullptr) *out = now.tv_sec;
  return now.tv_sec;
}
