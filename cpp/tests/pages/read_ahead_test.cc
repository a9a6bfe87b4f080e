#include "pages/read_ahead.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "caught.h"
#include "draws.h"

namespace torchparquet {
namespace {

using testing::Draws;
using testing::Throws;
using Bytes = std::vector<uint8_t>;

// A file whose content can be changed under a reader.
class ChangingFile {
 public:
  explicit ChangingFile(const Bytes& bytes) {
    std::string name =
        (std::filesystem::temp_directory_path() / "torchparquet-XXXXXX").string();
    const int descriptor = mkstemp(name.data());
    REQUIRE(descriptor >= 0);
    close(descriptor);
    path_ = name;
    Write(bytes);
  }
  ~ChangingFile() { std::filesystem::remove(path_); }
  ChangingFile(const ChangingFile&) = delete;
  ChangingFile& operator=(const ChangingFile&) = delete;

  void Write(const Bytes& bytes) {
    std::ofstream out(path_, std::ios::binary | std::ios::trunc);
    out.write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
  }
  void Truncate(int64_t num_bytes) {
    std::filesystem::resize_file(path_, static_cast<uintmax_t>(num_bytes));
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// True if the bytes from `begin` on are those of `first` up to `border`, then of
// `second`.
bool IsMixOf(std::span<const uint8_t> view, int64_t begin, const Bytes& first,
             int64_t border, const Bytes& second) {
  for (size_t i = 0; i < view.size(); ++i) {
    const auto place = static_cast<size_t>(begin) + i;
    const Bytes& source = static_cast<int64_t>(place) < border ? first : second;
    if (view[i] != source[place]) return false;
  }
  return true;
}

bool IsFrom(std::span<const uint8_t> view, int64_t begin, const Bytes& bytes) {
  return IsMixOf(view, begin, bytes, 0, bytes);
}

// Loads the bytes after the view, which have no meaning.
bool HasPadding(std::span<const uint8_t> view, const ScratchBuffer& memory) {
  Bytes loaded(static_cast<size_t>(kPaddingBytes));
  std::memcpy(loaded.data(), view.data() + view.size(), loaded.size());
  return view.data() >= memory.data() &&
         view.data() + view.size() + loaded.size() <= memory.data() + memory.capacity();
}

// A reader ahead in a file of random bytes, and other bytes to replace them with.
struct Setting {
  explicit Setting(uint64_t seed, int64_t num_bytes)
      : draws(seed),
        before(testing::RandomBytes(draws, num_bytes)),
        after(before),
        file(before),
        source(file.path(), {}),
        read_ahead(&source) {
    for (uint8_t& byte : after) byte = static_cast<uint8_t>(~byte);
    read_ahead.Use(&memory);
  }

  Draws draws;
  Bytes before;
  Bytes after;  // differs from `before` in every byte
  ChangingFile file;
  LocalFile source;
  ScratchBuffer memory;
  ReadAhead read_ahead;
};

TEST_CASE("views in any order are the file's bytes, with room after them") {
  constexpr int64_t kFileBytes = 50'000;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Setting setting(seed, kFileBytes);
    Draws& draws = setting.draws;
    ScratchBuffer other_memory;
    ScratchBuffer* memory = &setting.memory;
    int64_t last_end = 0;
    for (int step = 0; step < 400; ++step) {
      // Mostly onwards from the last view, as pages are read.
      const int64_t offset = draws.OneIn(4)
                                 ? draws.Between(0, kFileBytes)
                                 : std::min(last_end + draws.Below(100), kFileBytes);
      const int64_t most =
          std::min<int64_t>(kFileBytes - offset, draws.OneIn(5) ? 9000 : 300);
      const int64_t num_bytes =
          draws.OneIn(8) ? std::min<int64_t>(512, most) : draws.Between(0, most);
      const int64_t ahead_end =
          draws.OneIn(3) ? 0 : std::min<int64_t>(offset + draws.Below(5000), kFileBytes);
      const auto view = setting.read_ahead.View({offset, num_bytes}, ahead_end);
      REQUIRE(static_cast<int64_t>(view.size()) == num_bytes);
      REQUIRE(IsFrom(view, offset, setting.before));
      REQUIRE(HasPadding(view, *memory));
      last_end = offset + num_bytes;
      if (!draws.OneIn(20)) continue;
      // Anyone may write to memory that is taken from the reader ahead.
      std::memset(memory->data(), 0xEE, memory->capacity());
      memory = draws.OneIn(2) ? &setting.memory : &other_memory;
      setting.read_ahead.Use(memory);
    }
  }
}

// A file with some stretches of 1,000 bytes that it lends, with padding, until they are
// given back.
class LendingFile : public Source {
 public:
  explicit LendingFile(Bytes bytes) : Source("lent"), bytes_(std::move(bytes)) {
    Identify({.num_bytes = std::ssize(bytes_)}, {});
  }

