#pragma once

#include <chrono>
#include <cstdint>

namespace torchparquet {

// What a decode thread has spent on the task in work, decoding itself aside. One
// thread's.
struct TaskCosts {
  using Clock = std::chrono::steady_clock;
  static constexpr int kNoCodec = -1;

  int codec = kNoCodec;    // of the column chunk, a parquet::Compression::type
  int64_t bytes_read = 0;  // from the source
  int64_t num_reads = 0;
  int64_t bytes_decompressed = 0;  // what pages became
  int64_t num_decompressed = 0;    // pages
  std::chrono::nanoseconds open_time{0};
  std::chrono::nanoseconds read_time{0};
  std::chrono::nanoseconds decompress_time{0};
};

// Adds the time of its life to a sum. Two readings of the clock cost about 50 ns, so it
// stands around reads and pages, never around values.
class CostTimer {
 public:
  explicit CostTimer(std::chrono::nanoseconds* sum)
      : sum_(sum), begin_(TaskCosts::Clock::now()) {}
  ~CostTimer() { *sum_ += TaskCosts::Clock::now() - begin_; }
  CostTimer(const CostTimer&) = delete;
  CostTimer& operator=(const CostTimer&) = delete;

 private:
  std::chrono::nanoseconds* sum_;
  const TaskCosts::Clock::time_point begin_;
};

}  // namespace torchparquet
