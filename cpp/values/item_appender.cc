#include "values/item_appender.h"

#include <algorithm>

#include "kernels/count_bytes.h"

namespace torchparquet {

void BytesAppender::Append(const ValueRun& run, DecodeScratch* scratch, int64_t* starts,
                           kernels::ByteSink* sink) {
  // Few enough that their lengths stay in the L1 cache.
  constexpr int64_t kBlockValues = 2048;
  auto begin = static_cast<int64_t>(sink->size());
  auto* lengths = scratch->dense.ReserveItems<uint32_t>(kBlockValues);
  if (run.validity == nullptr) {
    for (int64_t done = 0; done < run.size;) {
      const int64_t count = std::min(run.size - done, kBlockValues);
      page_->Read(count, lengths, sink);
      for (int64_t i = 0; i < count; ++i) {
        starts[done + i] = begin;
        begin += lengths[i];
      }
      done += count;
    }
    return;
  }
  for (int64_t done = 0; done < run.size;) {
    const int64_t count = std::min(run.size - done, kBlockValues);
    const uint8_t* validity = run.validity + done;
    page_->Read(kernels::CountEqual(validity, count, 1), lengths, sink);
    int64_t next = 0;
    for (int64_t i = 0; i < count; ++i) {
      starts[done + i] = begin;
      if (validity[i]) begin += lengths[next++];
    }
    done += count;
  }
}

}  // namespace torchparquet
