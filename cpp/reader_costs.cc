#include "reader_costs.h"

namespace torchparquet {

void CostSums::Add(const TaskCosts& costs, std::chrono::nanoseconds task_time) {
  ++num_tasks;
  bytes_read += costs.bytes_read;
  num_reads += costs.num_reads;
  bytes_decompressed += costs.bytes_decompressed;
  num_decompressed += costs.num_decompressed;
  open_time += costs.open_time;
  read_time += costs.read_time;
  decompress_time += costs.decompress_time;
  decode_time += task_time - costs.open_time - costs.read_time - costs.decompress_time;
}

void CostSums::Add(const CostSums& others) {
  num_tasks += others.num_tasks;
  bytes_read += others.bytes_read;
  num_reads += others.num_reads;
  bytes_decompressed += others.bytes_decompressed;
  num_decompressed += others.num_decompressed;
  open_time += others.open_time;
  read_time += others.read_time;
  decompress_time += others.decompress_time;
  decode_time += others.decode_time;
}

void ReaderCosts::Add(int64_t index, const TaskCosts& costs,
                      std::chrono::nanoseconds task_time) {
  columns_[static_cast<size_t>(index)].Add(costs, task_time);
  if (costs.codec != TaskCosts::kNoCodec) codecs_[costs.codec].Add(costs, task_time);
}

}  // namespace torchparquet
