#include "batches/slab_pool.h"

#include <doctest/doctest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <fstream>
#include <set>
#include <thread>
#include <vector>

#include "draws.h"

namespace torchparquet {
namespace {

constexpr int64_t kPlenty = int64_t{1} << 40;

bool AllEqual(const uint8_t* data, int64_t num_bytes, uint8_t value) {
  return std::all_of(data, data + num_bytes, [&](uint8_t byte) { return byte == value; });
}

TEST_CASE("slabs are aligned, of at least the asked size, and do not overlap") {
  for (const int64_t slab_bytes : {0, 1, 63, 64, 65, 4096, 100'000, 3 << 20, 40 << 20}) {
    CAPTURE(slab_bytes);
    const auto pool = SlabPool::Make(slab_bytes, kPlenty);
    CHECK(pool->slab_bytes() >= std::max<int64_t>(slab_bytes, 1));
    CHECK(pool->slab_bytes() % SlabPool::kSlabAlignment == 0);
    CHECK(pool->slab_bytes() - slab_bytes <= SlabPool::kSlabAlignment);
    std::vector<SlabPool::Slab> slabs;
    std::set<uint8_t*> begins;
    for (int i = 0; i < 9; ++i) {
      slabs.push_back(pool->Acquire());
      uint8_t* data = slabs.back().data();
      CHECK(reinterpret_cast<uintptr_t>(data) % SlabPool::kSlabAlignment == 0);
      data[0] = 1;
      data[pool->slab_bytes() - 1] = 1;
      begins.insert(data);
    }
    REQUIRE(begins.size() == 9);
    for (auto next = std::next(begins.begin()); next != begins.end(); ++next) {
      CHECK(*next - *std::prev(next) >= pool->slab_bytes());
    }
    CHECK(pool->mapped_bytes() >= 9 * pool->slab_bytes());
  }
}

TEST_CASE("of those that are kept the slab returned last is taken first") {
  const auto pool = SlabPool::Make(1000, 2 * 1024);
  SlabPool::Slab a = pool->Acquire();
  SlabPool::Slab b = pool->Acquire();
  uint8_t* a_data = a.data();
  uint8_t* b_data = b.data();
  a = SlabPool::Slab();
  // Move assignment swaps, so the temporary above carried the slab away.
  CHECK(a.data() == nullptr);
  b = SlabPool::Slab();
  SlabPool::Slab first = pool->Acquire();
  SlabPool::Slab second = pool->Acquire();
  CHECK(first.data() == b_data);
  CHECK(second.data() == a_data);
}

TEST_CASE("recycling maps no more memory") {
  const auto pool = SlabPool::Make(300'000, 5 * 300'000);
  {
    const std::vector<SlabPool::Slab> warm_up = [&] {
      std::vector<SlabPool::Slab> slabs;
      for (int i = 0; i < 5; ++i) slabs.push_back(pool->Acquire());
      return slabs;
    }();
  }
  const int64_t mapped_bytes = pool->mapped_bytes();
  const int64_t num_idle = pool->num_idle();
  for (int round = 0; round < 200; ++round) {
    std::vector<SlabPool::Slab> slabs;
    for (int i = 0; i < 5; ++i) slabs.push_back(pool->Acquire());
    CHECK(pool->num_idle() == num_idle - 5);
  }
  CHECK(pool->mapped_bytes() == mapped_bytes);
  CHECK(pool->num_idle() == num_idle);
}

TEST_CASE("fresh slabs are taken until as many are touched as are kept") {
  constexpr int64_t kSlabBytes = 64 << 10;
  constexpr size_t kKept = 4;
  const auto pool = SlabPool::Make(kSlabBytes, kKept * kSlabBytes);
  std::set<uint8_t*> touched;
  for (size_t i = 0; i < 20; ++i) {
    touched.insert(pool->Acquire().data());
    CHECK(touched.size() == std::min(i + 1, kKept));
  }
}

TEST_CASE("of what more was in use at once some is kept, and none is taken for that") {
  constexpr int64_t kSlabBytes = 64 << 10;
  const auto pool = SlabPool::Make(kSlabBytes, 2 * kSlabBytes, kSlabBytes);
  std::set<uint8_t*> touched;
  for (int i = 0; i < 20; ++i) touched.insert(pool->Acquire().data());
  CHECK(touched.size() == 2);
  {
    std::vector<SlabPool::Slab> slabs;
    for (int i = 0; i < 5; ++i) {
      slabs.push_back(pool->Acquire());
      *slabs.back().data() = 1;
    }
  }
  std::vector<SlabPool::Slab> again;
  int64_t num_kept = 0;
  for (int i = 0; i < 5; ++i) {
    again.push_back(pool->Acquire());
    num_kept += *again.back().data();  // zero where pages were given back
  }
  CHECK(num_kept == 3);
}

TEST_CASE("without memory for a fresh slab an idle one is taken") {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const auto pool = SlabPool::Make(40 << 20, kPlenty);
    uint8_t* first = pool->Acquire().data();
    const rlimit none{.rlim_cur = 0, .rlim_max = 0};
    setrlimit(RLIMIT_AS, &none);
    // QEMU takes the limit and does not keep to it.
    constexpr size_t kAnyBytes = 1 << 20;
    const void* any =
        mmap(nullptr, kAnyBytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (any != MAP_FAILED) _exit(0);
    _exit(pool->Acquire().data() == first ? 0 : 1);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

TEST_CASE("moving a slab moves its ownership") {
  const auto pool = SlabPool::Make(64, kPlenty);
  SlabPool::Slab slab = pool->Acquire();
  const int64_t num_idle = pool->num_idle();
  uint8_t* data = slab.data();
  SlabPool::Slab moved(std::move(slab));
  CHECK(slab.data() == nullptr);
  CHECK(moved.data() == data);
  CHECK(pool->num_idle() == num_idle);
  {
    const SlabPool::Slab last(std::move(moved));
  }
  CHECK(pool->num_idle() == num_idle + 1);
}

TEST_CASE("a slab outlives the owner of its pool") {
  SlabPool::Slab slab;
  std::weak_ptr<SlabPool> watch;
  {
    const auto pool = SlabPool::Make(50'000, kPlenty);
    watch = pool;
    slab = pool->Acquire();
  }
  CHECK_FALSE(watch.expired());
  std::memset(slab.data(), 0x5A, 50'000);
  CHECK(AllEqual(slab.data(), 50'000, 0x5A));
  slab = SlabPool::Slab();
  CHECK(watch.expired());
}

TEST_CASE("slabs idle beyond the bound give their pages back, those within keep them") {
  constexpr int64_t kSlabBytes = 4 << 20;
  const auto pool = SlabPool::Make(kSlabBytes, 2 * kSlabBytes);
  std::vector<SlabPool::Slab> slabs;
  do {  // until nothing is idle, so that the returned slabs alone count
    slabs.push_back(pool->Acquire());
    std::memset(slabs.back().data(), 0x77, kSlabBytes);
  } while (slabs.size() < 5 || pool->num_idle() > 0);
  const size_t num_slabs = slabs.size();
  slabs.clear();
  CHECK(pool->num_idle() == static_cast<int64_t>(num_slabs));

  int num_kept = 0;
  for (size_t i = 0; i < num_slabs; ++i) {
    slabs.push_back(pool->Acquire());
    const uint8_t content = *slabs.back().data();
    CHECK(AllEqual(slabs.back().data(), kSlabBytes, content));
    if (content == 0x77) {
      ++num_kept;
      CHECK(i < 2);  // the warm ones are taken first
    } else {
      CHECK(content == 0);
    }
  }
  CHECK(num_kept == 2);
}

TEST_CASE("what was never touched does not count as idle") {
  constexpr int64_t kSlabBytes = 64 << 10;
  constexpr int64_t kMaxIdle = 3;
  const auto pool = SlabPool::Make(kSlabBytes, kMaxIdle * kSlabBytes);
  std::vector<SlabPool::Slab> slabs;
  const auto acquire = [&](int64_t num_slabs) {
    for (int64_t i = 0; i < num_slabs; ++i) slabs.push_back(pool->Acquire());
  };
  acquire(1);
  REQUIRE(pool->num_idle() > kMaxIdle);  // the rest of the arena
  acquire(kMaxIdle - 1);
  for (int round = 0; round < 3; ++round) {
    std::set<uint8_t*> filled;
    for (const SlabPool::Slab& slab : slabs) {
      std::memset(slab.data(), 0x55 + round, kSlabBytes);
      filled.insert(slab.data());
    }
    slabs.clear();
    acquire(kMaxIdle);
    for (const SlabPool::Slab& slab : slabs) {
      CHECK(filled.contains(slab.data()));
      CHECK(AllEqual(slab.data(), kSlabBytes, static_cast<uint8_t>(0x55 + round)));
    }
  }
}

TEST_CASE("pages that were given back count as idle no more") {
  constexpr int64_t kSlabBytes = 64 << 10;
  constexpr int64_t kMaxIdle = 2;
  const auto pool = SlabPool::Make(kSlabBytes, kMaxIdle * kSlabBytes);
  std::vector<SlabPool::Slab> slabs;
  for (int round = 0; round < 3; ++round) {
    for (int64_t i = 0; i < 10; ++i) {
      slabs.push_back(pool->Acquire());
      std::memset(slabs.back().data(), 0x66, kSlabBytes);
    }
    slabs.clear();
    for (int64_t i = 0; i < kMaxIdle; ++i) {
      slabs.push_back(pool->Acquire());
      CHECK(AllEqual(slabs.back().data(), kSlabBytes, 0x66));
    }
    const SlabPool::Slab cold = pool->Acquire();
    CHECK(AllEqual(cold.data(), kSlabBytes, 0));
    slabs.clear();
  }
}

// Address spaces of sanitizers have no such limit.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
int64_t AddressSpaceBytes() {
  int64_t num_pages = 0;
  std::ifstream("/proc/self/statm") >> num_pages;
  return num_pages * sysconf(_SC_PAGESIZE);
}

// In a child, for the sake of its limit. Returns the number of calls that failed, or -1
// if one of them left something behind.
int64_t FailuresWithin(int64_t more_bytes) {
  constexpr int64_t kSlabBytes = 64;
  const auto pool = SlabPool::Make(kSlabBytes, kPlenty);
  std::vector<SlabPool::Slab> slabs;
  slabs.reserve(1 << 21);
  rlimit before{};
  getrlimit(RLIMIT_AS, &before);
  int64_t num_failures = 0;
  for (int64_t growth = 0; growth < 5; ++growth) {
    while (pool->num_idle() > 0) slabs.push_back(pool->Acquire());
    const int64_t mapped_bytes = pool->mapped_bytes();
    const int64_t used_bytes = AddressSpaceBytes();
    rlimit limit = before;
    limit.rlim_cur = static_cast<rlim_t>(used_bytes + more_bytes);
    setrlimit(RLIMIT_AS, &limit);
    bool has_failed = false;
    try {
      slabs.push_back(pool->Acquire());
    } catch (const std::exception&) {
      has_failed = true;
    }
    setrlimit(RLIMIT_AS, &before);
    if (!has_failed) continue;
    ++num_failures;
    const bool is_as_before =
        pool->mapped_bytes() == mapped_bytes && pool->num_idle() == 0;
    // Lists of slabs that have grown before the failure stay. An arena would be larger.
    const int64_t left_bytes = AddressSpaceBytes() - used_bytes;
    if (!is_as_before || left_bytes > mapped_bytes + (1 << 20)) return -1;
    slabs.push_back(pool->Acquire());
    if (pool->mapped_bytes() <= mapped_bytes) return -1;
  }
  return num_failures;
}

TEST_CASE("what fails for want of memory leaves nothing behind") {
  for (int64_t more_bytes = 0; more_bytes < 6'000'000; more_bytes += 300'000) {
    CAPTURE(more_bytes);
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) _exit(FailuresWithin(more_bytes) > 0 ? 0 : 1);
    int status = -1;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
  }
}
#endif

TEST_CASE("threads never hold the same slab at once") {
  constexpr int64_t kSlabBytes = 4096;
  const auto pool = SlabPool::Make(kSlabBytes, 8 * kSlabBytes);
  std::atomic<int> num_clashes{0};
  {
    std::vector<std::jthread> threads;
    for (int number = 0; number < 6; ++number) {
      threads.emplace_back([&, number] {
        testing::Draws draws(static_cast<uint64_t>(number));
        std::vector<SlabPool::Slab> held;
        const auto mark = static_cast<uint8_t>(number + 1);
        for (int step = 0; step < 1000; ++step) {
          if (held.size() < 4 && draws.OneIn(2)) {
            held.push_back(pool->Acquire());
            std::memset(held.back().data(), mark, 256);
          } else if (!held.empty()) {
            if (!AllEqual(held.back().data(), 256, mark)) ++num_clashes;
            held.pop_back();
          }
        }
      });
    }
  }
  CHECK(num_clashes == 0);
}

TEST_CASE("slabs made on one thread are returned on another") {
  auto pool = SlabPool::Make(4096, kPlenty);
  std::vector<SlabPool::Slab> slabs;
  for (int i = 0; i < 50; ++i) slabs.push_back(pool->Acquire());
  const int64_t num_idle = pool->num_idle();
  std::jthread([moved = std::move(slabs)]() mutable { moved.clear(); }).join();
  CHECK(pool->num_idle() == num_idle + 50);
}

TEST_CASE("a forked child abandons its slabs and may destroy the pool") {
  auto pool = SlabPool::Make(4096, kPlenty);
  SlabPool::Slab slab = pool->Acquire();
  slab.data()[0] = 42;
  const int64_t num_idle = pool->num_idle();
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    {
      const SlabPool::Slab gone(std::move(slab));
    }
    const bool abandoned = pool->num_idle() == num_idle;
    pool.reset();
    _exit(abandoned ? 0 : 1);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(slab.data()[0] == 42);
  CHECK(pool->num_idle() == num_idle);
}

}  // namespace
}  // namespace torchparquet
