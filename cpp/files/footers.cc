#include "files/footers.h"

#include <algorithm>
#include <atomic>
#include <system_error>
#include <thread>
#include <utility>

#include "files/footer.h"
#include "files/known_schemas.h"

namespace torchparquet {
namespace {

// Numbers a schema among the distinct schemas, of which there are few.
size_t NumberSchema(const Leaves& schema, std::vector<Leaves>* schemas) {
  const auto found = std::ranges::find_if(*schemas, [&](const Leaves& other) {
    return other == schema || *other == *schema;
  });
  const auto number = static_cast<size_t>(found - schemas->begin());
  if (found == schemas->end()) schemas->push_back(schema);
  return number;
}

void Append(Footer footer, std::vector<Leaves>* schemas, Footers* out) {
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
  leaf_bytes.resize(footer.schema->size());
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
}

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

Footers ReadFooters(const std::vector<PlannedFile>& files, FooterParts parts,
                    int64_t num_threads) {
  std::vector<Footer> footers(files.size());
  KnownSchemas known;
  std::atomic<size_t> next{0};
  const auto read = [&] {
    // Relaxed: joining the threads publishes what they wrote.
    for (size_t i = next.fetch_add(1, std::memory_order_relaxed); i < files.size();
         i = next.fetch_add(1, std::memory_order_relaxed)) {
      footers[i] = ReadFooter(files[i], parts, &known);
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
  Footers out;
  std::vector<Leaves> schemas;
  for (Footer& footer : footers) Append(std::move(footer), &schemas, &out);
  for (const Leaves& schema : schemas) out.schemas.push_back(*schema);
  return out;
}

}  // namespace torchparquet
