#include "base/buffer_pool.h"

#include <doctest/doctest.h>

#include <cstring>
#include <utility>

namespace torchparquet {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

TEST_CASE("a buffer that was returned serves again") {
  BufferPool pool(16 * kMiB);
  PageBuffer first = pool.Take(4 * kMiB);
  const uint8_t* const address = first.data();
  std::memset(first.data(), 1, 4 * kMiB);
  pool.Return(std::move(first));
  CHECK(pool.idle_bytes() == 4 * kMiB);
  CHECK(pool.Take(3 * kMiB).data() == address);
  CHECK(pool.idle_bytes() == 0);
}

TEST_CASE("a small request takes no large buffer") {
  BufferPool pool(16 * kMiB);
  pool.Return(pool.Take(8 * kMiB));
  const PageBuffer small = pool.Take(1000);
  CHECK(small.capacity() < 2000);
  CHECK(pool.idle_bytes() == 8 * kMiB);
}

TEST_CASE("what is kept stays within the bound, with what is in use") {
  BufferPool pool(8 * kMiB);
  PageBuffer a = pool.Take(3 * kMiB), b = pool.Take(4 * kMiB);
  pool.Return(std::move(a));
  CHECK(pool.idle_bytes() == 3 * kMiB);
  PageBuffer c = pool.Take(4 * kMiB);  // no room for the idle one any more
  CHECK(pool.idle_bytes() == 0);
  PageBuffer d = pool.Take(2 * kMiB);  // beyond the bound, which only limits what is kept
  pool.Return(std::move(d));
  CHECK(pool.idle_bytes() == 0);
  pool.Return(std::move(b));
  pool.Return(std::move(c));
  CHECK(pool.idle_bytes() == 8 * kMiB);
}

}  // namespace
}  // namespace torchparquet
