#include "columns/values/item_appender.h"

#include <algorithm>

#include "base/errors.h"
#include "kernels/count_bytes.h"

namespace torchparquet {

void BytesAppender::Read(int64_t num_values, uint32_t* lengths, kernels::ByteSink* sink) {
  if (!selected_) return page_->Read(num_values, lengths, sink);
  if (num_values == 0) return;
  auto& [bits, num_stored, position] = *selected_;
  const int64_t begin = position;
  position = kernels::EndOfOnes(bits.data(), begin, num_stored, num_values);
  if (kernels::CountOnes(bits.data(), begin, position) < num_values) {
    throw Error(ErrorKind::kInternal, "more values were asked for than were selected");
  }
  if (page_->PickOnes(bits.data(), begin, position, lengths, sink)) return;
  for (int64_t next = begin; next < position;) {
    const int64_t one = kernels::FindBit(bits.data(), next, position, true);
    if (one > next) page_->Skip(one - next);
    next = kernels::FindBit(bits.data(), one, position, false);
    page_->Read(next - one, lengths, sink);
    lengths += next - one;
  }
}

void BytesAppender::EndSelected() {
  page_->Skip(selected_->num_values - selected_->position);
  selected_.reset();
}

void BytesAppender::Append(const ValueRun& run, DecodeScratch* scratch, int64_t* starts,
                           kernels::ByteSink* sink) {
  // Few enough that their lengths stay in the L1 cache.
  constexpr int64_t kBlockValues = 2048;
  auto begin = static_cast<int64_t>(sink->size());
  auto* lengths = scratch->dense.ReserveItems<uint32_t>(kBlockValues);
  if (run.validity == nullptr) {
    for (int64_t done = 0; done < run.size;) {
      const int64_t count = std::min(run.size - done, kBlockValues);
      Read(count, lengths, sink);
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
    Read(kernels::CountEqual(validity, count, 1), lengths, sink);
    int64_t next = 0;
    for (int64_t i = 0; i < count; ++i) {
      starts[done + i] = begin;
      if (validity[i]) begin += lengths[next++];
    }
    done += count;
  }
}

}  // namespace torchparquet
