#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "base/byte_range.h"
#include "remote/transport/fetcher.h"
#include "remote/transport/remote_object.h"

namespace torchparquet {

// The bytes of remote files for one reader, or for one look at footers: blocks that were
// asked for ahead, and whatever else is read. Thread-safe.
class RemoteReads {
 public:
  explicit RemoteReads(std::shared_ptr<Fetcher> fetcher) : fetcher_(std::move(fetcher)) {}
  ~RemoteReads() { Stop(); }
  RemoteReads(const RemoteReads&) = delete;
  RemoteReads& operator=(const RemoteReads&) = delete;

  // kPass: a block is passed once its last byte is read. kStay: for footers and indexes,
  // which may be read together with the end of a block that is still to be read.
  enum class Blocks { kPass, kStay };

  // Reads exactly that range, out of blocks as far as they go. Waits for blocks that are
  // under way. Throws the Error of a fetch that failed, and Error(kStopped) once stopped.
  void Read(const std::shared_ptr<const RemoteObject>& object, const ByteRange& range,
            uint8_t* out, Blocks blocks = Blocks::kPass);

  // Begins a fetch, by `by` if that is not null, and makes its blocks available to Read.
  // Blocks of an object must not overlap.
  void Hold(const std::shared_ptr<Fetch>& fetch, const std::vector<ByteRange>& blocks,
            Fetcher* by = nullptr);
  // Makes blocks of a fetch available that was begun elsewhere.
  void Adopt(const std::shared_ptr<Fetch>& fetch, const std::vector<ByteRange>& blocks);
  // Forgets a block by its offset. Its memory goes when the last block of its fetch does
  // and nobody reads it.
  void Drop(const RemoteObject& object, int64_t offset);
  // Called after Read has passed a block, without locks.
  void OnPassed(std::function<void(const RemoteObject&, int64_t offset)> passed) {
    passed_ = std::move(passed);
  }

  // Ends all fetches. Reads throw from now on. Idempotent.
  void Stop();

  Fetcher& fetcher() { return *fetcher_; }
  const std::shared_ptr<Fetcher>& shared_fetcher() const { return fetcher_; }

 private:
  struct Block {
    ByteRange range;
    std::shared_ptr<Fetch> fetch;
  };
  using BlocksOfObject = std::map<int64_t, Block>;  // by offset

  // Returns false once stopped.
  bool Register(const std::shared_ptr<Fetch>& fetch,
                const std::vector<ByteRange>& blocks);
  // The block that holds the offset, or the stretch before the next one without a fetch.
  Block Find(const RemoteObject& object, const ByteRange& wanted);
  Block Demand(const std::shared_ptr<const RemoteObject>& object, const ByteRange& range);

  const std::shared_ptr<Fetcher> fetcher_;
  std::function<void(const RemoteObject&, int64_t)> passed_;
  std::mutex mutex_;  // guards all below
  // By number of the object.
  std::unordered_map<int64_t, BlocksOfObject> blocks_;
  std::vector<std::shared_ptr<Fetch>> demanded_;
  bool stopped_ = false;
};

}  // namespace torchparquet
