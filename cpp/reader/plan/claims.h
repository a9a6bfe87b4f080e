#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

namespace torchparquet {

// Positions that one rank took from a counter of all ranks, in the order in which it took
// them. The consumer adds them while walks go on. Thread-safe.
class Claims {
 public:
  void Add(int64_t position);
  // No more come.
  void End();

  int64_t size() const;
  bool have_ended() const;
  // The position that was added as number `number`, counted from 0, where there is one.
  std::optional<int64_t> At(int64_t number) const;

 private:
  mutable std::mutex mutex_;
  std::vector<int64_t> positions_;  // guarded by mutex_, as below
  bool have_ended_ = false;
};

}  // namespace torchparquet
