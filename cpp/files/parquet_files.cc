#include "files/parquet_files.h"

#include <algorithm>

namespace torchparquet {

ParquetFiles::ParquetFiles(std::vector<PlannedFile> planned,
                           std::vector<std::shared_ptr<const ParsedFooter>> footers,
                           int64_t max_footer_bytes)
    : planned_(std::move(planned)), max_footer_bytes_(max_footer_bytes) {
  for (const PlannedFile& file : planned_) {
    if (fetcher_ == nullptr) fetcher_ = file.fetcher;
    if (cached_ == nullptr) cached_ = file.cached;
    have_keys_ |= file.decryption != nullptr;
  }
  for (size_t i = 0; i < footers.size(); ++i) {
    if (footers[i] != nullptr) footers_.emplace(static_cast<int64_t>(i), footers[i]);
  }
}

std::shared_ptr<const ParquetFile> ParquetFiles::Open(
    int64_t file, const std::shared_ptr<RemoteBlocks>& blocks) {
  const PlannedFile& planned = this->planned(file);
  const bool is_remote = planned.remote != nullptr;
  const auto entry = Use({is_remote ? blocks.get() : nullptr, file});
  std::unique_lock lock(entry->mutex);
  if (entry->opened != nullptr) return entry->opened;
  if (is_remote) lock.unlock();
  auto opened = std::make_shared<const ParquetFile>(OpenSource(planned, blocks), planned,
                                                    &schemas_, KeptFooter(file));
  if (planned.decryption == nullptr) KeepFooter(file, opened->footer());
  if (is_remote) lock.lock();
  if (entry->opened == nullptr) entry->opened = std::move(opened);
  return entry->opened;
}

std::shared_ptr<ParquetFiles::OpenFile> ParquetFiles::Use(const Key& key) {
  std::shared_ptr<OpenFile> oldest;  // closed after the lock is released
  const std::lock_guard lock(mutex_);
  auto found = open_.find(key);
  if (found == open_.end()) {
    if (open_.size() >= kMaxOpenFiles) {
      const auto first = std::ranges::min_element(
          open_, {}, [](const auto& entry) { return entry.second->last_use; });
      oldest = std::move(first->second);
      open_.erase(first);
    }
    found = open_.emplace(key, std::make_shared<OpenFile>()).first;
  }
  found->second->last_use = ++num_uses_;
  return found->second;
}

void ParquetFiles::Close(const RemoteBlocks* blocks) {
  const std::lock_guard lock(mutex_);
  CloseAll(blocks);
}

// Called with the lock held.
void ParquetFiles::CloseAll(const RemoteBlocks* blocks) {
  std::erase_if(open_, [&](const auto& entry) { return entry.first.first == blocks; });
}

bool ParquetFiles::HasFooter(int64_t file) { return KeptFooter(file) != nullptr; }

std::shared_ptr<const ParsedFooter> ParquetFiles::KeptFooter(int64_t file) {
  const std::lock_guard lock(mutex_);
  const auto found = footers_.find(file);
  return found == footers_.end() ? nullptr : found->second;
}

void ParquetFiles::KeepFooter(int64_t file,
                              const std::shared_ptr<const ParsedFooter>& footer) {
  const int64_t num_bytes = footer->MemoryBytes();
  const std::lock_guard lock(mutex_);
  if (footer_bytes_ + num_bytes > max_footer_bytes_) return;
  if (footers_.emplace(file, footer).second) footer_bytes_ += num_bytes;
}

void ParquetFiles::BeginReader() {
  // All files of a reader are in one store, which has one book of addresses.
  const RemoteObject* const remote =
      planned_.empty() ? nullptr : planned_.front().remote.get();
  if (remote != nullptr && remote->addresses != nullptr) {
    remote->addresses->ForgetFailures();
  }
  const std::lock_guard lock(mutex_);
  ++num_readers_;
}

void ParquetFiles::EndReader() {
  const std::lock_guard lock(mutex_);
  if (--num_readers_ == 0) CloseAll(nullptr);
}

}  // namespace torchparquet
