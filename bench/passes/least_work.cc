// The least that a reader of these files must do, as fast as threads can do it: the
// ceiling that ceiling.py compares with.
//
//   least_work FILE COLUMN_CHUNKS NUM_THREADS codec|pread read|count
//
// COLUMN_CHUNKS has a line for each column chunk, in the order of the file:
//
//   offset bytes codec output_bytes num_rows
//
// with codec a number of Parquet's and num_rows zero but for one column. By
// "codec" each page is read by pread, decompressed to memory that stays in the cache,
// and its share of the output bytes is stored once, of any value. By "pread" the bytes of
// the column chunk are read to where its values would go, and that is all. By "read" each
// stored byte is read once too, some column chunks later, as by one who takes batches.
// For each line of standard input it prints a pass as JSON.

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <deque>
#include <exception>
#include <fstream>
#include <iostream>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "bridge/loaded_library.h"
#include "pages/page_codec.h"
#include "pages/page_header.h"

namespace {

// Stored bytes are read when as many column chunks of the thread have been stored after
// them: some 16 MB later, where batches wait for their last column.
constexpr size_t kChunksBetween = 8;
constexpr size_t kNumPlaces = 2 * kChunksBetween;
constexpr int64_t kReadBytes = int64_t{1} << 20;

struct Page {
  int64_t offset;  // of what follows the header
  torchparquet::PageHeader header;
};

struct ColumnChunk {
  int64_t offset;
  int64_t num_bytes;
  int codec;
  int64_t output_bytes;
  int64_t num_rows;
  std::vector<Page> pages;
  int64_t num_values = 0;
};

struct Totals {
  int64_t num_rows = 0;
  int64_t num_bytes = 0;
  uint64_t sum = 0;  // so that reading is not optimised away
};

void ReadExactly(int descriptor, int64_t offset, std::span<uint8_t> out) {
  while (!out.empty()) {
    const ssize_t count = pread(descriptor, out.data(), out.size(), offset);
    if (count <= 0) throw std::runtime_error("pread failed");
    out = out.subspan(static_cast<size_t>(count));
    offset += count;
  }
}

std::vector<ColumnChunk> FindPages(int descriptor, const std::string& list) {
  std::vector<ColumnChunk> chunks;
  std::ifstream lines(list);
  ColumnChunk chunk;
  while (lines >> chunk.offset >> chunk.num_bytes >> chunk.codec >> chunk.output_bytes >>
         chunk.num_rows) {
    std::vector<uint8_t> bytes(static_cast<size_t>(chunk.num_bytes));
    ReadExactly(descriptor, chunk.offset, bytes);
    chunk.pages.clear();
    chunk.num_values = 0;
    for (int64_t at = 0; at < chunk.num_bytes;) {
      const auto rest = std::span(bytes).subspan(static_cast<size_t>(at));
      const auto header = torchparquet::ParsePageHeader(rest);
      if (!header) throw std::runtime_error("page header goes on after its column chunk");
      chunk.pages.push_back({chunk.offset + at + header->header_bytes, *header});
      if (header->is_data()) chunk.num_values += header->num_values;
      at += header->header_bytes + header->compressed_bytes;
    }
    chunks.push_back(chunk);
  }
  if (chunks.empty()) throw std::runtime_error("no column chunks in " + list);
  return chunks;
}

// Memory like that of batches: aligned, in huge pages where there are any, and touched.
class Memory {
 public:
  explicit Memory(size_t num_bytes) : num_bytes_(num_bytes) {
    void* at = mmap(nullptr, num_bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) throw std::runtime_error("out of memory");
    madvise(at, num_bytes, MADV_HUGEPAGE);
    std::memset(at, 1, num_bytes);
    data_ = static_cast<uint8_t*>(at);
  }
  ~Memory() { munmap(data_, num_bytes_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  std::span<uint8_t> span() const { return {data_, num_bytes_}; }

 private:
  size_t num_bytes_;
  uint8_t* data_;
};

uint64_t Sum(std::span<const uint8_t> bytes) {
  uint64_t sum = 0;
  for (size_t i = 0; i + sizeof(uint64_t) <= bytes.size(); i += sizeof(uint64_t)) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + i, sizeof word);
    sum += word;
  }
  return sum;
}

// One thread's work and memory.
class Worker {
 public:
  Worker(int descriptor, const std::vector<ColumnChunk>& chunks, bool with_codec,
         bool read)
      : descriptor_(descriptor),
        chunks_(chunks),
        with_codec_(with_codec),
        read_(read),
        place_bytes_(LargestPlace(chunks)),
        places_(place_bytes_ * kNumPlaces),
        compressed_(LargestPage(chunks)),
        page_(LargestPage(chunks)) {}

