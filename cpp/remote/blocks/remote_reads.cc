#include "remote/blocks/remote_reads.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/errors.h"

namespace torchparquet {

void RemoteReads::Read(const std::shared_ptr<const RemoteObject>& object,
                       const ByteRange& range, uint8_t* out, Blocks blocks) {
  ByteRange rest = range;
  while (rest.num_bytes > 0) {
    Block block = Find(*object, rest);
    const bool is_held = block.fetch != nullptr;
    if (!is_held) block = Demand(object, block.range);
    const int64_t end = std::min(rest.end(), block.range.end());
    const int64_t begin_in_fetch = rest.offset - block.fetch->range().offset;
    const int64_t num_bytes = end - rest.offset;
    if (block.fetch->num_arrived() < begin_in_fetch + num_bytes) {
      fetcher_->Hurry(block.fetch);
    }
    block.fetch->Await(begin_in_fetch + num_bytes);
    std::memcpy(out, block.fetch->data() + begin_in_fetch,
                static_cast<size_t>(num_bytes));
    out += num_bytes;
    rest = {end, rest.end() - end};
    const bool is_passed = blocks == Blocks::kPass && end == block.range.end();
    if (is_held && is_passed && passed_) {
      passed_(*object, block.range.offset);
    }
    if (!is_held) {
      const std::lock_guard lock(mutex_);
      std::erase(demanded_, block.fetch);
    }
  }
}

RemoteReads::Block RemoteReads::Find(const RemoteObject& object,
                                     const ByteRange& wanted) {
  const std::lock_guard lock(mutex_);
  const auto of_object = blocks_.find(object.number);
  if (of_object == blocks_.end()) return {wanted, nullptr};
  const BlocksOfObject& blocks = of_object->second;
  const auto after = blocks.upper_bound(wanted.offset);
  if (after != blocks.begin()) {
    const Block& before = std::prev(after)->second;
    if (wanted.offset < before.range.end()) return before;
  }
  int64_t end = wanted.end();
  if (after != blocks.end()) end = std::min(end, after->first);
  return {{wanted.offset, end - wanted.offset}, nullptr};
}

RemoteReads::Block RemoteReads::Demand(const std::shared_ptr<const RemoteObject>& object,
                                       const ByteRange& range) {
  auto fetch = std::make_shared<Fetch>(object, range);
  {
    const std::lock_guard lock(mutex_);
    if (stopped_) throw Error(ErrorKind::kStopped, "the reader was closed");
    demanded_.push_back(fetch);
  }
  fetcher_->Start(fetch);
  return {range, std::move(fetch)};
}

void RemoteReads::Hold(const std::shared_ptr<Fetch>& fetch,
                       const std::vector<ByteRange>& blocks, Fetcher* by) {
  try {
    if (!Register(fetch, blocks)) return;
  } catch (...) {
    // Readers that find a block of it must not wait for it.
    fetch->Fail(CurrentErrorAt({}));
    throw;
  }
  (by != nullptr ? by : fetcher_.get())->Start(fetch);
}

void RemoteReads::Adopt(const std::shared_ptr<Fetch>& fetch,
                        const std::vector<ByteRange>& blocks) {
  if (!Register(fetch, blocks)) fetcher_->Cancel(fetch);
}

bool RemoteReads::Register(const std::shared_ptr<Fetch>& fetch,
                           const std::vector<ByteRange>& blocks) {
  const std::lock_guard lock(mutex_);
  if (stopped_) return false;
  BlocksOfObject& of_object = blocks_[fetch->object().number];
  for (const ByteRange& block : blocks) {
    of_object.insert_or_assign(block.offset, Block{block, fetch});
  }
  return true;
}

void RemoteReads::Drop(const RemoteObject& object, int64_t offset) {
  std::shared_ptr<Fetch> fetch;  // freed without the lock
  const std::lock_guard lock(mutex_);
  const auto of_object = blocks_.find(object.number);
  if (of_object == blocks_.end()) return;
  const auto block = of_object->second.find(offset);
  if (block == of_object->second.end()) return;
  fetch = std::move(block->second.fetch);
  of_object->second.erase(block);
  if (of_object->second.empty()) blocks_.erase(of_object);
}

void RemoteReads::Stop() {
  std::vector<std::shared_ptr<Fetch>> demanded;
  std::unordered_map<int64_t, BlocksOfObject> held;
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    demanded.swap(demanded_);
    held.swap(blocks_);
  }
  const auto cancel = [&](const std::shared_ptr<Fetch>& fetch) {
    if (!fetch->is_over()) fetcher_->Cancel(fetch);
  };
  std::ranges::for_each(demanded, cancel);
  for (const auto& [object, blocks] : held) {
    for (const auto& [offset, block] : blocks) cancel(block.fetch);
  }
}

}  // namespace torchparquet