  void ReadAt(int64_t offset, int64_t num_bytes, uint8_t* out) const override {
    std::copy_n(bytes_.data() + offset, num_bytes, out);
  }
  std::shared_ptr<const uint8_t> Borrow(const ByteRange& range) const override {
    const int64_t number = range.offset / 1000;
    if (number % 3 == 0 || range.end() > (number + 1) * 1000) return nullptr;
    const auto copy =
        std::make_shared<Bytes>(static_cast<size_t>(range.num_bytes + kPaddingBytes));
    ReadAt(range.offset, range.num_bytes, copy->data());
    ++num_lent;
    return {copy, copy->data()};
  }

  mutable int64_t num_lent = 0;

 private:
  const Bytes bytes_;
};

TEST_CASE("views of bytes that the file lends are the file's too, each counted once") {
  constexpr int64_t kFileBytes = 50'000;
  Draws draws(9);
  const Bytes bytes = testing::RandomBytes(draws, kFileBytes);
  const LendingFile file(bytes);
  ScratchBuffer memory;
  TaskCosts costs;
  for (int pass = 0; pass < 50; ++pass) {
    ReadAhead read_ahead(&file);
    read_ahead.Use(&memory);
    read_ahead.CountIn(&costs);
    costs = {};
    for (int64_t offset = 0; offset < kFileBytes;) {
      const int64_t left = kFileBytes - offset;
      const int64_t num_bytes = std::min(left, draws.Between(1, 700));
      const int64_t ahead_end = offset + std::min(left, draws.Between(1, 900));
      const auto view = read_ahead.View({offset, num_bytes}, ahead_end);
      REQUIRE(IsFrom(view, offset, bytes));
      REQUIRE(IsFrom(read_ahead.HeldFrom(offset), offset, bytes));
      Bytes padding(static_cast<size_t>(kPaddingBytes));
      std::memcpy(padding.data(), view.data() + view.size(), padding.size());
      // On from within the view, as a page goes on after its header.
      offset += draws.Between(1, num_bytes);
    }
    CHECK(costs.bytes_read >= kFileBytes);
    // Bytes that were lent are read again if what comes after them is not.
    CHECK(costs.bytes_read < 2 * kFileBytes);
  }
  CHECK(file.num_lent > 100);
}

TEST_CASE("a view that fills its memory to the last byte has room after it") {
  for (const int64_t num_bytes : {448, 449, 512, 960, 1024, 4096 - 64, 4096}) {
    Setting setting(1, 10'000);
    const auto view = setting.read_ahead.View({100, num_bytes}, 0);
    CHECK(IsFrom(view, 100, setting.before));
    CHECK(HasPadding(view, setting.memory));
    const auto at_end = setting.read_ahead.View({10'000 - num_bytes, num_bytes}, 10'000);
    CHECK(IsFrom(at_end, 10'000 - num_bytes, setting.before));
    CHECK(HasPadding(at_end, setting.memory));
  }
}

TEST_CASE("what was read ahead is held, to its end and not beyond") {
  for (const int64_t ahead_end : {0, 1200, 1500, 1501, 3000}) {
    CAPTURE(ahead_end);
    Setting setting(2, 5000);
    setting.memory.Reserve(8192);
    const int64_t held_end = std::max<int64_t>(ahead_end, 1200);
    setting.read_ahead.View({1000, 200}, ahead_end);
    setting.file.Write(setting.after);
    CHECK(IsFrom(setting.read_ahead.View({1000, held_end - 1000}, 0), 1000,
                 setting.before));
    CHECK(IsFrom(setting.read_ahead.View({held_end - 1, 1}, 0), held_end - 1,
                 setting.before));
    CHECK(IsFrom(setting.read_ahead.View({1100, 50}, 5000), 1100, setting.before));
    CHECK(IsMixOf(setting.read_ahead.View({1050, held_end + 100 - 1050}, 0), 1050,
                  setting.before, held_end, setting.after));
  }
}

TEST_CASE("reading ahead needs no byte after its end") {
  Setting setting(3, 5000);
  setting.file.Truncate(2000);
  CHECK(IsFrom(setting.read_ahead.View({1000, 100}, 2000), 1000, setting.before));
  setting.read_ahead.Use(&setting.memory);
  CHECK(Throws(ErrorKind::kCorruptFile,
               [&] { setting.read_ahead.View({1000, 100}, 2001); }));
}

TEST_CASE("what a view and those held before it share is not read again") {
  Setting setting(4, 5000);
  setting.memory.Reserve(4096);
  setting.read_ahead.View({1000, 10}, 2000);
  setting.file.Write(setting.after);
  // After the middle of what is held: the rest of it moves to the front.
  CHECK(IsMixOf(setting.read_ahead.View({1700, 800}, 2600), 1700, setting.before, 2000,
                setting.after));
  setting.file.Write(setting.before);
  CHECK(IsMixOf(setting.read_ahead.View({1990, 600}, 0), 1990, setting.before, 2000,
                setting.after));
  // A view right before or right after the held bytes is read whole.
  CHECK(IsFrom(setting.read_ahead.View({1699, 900}, 0), 1699, setting.before));
  setting.file.Write(setting.after);
  CHECK(IsFrom(setting.read_ahead.View({2599, 10}, 0), 2599, setting.after));
}

TEST_CASE("a view near the front of the held bytes grows after them if there is room") {
  Setting setting(9, 50'000);
  setting.memory.Reserve(8192);
  const auto header = setting.read_ahead.View({1000, 30}, 2000);
  const uint8_t* front = header.data();
  setting.file.Write(setting.after);
  const auto body = setting.read_ahead.View({1030, 3000}, 0);
  CHECK(IsMixOf(body, 1030, setting.before, 2000, setting.after));
  CHECK(body.data() == front + 30);
  CHECK(IsMixOf(setting.read_ahead.View({1000, 3030}, 0), 1000, setting.before, 2000,
                setting.after));
  // No room after it, so it moves.
  const auto all = setting.read_ahead.View({1030, 8192 - 64}, 0);
  CHECK(IsMixOf(all, 1030, setting.before, 2000, setting.after));
  CHECK(all.data() == front);
  CHECK(HasPadding(all, setting.memory));
}

TEST_CASE("memory that grows is filled anew") {
  Setting setting(5, 50'000);
  setting.read_ahead.View({1000, 100}, 1300);
  REQUIRE(setting.memory.capacity() < 1000);
  setting.file.Write(setting.after);
  const auto view = setting.read_ahead.View({1100, 20'000}, 0);
  CHECK(IsFrom(view, 1100, setting.after));
  CHECK(HasPadding(view, setting.memory));
  // And held from then on.
  setting.file.Write(setting.before);
  CHECK(IsFrom(setting.read_ahead.View({15'000, 6000}, 0), 15'000, setting.after));
}

TEST_CASE("Use forgets what is held, also in the same memory") {
  Setting setting(6, 5000);
  ScratchBuffer other;
  setting.read_ahead.View({1000, 500}, 0);
  setting.file.Write(setting.after);
  setting.read_ahead.Use(&setting.memory);
  CHECK(IsFrom(setting.read_ahead.View({1000, 500}, 0), 1000, setting.after));
  setting.file.Write(setting.before);
  setting.read_ahead.Use(&other);
  const auto view = setting.read_ahead.View({1200, 100}, 0);
  CHECK(IsFrom(view, 1200, setting.before));
  CHECK(HasPadding(view, other));
}

TEST_CASE("a view of no bytes is one at any place") {
  Setting setting(7, 1000);
  for (const int64_t offset : {0, 500, 1000}) {
    const auto view = setting.read_ahead.View({offset, 0}, 0);
    CHECK(view.empty());
    CHECK(HasPadding(view, setting.memory));
  }
  setting.read_ahead.View({0, 300}, 0);
  CHECK(setting.read_ahead.View({300, 0}, 0).empty());
  CHECK(IsFrom(setting.read_ahead.View({200, 100}, 0), 200, setting.before));
}

TEST_CASE("after a read that failed nothing stale is left") {
  for (const bool grows : {false, true}) {
    CAPTURE(grows);
    Setting setting(8, 50'000);
    const int64_t more_bytes = grows ? 20'000 : 300;
    setting.read_ahead.View({1000, 300}, 0);
    setting.file.Truncate(1250);
    CHECK(Throws(ErrorKind::kCorruptFile,
                 [&] { setting.read_ahead.View({1200, more_bytes}, 0); }));
    CHECK(Throws(ErrorKind::kCorruptFile,
                 [&] { setting.read_ahead.View({1100, 200}, 0); }));
    setting.file.Write(setting.after);
    for (const int64_t offset : {1000, 1100, 1200, 1300}) {
      CAPTURE(offset);
      CHECK(IsFrom(setting.read_ahead.View({offset, 150}, 0), offset, setting.after));
    }
    CHECK(IsFrom(setting.read_ahead.View({1200, more_bytes}, 0), 1200, setting.after));
  }
}

}  // namespace
}  // namespace torchparquet
