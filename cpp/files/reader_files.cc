#include "files/reader_files.h"

#include <algorithm>

namespace torchparquet {

std::shared_ptr<const ParquetFile> ReaderFiles::Open(int64_t file) {
  if (!files_->is_remote(file)) return files_->Open(file);
  if (auto found = Find(file)) return found;
  // Without the lock, since a footer may come over the network.
  auto opened = files_->OpenRemote(file, reads_);
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(open_, file, &OpenFile::file);
  if (found != open_.end()) return found->opened;  // another thread was faster
  if (open_.size() >= kMaxOpenFiles) open_.pop_back();
  open_.push_front({file, opened});
  return opened;
}

std::shared_ptr<const ParquetFile> ReaderFiles::Find(int64_t file) {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(open_, file, &OpenFile::file);
  if (found == open_.end()) return nullptr;
  open_.splice(open_.begin(), open_, found);
  return found->opened;
}

}  // namespace torchparquet
