#include "files/parquet_files.h"

#include <algorithm>

namespace torchparquet {

ParquetFiles::ParquetFiles(std::vector<PlannedFile> planned,
                           std::vector<std::shared_ptr<const ParsedFooter>> footers,
                           int64_t max_footer_bytes)
    : planned_(std::move(planned)), max_footer_bytes_(max_footer_bytes) {
  for (size_t i = 0; i < footers.size(); ++i) {
    if (footers[i] != nullptr) footers_.emplace(static_cast<int64_t>(i), footers[i]);
  }
}

std::shared_ptr<const ParquetFile> ParquetFiles::OpenRemote(
    int64_t file, const std::shared_ptr<RemoteReads>& reads) {
  const PlannedFile& planned = planned_[static_cast<size_t>(file)];
  std::shared_ptr<const ParsedFooter> kept;
  {
    const std::lock_guard lock(mutex_);
    const auto found = footers_.find(file);
    if (found != footers_.end()) kept = found->second;
  }
  // Without the lock: a footer that is not kept comes over the network.
  auto opened = std::make_shared<const ParquetFile>(OpenSource(planned, reads), planned,
                                                    &schemas_, kept);
  if (kept == nullptr && planned.decryption == nullptr) {
    const std::lock_guard lock(mutex_);
    KeepFooter(file, opened->footer());
  }
  return opened;
}

bool ParquetFiles::HasFooter(int64_t file) {
  const std::lock_guard lock(mutex_);
  return footers_.contains(file);
}

std::shared_ptr<Fetcher> ParquetFiles::fetcher() const {
  for (const PlannedFile& file : planned_) {
    if (file.fetcher != nullptr) return file.fetcher;
  }
  return nullptr;
}

std::shared_ptr<const ParquetFile> ParquetFiles::Open(int64_t file) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(open_.begin(), open_.end(), [&](const OpenFile& entry) {
    return entry.file == file;
  });
  if (found != open_.end()) {
    open_.splice(open_.begin(), open_, found);
    return found->opened;
  }
  const PlannedFile& planned = planned_[static_cast<size_t>(file)];
  const auto kept = footers_.find(file);
  auto opened = std::make_shared<const ParquetFile>(
      OpenSource(planned), planned, &schemas_,
      kept == footers_.end() ? nullptr : kept->second);
  if (planned.decryption == nullptr) KeepFooter(file, opened->footer());
  if (open_.size() >= kMaxOpenFiles) open_.pop_back();
  open_.push_front({file, opened});
  return opened;
}

void ParquetFiles::KeepFooter(int64_t file,
                              const std::shared_ptr<const ParsedFooter>& footer) {
  const int64_t num_bytes = footer->MemoryBytes();
  if (footer_bytes_ + num_bytes > max_footer_bytes_) return;
  if (footers_.emplace(file, footer).second) footer_bytes_ += num_bytes;
}

std::shared_ptr<CachedFetcher> ParquetFiles::cached() const {
  for (const PlannedFile& file : planned_) {
    if (file.cached != nullptr) return file.cached;
  }
  return nullptr;
}

bool ParquetFiles::have_keys() const {
  return std::ranges::any_of(
      planned_, [](const PlannedFile& file) { return file.decryption != nullptr; });
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
  if (--num_readers_ == 0) open_.clear();
}

void ParquetFiles::Close() {
  const std::lock_guard lock(mutex_);
  open_.clear();
}

}  // namespace torchparquet
