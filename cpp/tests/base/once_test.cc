#include "base/once.h"

#include <doctest/doctest.h>

#include <stdexcept>
#include <thread>
#include <vector>

namespace torchparquet {
namespace {

TEST_CASE("work is done once, and is seen by every thread that returns") {
  Once once;
  int num_done = 0;  // guarded by once
  std::vector<int> seen(8);
  std::vector<std::thread> threads;
  threads.reserve(seen.size());
  for (int& of_thread : seen) {
    threads.emplace_back([&] {
      once.Do([&] { ++num_done; });
      of_thread = num_done;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(seen == std::vector<int>(8, 1));
}

TEST_CASE("work that throws is tried again") {
  Once once;
  int num_tries = 0;
  const auto work = [&] {
    if (++num_tries < 3) throw std::runtime_error("not yet");
  };
  CHECK_THROWS(once.Do(work));
  CHECK_THROWS(once.Do(work));
  once.Do(work);
  once.Do(work);
  CHECK(num_tries == 3);
}

}  // namespace
}  // namespace torchparquet
