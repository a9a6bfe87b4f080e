#include "remote/transport/cached_fetcher.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>

#include "base/process_owned.h"
#include "remote/disk_cache/cache_setting.h"
#include "remote/transport/broker.h"

namespace torchparquet {
namespace {

using testing::Bytes;
using testing::BytesOf;
using testing::TemporaryFolder;

constexpr int64_t kNumBytes = 1'000;

std::shared_ptr<Fetch> MakeFetch() {
  return std::make_shared<Fetch>(
      std::make_shared<const RemoteObject>(RemoteObject{
          .path = "s3://bucket/object", .num_bytes = kNumBytes, .identity = "etag"}),
      ByteRange{0, kNumBytes});
}

Bytes Arrived(const Fetch& fetch) {
  fetch.Await(kNumBytes);
  return {fetch.data(), fetch.data() + kNumBytes};
}

TEST_CASE("a block that was lost is fetched, and then comes out of the cache") {
  const TemporaryFolder temporary;
  const Bytes expected = BytesOf(1, kNumBytes);
  const auto store = std::make_shared<Broker>(1);
  CachedFetcher cached(std::make_shared<BlockCache>(temporary.cache(), 1 << 20), store);
  const auto first = MakeFetch();
  CHECK_FALSE(cached.Has(first->object(), first->range()));
  cached.Start(first);
  store->GiveBytes(*store->Next(), expected);
  CHECK(Arrived(*first) == expected);
  std::atomic<bool> is_kept = false;
  cached.Keep(first, {first->range()}, [&] { is_kept = true; });
  while (!is_kept) std::this_thread::yield();
  const auto second = MakeFetch();
  CHECK(cached.Has(second->object(), second->range()));
  cached.Start(second);
  CHECK(Arrived(*second) == expected);
  CHECK(store->stats().num_requests == 1);
}

TEST_CASE("a forked child joins no thread of its parent's") {
  const TemporaryFolder temporary;
  const auto store = std::make_shared<Broker>(1);
  auto cached = MakeProcessOwned<CachedFetcher>(
      std::make_shared<BlockCache>(temporary.cache(), 1 << 20), store);
  const auto fetch = MakeFetch();
  cached->Start(fetch);
  const auto request = store->Next();  // the threads have begun
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    alarm(30);
    cached.reset();
    _exit(0);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  store->GiveBytes(*request, BytesOf(1, kNumBytes));
  CHECK(Arrived(*fetch) == BytesOf(1, kNumBytes));
}

}  // namespace
}  // namespace torchparquet