  Totals Run(std::atomic<size_t>& next) {
    Totals totals;
    std::vector<size_t> stored;
    while (true) {
      const size_t index = next.fetch_add(1);
      if (index >= chunks_.size()) break;
      const ColumnChunk& chunk = chunks_[index];
      const std::span<uint8_t> place = Place(stored.size());
      if (with_codec_) {
        DecompressAndStore(chunk, place);
      } else {
        for (int64_t at = 0; at < chunk.num_bytes; at += kReadBytes) {
          const auto count = std::min(kReadBytes, chunk.num_bytes - at);
          ReadExactly(descriptor_, chunk.offset + at,
                      place.subspan(static_cast<size_t>(at), static_cast<size_t>(count)));
        }
      }
      stored.push_back(static_cast<size_t>(chunk.output_bytes));
      totals.num_rows += chunk.num_rows;
      totals.num_bytes += chunk.output_bytes;
      if (stored.size() > kChunksBetween)
        totals.sum += Take(stored, stored.size() - 1 - kChunksBetween);
    }
    const size_t left = std::min(stored.size(), kChunksBetween);
    for (size_t i = stored.size() - left; i < stored.size(); ++i)
      totals.sum += Take(stored, i);
    return totals;
  }

 private:
  static size_t LargestPlace(const std::vector<ColumnChunk>& chunks) {
    int64_t largest = 0;
    for (const ColumnChunk& chunk : chunks)
      largest = std::max({largest, chunk.output_bytes, chunk.num_bytes});
    return static_cast<size_t>(largest + 4095) / 4096 * 4096;
  }

  static size_t LargestPage(const std::vector<ColumnChunk>& chunks) {
    int64_t largest = 1;
    for (const ColumnChunk& chunk : chunks) {
      for (const Page& page : chunk.pages) {
        largest = std::max(
            {largest, page.header.compressed_bytes, page.header.uncompressed_bytes});
      }
    }
    return static_cast<size_t>(largest);
  }

  std::span<uint8_t> Place(size_t number) const {
    return places_.span().subspan(number % kNumPlaces * place_bytes_, place_bytes_);
  }

  uint64_t Take(const std::vector<size_t>& stored, size_t number) const {
    return read_ ? Sum(Place(number).first(stored[number])) : 0;
  }

  void DecompressAndStore(const ColumnChunk& chunk, std::span<uint8_t> place) {
    int64_t num_values = 0;
    int64_t stored = 0;
    for (const Page& page : chunk.pages) {
      const auto num_bytes = static_cast<size_t>(page.header.compressed_bytes);
      const auto bytes = std::span(compressed_).first(num_bytes);
      ReadExactly(descriptor_, page.offset, bytes);
      // The levels of a page of the second kind are not compressed.
      const auto levels = static_cast<size_t>(page.header.definition_level_bytes +
                                              page.header.repetition_level_bytes);
      const auto size = static_cast<size_t>(page.header.uncompressed_bytes);
      if (chunk.codec != 0 && page.header.is_compressed && size > levels) {
        codec_.Decompress(chunk.codec, bytes.subspan(levels),
                          std::span(page_).first(size - levels));
      }
      if (!page.header.is_data() || page.header.num_values == 0) continue;
      num_values += page.header.num_values;
      const int64_t end = num_values * chunk.output_bytes / chunk.num_values;
      std::memset(place.data() + stored, page_[0], static_cast<size_t>(end - stored));
      stored = end;
    }
  }

  const int descriptor_;
  const std::vector<ColumnChunk>& chunks_;
  const bool with_codec_;
  const bool read_;
  const size_t place_bytes_;
  const Memory places_;
  std::vector<uint8_t> compressed_;
  std::vector<uint8_t> page_;
  torchparquet::PageCodec codec_;
};

double CpuSeconds() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void PrintPass(std::deque<Worker>& workers) {
  std::vector<Totals> parts(workers.size());
  std::atomic<size_t> next = 0;
  const double cpu_begin = CpuSeconds();
  const auto begin = std::chrono::steady_clock::now();
  std::vector<std::jthread> threads;
  for (size_t i = 0; i < workers.size(); ++i)
    threads.emplace_back([&, i] { parts[i] = workers[i].Run(next); });
  threads.clear();  // joins
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  const double cpu_seconds = CpuSeconds() - cpu_begin;
  Totals totals;
  for (const Totals& part : parts) {
    totals.num_rows += part.num_rows;
    totals.num_bytes += part.num_bytes;
    totals.sum += part.sum;
  }
  std::fprintf(stderr, "%s", totals.sum == 1 ? " " : "");
  std::printf(
      "{\"seconds\": %.9f, \"cpu_seconds\": %.9f, \"totals\": "
      "{\"num_rows\": %lld, \"num_bytes\": %lld}}\n",
      took.count(), cpu_seconds, static_cast<long long>(totals.num_rows),
      static_cast<long long>(totals.num_bytes));
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 6) throw std::runtime_error("five arguments are required");
  torchparquet::UseArrowLibrary(
      torchparquet::torchparquet_arrow_library(TORCHPARQUET_BRIDGE_ABI));
  const int descriptor = open(argv[1], O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) throw std::runtime_error(std::string("cannot open ") + argv[1]);
  const std::vector<ColumnChunk> chunks = FindPages(descriptor, argv[2]);
  const std::string how = argv[4];
  const bool read = std::string(argv[5]) == "read";
  std::deque<Worker> workers;  // which need not be movable in it
  const int num_threads = std::stoi(argv[3]);
  for (int i = 0; i < num_threads; ++i)
    workers.emplace_back(descriptor, chunks, how == "codec", read);
  std::string line;
  while (std::getline(std::cin, line)) PrintPass(workers);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "least_work: %s\n", error.what());
  return 1;
}
