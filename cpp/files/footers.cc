#include "files/footers.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "files/footer.h"
#include "format/known_schemas.h"
#include "remote/blocks/remote_blocks.h"
#include "remote/blocks/remote_file.h"

namespace torchparquet {
namespace {

using SharedSchema = std::shared_ptr<const Schema>;

// Numbers a schema among the distinct schemas, of which there are few.
size_t NumberSchema(const SharedSchema& schema, std::vector<SharedSchema>* schemas) {
  const auto found = std::ranges::find_if(*schemas, [&](const SharedSchema& other) {
    return other == schema || *other == *schema;
  });
  const auto number = static_cast<size_t>(found - schemas->begin());
  if (found == schemas->end()) schemas->push_back(schema);
  return number;
}

void Append(Footer footer, std::vector<SharedSchema>* schemas, int64_t* parsed_bytes,
            Footers* out) {
  if (footer.error) throw *footer.error;
  int64_t num_rows = 0;
  for (const int64_t rows : footer.row_group_num_rows) num_rows += rows;
  out->file_num_bytes.push_back(footer.identity.num_bytes);
  out->file_mtime_ns.push_back(footer.identity.mtime_ns);
  out->file_inode.push_back(footer.identity.inode);
  out->file_digest.push_back(footer.digest);
  out->file_has_hidden_columns.push_back(footer.has_hidden_columns);
  out->file_num_rows.push_back(num_rows);
  out->file_num_row_groups.push_back(
      static_cast<int64_t>(footer.row_group_num_rows.size()));
  const size_t schema = NumberSchema(footer.schema, schemas);
  out->file_schema.push_back(static_cast<int64_t>(schema));
  out->schema_leaf_bytes.resize(schemas->size());
  std::vector<double>& leaf_bytes = out->schema_leaf_bytes[schema];
  leaf_bytes.resize(footer.schema->leaves().size());
  for (size_t i = 0; i < footer.leaf_bytes.size(); ++i) {
    leaf_bytes[i] += footer.leaf_bytes[i];
  }
  out->row_group_num_rows.insert(out->row_group_num_rows.end(),
                                 footer.row_group_num_rows.begin(),
                                 footer.row_group_num_rows.end());
  out->row_group_num_bytes.insert(out->row_group_num_bytes.end(),
                                  footer.row_group_num_bytes.begin(),
                                  footer.row_group_num_bytes.end());
  out->chunk_num_bytes.insert(out->chunk_num_bytes.end(), footer.chunk_num_bytes.begin(),
                              footer.chunk_num_bytes.end());
  out->contents.push_back(std::move(footer.content));
  if (footer.parsed != nullptr) {
    *parsed_bytes += footer.parsed->MemoryBytes();
    if (*parsed_bytes > Footers::kMaxParsedBytes) footer.parsed = nullptr;
  }
  out->parsed.push_back(std::move(footer.parsed));
}

// The ends of files in stores, which hold their footers, as they are asked for: many at
// once, since each takes a round trip.
class FileEnds {
 public:
  static constexpr size_t kMaxInFlight = 256;

  FileEnds(const std::vector<PlannedFile>& files, FootersStop* stop)
      : files_(files), stop_(stop), blocks_(files.size()) {}

  // Null for a file that is in no store. Asks for the ends of the following files too.
  std::shared_ptr<RemoteBlocks> Of(size_t file) {
    const std::lock_guard lock(mutex_);
    for (; next_ < std::min(files_.size(), file + kMaxInFlight); ++next_) Ask(next_);
    return std::move(blocks_[file]);
  }

 private:
  void Ask(size_t number) {
    const PlannedFile& file = files_[number];
    if (file.remote == nullptr) return;
    blocks_[number] = std::make_shared<RemoteBlocks>(file.fetcher);
    if (stop_ != nullptr && !stop_->Add(blocks_[number])) blocks_[number]->Stop();
    const ByteRange end = RemoteFile::FooterRange(*file.remote);
    if (end.num_bytes == 0) return;
    static_cast<void>(blocks_[number]->Hold(file.remote, end).release());  // to its end
  }

  const std::vector<PlannedFile>& files_;
  FootersStop* const stop_;
  std::mutex mutex_;
  size_t next_ = 0;                                    // guarded by mutex_
  std::vector<std::shared_ptr<RemoteBlocks>> blocks_;  // guarded by mutex_
};

// Not std::jthread, which not every C++ library has.
struct JoinedThreads {
  std::vector<std::thread> threads = {};

  JoinedThreads() = default;
  JoinedThreads(const JoinedThreads&) = delete;
  JoinedThreads& operator=(const JoinedThreads&) = delete;
  ~JoinedThreads() {
    for (std::thread& thread : threads) thread.join();
  }
};

}  // namespace

void FootersStop::Stop() {
  std::vector<std::shared_ptr<RemoteBlocks>> blocks;
  {
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
    blocks.swap(blocks_);
  }
  for (const auto& one : blocks) one->Stop();
}

bool FootersStop::Add(const std::shared_ptr<RemoteBlocks>& blocks) {
  const std::lock_guard lock(mutex_);
  if (is_stopped()) return false;
  // Those that are over hold no fetch.
  std::erase_if(blocks_, [](const auto& held) { return held.use_count() == 1; });
  blocks_.push_back(blocks);
  return true;
}

Footers ReadFooters(const std::vector<PlannedFile>& files, FooterParts parts,
                    int64_t num_threads, FootersStop* stop) {
  std::vector<Footer> footers(files.size());
  KnownSchemas known;
  FileEnds ends(files, stop);
  std::atomic<size_t> next{0};
  const auto read = [&] {
    // Relaxed: joining the threads publishes what they wrote.
    for (size_t i = next.fetch_add(1, std::memory_order_relaxed); i < files.size();
         i = next.fetch_add(1, std::memory_order_relaxed)) {
      if (stop != nullptr && stop->is_stopped()) return;
      try {
        footers[i] = ReadFooter(files[i], parts, &known, ends.Of(i));
      } catch (...) {  // a thread must not end by an exception
        footers[i].error = CurrentErrorAt({});
      }
    }
  };
  {
    const auto num_files = static_cast<int64_t>(files.size());
    JoinedThreads joined;
    for (int64_t i = 1; i < std::min(num_threads, num_files); ++i) {
      try {
        joined.threads.emplace_back(read);
      } catch (const std::system_error&) {
        break;  // fewer threads read all files too
      }
    }
    read();
  }
  if (stop != nullptr && stop->is_stopped()) {
    throw Error(ErrorKind::kStopped, "the reading of footers was stopped");
  }
  Footers out;
  std::vector<SharedSchema> schemas;
  int64_t parsed_bytes = 0;
  for (Footer& footer : footers) Append(std::move(footer), &schemas, &parsed_bytes, &out);
  for (const SharedSchema& schema : schemas) out.schemas.push_back(schema->leaves());
  return out;
}

}  // namespace torchparquet
