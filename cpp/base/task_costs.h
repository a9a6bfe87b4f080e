#pragma once

#include <chrono>
#include <cstdint>

namespace torchparquet {

// The cost of reading, without decoding.
struct Costs {
  int64_t bytes_read = 0;  // from the file, compressed
  int64_t num_reads = 0;
  int64_t bytes_decompressed = 0;  // the result
  int64_t num_decompressed = 0;    // pages
  std::chrono::nanoseconds open_time{0};
  std::chrono::nanoseconds read_time{0};
  std::chrono::nanoseconds decompress_time{0};

  void Add(const Costs& others) {
    bytes_read += others.bytes_read;
    num_reads += others.num_reads;
    bytes_decompressed += others.bytes_decompressed;
    num_decompressed += others.num_decompressed;
    open_time += others.open_time;
    read_time += others.read_time;
    decompress_time += others.decompress_time;
  }
};

// The cost of the task that a decode thread is working on. Used by one thread.
struct TaskCosts : Costs {
  using Clock = std::chrono::steady_clock;
  static constexpr int kNoCodec = -1;

  int codec = kNoCodec;  // of the column chunk, a Codec::Number
};

// The summed cost of tasks.
struct CostSums : Costs {
  int64_t num_tasks = 0;
  std::chrono::nanoseconds decode_time{0};  // all other time of tasks

  void Add(const TaskCosts& costs, std::chrono::nanoseconds task_time) {
    Costs::Add(costs);
    ++num_tasks;
    decode_time += task_time - costs.open_time - costs.read_time - costs.decompress_time;
  }
  void Add(const CostSums& others) {
    Costs::Add(others);
    num_tasks += others.num_tasks;
    decode_time += others.decode_time;
  }
};

// Adds the time of its life to a sum. Two readings of the clock cost about 50 ns, so time
// reads and pages with it, never single values.
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
