// The speed of decompression, by the reader's codecs and by Arrow's.
//
//   codec_speed PAGES CODEC NUM_THREADS REPEATS
//
// PAGES has for each page its uncompressed and its compressed size, both uint32, and its
// compressed bytes. CODEC is a number of Parquet's. Every thread decompresses
// all pages, one after the other, into memory that is used again. The ways take turns;
// the first turn is not timed. Prints a line for each way: its name, and the median over
// the turns of the GB/s of all threads together. Of one thread alone, processor time
// counts, so that other programs matter little.

#include <arrow/util/compression.h>
#include <time.h>

#include <algorithm>
#include <barrier>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "bridge/loaded_library.h"
#include "pages/page_codec.h"

namespace {

using Bytes = std::vector<uint8_t>;

struct Page {
  size_t num_bytes;
  Bytes compressed;
};

std::vector<Page> ReadPages(const char* path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<Page> pages;
  uint32_t sizes[2];
  while (file.read(reinterpret_cast<char*>(sizes), sizeof(sizes))) {
    Page page{sizes[0], Bytes(sizes[1])};
    file.read(reinterpret_cast<char*>(page.compressed.data()), sizes[1]);
    pages.push_back(std::move(page));
  }
  return pages;
}

arrow::Compression::type ArrowsNumber(int codec) {
  switch (codec) {
    case torchparquet::Codec::kSnappy:
      return arrow::Compression::SNAPPY;
    case torchparquet::Codec::kGzip:
      return arrow::Compression::GZIP;
    case torchparquet::Codec::kZstd:
      return arrow::Compression::ZSTD;
    default:
      return arrow::Compression::LZ4;
  }
}

// One thread's memory and codecs.
class Thread {
 public:
  Thread(const std::vector<Page>& pages, int codec)
      : pages_(pages),
        codec_(codec),
        arrow_(*arrow::util::Codec::Create(ArrowsNumber(codec))) {
    for (const Page& page : pages) most_ = std::max(most_, page.num_bytes);
    out_[0].resize(most_);
    out_[1].resize(most_);
  }

  void OneByOne() {
    for (const Page& page : pages_)
      ours_.Decompress(codec_, page.compressed, Out(page, 0));
  }
  void InPairs() {
    size_t i = 0;
    for (; i + 1 < pages_.size(); i += 2) {
      const Page& first = pages_[i];
      const Page& second = pages_[i + 1];
      if (!ours_.DecompressPair(codec_, {first.compressed, Out(first, 0)},
                                {second.compressed, Out(second, 1)})) {
        std::abort();
      }
    }
    if (i < pages_.size())
      ours_.Decompress(codec_, pages_[i].compressed, Out(pages_[i], 0));
  }
  void Arrows() {
    for (const Page& page : pages_) {
      const auto written = arrow_->Decompress(
          static_cast<int64_t>(page.compressed.size()), page.compressed.data(),
          static_cast<int64_t>(page.num_bytes), out_[0].data());
      if (!written.ok()) std::abort();
    }
  }
  // As many bytes as the pages have, copied from memory that is used again.
  void Memcpy() {
    for (const Page& page : pages_) {
      std::memcpy(out_[0].data(), out_[1].data(), page.num_bytes);
      // The compiler must take it that they are used.
      asm volatile("" : : "r"(out_[0].data()) : "memory");
    }
  }

 private:
  std::span<uint8_t> Out(const Page& page, size_t which) {
    return std::span<uint8_t>(out_[which]).first(page.num_bytes);
  }

  const std::vector<Page>& pages_;
  const int codec_;
  torchparquet::PageCodec ours_;
  std::unique_ptr<arrow::util::Codec> arrow_;
  size_t most_ = 0;
  Bytes out_[2];
};

struct Way {
  const char* name;
  void (Thread::*run)();
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  torchparquet::UseArrowLibrary(
      torchparquet::torchparquet_arrow_library(TORCHPARQUET_BRIDGE_ABI));
  const auto pages = ReadPages(argv[1]);
  const int codec = std::atoi(argv[2]);
  const int num_threads = std::atoi(argv[3]);
  const int repeats = std::atoi(argv[4]);
  std::vector<Way> ways = {{"ours", &Thread::OneByOne}};
  if (torchparquet::PageCodec::TakesPairs(codec))
    ways.push_back({"pairs", &Thread::InPairs});
  ways.push_back({"arrow", &Thread::Arrows});
  ways.push_back({"memcpy", &Thread::Memcpy});
  double num_bytes = 0;
  for (const Page& page : pages) num_bytes += static_cast<double>(page.num_bytes);
  // A pass long enough for the clock.
  const int passes = std::max(1, static_cast<int>(64e6 / num_bytes));

  // The last thread to arrive takes the time: one that only waits may be woken late.
  std::vector<double> turns;
  turns.reserve(2 * ways.size() * static_cast<size_t>(repeats + 1));
  const clockid_t clock = num_threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
  const auto take_time = [&]() noexcept {
    timespec now;
    clock_gettime(clock, &now);
    turns.push_back(static_cast<double>(now.tv_sec) +
                    1e-9 * static_cast<double>(now.tv_nsec));
  };
  std::barrier turn(num_threads, take_time);
  std::vector<std::thread> threads;
  for (int i = 0; i < num_threads; ++i) {
    threads.emplace_back([&] {
      Thread thread(pages, codec);
      for (int repeat = 0; repeat <= repeats; ++repeat) {
        for (const Way& way : ways) {
          turn.arrive_and_wait();
          for (int pass = 0; pass < passes; ++pass) (thread.*way.run)();
          turn.arrive_and_wait();
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<std::vector<double>> seconds(ways.size());
  for (size_t i = 2 * ways.size(); i < turns.size(); i += 2) {
    seconds[i / 2 % ways.size()].push_back(turns[i + 1] - turns[i]);
  }
  for (size_t i = 0; i < ways.size(); ++i) {
    std::printf("%s %.4f\n", ways[i].name,
                num_bytes * passes * num_threads / 1e9 / Median(seconds[i]));
  }
}
