#include "remote/disk_cache/cache_ledger.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <span>
#include <utility>

#include "kernels/xxhash64.h"
#include "remote/disk_cache/block_store.h"

namespace torchparquet {
namespace {

constexpr char kSumFile[] = "sum";
constexpr uint64_t kLedgerMagic = 0x316d7573'71707400;  // also the version

}  // namespace

std::optional<CacheLedger> CacheLedger::Open(const CacheFolder& folder) {
  std::optional<FileLock> lock = folder.Lock();
  if (!lock) return std::nullopt;
  return CacheLedger(folder, std::move(*lock));
}

CacheLedger::CacheLedger(const CacheFolder& folder, FileLock lock)
    : folder_(&folder), lock_(std::move(lock)), file_(folder.MakeFile(kSumFile)) {
  const std::optional<Sum> known = Load();
  if (known) sum_ = *known;
  if (!known || known->is_changing != 0) Count();
}

void CacheLedger::Change(const std::function<int64_t()>& change) {
  sum_.is_changing = 1;
  Store();
  const int64_t growth = change();
  sum_.disk_bytes += growth;
  sum_.moved_bytes += std::abs(growth);
  sum_.is_changing = 0;
  Store();
}

void CacheLedger::Count() {
  int64_t disk_bytes = 0;
  for (const StoredBlock& block : ListBlocks(*folder_)) disk_bytes += block.disk_bytes;
  sum_.moved_bytes += std::abs(disk_bytes - sum_.disk_bytes);
  sum_.disk_bytes = disk_bytes;
  sum_.is_changing = 0;
  Store();
}

// The file is five words: magic, the sum and a checksum.
std::optional<CacheLedger::Sum> CacheLedger::Load() const {
  std::array<uint64_t, 5> words{};
  const std::span bytes(reinterpret_cast<uint8_t*>(words.data()), sizeof(words));
  if (pread(file_.get(), words.data(), sizeof(words), 0) !=
      static_cast<ssize_t>(sizeof(words))) {
    return std::nullopt;
  }
  if (words[0] != kLedgerMagic || words[4] != kernels::XxHash64(bytes.first(32))) {
    return std::nullopt;
  }
  return Sum{.disk_bytes = static_cast<int64_t>(words[1]),
             .moved_bytes = static_cast<int64_t>(words[2]),
             .is_changing = words[3]};
}

void CacheLedger::Store() {
  std::array<uint64_t, 5> words = {kLedgerMagic, static_cast<uint64_t>(sum_.disk_bytes),
                                   static_cast<uint64_t>(sum_.moved_bytes),
                                   sum_.is_changing, 0};
  const std::span bytes(reinterpret_cast<const uint8_t*>(words.data()), sizeof(words));
  words[4] = kernels::XxHash64(bytes.first(32));
  const ssize_t count = pwrite(file_.get(), words.data(), sizeof(words), 0);
  if (count != static_cast<ssize_t>(sizeof(words))) {
    throw folder_->SystemError("cannot note the size of the cache",
                               count < 0 ? errno : ENOSPC);
  }
}

}  // namespace torchparquet
