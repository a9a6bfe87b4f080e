#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <vector>

#include "base/task_costs.h"

namespace torchparquet {

// The summed cost of tasks.
struct CostSums : Costs {
  int64_t num_tasks = 0;
  std::chrono::nanoseconds decode_time{0};  // all other time of tasks

  void Add(const TaskCosts& costs, std::chrono::nanoseconds task_time);
  void Add(const CostSums& others);
};

// The sums by column and by codec. Used under one lock, which threads take between two
// tasks anyway.
class ReaderCosts {
 public:
  explicit ReaderCosts(int64_t num_tasks) : columns_(static_cast<size_t>(num_tasks)) {}

  // Adds the cost of the task with that index.
  void Add(int64_t index, const TaskCosts& costs, std::chrono::nanoseconds task_time);

  const std::vector<CostSums>& columns() const { return columns_; }
  // By Codec::Number. Only column chunks count, not columns that no file
  // stores.
  const std::map<int, CostSums>& codecs() const { return codecs_; }

 private:
  std::vector<CostSums> columns_;
  std::map<int, CostSums> codecs_;
};

}  // namespace torchparquet
