#include "reader/reader_costs.h"

namespace torchparquet {

void CostSums::Add(const TaskCosts& costs, std::chrono::nanoseconds task_time) {
  Costs::Add(costs);
  ++num_tasks;
  decode_time += task_time - costs.open_time - costs.read_time - costs.decompress_time;
}

void CostSums::Add(const CostSums& others) {
  Costs::Add(others);
  num_tasks += others.num_tasks;
  decode_time += others.decode_time;
}

void ReaderCosts::Add(int64_t index, const TaskCosts& costs,
                      std::chrono::nanoseconds task_time) {
  columns_[static_cast<size_t>(index)].Add(costs, task_time);
  if (costs.codec != TaskCosts::kNoCodec) codecs_[costs.codec].Add(costs, task_time);
}

}  // namespace torchparquet
