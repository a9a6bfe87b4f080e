#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "base/buffer_pool.h"
#include "base/byte_range.h"
#include "base/errors.h"
#include "base/page_buffer.h"
#include "remote/transport/remote_object.h"

namespace torchparquet {

// The read of one range of an object: what is asked, and the bytes as they arrive, first
// to last. Shared by the readers that want the bytes and the fetcher that brings them, so
// whoever lets go last frees the memory. Thread-safe.
class Fetch {
 public:
  // Its memory comes from `pool`, if that is not null, and goes back there. It is taken
  // when the bytes are about to come: many more fetches wait than are under way.
  Fetch(std::shared_ptr<const RemoteObject> object, const ByteRange& range,
        std::shared_ptr<BufferPool> pool = nullptr);
  ~Fetch();
  Fetch(const Fetch&) = delete;
  Fetch& operator=(const Fetch&) = delete;

  const RemoteObject& object() const { return *object_; }
  const ByteRange& range() const { return range_; }

  // For readers.

  // The bytes that have arrived, from the first. Ends as `range` does, once whole.
  int64_t num_arrived() const;
  bool is_over() const;  // whole or failed
  // Returns when the first `num_bytes` are there. Throws the Error of a failure, at each
  // call.
  void Await(int64_t num_bytes) const;
  // With kPaddingBytes after the last one.
  const uint8_t* data() const { return memory_.data(); }
  // Calls `over` once, when the fetch is over, on the thread that ends it and without
  // locks of the fetch. At once if it is over already. At most one such call waits.
  void OnOver(std::function<void()> over);

  // For fetchers: one thread at a time.

  // Takes memory, at the latest call before `out`. Throws Error(kOutOfMemory).
  void Prepare();
  // Writes there, beyond what has arrived.
  uint8_t* out() { return memory_.data(); }
  // Tells that bytes up to `num_arrived` are written.
  void Arrive(int64_t num_arrived);
  // Ends the fetch. Bytes that arrived before stay usable.
  void Fail(const Error& error);

 private:
  void End();

  const std::shared_ptr<const RemoteObject> object_;
  const ByteRange range_;
  const std::shared_ptr<BufferPool> pool_;
  PageBuffer memory_;
  mutable std::mutex mutex_;
  mutable std::condition_variable arrived_;
  std::function<void()> over_;  // guarded by mutex_
  int64_t num_arrived_ = 0;     // guarded by mutex_
  std::optional<Error> error_;  // guarded by mutex_
};

}  // namespace torchparquet
