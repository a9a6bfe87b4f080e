#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "batches/batch_ring.h"
#include "pages/decode_scratch.h"
#include "reader/plan/share.h"
#include "reader/schedule/scratch_pool.h"

namespace torchparquet {

// Consecutive batches of the stream.
struct BatchRange {
  int64_t begin = 0;
  int64_t end = 0;
};

// A piece of decoding work for one thread.
class DecodeTask {
 public:
  virtual ~DecodeTask() = default;

  // Call it without the reader's lock. Returns false if it stopped before its end because
  // batches in flight hold as much as they may. Throws Error with path, row group and
  // column, and Error(kStopped) when told to end.
  virtual bool Run(DecodeScratch* scratch) = 0;
  // The number of the task among those of its chunk.
  virtual int64_t index() const = 0;
  // The rows that it reads, which it knows until it is given back. Null if it gathers
  // what other tasks have read.
  virtual const Chunk* chunk() const = 0;
  // Its place in the order, for a failure of Run.
  virtual FailureKey failure_key() const = 0;

  // Both are called under the reader's lock. Pause gives the task back to be taken again,
  // Finish as done. The task gives up the memory that it still holds, which is freed when
  // the task is destroyed, without a lock. Finish returns true if tasks that waited for
  // this one may be taken now.
  virtual void Pause() = 0;
  virtual bool Finish() = 0;
};

// The work of a reader's threads, in order. Used under one lock.
class TaskStream {
 public:
  virtual ~TaskStream() = default;

  // The batches of the next slice or window to open, or nothing if all are open. They
  // never come before the batches of those opened earlier.
  virtual std::optional<BatchRange> next() const = 0;
  // Opens the next slice or window. Its batches must be open in the ring.
  virtual void OpenNext() = 0;
  // Looks for a next slice again, after a claim.
  virtual void Refresh() {}
  // True if there may be a next slice after another claim.
  virtual bool may_grow() const { return false; }
  // The number of slices or windows opened so far.
  virtual int64_t num_opened() const = 0;

  // The tasks to choose from: those that share nothing with a running task, or also those
  // that do, at a price.
  enum class Choice { kUnshared, kAny };
  // Takes the first such task. Returns null if there is none.
  virtual std::unique_ptr<DecodeTask> Take(Choice choice) = 0;

  virtual bool has_untaken() const = 0;
  // True if an open task that nobody has taken could fail before `key`.
  virtual bool HasUntakenBefore(const FailureKey& key) const = 0;
  virtual int64_t num_running() const = 0;
  // Memory outside the batches: kept for later tasks, and staged columns of shuffle
  // windows.
  virtual int64_t held_bytes() const = 0;
  // Frees memory that waits for reuse, and returns the part that a later reader can use.
  // No task may be running.
  virtual KeptScratch Clear() = 0;
};

}  // namespace torchparquet
