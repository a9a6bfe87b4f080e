#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "batches/batch_ring.h"
#include "scratch.h"
#include "tasks/scratch_pool.h"

namespace torchparquet {

// Consecutive batches of the stream.
struct BatchRange {
  int64_t begin = 0;
  int64_t end = 0;
};

// A piece of decoding, for one thread.
class DecodeTask {
 public:
  virtual ~DecodeTask() = default;

  // Without the reader's lock. Returns false where it stopped before its end, because
  // batches in flight hold as much as they may. Throws Error with path, row group and
  // column; Error(kStopped) when told to end.
  virtual bool Run(DecodeScratch* scratch) = 0;
  // Which of the tasks of its chunk it is.
  virtual int64_t index() const = 0;
  // Where it stands in the order, if Run has failed.
  virtual FailureKey failure_key() const = 0;

  // Under the reader's lock: gives the task back, to be taken again, or as ended. What it
  // still holds is given up, and goes with it; that takes no lock. Finish returns whether
  // others may be taken now that had to wait for this one.
  virtual void Pause() = 0;
  virtual bool Finish() = 0;
};

// What a reader's threads do, and in which order. To be used under one lock.
class TaskStream {
 public:
  virtual ~TaskStream() = default;

  // The batches of what is to be opened next; nothing when all is open. Never earlier
  // ones than those of what was opened before.
  virtual std::optional<BatchRange> next() const = 0;
  // Those batches are open in the ring.
  virtual void OpenNext() = 0;
  // How often that was done.
  virtual int64_t num_opened() const = 0;

  // Which tasks to take: those that share nothing with a task in work, or also those that
  // do, at a price.
  enum class Choice { kUnshared, kAny };
  // The first such task; null when there is none.
  virtual std::unique_ptr<DecodeTask> Take(Choice choice) = 0;

  // Whether all that was opened is done.
  virtual bool empty() const = 0;
  virtual bool has_untaken() const = 0;
  virtual int64_t num_running() const = 0;
  // Memory beside the batches: what is kept for tasks to come, and what columns of
  // shuffle windows are staged in.
  virtual int64_t held_bytes() const = 0;
  // Gives up what waits to be used again, and returns what a later reader can use. No
  // task is running.
  virtual KeptScratch Clear() = 0;
};

}  // namespace torchparquet
