#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "scratch.h"

namespace torchparquet {

// What a reader keeps beside its threads' own scratch, between one task and the next.
struct KeptScratch {
  std::vector<ColumnBuffers> columns = {};
  std::vector<ScratchBuffer> places = {};  // of the rows of shuffle windows
};

// Scratch memory of readers that have ended, for later ones: so no epoch but the first
// faults pages in for it, and what it takes does not depend on which thread reads which
// column. Thread-safe; not to be used in a forked child, where its lock may be held by a
// thread that no longer exists.
class ScratchPool {
 public:
  // A thread's: the one that was returned last, or fresh.
  std::unique_ptr<DecodeScratch> TakeThread();
  void ReturnThread(std::unique_ptr<DecodeScratch> scratch) noexcept;

  // A reader's: the one that was returned last, once, or fresh.
  KeptScratch TakeKept();
  void ReturnKept(KeptScratch kept);

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<DecodeScratch>> threads_;  // guarded by mutex_
  size_t num_made_ = 0;                                  // guarded by mutex_
  KeptScratch kept_;                                     // guarded by mutex_
};

}  // namespace torchparquet
